"""Rows that come later: read into the columns, and in the ways, of an earlier table."""

from collections.abc import Collection, Mapping
from typing import Any

from icssl._util.errors import did_you_mean
from icssl.tables.column_reading import NOT_THERE, ColumnReading
from icssl.tables.frame_reading import apply_readings
from icssl.tables.table_file import FileTable

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
    columns: Collection[str],
    readings: Mapping[str, ColumnReading],
    missing: Collection[str],
) -> Any:
    """Return the columns of an earlier table from a file of new rows; others are not used.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    file : FileTable
        All of its cells.
    columns : collection of str
        Names of the columns that the earlier table has.
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
    for column in columns:
        if column not in frame:
            raise ValueError(
                f"{name} has no column {column!r}, which the classifier was fitted "
                f"with.{did_you_mean(column, file.names)}"
            )
    absent = NOT_THERE if file.is_text else frozenset()
    texts = frozenset(text.strip() for text in missing)
    try:
        return apply_readings(frame[list(columns)], readings, absent | texts)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
