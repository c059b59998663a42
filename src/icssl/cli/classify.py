"""``icssl classify``."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from icssl.cli.common import check_file, user_errors
from icssl.files import replacing

if TYPE_CHECKING:
    from icssl.classify import Labelling
    from icssl.tabular.files import LabelTable

_MOST_CLASSES = 20  # in the table that is printed


def classify(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Table with a label in some rows: .csv, .parquet, or .npz with an array "
            "for the labels and others for the features."
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
    separator: Annotated[str, typer.Option(help="Between the cells of a CSV file.")] = ",",
    model: Annotated[str, typer.Option(help="Which of the shipped weights.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    suggest: Annotated[
        int, typer.Option(min=0, help="Rows worth labelling that the report names.")
    ] = 10,
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
    """
    from icssl.classify import demo_table, summary_lines
    from icssl.tabular.files import read_table, write_table

    console = Console()
    with user_errors():
        output = _checked(data, target, output, report, force=force, demo=demo)
        _check_separator(separator)

        def read() -> "LabelTable":
            if data is None or target is None:
                return demo_table()
            return read_table(data, target, drop=drop or (), separator=separator)

        labelling = _labelled(console, read, model, device, suggest)
        with console.status("writing ..."):
            # Drawn before anything is written: after an error there is no new file.
            page = "" if report is None else _page(labelling)
            if output is not None:
                write_table(labelling.table, labelling.columns, output)
            if report is not None:
                with replacing(report) as unfinished:
                    unfinished.write_text(page, encoding="utf-8")
    for line in summary_lines(labelling):
        console.print(line, markup=False, highlight=False)
    console.print(_class_table(labelling))
    for name, path in (("Rows", output), ("Report", report)):
        if path is not None:
            console.print(f"{name}: {path}", markup=False, soft_wrap=True)


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
    from icssl.tabular.files import SUFFIXES, check_new, check_output, default_output

    if demo and (data or target or output):
        raise ValueError("--demo has its own table and writes none: give --report alone.")
    if not demo and data is None:
        raise ValueError("give a file to label, or --demo to see how it goes.")
    if not demo and target is None:
        raise ValueError("--target must name the column with the labels.")
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
    from icssl.classify import label_rows

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with console.status("reading ...") as status:
            table = read()
            status.update(f"labelling {len(table.target):,} rows ...")
            labelling = label_rows(table, model=model, device=device, suggestions=suggest)
    for warning in caught:
        console.print(f"Warning: {warning.message}", markup=False, highlight=False)
    return labelling


def _page(labelling: "Labelling") -> str:
    from icssl.classify_report import report_html  # and with it matplotlib

    return report_html(labelling)


def _class_table(labelling: "Labelling") -> Table:
    from icssl.classify import CLASS_HEADER, class_rows

    table = Table()
    for number, name in enumerate(CLASS_HEADER):
        table.add_column(name, justify="right" if number else "left")
    rows = class_rows(labelling)
    for row in rows[:_MOST_CLASSES]:
        table.add_row(*map(escape, row))
    if len(rows) > _MOST_CLASSES:
        table.add_row(f"and {len(rows) - _MOST_CLASSES} more")
    return table
