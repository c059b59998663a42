"""Feather: files of Arrow as it is in memory."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from numpy import ndarray

from icssl._util.errors import reason_of
from icssl.tables.parquet import arrow_labels, check_flat, frame_of
from icssl.tables.table_file import FileTable, ReadOptions, Source, check_names


def read_feather(source: Source, options: ReadOptions) -> FileTable:
    """Read a Feather file, the new version and the old one."""
    from pyarrow import ArrowException
    from pyarrow.feather import read_table

    try:
        with source.open() as file:
            table = read_table(file)
    except (ValueError, OSError, ArrowException) as error:
        raise ValueError(
            f"{source.name} cannot be read as .feather, perhaps it is cut short: "
            f"{reason_of(error)}."
        ) from error
    check_names(source.name, "column", table.column_names, [])
    check_flat(source.name, table.schema, options.unread)
    frame = frame_of(source.name, table, ".feather")
    return FileTable(frame, partial(arrow_labels, [table]), lambda: table)


def write_feather(table: Any, columns: Mapping[str, ndarray], path: Path, _: str) -> None:
    """Write a table of Arrow, all of whose columns stay as they were, and more columns."""
    import pyarrow as pa
    from pyarrow.feather import write_feather as write

    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    write(table, str(path))
