"""The commands `icssl bench real` and `icssl bench scale`, and the bar of all benches."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from icssl.app.cli.common import (
    Console,
    check_folder,
    counts,
    file_errors,
    names,
    show_progress,
    user_errors,
)
from icssl.app.cli.options_without_value import Command, Group

bench = typer.Typer(cls=Group, no_args_is_help=True)


@bench.callback()
def main() -> None:
    """Compare methods on real datasets, or as the number of rows grows."""


def run_below_bar(
    console: Console,
    run: Callable[..., int],
    on_row: Callable[[str, dict[str, Any]], None] = lambda title, row: None,
) -> list[str]:
    """Run what is missing below a bar, and return a line for each spec that failed.

    Parameters
    ----------
    console : Console
    run : callable
        Is called with ``report``, see :func:`icssl.bench.runner.run_missing`.
    on_row : callable, optional
        Is called with the title of a spec and its row when it was stored.
    """
    from icssl.bench.ray_runner import FailedSpecsError

    interrupted = "Interrupted: rows so far are stored. The same command goes on."
    with show_progress(console, interrupted=interrupted) as show:

        def on_progress(progress: Any) -> None:
            left = progress.seconds_left
            show(progress.done, progress.total, progress.doing, seconds_left=left)
            if progress.row is not None:
                on_row(progress.doing, progress.row)

        try:
            run(report=on_progress)
        except FailedSpecsError as error:
            return str(error).splitlines()
    return []


@bench.command(cls=Command)
def scale(
    sizes: Annotated[
        str, typer.Option(help="Numbers of rows, separated by commas.")
    ] = "1000,10000,100000",
    methods: Annotated[
        str,
        typer.Option(
            help="Names, separated by commas; all stands for those that can run here. A "
            "name that does not exist is answered with those that do."
        ),
    ] = "all",
    labels: Annotated[
        str, typer.Option(help="Labels per class, separated by commas.")
    ] = "10",
    draws: Annotated[int, typer.Option(min=1, help="Random choices of the labels.")] = 1,
    data: Annotated[
        str,
        typer.Option(
            help="Table: clusters, which is made, or an .npz file with arrays x and y."
        ),
    ] = "clusters",
    device: Annotated[
        str,
        typer.Option(help="Device of icssl: cpu or cuda. Other methods run on the CPU."),
    ] = "cpu",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads per process.", show_default="all cores"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for rows, table and figure.")
    ] = Path("results/scale"),
) -> None:
    """Measure time, memory and accuracy as the number of rows grows, beside other methods.

    Every method has the same rows and labels and runs in a process of its own. What the
    folder already has is not measured again; what failed is. Methods stop where memory or
    time do not allow more rows.
    With a file of your own, give --sizes the number of its rows.
    """
    with user_errors():
        from icssl._util.errors import check_choice, check_device
        from icssl.bench.pool import Pool
        from icssl.bench.runner import missing_of, run_missing
        from icssl.bench.scale.cost import MADE, specs_of, table_of
        from icssl.bench.store import Store
        from icssl.methods.registry import choose_methods

        check_folder(output)
        check_choice("device", device, ["cpu", "cuda"])
        check_device(device)
        wanted, per_class = counts("--sizes", sizes), counts("--labels", labels)
        if data != MADE:
            table_of(data, max(wanted))  # an unreadable file is refused at once
        store = Store(output / "rows.jsonl")
        chosen = choose_methods("scale", names(methods), skip_missing=True)
        cores = threads or os.cpu_count() or 1
        machine = {"data": data, "device": device, "threads": cores}
        specs = specs_of(chosen, wanted, per_class, draws, **machine)
    console = Console()
    missing = len(missing_of(specs, store, retry_failed=True))
    console.print(f"{missing} of {len(specs)} are to be measured.")
    pool = Pool(workers=1, threads=None, is_fresh=True)
    run = partial(run_missing, specs, store, executor=pool, retry_failed=True)
    with file_errors():
        run_below_bar(console, run, partial(_print_row, console))
        _draw_scale(console, store, output)


def _print_row(console: Console, title: str, row: dict[str, Any]) -> None:
    if "error" in row:
        console.print(f"{title}: {row['error']}", markup=False)
        return
    numbers = f"{row['seconds']:.2f} s, {row['megabytes']:,} MB"
    console.print(f"{title}: {numbers}, accuracy {row['accuracy']:.3f}")


def _draw_scale(console: Console, store: Any, folder: Path) -> None:
    from icssl.bench.scale.growth import growth_lines, write_scale

    _print_lines(console, growth_lines(list(store)))
    _print_lines(console, write_scale(list(store), folder))


def _print_lines(console: Console, lines: Iterable[object]) -> None:
    for line in lines:
        console.print(f"{line}", markup=False, soft_wrap=True)


@bench.command(cls=Command)
def real(
    half: Annotated[
        str,
        typer.Option(
            help="Half of the datasets: development (on which anything may be chosen), "
            "report or both."
        ),
    ] = "both",
    protocol: Annotated[
        str,
        typer.Option(
            help="How rows get their labels: per-class (so many of each class), random (as "
            "many in all, drawn at random) or both."
        ),
    ] = "both",
    methods: Annotated[
        str,
        typer.Option(help="Methods, separated by commas; peers (all but ours), or all."),
    ] = "all",
    sets: Annotated[
        str | None, typer.Option(help="Only these sets of the half, separated by commas.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Random contexts per set and number of labels, for every method.",
            show_default="10 per-class and 1 random, 1 for slow methods",
        ),
    ] = None,
    labels: Annotated[
        str, typer.Option(help="Labels per class, separated by commas.")
    ] = "1,2,5,10",
    data: Annotated[
        Path, typer.Option(help="Folder that scripts/fetch_real_data.py filled.")
    ] = Path("data/real"),
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for rows, tables and figures.")
    ] = Path("results/real"),
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes.", show_default="all cores but one"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0, help="Start nothing more after so many minutes; run again to go on."
        ),
    ] = None,
    draw: Annotated[bool, typer.Option(help="Make tables and figures at the end.")] = True,
) -> None:
    """Compare with other methods on nineteen real datasets, with few labels.

    All methods are scored on the unlabelled rows of the same contexts, with 1, 2, 5 and 10
    labels per class, or as many in all that are drawn at random. Every run ends in a row of
    rows.jsonl, found by a hash of everything that decides it: what is there is not run
    again. Interrupt it at any time; the same command goes on.
    """
    with user_errors():
        from icssl.bench.pool import Pool
        from icssl.bench.real.scores import LIMIT, specs_of
        from icssl.bench.runner import run_missing
        from icssl.bench.store import Store
        from icssl.methods.registry import choose_methods

        check_folder(output)
        halves, protocols = _halves(half, sets), _protocols(protocol)
        chosen = choose_methods("real", names(methods))
        per_class = counts("--labels", labels)
        store = Store(output / "rows.jsonl")
        specs = {
            (name, labelling): specs_of(data, members, per_class, draws, chosen, labelling)
            for name, members in halves.items()
            for labelling in protocols
        }
    console = Console()
    everything = [spec for members in specs.values() for spec in members]
    everything.sort(key=lambda spec: spec.draw)  # both halves, as far as time allows
    pool = Pool(workers or max(1, (os.cpu_count() or 2) - 1), limit=LIMIT)
    run = partial(run_missing, everything, store, executor=pool, minutes=minutes)
    with file_errors():
        run_below_bar(console, run)
    stored = sum(spec.key in store for spec in everything)
    console.print(f"{store.added} rows added, {stored} of {len(everything)} are there.")
    if draw:
        with file_errors():
            _draw_real(console, specs, store, output)
    if stored < len(everything):
        console.print("Run the same command again to go on.")


def _halves(half: str, sets: str | None) -> dict[str, tuple[str, ...]]:
    """Return the sets that were asked for, by half."""
    from icssl._util.errors import check_choice
    from icssl.bench.real.datasets import HALVES

    check_choice("half", half, [*HALVES, "both"])
    chosen = HALVES if half == "both" else {half: HALVES[half]}
    if sets is None:
        return chosen
    allowed = [name for members in chosen.values() for name in members]
    wanted = names(sets)
    for name in wanted:
        check_choice(f"set of the {half} half" if half != "both" else "set", name, allowed)
    halves = {k: tuple(n for n in members if n in wanted) for k, members in chosen.items()}
    if not any(halves.values()):
        raise ValueError("--sets names no set: leave it out to take all.")
    return {name: members for name, members in halves.items() if members}


def _protocols(protocol: str) -> tuple[str, ...]:
    """Return the protocols that were asked for."""
    from icssl._util.errors import check_choice
    from icssl.bench.real.datasets import PROTOCOLS

    check_choice("protocol", protocol, [*PROTOCOLS, "both"])
    return PROTOCOLS if protocol == "both" else (protocol,)


def _draw_real(
    console: Console, specs: dict[tuple[str, str], Any], store: Any, folder: Path
) -> None:
    from icssl.bench.real.pages import write_half

    with console.status("drawing ..."):
        for (half, labelling), members in specs.items():
            rows = [store[spec.key] for spec in members if spec.key in store]
            page = write_half(half, rows, len(members), folder, labelling)
            missing = f"{half}, {labelling}: no context has a row of every method yet."
            _print_lines(console, [page or missing])
