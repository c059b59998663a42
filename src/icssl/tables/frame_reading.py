"""Data frames of which some columns are texts, read as numbers, dates and categories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from icssl.tables.cells import as_number, is_missing
from icssl.tables.column_reading import (
    MARKS,
    NOT_THERE,
    ColumnReading,
    Hints,
    TextColumn,
    hints_of,
)
from icssl.tables.lost_cells import warnings_of_lost
from icssl.tables.table_warning import TableWarning

_MICROSECONDS = 10**6
_WHOLE = 2.0**53  # floats below hold every whole number


@dataclass(frozen=True, eq=False)
class FrameReading:
    """How a frame was read, and what came out.

    Parameters
    ----------
    frame : DataFrame
        The columns with their values: numbers, times and categories.
    readings : dict of str to ColumnReading
        How each column that held texts, or that a person named, was read.
    warnings : list of TableWarning
        What is doubtful.
    left_out : dict of str to str
        Columns that the classifier does not see, and why.
    """

    frame: Any
    readings: Mapping[str, ColumnReading]
    warnings: Sequence[TableWarning] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def read_frame(
    frame: Any,
    types: Mapping[str, str],
    given: Hints,
    *,
    is_text: bool = False,
) -> FrameReading:
    """Return the frame with values in place of texts.

    Parameters
    ----------
    frame : DataFrame of pandas
        Columns by their names, which are texts.
    types : mapping of str to str
        What a person says that columns are.
    given : Hints
        What a person says about numbers and missing cells.
    is_text : bool
        Whether every cell is as it stands in a file: NA is then missing.
    """
    columns: dict[str, TextColumn] = {}
    plain: dict[str, ndarray] = {}
    for name, column in frame.items():
        if str(name) not in types and not may_hold_texts(column):
            continue
        cells = column.tolist()
        numbers = None if str(name) in types else _plain_numbers(cells, given)
        if numbers is None:
            columns[str(name)] = TextColumn(str(name), cells, given.missing)
        else:
            plain[str(name)] = numbers
    hints = hints_of([one for name, one in columns.items() if name not in types], given)
    if hints.decimal == ",":  # then the points of plain numbers may stand for thousands
        for name in [name for name in plain if _has_points(frame[name])]:
            columns[name] = TextColumn(name, frame[name].tolist(), given.missing)
            del plain[name]
    elif any(map(_has_parts, plain.values())):
        hints = replace(hints, decimal=hints.decimal or ".")
    readings, warnings = read_columns(columns, hints, types)
    left_out = {
        name: reading.kind
        for name, reading in readings.items()
        if reading.kind in ("text", "ignore")
    }
    missing = given.missing | (NOT_THERE if is_text else frozenset())
    changed = _changed_columns(frame, readings, missing)
    changed |= {name: _short(numbers) for name, numbers in plain.items()}
    typed = _with_columns(frame, changed)
    readings |= {name: ColumnReading("number", missing=given.missing) for name in plain}
    return FrameReading(typed, readings, warnings, left_out)


def read_columns(
    columns: Mapping[Any, TextColumn], hints: Hints, types: Mapping[Any, str] | None = None
) -> tuple[dict[Any, ColumnReading], list[TableWarning]]:
    """Return how to read columns of texts, by any keys, and what is doubtful about it.

    Parameters
    ----------
    columns : mapping of TextColumn
    hints : Hints
        What is known of the whole table.
    types : mapping of str, optional
        What a person says that some columns are, by the same keys.
    """
    readings: dict[Any, ColumnReading] = {}
    warnings: list[TableWarning] = []
    for key, column in columns.items():
        if types and key in types:
            readings[key] = column.as_kind(types[key], hints)
        else:
            readings[key], doubts = column.read(hints)
            warnings += doubts
    lost = [column.lost_cells(readings[key]) for key, column in columns.items()]
    named = [key for key, reading in readings.items() if reading.kind == "category"]
    categories = {text for key in named for text in columns[key].texts}
    return readings, [*warnings, *warnings_of_lost(lost, categories)]


def _plain_numbers(cells: Sequence[Any], given: Hints) -> ndarray | None:
    """Return cells as numbers if all are as programs write them, or stand for no value.

    Most columns are such, and need no closer look.
    """
    if given.certain and given.decimal == ",":
        return None
    known: dict[Any, float] = {}
    for cell in set(cells):
        number = _plain_number(cell, given.missing)
        if number is None:
            return None
        known[cell] = number
    numbers = np.array([known[cell] for cell in cells], dtype=np.float64)
    return None if np.isnan(numbers).all() else numbers


def _plain_number(cell: Any, missing: frozenset[str]) -> float | None:
    if not isinstance(cell, str):
        return as_number(cell)
    text = cell.strip()
    if text in missing or text.casefold() in MARKS:
        return float("nan")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _has_points(column: Any) -> bool:
    return any(isinstance(cell, str) and "." in cell for cell in column)


def _has_parts(numbers: ndarray) -> bool:
    present = numbers[np.isfinite(numbers)]
    return bool((present % 1 != 0).any())


def apply_readings(
    frame: Any, readings: Mapping[str, ColumnReading], missing: frozenset[str]
) -> Any:
    """Return a frame with values, by readings that are known already.

    Columns that are left out stay as they are; others without a reading too.
    """
    return _with_columns(frame, _changed_columns(frame, readings, missing))


def _with_columns(frame: Any, changed: Mapping[str, Any]) -> Any:
    """Return a frame with other cells in some columns, made at once: many take long."""
    import pandas as pd

    columns = {name: changed.get(str(name), column) for name, column in frame.items()}
    return pd.DataFrame(columns, index=frame.index)


def _changed_columns(
    frame: Any, readings: Mapping[str, ColumnReading], missing: frozenset[str]
) -> dict[str, Any]:
    """Return the values of columns by their readings."""
    import pandas as pd

    changed: dict[str, Any] = {}
    for name, column in frame.items():
        reading = readings.get(str(name))
        if reading is None or reading.kind in ("text", "ignore"):
            continue
        if reading.kind == "category":
            cells = _without(column.tolist(), missing | reading.missing)
            changed[str(name)] = pd.Categorical(pd.Series(cells, dtype=object))
        else:
            reading = replace(reading, missing=reading.missing | missing)
            try:
                numbers = reading.numbers(column.tolist())
            except ValueError as error:
                raise ValueError(
                    f"column {name!r}: {error}; before, it had {reading.described()}."
                ) from error
            values = times_of(numbers) if reading.kind == "date" else _short(numbers)
            changed[str(name)] = values
    return changed


def may_hold_texts(column: Any) -> bool:
    """Whether a column of pandas is no number, time or category by its type."""
    dtype = column.dtype
    if dtype.kind in "biufcmM" or str(dtype) == "category":
        return False
    if str(dtype) in ("str", "string"):
        return True
    # A frame of objects can hold numbers alone.
    return any(isinstance(cell, str) for cell in column)


def times_of(seconds: Float[ndarray, " n"]) -> ndarray:
    """Return seconds since 1970 as times, NaN as none."""
    missing = np.isnan(seconds)
    whole = np.round(np.where(missing, 0, seconds) * _MICROSECONDS).astype(np.int64)
    times = whole.astype("datetime64[us]")
    times[missing] = np.datetime64("NaT", "us")
    return times


def _short(numbers: Float[ndarray, " n"]) -> ndarray:
    """Return whole numbers as such, as every reader of files does."""
    if len(numbers) and np.isfinite(numbers).all() and (np.abs(numbers) < _WHOLE).all():
        whole = numbers.astype(np.int64)
        return whole if (whole == numbers).all() else numbers
    return numbers


def _without(cells: Sequence[Any], missing: frozenset[str]) -> list[Any]:
    """Return the cells without blanks around texts, None where there is no value."""
    stripped = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
    return [
        None if is_missing(cell) or (isinstance(cell, str) and cell in missing) else cell
        for cell in stripped
    ]
