"""The training loop, for one model or many of one architecture, and its TensorBoard log."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icssl._util.errors import check_at_least, check_device
from icssl.model.build import AnyModel, load_model
from icssl.training.checkpoint import NAME as CHECKPOINT
from icssl.training.checkpoint import load_checkpoint, save_checkpoint, save_models
from icssl.training.config import TrainConfig
from icssl.training.group import Group, check_episodes, episode_drawer
from icssl.training.step import AdamState, Step

_REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """Progress of a run, with loss and accuracy of the last step, model by model.

    The time left assumes the pace so far.
    """

    step: int
    steps: int
    loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    gradient: tuple[float, ...]
    episodes_per_second: float
    seconds_left: float


class OutOfMemoryError(ValueError):
    """Models and episodes that are trained at once do not fit the memory."""


class NonFiniteLossError(RuntimeError):
    """A loss or gradient was not finite; the state before it is in the run's folder."""


def train(
    configs: Sequence[TrainConfig],
    *,
    output: Path | None = None,
    resume: bool = False,
    start: Path | None = None,
    device: str = "cpu",
    mode: str | None = None,
    checkpoint_every: int = 500,
    deterministic: bool = False,
    report: Callable[[Progress], None] | None = None,
    observe: Mapping[int, Callable[[int, Tensor], None]] | None = None,
) -> list[AnyModel]:
    """Train models of one architecture at once and return them.

    Every batch is a function of (seed, step), so a run that is killed and resumed ends
    with the same weights, bit for bit, on the same machine (on a GPU, with
    ``deterministic``).

    Parameters
    ----------
    configs : sequence of TrainConfig
        One per model; see :class:`icssl.training.group.Group` for what may differ.
    output : Path, optional
        Folder for checkpoints and models.
    resume : bool
        Go on from the checkpoint in ``output``, where there is one. The configurations must
        be those of that run, but for more ``steps``: the run is then extended, with the
        schedule of the longer run from there on.
    start : Path, optional
        File or folder of a model of the same architecture whose weights training starts
        from, in place of random ones. A run that is resumed does not read it again.
    device : str
        Where training runs.
    mode : str, optional
        Mode of :class:`icssl.training.step.Step`; by default ``"graph"`` on a GPU and
        ``"eager"`` on a CPU.
    checkpoint_every : int
        Steps between checkpoints.
    deterministic : bool
        Use no operation whose result depends on the order of threads.
    report : callable, optional
        Called about twice a second with a :class:`Progress`.
    observe : mapping of int to callable, optional
        After these steps, called with the step and the weights, one row per model.
    """
    check_at_least("checkpoint_every", checkpoint_every, 1)
    _check_configs(configs)
    check_device(device)
    started = output is not None and (output / CHECKPOINT).exists()
    if started and not resume:
        raise ValueError(
            f"{output} holds a run already: resume it, or give another folder."
        )
    mode = mode or ("graph" if device.startswith("cuda") else "eager")
    with _deterministic(deterministic), _explaining_memory(configs[0]):
        group = Group(configs)
        check_episodes(group, device, one_shape=mode.endswith("graph"))
        draw = episode_drawer(configs, device)
        weights = _first_weights(group, start)
        steps_made, state = 0, AdamState.fresh(weights.to(device))
        if started and output is not None:
            steps_made, state = load_checkpoint(output, configs, device)
        step = Step(group, state, mode)
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)  # refused now and not after an hour
        saver = _Saver(group, state, output)
        report = report or (lambda _: None)
        try:
            _run(step, draw, steps_made, saver, checkpoint_every, report, observe or {})
        finally:
            step.release()
        return group.models_of(state.weights)


def _check_configs(configs: Any) -> None:
    """Raise an error that says how to call, unless there are configurations."""
    if isinstance(configs, (str, TrainConfig)):
        name = "load_config(...)" if isinstance(configs, str) else "config"
        raise TypeError(
            f"train takes a list of configurations, got {type(configs).__name__}: call "
            f"train([{name}])."
        )
    if not configs:
        raise ValueError("train needs at least one configuration, got none.")
    for config in configs:
        if not isinstance(config, TrainConfig):
            raise TypeError(
                f"train takes configurations, got {type(config).__name__}: make one with "
                "load_config('e2e_icl') or TrainConfig(...)."
            )


def _first_weights(group: Group, start: Path | None) -> Tensor:
    """Return random weights, one row per model, or those of a file for all of them."""
    weights = group.fresh_weights()
    if start is None:
        return weights
    row = group.row_of(load_model(start)).to(weights)
    return row.expand_as(weights).clone()


def _run(
    step: Step,
    draw: Callable[[int], Any],
    start: int,
    saver: "_Saver",
    checkpoint_every: int,
    report: Callable[[Progress], None],
    observe: Mapping[int, Callable[[int, Tensor], None]],
) -> None:
    steps = step.group.configs[0].steps
    began = reported = time.perf_counter()
    with _held_interrupts() as interrupts:
        for number in range(start, steps):
            step(number, draw(number))
            steps_made = number + 1
            if steps_made in observe:
                observe[steps_made](steps_made, step.state.weights)
            is_due = steps_made % checkpoint_every == 0 or steps_made == steps
            checkpoint = is_due or bool(interrupts)
            # Reading the loss waits for the device, so it is not read at every step.
            now = time.perf_counter()
            is_first = steps_made == start + 1
            if checkpoint or is_first or now - reported > _REPORT_SECONDS:
                _check_alive(step, saver)
                try:
                    report(_progress(step, steps_made, start, began))
                except KeyboardInterrupt:
                    interrupts.append(steps_made)
                reported = now
            if checkpoint or interrupts:
                _check_alive(step, saver)
                saver(steps_made)
            if interrupts:
                raise KeyboardInterrupt


def _check_alive(step: Step, saver: "_Saver") -> None:
    """Raise an error if a model has failed; its state is still that of before."""
    if bool(step.state.alive.all()):
        return
    failed = int((~step.state.alive).nonzero()[0])
    steps_made = int(step.state.steps[failed])
    # All rows of a checkpoint must be at one step: others are ahead of the one that failed.
    saved = saver.save_last_good(failed, steps_made)
    raise NonFiniteLossError(
        f"the loss or its gradient was not finite at step {steps_made + 1} of the model "
        f"with seed {step.group.configs[failed].seed}{saved}. "
        "A lower learning_rate or clip may help."
    )


def _progress(step: Step, steps_made: int, start: int, began: float) -> Progress:
    seconds = (time.perf_counter() - began) / (steps_made - start)
    configs = step.group.configs
    return Progress(
        step=steps_made,
        steps=configs[0].steps,
        loss=tuple(step.loss.tolist()),
        accuracy=tuple(step.accuracy.tolist()),
        gradient=tuple(step.length.tolist()),
        episodes_per_second=len(configs) * configs[0].batch / seconds,
        seconds_left=(configs[0].steps - steps_made) * seconds,
    )


@dataclass(frozen=True, eq=False)
class _Saver:
    """Writer of models and checkpoints; without a folder it writes nothing."""

    group: Group
    state: AdamState
    output: Path | None

    def __call__(self, step: int) -> None:
        if self.output is None:
            return
        configs = self.group.configs
        # The checkpoint last: a kill in between is a kill before this step.
        save_models(self.output, configs, self.group.models_of(self.state.weights), step)
        save_checkpoint(self.output, configs, step, self.state)

    def save_last_good(self, index: int, step: int) -> str:
        """Save the last good weights of a model that failed; return where, in words."""
        if self.output is None:
            return ""
        folder = self.output / "last-good"
        model = self.group.models_of(self.state.weights)[index]
        (path,) = save_models(folder, [self.group.configs[index]], [model], step)
        return f"; its weights after step {step} are in {path}"


@contextmanager
def _held_interrupts() -> Iterator[list[int]]:
    """Hold back Ctrl-C, so that a step is whole when it is saved.

    A second one is raised at once.
    """
    held: list[int] = []

    def hold(number: int, frame: Any) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    main = threading.current_thread() is threading.main_thread()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (main and usual):  # leave a handler alone that somebody else has set
        yield held
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _explaining_memory(config: TrainConfig) -> Iterator[None]:
    """Turn a lack of memory into an error that names the fields which ask for it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        words = ("allocate memory", "out of memory", "size calculation overflowed")
        if not any(word in str(error).lower() for word in words):
            raise
        raise OutOfMemoryError(
            f"batch={config.batch} episodes of data.n={config.data.n} points do not fit "
            "the memory: give a smaller batch, or fewer points."
        ) from error


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    """Let torch use deterministic algorithms alone inside the block, if it is wanted."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    # cuBLAS asks for it, and reads it once.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


class EventWriter:
    """Writer of a run's progress to TensorBoard event files.

    Parameters
    ----------
    folder : Path
        Folder that the first event makes. Events of that step and of later ones which a
        killed run left there are marked as gone.
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
