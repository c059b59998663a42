"""The command ``icssl classify``."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icssl.app.cli.common import (
    Address,
    Console,
    Engine,
    GPUsPerTask,
    check_file,
    check_folder,
    show_progress,
    user_errors,
)

if TYPE_CHECKING:
    from rich.table import Table

    from icssl.app.labelling import LabelOptions, Tally

_MOST_CLASSES = 20  # in the table that is printed

_Data = Annotated[
    Path | None,
    typer.Argument(
        help="Table with a label in some rows, such as .csv, .parquet, or .npz with one "
        "array for the labels and others for the features. With --engine ray: .parquet, or "
        "a folder of such files."
    ),
]
_Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="Column with the labels: whole numbers, texts or booleans. Rows with an empty "
        "cell or -1 are the ones to label.",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Where the rows go, with label, probability and reach; by default beside "
        "DATA, with -labelled in its name.",
    ),
]
_Report = Annotated[
    Path | None,
    typer.Option(
        help="Page (.html) with the embedding, the confidence, the least certain rows "
        "and those worth labelling."
    ),
]
_Drop = Annotated[
    list[str] | None,
    typer.Option(
        help="Column to leave out, for example the number of a row. Can be given several "
        "times."
    ),
]
_Separator = Annotated[
    str | None,
    typer.Option(help="Character between the cells of a CSV file.", show_default=","),
]
_Model = Annotated[
    str,
    typer.Option(
        help="Weights: auto; 'all views', 'main views' or 'one view' of the shipped ones; "
        "or a file that ends in .safetensors."
    ),
]
_Device = Annotated[str, typer.Option(help="Device: cpu, cuda or auto.")]
_Suggest = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Number of rows worth labelling that the report names.",
        show_default="10",
    ),
]
_ContextRows = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="With --engine ray: number of rows that are read as the context, all that "
        "have a label and others up to this number.",
        show_default="2,000",
    ),
]
_Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="With --engine ray: seed that those others are drawn with.",
        show_default="0",
    ),
]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
_Demo = Annotated[
    bool,
    typer.Option("--demo", help="Label 178 wines from nine labels; writes no table."),
]


def classify(
    data: _Data = None,
    target: _Target = None,
    output: _Output = None,
    report: _Report = None,
    drop: _Drop = None,
    separator: _Separator = None,
    model: _Model = "auto",
    device: _Device = "auto",
    suggest: _Suggest = None,
    engine: Engine = "local",
    address: Address = None,
    gpus_per_task: GPUsPerTask = None,
    context_rows: _ContextRows = None,
    seed: _Seed = None,
    force: _Force = False,
    demo: _Demo = False,
) -> None:
    """Label all rows of a table from the few that have a label.

    Nothing is trained: pretrained weights come with the package. The rows that have no
    label take part too, since they show what the data look like. Columns of numbers, texts
    and dates are all used, and missing cells are allowed. Drop columns that only name a row
    (--drop id).

    Try it: icssl classify --demo --report demo.html

    Then: icssl classify flowers.csv --target species --report flowers.html

    The rows are written to flowers-labelled.csv with three more columns: label (the one
    that was given, or the likeliest), its probability, and reach, the labelled evidence
    that arrives at the row. A low probability with much reach means that classes compete
    for the row. A reach near zero means that the row is far from everything labelled: label
    a row like it.

    For any number of rows: icssl classify big.parquet -t species --engine ray

    The context is all labelled rows, and random other rows up to 2,000 in total. Workers of
    a Ray cluster then label all rows from it, in pieces, and write them to the folder
    big-labelled.parquet.
    """
    from icssl._util.ray import check_engine, check_owner
    from icssl.app.labelling import LabelOptions

    with user_errors():
        check_engine(engine, address, gpus_per_task)
        check_owner(engine, "local", separator=separator, suggest=suggest)
        check_owner(engine, "ray", context_rows=context_rows, seed=seed)
        asked: dict[str, Any] = {
            "separator": separator,
            "suggestions": suggest,
            "gpus_per_task": gpus_per_task,
            "context_rows": context_rows,
            "seed": seed,
        }
        options = LabelOptions(
            data,
            target,
            output,
            report,
            tuple(drop or ()),
            model=model,
            device=device,
            **{name: value for name, value in asked.items() if value is not None},
        )
        check = _check_pieces if engine == "ray" else _check_file
        options = check(options, force=force, demo=demo)
    if engine == "ray":
        _label_pieces(options, address)
    else:
        _label_file(options)


def _check_file(options: "LabelOptions", *, force: bool, demo: bool) -> "LabelOptions":
    """Refuse what cannot be done before anything is read; fill in where the rows go."""
    from icssl.tables.formats import suffix_of, writable_suffixes
    from icssl.tables.reader import check_new, check_output, default_output

    data, output, report = options.data, options.output, options.report
    if demo and (data or options.target or output):
        raise ValueError("--demo has its own table and writes none: give --report alone.")
    if not demo:
        _check_asked(options)
    if data is not None and data.is_dir():
        raise ValueError(
            f"{data} is a folder: a folder of Parquet files needs --engine ray, and "
            "--engine local takes one file."
        )
    if data is not None and suffix_of(data) in writable_suffixes():
        output = output or default_output(data)
        check_output(output, data, force=force)
        check_file(output)
    if report is not None:
        if report.suffix not in (".html", ".htm"):
            raise ValueError(f"{report} must end in .html.")
        check_new(report, data, force=force)
        check_file(report)
    if len(options.separator) != 1 or options.separator in '"\r\n':
        raise ValueError(f"--separator must be one character, got {options.separator!r}.")
    return replace(options, output=output)


def _check_pieces(options: "LabelOptions", *, force: bool, demo: bool) -> "LabelOptions":
    """Refuse what cannot be done before anything is read; fill in where the rows go."""
    from icssl.tables.pieces import check_parts
    from icssl.tables.reader import check_output, default_output

    for name, asked in (("demo", demo), ("report", options.report)):
        if asked:
            raise ValueError(
                f"--{name} is for --engine local, which sees all rows at once."
            )
    _check_asked(options)
    assert options.data is not None
    output = options.output or default_output(options.data)
    check_output(output, options.data, force=force)
    check_parts(output)
    check_folder(output.absolute().parent)
    return replace(options, output=output)


def _check_asked(options: "LabelOptions") -> None:
    if options.data is None:
        raise ValueError("give a file to label, or --demo to see how it goes.")
    if options.target is None:
        raise ValueError("--target must name the column with the labels.")


def _label_file(options: "LabelOptions") -> None:
    """Label one table in this process, and print a summary."""
    from icssl.app.labelling import label_file, summary_lines

    console = Console()
    with user_errors(), _print_warnings(console), console.status("reading ...") as status:
        labelling = label_file(options, status.update)
    written = {"Rows": options.output, "Report": options.report}
    _print_summary(console, summary_lines(labelling), labelling.tally, written)


def _label_pieces(options: "LabelOptions", address: str | None) -> None:
    """Label a table in pieces on a Ray cluster, below a bar, and print a summary."""
    from icssl._util.ray import ray_cluster
    from icssl.app.labelling_pieces import label_pieces

    console = Console()
    with (
        user_errors(),
        ray_cluster(address, gpus_per_task=options.gpus_per_task) as ray,
        _print_warnings(console),
        show_progress(console) as show,
    ):
        getLogger(ray.data.__name__).setLevel("ERROR")  # the bar here says how far it is
        show(text="reading the context ...")

        def on_progress(done: int, total: int) -> None:
            show(done, total, "rows are labelled")

        tally, seconds = label_pieces(options, ray, on_progress=on_progress)
    _print_summary(console, tally.lines, tally, {"Rows": options.output})
    speed = tally.rows.sum() / seconds
    console.print(f"In pieces, {speed:,.0f} rows per second and core.", highlight=False)


@contextmanager
def _print_warnings(console: Console) -> Iterator[None]:
    """Print the warnings of the block, one per line, when it ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        console.print(f"Warning: {warning.message}", highlight=False)


def _print_summary(
    console: Console, lines: list[str], tally: "Tally", written: Mapping[str, Path | None]
) -> None:
    for line in lines:
        console.print(line, highlight=False)
    console.print(_class_table(tally))
    for name, path in written.items():
        if path is not None:
            console.print(f"{name}: {path}", soft_wrap=True)


def _class_table(tally: "Tally") -> "Table":
    from rich.table import Table

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
