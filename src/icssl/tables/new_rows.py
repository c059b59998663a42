"""Rows that come later: read into the columns, and in the ways, of an earlier table."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from icssl._util.errors import did_you_mean
from icssl.tables.cells import is_missing
from icssl.tables.column_reading import LEAST_SHARE, NOT_THERE, ColumnReading
from icssl.tables.frame_reading import apply_readings
from icssl.tables.table_file import FileTable
from icssl.tables.table_warning import TableWarning, quote
from icssl.tables.text_numbers import is_currency, same_money, written_number

_KINDS = {"M": "date", **dict.fromkeys("biufcm", "number")}


def all_readings(
    features: Any, known: Mapping[str, ColumnReading]
) -> dict[str, ColumnReading]:
    """Return how texts of every column are read, also where a column had none.

    Parameters
    ----------
    features : data frame
        The columns of the earlier table, with values in place of texts.
    known : mapping of str to ColumnReading
        How its columns of texts were read.
    """
    readings = {}
    for name, column in features.items():
        kind = _KINDS.get(column.dtype.kind, "category")
        readings[str(name)] = known.get(str(name), ColumnReading(kind))
    return readings


def features_like(
    name: str,
    file: FileTable,
    before: Any,
    readings: Mapping[str, ColumnReading],
    missing: Collection[str],
) -> tuple[Any, list[TableWarning]]:
    """Return the columns of an earlier table from a file of new rows, and doubts.

    Other columns are not used. A few cells that cannot be read count as missing.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    file : FileTable
        All of its cells.
    before : data frame
        The columns of the earlier table.
    readings : mapping of str to ColumnReading
        How texts of these columns are read.
    missing : collection of str
        Texts that a person said stand for no value.
    """
    if isinstance(file.cells, dict):
        raise ValueError(f"{name} must have columns with names.")
    frame = file.cells.set_axis(file.names, axis=1)
    if not len(frame):
        raise ValueError(f"{name} has a header and no rows.")
    for column in before:
        if column not in frame:
            raise ValueError(
                f"{name} has no column {column!r}, which the classifier was fitted "
                f"with.{did_you_mean(column, file.names)}"
            )
    frame = frame[list(before)]
    absent = NOT_THERE if file.is_text else frozenset()
    texts = absent | frozenset(text.strip() for text in missing)
    lenient, doubts = _pass_over_few(name, frame, readings, texts)
    features = apply_readings(frame, lenient, texts)
    for column in before:
        doubts += _doubts_about(str(column), features[column], before[column])
    return features, doubts


def _pass_over_few(
    name: str,
    frame: Any,
    readings: Mapping[str, ColumnReading],
    missing: frozenset[str],
) -> tuple[dict[str, ColumnReading], list[TableWarning]]:
    """Return readings that pass over a few cells that cannot be read, and say which.

    Raises ``ValueError`` where these are more than a table to learn from may have.
    """
    changed, doubts = dict(readings), []
    for column, reading in readings.items():
        doubts += _doubts_about_money(column, frame[column], reading)
        unread = _unread_rows(frame[column], reading, missing)
        if not unread:
            continue
        row, cell = next(iter(unread.items()))
        said = f"column {column!r}: {cell!r} in row {row:,} is no {reading.kind}"
        if len(unread) > (1 - LEAST_SHARE) * len(frame):
            raise ValueError(f"{name}: {said}; before, it had {reading.described()}.")
        more = f", as are {len(unread) - 1:,} more" if len(unread) > 1 else ""
        doubts.append(TableWarning(f"{said} and counts as missing{more}."))
        changed[column] = replace(reading, lenient=True)
    return changed, doubts


def _doubts_about_money(
    name: str, column: Any, reading: ColumnReading
) -> list[TableWarning]:
    """Return a warning if a column of money has another currency than before."""
    if reading.kind != "number" or not is_currency(reading.unit):
        return []
    if column.dtype.kind in "biufcmM":
        return []
    texts = {cell for cell in set(column.tolist()) if isinstance(cell, str)}
    units = {one.unit for text in texts if (one := written_number(text)) and one.unit}
    others = sorted(unit for unit in units if not same_money(unit, reading.unit))
    if not others:
        return []
    said = (
        f"column {name!r} has {quote(others)} where it had {reading.unit!r} before: the "
        "numbers are taken for the same money."
    )
    return [TableWarning(said)]


def _unread_rows(
    column: Any, reading: ColumnReading, missing: frozenset[str]
) -> dict[int, Any]:
    """Return the cells that are no number or date where the column has these, by row."""
    if reading.kind not in ("number", "date") or column.dtype.kind in "biufM":
        return {}
    reading = replace(reading, missing=reading.missing | missing)
    known = {cell: reading.number(cell) is None for cell in set(column.tolist())}
    return {row: cell for row, cell in enumerate(column.tolist()) if known[cell]}


def _doubts_about(name: str, new: Any, before: Any) -> list[TableWarning]:
    """Return warnings of a column that is empty, or is other than it was before."""
    there = new[~new.isna()]
    if not len(there):
        if before.isna().all():
            return []
        return [TableWarning(f"column {name!r} is empty in the new rows, and was not.")]
    if new.dtype.kind in "biuf" and before.dtype.kind in "biuf":
        return _out_of_range(name, there.to_numpy(float), before.to_numpy(float))
    if new.dtype.kind in "biufcmM" or before.dtype.kind in "biufcmM":
        return []
    known = {str(cell) for cell in before if not is_missing(cell)}
    unknown = [cell for cell in there if str(cell) not in known]
    # Where texts hardly ever repeat, new ones are no surprise.
    if 2 * len(unknown) <= len(there) or 2 * len(known) > len(before):
        return []
    said = (
        f"column {name!r}: {len(unknown):,} of {len(there):,} cells are texts that it did "
        f"not have before, such as {quote(list(dict.fromkeys(unknown)), 2)}."
    )
    return [TableWarning(said)]


def _out_of_range(name: str, new: Any, before: Any) -> list[TableWarning]:
    """Return a warning if most numbers are far from all that were there before."""
    before = before[np.isfinite(before)]
    if len(before) < 2:
        return []
    low, high = before.min(), before.max()
    outside = (new < low - (high - low)) | (new > high + (high - low))
    if 2 * outside.sum() <= len(new):
        return []
    said = (
        f"column {name!r}: {int(outside.sum()):,} of {len(new):,} numbers, such as "
        f"{new[outside][0]:g}, are far from all that it had before ({low:g} to {high:g}): "
        "are they in another unit?"
    )
    return [TableWarning(said)]
