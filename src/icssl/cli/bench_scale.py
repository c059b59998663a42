"""``icssl bench scale``."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from icssl.cli.common import Console, check_folder, counts, file_errors, user_errors


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
        from icssl.errors import check_choice, check_device
        from icssl.experiments.store import Store
        from icssl.scale.bench import MADE, Trial, missing_of, run_missing, table_of
        from icssl.scale.methods import methods_named, sizes_for

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
            for method in methods_named(methods)
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
        _draw(console, store, output)


def _draw(console: Console, store: Any, folder: Path) -> None:
    from icssl.scale.pages import growth_lines, write_scale

    for line in growth_lines(list(store)):
        console.print(line, markup=False, soft_wrap=True)
    for page in write_scale(list(store), folder):
        console.print(f"{page}", markup=False, soft_wrap=True)
