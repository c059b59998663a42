"""What ``icssl classify`` and ``icssl predict`` print: warnings, columns and classes."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from icssl.app.cli.common import Console

if TYPE_CHECKING:
    from rich.table import Table

    from icssl.app.tally import Tally
    from icssl.tables.column_table import ColumnTable

_MOST_CLASSES = 20  # in the table that is printed
_MOST_COLUMNS = 30


@contextmanager
def print_warnings(console: Console) -> Iterator[None]:
    """Print the warnings of the block, one per line, when it ends.

    Below several there are the options that answer all of them, to copy.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    from icssl.tables.table_warning import TableWarning, text_of

    options = []
    for warning in caught:
        console.print(f"Warning: {text_of(warning.message, 'terminal')}", highlight=False)
        if isinstance(warning.message, TableWarning) and warning.message.options:
            options.append(warning.message.options)
    if len(options) > 1:
        console.print(f"All at once: {' '.join(options)}", highlight=False, soft_wrap=True)


def print_summary(
    console: Console, lines: list[str], tally: "Tally", written: Mapping[str, Path | None]
) -> None:
    """Print some lines, the table of classes, and where files went."""
    for line in lines:
        console.print(line, highlight=False)
    console.print(_class_table(tally))
    for name, path in written.items():
        if path is not None:
            console.print(f"{name}: {path}", soft_wrap=True)


def _class_table(tally: "Tally") -> "Table":
    from rich.table import Table

    from icssl.app.tally import CLASS_HEADER

    table = Table()
    for number, name in enumerate(CLASS_HEADER):
        table.add_column(name, justify="right" if number else "left")
    rows = tally.class_rows
    for row in rows[:_MOST_CLASSES]:
        table.add_row(*row)
    if len(rows) > _MOST_CLASSES:
        table.add_row(f"and {len(rows) - _MOST_CLASSES} more")
    return table


def print_columns(console: Console, columns: "ColumnTable") -> None:
    """Print what was understood of every column."""
    from rich.table import Table

    from icssl.tables.column_table import COLUMN_HEADER

    if not len(columns):
        return
    counts = ("distinct", "missing", "numbers or dates")
    table = Table()
    for name in COLUMN_HEADER:
        table.add_column(name, justify="right" if name in counts else "left")
    for row in columns.rows[:_MOST_COLUMNS]:
        table.add_row(*row)
    if len(columns) > _MOST_COLUMNS:
        table.add_row(f"and {len(columns) - _MOST_COLUMNS} more")
    console.print(table)
