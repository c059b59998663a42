"""Options of commands that read a table: how its file is read."""

from typing import Annotated

import typer

_READING = "How the file is read"

Drop = Annotated[
    list[str] | None,
    typer.Option(
        help="Column to leave out, for example the number of a row. Can be given several "
        "times.",
        rich_help_panel=_READING,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Character between the cells of a text file, or the word tab.",
        show_default="found out",
        rich_help_panel=_READING,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding of a text file, such as utf-8, cp1252 or utf-16.",
        show_default="found out",
        rich_help_panel=_READING,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        help="Decimal mark of numbers: a point or a comma.",
        show_default="found out",
        rich_help_panel=_READING,
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        help="Text that stands for no value, in columns and labels, beside empty cells, "
        "NA, NULL and the like. Can be given several times.",
        rich_help_panel=_READING,
    ),
]
Type = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="COLUMN=TYPE",
        help="What a column is: number, category, date, day-first or month-first (dates "
        "whose order is open), text or ignore. Columns of free text and those to ignore "
        "are left out. Can be given several times.",
        rich_help_panel=_READING,
    ),
]
Relabel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL=OTHER",
        help="Label, and the one to take instead, as in Yes=yes. Can be given several "
        "times.",
        rich_help_panel=_READING,
    ),
]
