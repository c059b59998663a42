"""``ColumnTable``: what was understood of every column, to show to a person."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from icssl._util.errors import EXTRA, printable
from icssl.tables.cells import as_numbers, is_missing
from icssl.tables.column_reading import ColumnReading
from icssl.tables.frame_reading import FrameReading, may_hold_texts, times_of
from icssl.tables.table_warning import TableWarning
from icssl.tables.targets import read_targets
from icssl.tables.text_kinds import TOO_FEW, kind_of_texts

COLUMN_HEADER = (
    *("column", "read as", "distinct", "missing", "numbers or dates", "example", "note"),
)
"""Names of what is told about a column."""

_LONG = 40  # characters of an example
_ROW_NAME = re.compile(
    r"(?:.*[\W_])?(?:id|nr|no|key|number)|.*[a-z](?-i:ID|Id)", re.IGNORECASE
)
_UNITS = "numbers with different units?"
_MEASURED = "fcbmM"  # kinds of columns that name no rows: numbers with parts, dates
_UNSEEN = {"text": "free text, left out", "ignore": "left out"}


@dataclass(frozen=True)
class ColumnSummary:
    """What was understood of one column.

    Parameters
    ----------
    name : str
    read_as : str
        "number", "date", "category", "free text", "name of the row", "labels", "left out".
    distinct : int
        Different values.
    missing : int
        Cells without a value.
    numbers : int
        Cells that are numbers or dates.
    example : str
        The first cell that is there, as it was given.
    note : str
        How it is written, or what is doubtful.
    """

    name: str
    read_as: str
    distinct: int
    missing: int
    numbers: int
    example: str
    note: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The same as texts, below ``COLUMN_HEADER``."""
        counts = (f"{count:,}" for count in (self.distinct, self.missing, self.numbers))
        shown = printable(self.name, _LONG)
        return (shown, self.read_as, *counts, printable(self.example, _LONG), self.note)


@dataclass(frozen=True)
class ColumnTable:
    """Summaries of all columns, in the order of the table.

    Parameters
    ----------
    columns : tuple of ColumnSummary

    Examples
    --------
    >>> table = describe_columns(np.array([[1.0, 2.0], [1.0, np.nan]]))
    >>> print(table)
    column  read as  distinct  missing  numbers or dates  example  note
    0       number   1         0        2                 1.0      the same in every row
    1       number   1         1        1                 2.0      the same in every row
    """

    columns: tuple[ColumnSummary, ...] = ()

    def __iter__(self) -> Iterator[ColumnSummary]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> ColumnSummary:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The summaries as texts, below ``COLUMN_HEADER``."""
        return tuple(column.cells for column in self.columns)

    def with_labels(self, name: str, labels: Any) -> "ColumnTable":
        """Return the table with the labels of a column counted as they were taken."""
        try:
            classes, codes = read_targets(labels)
        except (ValueError, TypeError):  # what is wrong with them is said by fit
            return self
        distinct, missing = len(classes), int((codes < 0).sum())
        changed = (
            replace(one, distinct=distinct, missing=missing) if one.name == name else one
            for one in self.columns
        )
        return ColumnTable(tuple(changed))

    @property
    def warnings(self) -> list[TableWarning]:
        """Warnings of columns that only name rows, of free text, and of amounts."""
        said = {
            "name of the row": "is different in every row and may only name the row: it is "
            "used all the same",
            "free text": "is free text, of which only the most frequent cells are read",
        }
        warnings = []
        for column in self.columns:
            if column.read_as in said:
                text = f"column {column.name!r} {said[column.read_as]}."
                warnings.append(TableWarning(text, "drop", [column.name]))
            elif _UNITS in column.note:
                text = (
                    f"column {column.name!r} is read as categories, and most of its cells "
                    f"begin with a number, as {printable(column.example, _LONG)!r} does: "
                    f"{_UNITS} Write plain numbers of one unit, times in minutes, ranges "
                    "as two columns, and dates as 2021-03-31."
                )
                warnings.append(TableWarning(text))
        return warnings

    def to_frame(self) -> Any:
        """Return the summaries as a data frame of pandas."""
        import pandas as pd

        return pd.DataFrame([asdict(column) for column in self.columns])

    def __str__(self) -> str:
        lines = [COLUMN_HEADER, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = (
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        )
        return "\n".join(line.rstrip() for line in padded)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in COLUMN_HEADER)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><tr>{head}</tr>{body}</table>"


def describe_columns(
    table: Any,
    reading: FrameReading | None = None,
    target: str | None = None,
    drop: Sequence[str] = (),
) -> ColumnTable:
    """Return what was understood of a table.

    Parameters
    ----------
    table : data frame or ndarray
        The columns as they were given, before texts were read.
    reading : FrameReading, optional
        What became of columns of texts.
    target : str, optional
        Name of the column of labels.
    drop : sequence of str
        Names of columns that were dropped.
    """
    readings = reading.readings if reading is not None else {}
    unseen: dict[str, str] = dict.fromkeys(drop, "left out")
    if reading is not None:
        unseen |= {name: _UNSEEN[kind] for name, kind in reading.left_out.items()}
    if target is not None:
        unseen[target] = "labels"
    summaries = []
    read = {} if reading is None else dict(reading.frame.items())
    doubted = set() if reading is None else _doubted_types(reading)
    for name, cells in _named_columns(table):
        values = read.get(name, cells)
        if name in unseen:
            summaries.append(_summary(name, unseen[name], cells, _plain(cells)))
            continue
        summary = _describe(name, cells, values, readings)
        if name in doubted and summary.read_as in ("name of the row", "category"):
            note = summary.note.replace(_UNITS, "").removesuffix("; ")
            summary = replace(summary, read_as="category", note=note)
        summaries.append(summary)
    return ColumnTable(tuple(summaries))


def _doubted_types(reading: FrameReading) -> set[str]:
    """Return columns of which a warning says already how they are read."""
    doubts = [doubt for doubt in reading.warnings if doubt.setting == "types"]
    return {value.rpartition("=")[0] for doubt in doubts for value in doubt.values}


def describe_encoded(table: Any, readings: Mapping[int, ColumnReading]) -> ColumnTable:
    """Return what was understood of a table that was encoded.

    Parameters
    ----------
    table : table
        Any that ``ColumnEncoder`` takes; of a sparse matrix nothing is told.
    readings : dict of int to ColumnReading
        How its columns of texts were read, by their places.
    """
    try:
        import pandas as pd
    except ImportError as error:  # what lists attributes must be able to go on
        raise AttributeError(f"columns_ needs pandas: {EXTRA.format('tables')}.") from error
    if sparse.issparse(table):
        return ColumnTable()
    if not hasattr(table, "shape"):
        table = np.asarray(table, dtype=object)
    summaries = []
    for place, (name, cells) in enumerate(_named_columns(table)):
        reading, values = readings.get(place), cells
        if reading is not None:
            numbers = reading.numbers(cells.tolist())
            read = times_of(numbers) if reading.kind == "date" else numbers
            values = pd.Series(read, cells.index)
        known = {} if reading is None else {name: reading}
        summaries.append(_describe(name, cells, values, known))
    return ColumnTable(tuple(summaries))


def doubts_about_columns(
    frame: Any, readings: Mapping[int, ColumnReading]
) -> list[TableWarning]:
    """Return warnings of columns of a data frame that name rows, or are free text.

    Parameters
    ----------
    frame : data frame
        Of pandas or polars, as it was given; without pandas there are no warnings.
    readings : dict of int to ColumnReading
        Columns of texts that are read as numbers or dates, which are neither.
    """
    if len(frame) < TOO_FEW:
        return []
    try:
        columns = list(_named_columns(frame))
    except ImportError:  # polars can be there alone
        return []
    summaries = tuple(
        _describe(name, cells, cells, {})
        for place, (name, cells) in enumerate(columns)
        if place not in readings and cells.dtype.kind not in _MEASURED
    )
    # Amounts have their doubts where texts are read.
    return [one for one in ColumnTable(summaries).warnings if one.setting == "drop"]


def _named_columns(table: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(table, "get_columns"):  # polars
        yield from ((column.name, column.to_pandas()) for column in table.get_columns())
    elif hasattr(table, "iloc"):
        yield from ((str(name), column) for name, column in table.items())
    else:
        import pandas as pd

        cells = np.asarray(table)
        yield from ((str(j), pd.Series(cells[:, j])) for j in range(cells.shape[1]))


def _describe(
    name: str, cells: Any, values: Any, readings: Mapping[str, ColumnReading]
) -> ColumnSummary:
    """Return the summary of a column that the classifier sees."""
    reading = readings.get(name)
    kind = _kind_of(values, reading)
    if kind in ("number", "date"):
        numbers, notes = -1, []
        if reading is not None and may_hold_texts(cells):
            notes = _notes(reading, cells)
        if kind == "number" and _names_rows(name, values):
            kind = "name of the row"
    else:
        numbers = 0
        kind = kind_of_texts(values)
        notes = [_UNITS] if kind == "amount" else []
        kind = "category" if notes else kind
    summary = _summary(name, kind, cells, values)
    if numbers < 0:
        numbers = len(values) - summary.missing
    if summary.distinct <= 1:
        notes.append("empty" if not summary.distinct else "the same in every row")
    return replace(summary, numbers=numbers, note="; ".join(notes))


def _kind_of(values: Any, reading: ColumnReading | None) -> str:
    if reading is not None:
        return reading.kind
    if str(values.dtype) == "category":
        return "category"
    if values.dtype.kind == "M":
        return "date"
    return "category" if as_numbers(values.to_numpy()) is None else "number"


def _notes(reading: ColumnReading, cells: Any) -> list[str]:
    """Return how numbers or dates are written, and which cells are lost."""
    notes = []
    if reading.kind == "date":
        notes.append("day first" if reading.day_first else "")
    elif reading.decimal == ",":
        notes.append("decimal comma")
    if reading.unit:
        notes.append(f"in {reading.unit}")
    if reading.lenient:
        strict = ColumnReading(**{**reading.__dict__, "lenient": False})
        lost = sum(isinstance(cell, str) and strict.number(cell) is None for cell in cells)
        if lost:
            notes.append("1 cell not read" if lost == 1 else f"{lost:,} cells not read")
    return [note for note in notes if note]


def _names_rows(name: str, values: Any) -> bool:
    """Whether whole numbers are those of the rows: none left out, or called so."""
    if len(values) < TOO_FEW or values.dtype.kind not in "iu" or values.isna().any():
        return False
    numbers = values.to_numpy()
    if len(np.unique(numbers)) < len(numbers):
        return False
    span = int(numbers.max()) - int(numbers.min()) + 1
    return span == len(numbers) or _ROW_NAME.fullmatch(name.strip()) is not None


def _summary(name: str, read_as: str, cells: Any, values: Any) -> ColumnSummary:
    found = (cell for cell in cells.array if not _is_blank(cell))
    example = str(next(found, ""))
    dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufmM":  # pandas is slow for many
        array = values.to_numpy()
        absent = np.isnan(array) if dtype.kind in "fmM" else np.zeros(len(array), bool)
        return ColumnSummary(
            name, read_as, len(np.unique(array[~absent])), int(absent.sum()), 0, example
        )
    missing = int(values.isna().sum())
    try:
        distinct = int(values.nunique())
    except TypeError:  # lists and records, which are left out
        distinct = len({str(value) for value in values if not is_missing(value)})
    return ColumnSummary(name, read_as, distinct, missing, 0, example)


def _is_blank(cell: Any) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and not cell.strip())


def _plain(cells: Any) -> Any:
    """Return a column with its blank texts missing."""
    if cells.dtype.kind in "biufcmM":
        return cells
    return cells.map(lambda cell: None if _is_blank(cell) else cell)
