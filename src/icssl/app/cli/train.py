"""The commands `icssl train` and `icssl pretrain`."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from icssl.app.cli.common import Console, check_folder, say, user_errors


def train(
    config: Annotated[
        str | None,
        typer.Argument(
            help="A TOML file, or a preset: e2e_icl, e2e_wide, e2e_encoder, eig_icl, "
            "orig_icl, transformer, transformer_unscaled, lap_linear, lap_pe_1layer, "
            "paper. With --resume it can be left out: the checkpoint keeps it."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE ...",
            help="Any field, for example steps=500 model.k=12 data.sources=torus,sphere "
            "labels=3,10,39 learning_rate=3e-3.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for checkpoints, events, models.")
    ] = Path("icssl-run"),
    seeds: Annotated[
        int, typer.Option(min=1, help="Train so many models at once, a seed each.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option(help="Go on from the checkpoint in the folder.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    mode: Annotated[
        str | None,
        typer.Option(help="eager, or graph on a GPU.", show_default="by device"),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Steps between checkpoints.")
    ] = 500,
    deterministic: Annotated[
        bool, typer.Option(help="On a GPU: the same bits every time, more slowly.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option(help="Write events for TensorBoard to the folder.")
    ] = True,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Print the configuration, as TOML ready to be edited, and stop."
        ),
    ] = False,
) -> None:
    """Train a model on episodes, or several with different seeds at once.

    A killed run goes on with icssl train --resume --output FOLDER and ends with the same
    weights as one that was not interrupted. The fields of a configuration and their values:
    icssl train PRESET --show; what they mean: docs/training.md.
    A file holds the same fields, with tables model and data; preset = "e2e_icl"
    starts from a preset.
    """
    from icssl.training.checkpoint import NAME as CHECKPOINT
    from icssl.training.loop import NonFiniteLossError
    from icssl.training.loop import train as run

    console = Console(stderr=True)
    with user_errors():
        configs = _configs(config, overrides or [], seeds, output if resume else None)
        steps = configs[0].steps
        if show:
            typer.echo(_as_toml(configs[0].to_dict()))
            return
        check_folder(output)
        if (output / CHECKPOINT).exists() and not resume:
            raise ValueError(
                f"{output} holds a run already: add --resume to go on with it, or give "
                "another folder with --output."
            )
        writer = _event_writer(output, tensorboard, console)
        if resume:
            console.print(_where(output / CHECKPOINT, steps), markup=False)
    log = _Log(console)
    with _bar(console) as bar, user_errors() as all_checked:
        task = bar.add_task(config or output.name, total=steps, shown="")

        def report(progress: Any) -> None:
            all_checked()  # a step was made
            bar.update(task, completed=progress.step, shown=_shown(progress))
            log(progress)
            writer(progress)

        try:
            run(
                configs,
                output=output,
                resume=resume,
                device=device,
                mode=mode,
                checkpoint_every=checkpoint_every,
                deterministic=deterministic,
                report=report,
            )
        except NonFiniteLossError as error:
            bar.stop()
            say(f"Stopped: {error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            bar.stop()
            say(f"Interrupted. Add --resume to go on from {output}.", err=True)
            raise typer.Exit(130) from error
    for path in sorted(output.glob("model*.safetensors")):
        say(f"Model: {path}")


def _configs(
    name: str | None, overrides: list[str], seeds: int, resumed: Path | None
) -> list[Any]:
    """One a model, with a seed each; without a name, those of the run that is resumed."""
    from icssl.training.checkpoint import NAME, configs_of_checkpoint
    from icssl.training.config import PRESETS, load_config

    if name is not None:
        first = load_config(name, overrides)
        return [replace(first, seed=first.seed + i) for i in range(seeds)]
    wanted = f"a TOML file or one of {', '.join(PRESETS)}"
    if resumed is None:
        raise ValueError(f"nothing says what to train: give {wanted}.")
    if not (resumed / NAME).exists():
        raise ValueError(f"{resumed} holds no checkpoint to go on from: give {wanted}.")
    return configs_of_checkpoint(resumed / NAME)


def _where(checkpoint: Path, steps: int) -> str:
    """Where a resumed run goes on."""
    if not checkpoint.exists():
        return f"No checkpoint in {checkpoint.parent}: starting at the first step."
    try:
        step = json.loads(checkpoint.with_suffix(".json").read_text())["step"]
    except (OSError, ValueError, KeyError):  # written beside for people, not for us
        return f"Resuming from {checkpoint}."
    return f"Resuming after step {step:,} of {steps:,}."


class _Log:
    """A line at the end and, where no bar can be drawn, as in a file, every ten seconds."""

    def __init__(self, console: Console) -> None:
        self.console, self.last = console, time.monotonic()

    def __call__(self, progress: Any) -> None:
        done = progress.step == progress.steps
        due = time.monotonic() - self.last > 10 and not self.console.is_terminal
        if not (done or due):
            return
        self.last = time.monotonic()
        step = f"step {progress.step:,} of {progress.steps:,}"
        left = "" if done else f"  {progress.seconds_left:,.0f} s left"
        self.console.print(f"{step}  {_shown(progress)}{left}", markup=False)


def _shown(progress: Any) -> str:
    loss = sum(progress.loss) / len(progress.loss)
    accuracy = sum(progress.accuracy) / len(progress.accuracy)
    rate = progress.episodes_per_second
    return f"loss {loss:.3f}  accuracy {accuracy:.3f}  {rate:,.0f} episodes/s"


def _bar(console: Console) -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,  # nobody wants to read an error below a bar that stands still
    )


def _event_writer(output: Path, wanted: bool, console: Console) -> Callable[[Any], None]:
    """Events are a convenience: where TensorBoard is not installed, a line says so."""
    from icssl.training.loop import EventWriter

    if wanted:
        try:
            return EventWriter(output / "events")
        except ImportError as error:
            console.print(f"No events: {error}", markup=False)
    return lambda _: None


def _as_toml(values: dict[str, Any]) -> str:
    """A configuration as TOML, without the unset fields, for which TOML has no word."""
    lines = [
        f"{k} = {_toml_value(v)}" for k, v in values.items() if not isinstance(v, dict)
    ]
    for name, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]"]
            lines += [f"{k} = {_toml_value(v)}" for k, v in table.items() if v is not None]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml_value(v) for v in value)}]"
    if isinstance(value, str):  # strings of JSON are strings of TOML
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


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

    from icssl._util.errors import check_device
    from icssl.classifier.pretraining.processes import processes_of_torchrun
    from icssl.classifier.pretraining.train import PretrainConfig
    from icssl.classifier.weights import RELEASED, save_context_model

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
    from icssl.classifier.pretraining.train import pretrain as run

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
