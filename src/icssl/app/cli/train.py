"""The commands `icssl train` and `icssl pretrain`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from icssl.app.cli.common import Console, check_folder, say, show_progress, user_errors

_CONFIG = typer.Argument(
    help="A TOML file, or a preset, such as e2e_icl, e2e_encoder, transformer or paper: "
    "docs/training.md lists them. With --resume it can be left out, since the checkpoint "
    "holds the configuration."
)
_OVERRIDES = typer.Argument(
    metavar="KEY=VALUE ...",
    help="Values for any fields of the configuration, for example steps=500 model.k=12 "
    "data.sources=torus,sphere labels=3,10,39 learning_rate=3e-3.",
)


def train(
    config: Annotated[str | None, _CONFIG] = None,
    overrides: Annotated[list[str] | None, _OVERRIDES] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Write checkpoints, events and models to this folder."
        ),
    ] = Path("icssl-run"),
    seeds: Annotated[
        int, typer.Option(min=1, help="Train this many models at once, one seed each.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option(help="Continue from the checkpoint in the folder.")
    ] = False,
    extend_to: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --resume: make so many steps in all, more than the run had."
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="Start from the weights of this model, a file or a folder of another run."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: cpu or cuda.")] = "cpu",
    mode: Annotated[
        str | None,
        typer.Option(
            help="How steps are executed: eager, or graph (a CUDA graph, on a GPU only).",
            show_default="by device",
        ),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Number of steps between checkpoints.")
    ] = 500,
    deterministic: Annotated[
        bool,
        typer.Option(help="On a GPU, compute the same bits every time, more slowly."),
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
    """Train a model on episodes, or several models with different seeds at once.

    A run that was killed continues with icssl train --resume --output FOLDER, and ends with
    the same weights as a run that was not interrupted. icssl train PRESET --show prints the
    fields of a configuration and their values; docs/training.md says what they mean. A TOML
    file holds the same fields, with tables model and data; preset = "e2e_icl" in it starts
    from a preset.
    """
    from icssl.training.checkpoint import NAME as CHECKPOINT

    console = Console(stderr=True)
    with user_errors():
        configs = _configs(config, overrides or [], seeds, output if resume else None)
        if extend_to is not None:
            configs = _extend_runs(configs, extend_to, resume)
        configs[0].data.build()  # refuses a misspelt source before anything is printed
        if show:
            typer.echo(_as_toml(configs[0].to_dict(complete=True)))
            return
        check_folder(output)
        if (output / CHECKPOINT).exists() and not resume:
            raise ValueError(
                f"{output} holds a run already: add --resume to go on with it, or give "
                "another folder with --output."
            )
        writer = _event_writer(output, tensorboard, console)
        if resume:
            console.print(_resumed_from(output / CHECKPOINT, configs[0].steps))
    options = {"resume": resume, "device": device, "mode": mode, "start": start}
    options |= {"checkpoint_every": checkpoint_every, "deterministic": deterministic}
    _run(console, configs, output, writer, options)
    for path in sorted(output.glob("model*.safetensors")):
        say(f"Model: {path}")


def _run(
    console: Console,
    configs: list[Any],
    output: Path,
    writer: Callable[[Any], None],
    options: dict[str, Any],
) -> None:
    """Train below a progress bar; the last line with loss and accuracy stays."""
    from icssl.training.loop import NonFiniteLossError
    from icssl.training.loop import train as run

    interrupted = f"Interrupted. Add --resume to go on from {output}."
    last = ""

    def report(progress: Any) -> None:
        nonlocal last
        all_checked()  # a step was made
        last = _loss_and_accuracy(progress)
        show(progress.step, progress.steps, last, seconds_left=progress.seconds_left)
        writer(progress)

    try:
        with (
            user_errors() as all_checked,
            show_progress(console, interrupted=interrupted) as show,
        ):
            run(configs, output=output, report=report, **options)
    except NonFiniteLossError as error:
        say(f"Stopped: {error}", err=True)
        raise typer.Exit(1) from error
    if last:
        steps = f"{configs[0].steps:,}"
        console.print(f"step {steps} of {steps}  {last}", highlight=False)


def _configs(
    name: str | None, overrides: list[str], seeds: int, resumed: Path | None
) -> list[Any]:
    """Return one configuration per model, each with its seed.

    Without a name they are those of the run that is resumed.
    """
    from icssl.training.checkpoint import NAME, configs_of_checkpoint
    from icssl.training.config import load_config
    from icssl.training.presets import PRESETS

    if name is not None and Path(name).is_dir():
        raise ValueError(
            f"{name} is a folder and no configuration: icssl train --resume --output "
            f"{name} goes on with the run in it."
        )
    if name is not None:
        first = load_config(name, overrides)
        return [replace(first, seed=first.seed + i) for i in range(seeds)]
    wanted = f"a TOML file or one of {', '.join(PRESETS)}"
    if resumed is None:
        raise ValueError(f"nothing says what to train: give {wanted}.")
    if not (resumed / NAME).exists():
        raise ValueError(f"{resumed} holds no checkpoint to go on from: give {wanted}.")
    return configs_of_checkpoint(resumed / NAME)


def _extend_runs(configs: list[Any], steps: int, resume: bool) -> list[Any]:
    """Return the configurations of a run with more steps."""
    if not resume:
        raise ValueError("--extend-to needs --resume: it extends a run that exists.")
    if steps <= configs[0].steps:
        raise ValueError(
            f"--extend-to {steps} is not more than the {configs[0].steps} steps of the run."
        )
    return [replace(config, steps=steps) for config in configs]


def _resumed_from(checkpoint: Path, steps: int) -> str:
    """Return the line that says where a resumed run goes on."""
    if not checkpoint.exists():
        return f"No checkpoint in {checkpoint.parent}: starting at the first step."
    try:
        step = json.loads(checkpoint.with_suffix(".json").read_text())["step"]
    except (OSError, ValueError, KeyError):  # the file is for people; training needs none
        return f"Resuming from {checkpoint}."
    return f"Resuming after step {step:,} of {steps:,}."


def _loss_and_accuracy(progress: Any) -> str:
    """Return the text that stands beside the bar."""
    loss = sum(progress.loss) / len(progress.loss)
    accuracy = sum(progress.accuracy) / len(progress.accuracy)
    rate = progress.episodes_per_second
    return f"loss {loss:.3f}  accuracy {accuracy:.3f}  {rate:,.0f} episodes/s"


def _event_writer(output: Path, wanted: bool, console: Console) -> Callable[[Any], None]:
    """Return the writer of events; without TensorBoard, print so and write none."""
    from icssl.training.loop import EventWriter

    if wanted:
        try:
            return EventWriter(output / "events")
        except ImportError as error:
            console.print(f"No events: {error}", markup=False)
    return lambda _: None


def _as_toml(values: dict[str, Any]) -> str:
    """Return a configuration as TOML, without unset fields: TOML has no null."""
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
    if isinstance(value, str):  # a JSON string is a TOML string too
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def pretrain(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Write the checkpoint and the weights to this folder."
        ),
    ] = Path("icssl-pretraining"),
    steps: Annotated[
        int, typer.Option(min=1, help="Number of batches of synthetic tables.")
    ] = 1000,
    batch: Annotated[
        int, typer.Option(min=1, help="Number of tables per batch, all of one shape.")
    ] = 64,
    draws: Annotated[
        int,
        typer.Option(min=1, help="How often each table gets labels: once per context."),
    ] = 4,
    members: Annotated[
        int,
        typer.Option(min=1, help="Gates to train, each in a process, on its own tables."),
    ] = 4,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the tables and of the weights.")
    ] = 0,
    device: Annotated[str, typer.Option(help="Device: cpu or cuda.")] = "cpu",
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Stop after this many minutes; run the same command again to continue.",
        ),
    ] = None,
) -> None:
    """Train the weights of ICSSLClassifier, on synthetic tables alone.

    Four gates are trained at once, each in a process of its own and on its own tables, and
    a moving average of their weights is kept. The command writes tables.safetensors, for
    ICSSLClassifier(model=FILE).

    On several GPUs: torchrun --nproc-per-node 4 -m icssl pretrain --device cuda. The
    processes then share every batch, and each trains all gates.
    """
    from dataclasses import asdict, replace

    from icssl._util.errors import check_device
    from icssl.classifier.pretraining.members import pretrain_members
    from icssl.classifier.pretraining.processes import processes_of_torchrun
    from icssl.classifier.pretraining.train import PretrainConfig
    from icssl.classifier.pretraining.train import pretrain as run
    from icssl.classifier.weights import RELEASED, save_context_model

    with user_errors():
        check_device(device)
        check_folder(output)
    config = PretrainConfig(steps=steps, batch=batch, draws=draws, seed=seed)
    config = replace(config, model=replace(config.model, members=members))
    interrupted = "Interrupted. The same command goes on from the last minute."
    with (
        user_errors() as all_checked,
        processes_of_torchrun(device) as (processes, own_device),
    ):
        console = Console(quiet=not processes.first)
        with show_progress(console, interrupted=interrupted) as show:

            def report(progress: Any) -> None:
                all_checked()  # a step was made
                show(progress.step, config.steps, f"loss {progress.loss:.3f}")

            if processes.count == 1 and members > 1:
                model = pretrain_members(
                    config, output, device=own_device, minutes=minutes, report=report
                )
            else:
                model = run(
                    config,
                    device=own_device,
                    checkpoint=output / "checkpoint.safetensors",
                    minutes=minutes,
                    processes=processes,
                    report=report,
                )
        if model is None:
            console.print("Not done yet: run the same command again to go on.")
        elif processes.first:
            path = output / RELEASED
            save_context_model(model, path, training=asdict(config))
            console.print(f"{path}", soft_wrap=True)
