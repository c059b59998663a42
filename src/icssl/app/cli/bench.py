"""The commands `icssl bench real` and `icssl bench scale`."""

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from icssl.app.cli.common import (
    Console,
    Log,
    check_folder,
    counts,
    file_errors,
    names,
    user_errors,
)


def scale(
    sizes: Annotated[
        str, typer.Option(help="Numbers of rows, separated by commas.")
    ] = "1000,10000,100000",
    methods: Annotated[
        str,
        typer.Option(
            help="icssl, spreading_knn, spreading_rbf, laplace, poisson, by commas; or all."
        ),
    ] = "all",
    labels: Annotated[str, typer.Option(help="Labels a class, by commas.")] = "10",
    draws: Annotated[int, typer.Option(min=1, help="Choices of the labels.")] = 1,
    data: Annotated[
        str,
        typer.Option(help="clusters, which are made, or an .npz with arrays x and y."),
    ] = "clusters",
    device: Annotated[
        str, typer.Option(help="cpu or cuda, for ours; others run on the cores.")
    ] = "cpu",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of every process.", show_default="all cores")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for rows, table and figure.")
    ] = Path("results/scale"),
) -> None:
    """Measure time, memory and accuracy as the number of rows grows, beside other methods.

    Every method has the same rows and labels and runs in a process of its own. What the
    folder has is not measured again, what failed is; methods stop where memory or time
    forbid more rows.
    With a file of your own, give --sizes the number of its rows.
    """
    with user_errors():
        from icssl._util.errors import check_choice, check_device
        from icssl.bench.scale.run import (
            MADE,
            Trial,
            missing_of,
            run_missing,
            sizes_for,
            table_of,
        )
        from icssl.bench.store import Store
        from icssl.methods.registry import choose_methods

        check_folder(output)
        check_choice("device", device, ["cpu", "cuda"])
        check_device(device)
        wanted, per_class = counts("--sizes", sizes), counts("--labels", labels)
        if data != MADE:
            table_of(data, max(wanted))  # an unreadable file is told at once
        store = Store(output / "rows.jsonl")
        used = threads or os.cpu_count() or 1
        trials = [
            Trial(data, n, m, draw, method, device, used)
            for method in choose_methods("scale", names(methods), skip_missing=True)
            for n in sizes_for(method, wanted)
            for m in per_class
            for draw in range(draws)
        ]
    console = Console()
    missing = len(missing_of(trials, store))
    console.print(f"{missing} of {len(trials)} are to be measured.")

    def told(trial: Any, row: dict[str, Any]) -> None:
        if "error" in row:
            console.print(f"{trial}: {row['error']}", markup=False)
        else:
            numbers = f"{row['seconds']:.2f} s, {row['megabytes']:,} MB"
            console.print(f"{trial}: {numbers}, accuracy {row['accuracy']:.3f}")

    with file_errors():
        try:
            run_missing(trials, store, told)
        except KeyboardInterrupt:
            console.print("Interrupted: rows so far are stored. The same command goes on.")
            raise typer.Exit(130) from None
        _draw_scale(console, store, output)


def _draw_scale(console: Console, store: Any, folder: Path) -> None:
    from icssl.bench.scale.pages import growth_lines, write_scale

    for line in growth_lines(list(store)):
        console.print(line, markup=False, soft_wrap=True)
    for page in write_scale(list(store), folder):
        console.print(f"{page}", markup=False, soft_wrap=True)


bench = typer.Typer(help="Benchmarks.", no_args_is_help=True)
bench.command()(scale)
_PERIOD = 600.0  # seconds whose pace says what is left: sets differ much


@bench.callback()
def main() -> None:
    """Compare methods on data that were not made for them."""


@bench.command()
def real(
    half: Annotated[
        str,
        typer.Option(help="development, on which anything may be chosen; report; both."),
    ] = "both",
    methods: Annotated[
        str, typer.Option(help="Names, separated by commas; peers or all.")
    ] = "all",
    sets: Annotated[
        str | None, typer.Option(help="Only these sets of the half, by commas.")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Contexts of each kind.")] = 10,
    labels: Annotated[str, typer.Option(help="Labels a class.")] = "1,2,5,10",
    data: Annotated[
        Path, typer.Option(help="Folder that scripts/fetch_real_data.py filled.")
    ] = Path("data/real"),
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for rows, tables and figures.")
    ] = Path("results/real"),
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes.", show_default="all cores but one"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Start nothing more after so long; run again to go on."),
    ] = None,
    draw: Annotated[bool, typer.Option(help="Make tables and figures at the end.")] = True,
) -> None:
    """Compare with other methods on nineteen real datasets, with few labels.

    All methods are scored on the unlabelled rows of the same contexts, with 1, 2, 5 and 10
    labels a class. Every run ends in a row of rows.jsonl, found by a hash of all that
    decides it: what is there is not run again. Interrupt at any time and call it again.
    """
    with user_errors():
        from icssl.bench.real.run import trials_of
        from icssl.bench.store import Store
        from icssl.methods.registry import choose_methods

        check_folder(output)
        halves = _halves(half, sets)
        named = choose_methods("real", names(methods))
        per_class = counts("--labels", labels)
        store = Store(output / "rows.jsonl")
        trials = {
            name: trials_of(data, own, per_class, draws, named)
            for name, own in halves.items()
        }
    console = Console()
    everything = [trial for own in trials.values() for trial in own]
    everything.sort(key=lambda trial: trial.draw)  # both halves, as far as time allows
    limits = {"workers": workers or max(1, (os.cpu_count() or 2) - 1), "minutes": minutes}
    with file_errors():
        added = _run(console, everything, store, data, limits)
    there = sum(trial.key in store for trial in everything)
    console.print(f"{added} rows added, {there} of {len(everything)} are there.")
    if draw:
        with file_errors():
            _draw(console, trials, store, output)
    if there < len(everything):
        console.print("Run the same command again to go on.")


def _halves(half: str, sets: str | None) -> dict[str, tuple[str, ...]]:
    """The sets that were asked for, by half."""
    from icssl._util.errors import check_choice
    from icssl.bench.real.datasets import HALVES

    check_choice("half", half, [*HALVES, "both"])
    chosen = HALVES if half == "both" else {half: HALVES[half]}
    if sets is None:
        return chosen
    known = [name for own in chosen.values() for name in own]
    wanted = names(sets)
    for name in wanted:
        check_choice(f"set of the {half} half" if half != "both" else "set", name, known)
    found = {k: tuple(n for n in own if n in wanted) for k, own in chosen.items()}
    if not any(found.values()):
        raise ValueError("--sets names no set: leave it out to take all.")
    return {name: own for name, own in found.items() if own}


def _run(
    console: Console, trials: list[Any], store: Any, data: Path, limits: dict[str, Any]
) -> int:
    from icssl.bench.real.run import run_missing

    columns = (
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=_PERIOD
    ) as bar:
        missing = sum(trial.key not in store for trial in trials)
        task = bar.add_task("starting ...", total=missing)
        began, log = time.monotonic(), Log(console)

        def told(progress: Any) -> None:
            pace = (time.monotonic() - began) / max(1, progress.done)
            left = f"{pace * (progress.total - progress.done) / 60:.0f} min left"
            log(f"{progress.done}/{progress.total} {left} {progress.doing}")
            bar.update(task, completed=progress.done, description=progress.doing)

        try:
            return run_missing(trials, store, data, report=told, **limits)
        except KeyboardInterrupt:
            bar.stop()
            console.print("Interrupted: rows so far are stored. The same command goes on.")
            raise typer.Exit(130) from None


def _draw(console: Console, trials: dict[str, Any], store: Any, folder: Path) -> None:
    from icssl.bench.real.pages import write_half

    with console.status("drawing ..."):
        for half, own in trials.items():
            rows = [store[trial.key] for trial in own if trial.key in store]
            page = write_half(half, rows, len(own), folder)
            if page is None:
                console.print(f"{half}: no context has a row of every method yet.")
            else:
                console.print(f"{page}", markup=False, soft_wrap=True)
