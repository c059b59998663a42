"""The command ``icssl classify``."""

from collections.abc import Sequence
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icssl._util.progress import showing
from icssl.app.cli.common import (
    CLUSTER,
    Address,
    Console,
    Engine,
    GPUsPerTask,
    check_file,
    check_folder,
    show_progress,
    user_errors,
)
from icssl.app.cli.reading_options import (
    Decimal,
    Drop,
    Encoding,
    Missing,
    Relabel,
    Separator,
    Type,
)
from icssl.app.cli.summary import print_columns, print_summary, print_warnings

if TYPE_CHECKING:
    from icssl.app.label_options import LabelOptions

_Data = Annotated[
    Path | None,
    typer.Argument(
        help="Table with a label in some rows: .csv, .tsv, .xlsx, .jsonl, .json, .parquet, "
        ".feather; one of these in a .gz or .zip; .npz with one array for the labels and "
        "others for the features; or - for the standard input. With --engine ray: "
        ".parquet, or a folder of such files."
    ),
]
_Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="Column with the labels: whole numbers, texts or booleans. Rows with an empty "
        "cell or -1 are the ones to label. By default it is guessed, and said.",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Where the rows go, with label, probability and reach; by default beside "
        "DATA, with -labelled in its name. Its suffix decides the format, as in .csv.gz.",
    ),
]
_Report = Annotated[
    Path | None,
    typer.Option(
        help="Page (.html) with the embedding, the confidence, the least certain rows "
        "and those worth labelling."
    ),
]
_Scale = Annotated[
    str,
    typer.Option(
        "--column-scale",
        help="How columns of numbers are made comparable: each by itself, those of one "
        "unit in common, or auto for both.",
    ),
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
_Score = Annotated[
    bool | None,
    typer.Option(
        "--score/--no-score",
        help="Hide labels and predict them, to say how good it is here, beside logistic "
        "regression. It takes up to ten times as long as labelling.",
        show_default="for up to 3,000 rows",
    ),
]
_ContextRows = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="With --engine ray: number of rows that are read as the context, all that "
        "have a label and others up to this number.",
        show_default="2,000",
        rich_help_panel=CLUSTER,
    ),
]
_Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="With --engine ray: seed that those others are drawn with.",
        show_default="0",
        rich_help_panel=CLUSTER,
    ),
]
_Save = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL.icssl",
        help="Where the classifier goes, for icssl predict: its table and settings.",
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
    save: _Save = None,
    drop: Drop = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    missing: Missing = None,
    types: Type = None,
    relabel: Relabel = None,
    column_scale: _Scale = "auto",
    model: _Model = "auto",
    device: _Device = "auto",
    suggest: _Suggest = None,
    score: _Score = None,
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
    and dates are all used, and missing cells are allowed. Separators, encodings, decimal
    commas, money, percents and dates are found out; what is doubtful is said, with the
    option that changes it. Drop columns that only name a row (--drop id).

    Try it: icssl classify --demo --report demo.html

    Then: icssl classify flowers.csv --target species --report flowers.html

    The rows are written to flowers-labelled.csv with three more columns: label (the one
    that was given, or the likeliest), its probability, and reach: how alike the row is to
    a labelled one, from 0 to 1; near 0, the label is hardly more than a guess. A low
    probability with much reach means that classes compete for the row. Where reach is near
    zero, label a row like it.

    For any number of rows: icssl classify big.parquet -t species --engine ray

    The context is all labelled rows, and random other rows up to 2,000 in total. Workers of
    a Ray cluster then label all rows from it, in pieces, and write them to the folder
    big-labelled.parquet.
    """
    from icssl._util.ray import check_engine, check_owner
    from icssl.app.label_options import LabelOptions
    from icssl.tables.text_files import named_separator

    with user_errors():
        check_engine(engine, address, gpus_per_task)
        check_owner(
            engine,
            "local",
            separator=separator,
            encoding=encoding,
            suggest=suggest,
            relabel=relabel,
            score=score,
            save=save,
        )
        check_owner(engine, "ray", context_rows=context_rows, seed=seed)
        asked: dict[str, Any] = {
            "separator": named_separator(separator),
            "encoding": encoding,
            "decimal": decimal,
            "suggestions": suggest,
            "judge": score,
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
            missing=tuple(missing or ()),
            types=_pairs("--type", "COLUMN=TYPE", "age=number", types or ()),
            save=save,
            relabel=_pairs("--relabel", "LABEL=OTHER", "Yes=yes", relabel or ()),
            column_scale=column_scale,
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
    from icssl.app.saved_classifier import check_saved_path
    from icssl.tables.formats import readable_suffixes, suffix_of
    from icssl.tables.label_table import STANDARD_INPUT
    from icssl.tables.output import check_new, check_output, default_output

    data, output, report = options.data, options.output, options.report
    if demo and (data or options.target or output):
        raise ValueError("--demo has its own table and writes none: give --report alone.")
    if not demo and data is None:
        raise ValueError("give a file to label, or --demo to see how it goes.")
    if str(data) == STANDARD_INPUT and output is None:
        raise ValueError("rows from the standard input need --output FILE to go to.")
    if data is not None and data.is_dir():
        raise ValueError(
            f"{data} is a folder: a folder of Parquet files needs --engine ray, and "
            "--engine local takes one file."
        )
    if data is not None and (output or suffix_of(data) in readable_suffixes()):
        output = output or default_output(data)
        check_output(output)
    if report is not None and report.suffix not in (".html", ".htm"):
        raise ValueError(f"{report} must end in .html.")
    if options.save is not None:
        check_saved_path(options.save, options)
    written = (output, report, options.save)
    check_new(written, data, force=force)
    for path in filter(None, written):
        check_file(path)
    separator = options.separator
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise ValueError(f"--separator must be one character or tab, got {separator!r}.")
    return replace(options, output=output)


def _check_pieces(options: "LabelOptions", *, force: bool, demo: bool) -> "LabelOptions":
    """Refuse what cannot be done before anything is read; fill in where the rows go."""
    from icssl.tables.output import check_new, check_output, default_output
    from icssl.tables.pieces import check_parts

    for name, asked in (("demo", demo), ("report", options.report)):
        if asked:
            raise ValueError(
                f"--{name} is for --engine local, which sees all rows at once."
            )
    _check_asked(options)
    assert options.data is not None
    output = options.output or default_output(options.data)
    if options.output is not None and output.suffix != ".parquet":
        raise ValueError(f"{output} must end in .parquet, as {options.data} does.")
    check_output(output)
    check_new([output], options.data, force=force)
    check_parts(output)
    check_folder(output.absolute().parent)
    return replace(options, output=output)


def _pairs(option: str, form: str, example: str, given: Sequence[str]) -> dict[str, str]:
    """Return names and values from texts such as age=number."""
    pairs = {}
    for text in given:
        name, mark, value = text.rpartition("=")
        if not mark or not name:
            raise ValueError(
                f"{option} takes {form}, as in {option} {example}, got {text!r}."
            )
        pairs[name] = value
    return pairs


def _check_asked(options: "LabelOptions") -> None:
    if options.data is None:
        raise ValueError("give a file to label, or --demo to see how it goes.")
    if options.target is None:
        raise ValueError("--target must name the column with the labels.")


def _label_file(options: "LabelOptions") -> None:
    """Label one table in this process, and print a summary."""
    from icssl.app.labelling import label_file, summary_lines

    console = Console()
    stopped = "Stopped; no file is half-written."
    with (
        user_errors(),
        print_warnings(console),
        show_progress(console, interrupted=stopped) as show,
        showing(show),
    ):
        labelling = label_file(options, lambda text: show(text=text))
    for note in labelling.table.notes:
        console.print(f"Read as {note}.", highlight=False)
    print_columns(console, labelling.table.columns)
    written = {
        "Rows": options.output,
        "Report": options.report,
        "Model": options.save,
    }
    print_summary(console, summary_lines(labelling), labelling.tally, written)


def _label_pieces(options: "LabelOptions", address: str | None) -> None:
    """Label a table in pieces on a Ray cluster, below a bar, and print a summary."""
    from icssl._util.ray import ray_cluster
    from icssl.app.labelling_pieces import label_pieces

    console = Console()
    with (
        user_errors(),
        ray_cluster(address, gpus_per_task=options.gpus_per_task) as ray,
        print_warnings(console),
        show_progress(console) as show,
    ):
        getLogger(ray.data.__name__).setLevel("ERROR")  # the bar here says how far it is
        show(text="reading the context ...")

        def on_progress(done: int, total: int) -> None:
            show(done, total, "rows are labelled")

        tally, seconds = label_pieces(options, ray, on_progress=on_progress)
    print_summary(console, tally.lines, tally, {"Rows": options.output})
    speed = tally.rows.sum() / seconds
    console.print(f"In pieces, {speed:,.0f} rows per second and core.", highlight=False)
