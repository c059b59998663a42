"""``icssl classify``."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from icssl.app.cli.common import (
    Address,
    Console,
    Engine,
    GPUsPerTask,
    check_file,
    check_folder,
    user_errors,
)

if TYPE_CHECKING:
    from icssl.app.labelling import Labelling, Tally
    from icssl.tables.files import LabelTable

_MOST_CLASSES = 20  # in the table that is printed
_SUGGESTED = 10


def classify(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Table with a label in some rows: .csv, .parquet, or .npz with an array "
            "for the labels and others for the features. With --engine ray: .parquet, or a "
            "folder of such files."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Column with the labels: whole numbers, texts or booleans. Empty cells "
            "and -1 are the rows to label.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where the rows go, with label, probability and reach; by default beside "
            "DATA, with -labelled in its name.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Page (.html) with the embedding, the confidence, the least certain rows "
            "and those worth labelling."
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Column to leave out, say a number of the row. Several times."),
    ] = None,
    separator: Annotated[
        str | None, typer.Option(help="Between the cells of a CSV file.", show_default=",")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="auto, 'all views' or 'one view' of the shipped weights, or a file that "
            "ends in .safetensors."
        ),
    ] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    suggest: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Rows worth labelling that the report names.",
            show_default=str(_SUGGESTED),
        ),
    ] = None,
    engine: Engine = "local",
    address: Address = None,
    gpus_per_task: GPUsPerTask = None,
    context_rows: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="With --engine ray: rows that are read as the context, all that have a "
            "label and others up to this number.",
            show_default="2,000",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --engine ray: by which those others are drawn.",
            show_default="0",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over old files.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Label 178 wines from nine; writes no table.")
    ] = False,
) -> None:
    """Label all rows of a table from the few that have a label.

    Nothing is trained: pretrained weights come with the package. The rows that have no
    label take part too, since they show what the data look like. Columns of numbers, texts
    and dates are all used, missing cells are allowed; drop what names a row (--drop id).

    Try it: icssl classify --demo --report demo.html

    Then: icssl classify flowers.csv --target species --report flowers.html

    The rows are written to flowers-labelled.csv with three columns more: label (the one
    given, or the likeliest), its probability, and reach, the labelled evidence that got to
    the row. A low probability with much reach is torn between classes; with no reach at
    all, the row is far from everything labelled: label one like it.

    For any number of rows: icssl classify big.parquet -t species --engine ray

    The rows that have a label and some others, 2,000 by default, are read as the context;
    workers of a Ray cluster label all rows by it, in pieces, into the folder
    big-labelled.parquet.
    """
    from icssl._util.files import replacing, sync
    from icssl._util.ray import check_engine, check_owner
    from icssl.app.labelling import demo_table, summary_lines
    from icssl.tables.files import read_table, write_table

    console = Console()
    with user_errors():
        check_engine(engine, address, gpus_per_task)
        check_owner(engine, "local", separator=separator, suggest=suggest)
        drawn = {"context_rows": context_rows, "seed": seed}
        check_owner(engine, "ray", **drawn)
        if engine == "ray":
            into = _checked_for_ray(data, target, output, report, force=force, demo=demo)
            options: dict[str, Any] = {
                "drop": drop or (),
                "model": model,
                "device": device,
                "gpus_per_task": gpus_per_task or 0.0,
                **{name: given for name, given in drawn.items() if given is not None},
            }
            _label_on_ray(
                console, address, path=data, target=target, output=into, **options
            )
            return
        output = _checked(data, target, output, report, force=force, demo=demo)
        between = "," if separator is None else separator
        _check_separator(between)

        def read() -> "LabelTable":
            if data is None or target is None:
                return demo_table()
            return read_table(data, target, drop=drop or (), separator=between)

        suggestions = _SUGGESTED if suggest is None else suggest
        labelling = _labelled(console, read, model, device, suggestions)
        # After an error there is no new file: the page is drawn and on the disk before the
        # table is, and takes its place after it.
        with console.status("writing ..."), ExitStack() as stack:
            if report is not None:
                unfinished = stack.enter_context(replacing(report))
                unfinished.write_text(_page(labelling), encoding="utf-8")
                sync(unfinished)
            if output is not None:
                write_table(labelling.table, labelling.columns, output)
    written = {"Rows": output, "Report": report}
    _print_summary(console, summary_lines(labelling), labelling.tally, written)


def _checked(
    data: Path | None,
    target: str | None,
    output: Path | None,
    report: Path | None,
    *,
    force: bool,
    demo: bool,
) -> Path | None:
    """Refuse what cannot be done before anything is read; where the rows go."""
    from icssl.tables.files import SUFFIXES, check_new, check_output, default_output

    if demo and (data or target or output):
        raise ValueError("--demo has its own table and writes none: give --report alone.")
    if not demo:
        _check_given(data, target)
    if data is not None and data.is_dir():
        raise ValueError(
            f"{data} is a folder: a folder of Parquet files needs --engine ray, and "
            "--engine local takes one file."
        )
    if data is not None and data.suffix in SUFFIXES:
        output = output or default_output(data)
        check_output(output, data, force=force)
        check_file(output)
    if report is not None:
        if report.suffix not in (".html", ".htm"):
            raise ValueError(f"{report} must end in .html.")
        check_new(report, data, force=force)
        check_file(report)
    return output


def _check_given(data: Path | None, target: str | None) -> None:
    if data is None:
        raise ValueError("give a file to label, or --demo to see how it goes.")
    if target is None:
        raise ValueError("--target must name the column with the labels.")


def _checked_for_ray(
    data: Path | None,
    target: str | None,
    output: Path | None,
    report: Path | None,
    *,
    force: bool,
    demo: bool,
) -> Path:
    """Refuse what cannot be done before anything is read; the folder of the rows."""
    from icssl.tables.files import check_output, default_output
    from icssl.tables.pieces import check_parts

    for name, asked in (("demo", demo), ("report", report)):
        if asked:
            raise ValueError(
                f"--{name} is for --engine local, which sees all rows at once."
            )
    _check_given(data, target)
    assert data is not None
    output = output or default_output(data)
    check_output(output, data, force=force)
    check_parts(output)
    check_folder(output.absolute().parent)
    return output


def _check_separator(separator: str) -> None:
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(f"--separator must be one character, got {separator!r}.")


def _labelled(
    console: Console,
    read: "Callable[[], LabelTable]",
    model: str,
    device: str,
    suggest: int,
) -> "Labelling":
    """Read and label, with a sign of life; warnings are printed a line each."""
    from icssl.app.labelling import label_rows

    with _warnings_printed(console), console.status("reading ...") as status:
        table = read()
        status.update(f"labelling {len(table.target):,} rows ...")
        return label_rows(table, model=model, device=device, suggestions=suggest)


def _label_on_ray(console: Console, address: str | None, **options: Any) -> None:
    """Label in pieces, below a bar of rows, and say what came out."""
    from icssl._util.ray import ray_cluster
    from icssl.app.labelling_pieces import label_pieces

    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f} rows {task.description}"),
        TimeRemainingColumn(),
    )
    with (
        ray_cluster(address, gpus_per_task=options["gpus_per_task"]) as ray,
        _warnings_printed(console),
        Progress(*columns, console=console, transient=True) as bar,
    ):
        getLogger(ray.data.__name__).setLevel("ERROR")  # here a bar says how far it is
        task = bar.add_task("are labelled: reading the context ...", total=None)

        def told(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"of {total:,}")

        tally, seconds = label_pieces(ray=ray, report=told, **options)
    _print_summary(console, tally.lines, tally, {"Rows": options["output"]})
    speed = tally.rows.sum() / seconds
    console.print(f"In pieces, {speed:,.0f} rows a second and core.", highlight=False)


@contextmanager
def _warnings_printed(console: Console) -> Iterator[None]:
    """Warnings of the block, a line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        console.print(f"Warning: {warning.message}", highlight=False)


def _page(labelling: "Labelling") -> str:
    from icssl.app.labelling_report import report_html  # and with it matplotlib

    return report_html(labelling)


def _print_summary(
    console: Console, lines: list[str], tally: "Tally", written: Mapping[str, Path | None]
) -> None:
    for line in lines:
        console.print(line, highlight=False)
    console.print(_class_table(tally))
    for name, path in written.items():
        if path is not None:
            console.print(f"{name}: {path}", soft_wrap=True)


def _class_table(tally: "Tally") -> Table:
    from icssl.app.labelling import CLASS_HEADER

    table = Table()
    for number, name in enumerate(CLASS_HEADER):
        table.add_column(name, justify="right" if number else "left")
    rows = tally.class_rows
    for row in rows[:_MOST_CLASSES]:
        table.add_row(*row)
    if len(rows) > _MOST_CLASSES:
        table.add_row(f"and {len(rows) - _MOST_CLASSES} more")
    return table
