"""Progress as TensorBoard events."""

from functools import partial
from pathlib import Path

from icssl.training.loop import Progress


class EventWriter:
    """Writes what it is told of a run's progress to event files.

    Parameters
    ----------
    folder : Path
        Made with the first event. Events of that step and of later ones that stand there,
        from a run that was killed, are marked as gone.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard events need tensorboard: pip install 'icssl[train]'."
            ) from error
        self._make_writer = partial(SummaryWriter, str(folder))
        self._writer: SummaryWriter | None = None

    def __call__(self, progress: Progress) -> None:
        """Add loss, accuracy, gradient length and rate after a step."""
        if self._writer is None:
            self._writer = self._make_writer(purge_step=progress.step)
        values = {"loss": progress.loss, "accuracy": progress.accuracy}
        values["gradient"] = progress.gradient
        for name, by_model in values.items():
            for i, value in enumerate(by_model):
                tag = name if len(by_model) == 1 else f"{name}/{i}"
                self._writer.add_scalar(tag, value, progress.step)
        rate = progress.episodes_per_second
        self._writer.add_scalar("episodes_per_second", rate, progress.step)
        self._writer.flush()
