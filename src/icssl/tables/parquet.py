"""Parquet files, checked before their cells are unpacked.

The footer says what the pages unpack to, but no reader holds it to that: readers allocate
what a page's own header says, which can be two gigabytes. So the headers of pages, structs
in Thrift's compact protocol, are read first.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import reason_of
from icssl.tables.cells import plain_column
from icssl.tables.table_file import FileTable, Limits, ReadOptions, Source, check_names

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_UNCOMPRESSED, _COMPRESSED = 2, 3  # fields of a page's header
_LEAST = 1024  # bytes that a page counts for, so that millions of empty ones are too many
_DEEPEST = 8  # structs inside each other; those of pages are three deep


def read_parquet(source: Source, options: ReadOptions) -> FileTable:
    """Read a Parquet file, after a look at its columns and at its size."""
    with open_parquet(source) as file:
        rows, columns = count_rows(file), file.metadata.num_columns
        schema = file.schema_arrow
    if options.limits is not None:
        options.limits.check_rows(source.name, rows)
        options.limits.check_columns(source.name, columns)
    check_names(source.name, "column", schema.names, [])
    check_flat(source.name, schema, options.unread)
    if options.limits is not None:
        _check_unpacked(source, options.limits)
    with open_parquet(source) as file:
        table = file.read()
    return FileTable(
        frame_of(source.name, table), partial(arrow_labels, [table]), lambda: table
    )


def write_parquet(table: Any, columns: Mapping[str, ndarray], path: Path, _: str) -> None:
    """Write a table of Arrow, all of whose columns stay as they were, and more columns."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    write_table(table, path)


def arrow_labels(tables: Sequence[Any], name: str) -> ndarray:
    """Return cells of a column over some tables of Arrow, whole numbers with all digits."""
    from pyarrow import types

    columns = [table.column(name) for table in tables]
    # Floats keep their type, which says how exact they are.
    return np.concatenate(
        [
            column.to_numpy() if types.is_floating(column.type) else plain_column(column)
            for column in columns
        ]
    )


def _check_unpacked(source: Source, limits: Limits) -> None:
    with source.open() as raw:
        content = raw.read()
    with open_parquet(source) as file:
        size = unpacked_bytes(file, content, limits.unpacked)
    limits.check_unpacked(source.name, size)


def page_bytes(content: bytes, chunk: Any, most: int) -> int:
    """Add up the bytes of all pages of a column chunk, until they are more than ``most``.

    Parameters
    ----------
    content : bytes
        All of the file.
    chunk : pyarrow.parquet.ColumnChunkMetaData
        What the footer says about the chunk.
    most : int
        Bytes after which counting stops.
    """
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    reader = _Reader(content, start)
    total = 0
    while reader.place < start + chunk.total_compressed_size and total <= most:
        header = reader.read_struct()
        total += max(header.get(_UNCOMPRESSED, 0), _LEAST)
        reader.place += max(header.get(_COMPRESSED, 0), 0)
    return total


class _Reader:
    """A reader of Thrift's compact protocol, at a place in some bytes."""

    def __init__(self, content: bytes, place: int) -> None:
        self._content, self.place = content, place

    def read_struct(self, depth: int = 0) -> dict[int, int]:
        """Read a struct and return its whole numbers by the numbers of their fields."""
        if depth > _DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        numbers: dict[int, int] = {}
        field = 0
        while (kind := (byte := self._byte()) & 15) != _STOP:
            # The upper four bits are the distance to the field before, or 0 if that is
            # more than 15: then the field's number follows.
            field = field + (byte >> 4) if byte >> 4 else self._integer()
            if kind in _INTEGERS:
                numbers[field] = self._integer()
            elif kind not in (_TRUE, _FALSE):  # these have no value behind them
                self._skip(kind, depth)
        return numbers

    def _skip(self, kind: int, depth: int) -> None:
        if kind == _BYTE:
            self.place += 1
        elif kind == _DOUBLE:
            self.place += 8
        elif kind == _BINARY:
            length = self._varint()
            self.place += length
        elif kind == _STRUCT:
            self.read_struct(depth + 1)
        else:  # headers of pages have no lists and no maps
            raise ValueError(f"the header of a page has a field of kind {kind}")

    def _byte(self) -> int:
        if not 0 <= self.place < len(self._content):
            raise ValueError("a page ends behind the end of the file")
        self.place += 1
        return self._content[self.place - 1]

    def _varint(self) -> int:
        """Read a number in groups of seven bits; the eighth says that more follow."""
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number in the header of a page is too long")

    def _integer(self) -> int:
        """Read a number that has its sign in the last bit."""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)


@contextmanager
def open_parquet(source: Source) -> Iterator[Any]:
    """Open a Parquet file; what pyarrow cannot read is a ``ValueError`` with its name."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        # From a disk by its name: then only the parts that are needed are read.
        with ParquetFile(source.name if source.content is None else source.open()) as file:
            yield file
    except FileNotFoundError:
        raise FileNotFoundError(f"{source.name} does not exist.") from None
    except (ValueError, OSError, ArrowException) as error:
        raise ValueError(
            f"{source.name} cannot be read as .parquet, perhaps it is cut short: "
            f"{reason_of(error)}."
        ) from error


def count_rows(file: Any) -> int:
    """Count the rows of all groups: readers go by these, not by the footer's total."""
    groups = range(file.metadata.num_row_groups)
    return sum(file.metadata.row_group(i).num_rows for i in groups)


def frame_of(name: str, table: Any, suffix: str = ".parquet") -> Any:
    """Return a table of Arrow, read from the file of this name, as a data frame."""
    try:
        return table.to_pandas()
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        # Pandas trusts the notes that it once left in the file.
        raise ValueError(
            f"{name} cannot be read as {suffix}, its notes for pandas are broken: {error!r}"
        ) from error


def check_flat(name: Path | str, schema: Any, unread: Collection[str] = ()) -> None:
    """Refuse columns whose cells are lists or records, except those in ``unread``.

    Maps are refused even there: pandas reads them, and cannot write them back.
    """
    for field in schema:
        has_map = _holds_map(field.type)
        if has_map or (field.name not in unread and _is_nested(field.type)):
            advice = "" if has_map else " Leave it out (icssl classify: --drop), or make"
            raise ValueError(
                f"{name}: cells of column {field.name!r} are not single values but "
                f"{field.type}.{advice or ' Make'} a column of each part."
            )


def unpacked_bytes(file: Any, content: bytes, most: int) -> int:
    """Count the bytes that all cells of a file without nested columns need in memory.

    A repeated text is in the file once, so the file's own account of its size says nothing
    about the cells. Texts are therefore unpacked, a few rows of one column at a time, and
    forgotten; more than ``most`` bytes are counted no further, and no more than about twice
    ``most`` are held.

    Parameters
    ----------
    file : pyarrow.parquet.ParquetFile
    content : bytes
        All of the file.
    most : int
        Bytes that are allowed.
    """
    packed = _packed_bytes(file, content, most)
    if sum(packed) > most:
        return sum(packed)
    total = 0
    for field, size in zip(file.schema_arrow, packed, strict=True):
        width = _fixed_bits(field.type)
        if width is not None:
            total += count_rows(file) * width // 8
            continue
        # In every encoding a cell is at most as long as all that is stored of its column.
        rows = max(1, most // max(size, 1))
        for batch in file.iter_batches(rows, columns=[field.name], use_threads=False):
            total += _decode(batch.column(field.name)).nbytes
            if total > most:
                return total
    return total


def _packed_bytes(file: Any, content: bytes, most: int) -> list[int]:
    """Count the bytes of every column before its cells are decoded, up to ``most``."""
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    sizes, total = [0] * len(file.schema_arrow), 0
    for group in groups:
        for j in range(len(sizes)):
            chunk = group.column(j)
            # The footer first: a file that is honest about being too large is not read.
            size = chunk.total_uncompressed_size
            if total + size <= most:
                size = max(size, page_bytes(content, chunk, most - total))
            sizes[j] += size
            total += size
            if total > most:
                return sizes
    return sizes


def _fixed_bits(kind: Any) -> int | None:
    """Return the bits per cell, or None if cells differ in length."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return None
    try:
        return int(kind.bit_width)
    except ValueError:
        return None


def _decode(cells: Any) -> Any:
    """Return the cells themselves instead of numbers in a dictionary of their values."""
    from pyarrow import types

    return cells.dictionary_decode() if types.is_dictionary(cells.type) else cells


def _is_nested(kind: Any) -> bool:
    from pyarrow import BaseExtensionType, types

    if isinstance(kind, BaseExtensionType):
        kind = kind.storage_type
    return types.is_nested(kind)


def _holds_map(kind: Any) -> bool:
    """Whether cells of this kind are maps, or lists or records of maps."""
    from pyarrow import types

    parts = (kind.field(i).type for i in range(kind.num_fields))
    return types.is_map(kind) or any(map(_holds_map, parts))
