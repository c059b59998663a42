"""``icssl pretrain``."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from icssl.cli.common import Console, check_folder, user_errors

_LOGGED = 200  # steps between lines where there is no terminal


def pretrain(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for checkpoint and weights.")
    ] = Path("icssl-pretraining"),
    steps: Annotated[int, typer.Option(min=1, help="Batches of synthetic tables.")] = 6000,
    batch: Annotated[int, typer.Option(min=1, help="Tables of one shape in a batch.")] = 8,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after so long; run the same command to go on."),
    ] = None,
) -> None:
    """Train the weights of ICSSLClassifier, on synthetic tables alone.

    Three gates are trained at once, each from its own start, on the same tables; a moving
    average of their weights is kept, and a temperature is fitted to tables that none of
    them saw. Writes tables.safetensors, which ICSSLClassifier(model=FILE) reads.

    On several GPUs: torchrun --nproc-per-node 4 -m icssl pretrain --device cuda. The
    processes share every batch, so that the weights are the same but for rounding.
    """
    from dataclasses import asdict

    from icssl.errors import check_device
    from icssl.training.pretrain import PretrainConfig
    from icssl.training.processes import processes_of_torchrun
    from icssl.weights.released import RELEASED, save_context_model

    with user_errors():
        check_device(device)
        check_folder(output)
    config = PretrainConfig(steps=steps, batch=batch, seed=seed)
    with (
        user_errors() as all_checked,
        processes_of_torchrun(device) as (processes, own_device),
    ):
        console = Console(quiet=not processes.first)
        model = _with_a_bar(
            console,
            config,
            all_checked,
            device=own_device,
            checkpoint=output / "checkpoint.safetensors",
            minutes=minutes,
            processes=processes,
        )
        if model is None:
            console.print("Not done yet: run the same command again to go on.")
        elif processes.first:
            path = output / RELEASED
            save_context_model(model, path, training=asdict(config))
            console.print(f"{path}", markup=False)


def _with_a_bar(
    console: Console, config: Any, all_checked: Callable[[], None], **options: Any
) -> Any:
    """Pretrain and show how it goes on, in lines where there is no terminal."""
    from icssl.training.pretrain import pretrain as run

    columns = (
        MofNCompleteColumn(),
        BarColumn(20),
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=config.steps, loss="")

        def told(progress: Any) -> None:
            all_checked()  # a step was made
            text = f"loss {progress.loss:.3f}"
            bar.update(task, completed=progress.step, loss=text)
            if not console.is_terminal and progress.step % _LOGGED == 0:
                done = f"{progress.step}/{config.steps}"
                console.print(f"{done} {text} {progress.seconds:.0f} s")

        try:
            return run(config, report=told, **options)
        except KeyboardInterrupt:
            bar.stop()
            console.print("Interrupted. The same command goes on from the last minute.")
            raise typer.Exit(130) from None
