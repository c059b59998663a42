"""The command ``icssl predict``."""

from pathlib import Path
from typing import Annotated

import typer

from icssl.app.cli.common import Console, check_file, stopped_by_hand, user_errors
from icssl.app.cli.reading_options import Encoding, Missing, Separator
from icssl.app.cli.summary import print_warnings


def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL.icssl", help="What `icssl classify --save` wrote."),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Table of new rows, in any format; - for the standard input. Its columns "
            "have the names of those that the model was fitted with, in any order."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where the rows go, with label, probability and reach; by default beside "
            "DATA, with -predicted in its name. Its suffix decides the format.",
        ),
    ] = None,
    separator: Separator = None,
    encoding: Encoding = None,
    missing: Missing = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda or auto.")] = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite existing files.")
    ] = False,
) -> None:
    """Label new rows with a classifier that was saved.

    Every row is predicted by itself, from the table that the classifier was fitted to:

    icssl classify flowers.csv --target species --save flowers.icssl

    icssl predict flowers.icssl more-flowers.csv

    Numbers, dates and missing cells are read as they were there.
    """
    from icssl.app.saved_classifier import load_classifier, prediction_lines
    from icssl.tables.label_table import STANDARD_INPUT
    from icssl.tables.output import (
        check_new,
        check_output,
        default_output,
        write_table,
    )
    from icssl.tables.table_file import ReadOptions
    from icssl.tables.text_files import named_separator

    console = Console()
    with user_errors(), stopped_by_hand(console), print_warnings(console):
        if str(data) == STANDARD_INPUT and output is None:
            raise ValueError("rows from the standard input need --output FILE to go to.")
        output = output or default_output(data, "predicted")
        check_output(output)
        check_new([output], data, force=force)
        check_file(output)
        with console.status("fitting the classifier ...") as status:
            saved = load_classifier(model, device)
            status.update("reading new rows ...")
            options = ReadOptions(
                separator=named_separator(separator),
                encoding=encoding,
                missing=tuple(missing or ()),
            )
            table, features = saved.read_new(str(data), options)
            status.update(f"predicting {len(features):,} rows ...")
            columns = saved.predict(features)
            status.update("writing ...")
            write_table(table, columns, output)
    for line in table.notes:
        console.print(line, highlight=False)
    for line in prediction_lines(columns, saved.classifier.classes_.tolist()):
        console.print(line, highlight=False)
    console.print(f"Rows: {output}", soft_wrap=True)
