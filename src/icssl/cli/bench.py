"""``icssl bench``."""

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

from icssl.cli.bench_scale import scale
from icssl.cli.common import (
    Console,
    Log,
    check_folder,
    counts,
    file_errors,
    names,
    user_errors,
)

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
        from icssl.experiments.store import Store
        from icssl.real.bench import trials_of
        from icssl.real.peers import methods_named

        check_folder(output)
        halves = _halves(half, sets)
        named = methods_named(names(methods))
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
    from icssl.errors import check_choice
    from icssl.real.suite import HALVES

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
    from icssl.real.bench import run_missing

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
    from icssl.real.pages import write_half

    with console.status("drawing ..."):
        for half, own in trials.items():
            rows = [store[trial.key] for trial in own if trial.key in store]
            page = write_half(half, rows, len(own), folder)
            if page is None:
                console.print(f"{half}: no context has a row of every method yet.")
            else:
                console.print(f"{page}", markup=False, soft_wrap=True)
