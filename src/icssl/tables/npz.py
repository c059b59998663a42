"""NPZ archives and NPY files: sizes are checked before data are read.

NumPy's own reader allocates what a header says, and its writer takes no array of the name
``file``, so archives are read and written entry by entry.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from numpy import ndarray

from icssl._util.errors import reason_of
from icssl._util.hardware import free_bytes
from icssl.tables.table_file import FileTable, ReadOptions, Source, check_names

_SUFFIX = ".npy"
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    RuntimeError,  # an archive with a password, headers nested without end
    BadZipFile,
    ZlibError,
    SyntaxError,  # NumPy reads headers as Python
    TokenError,
)
"""Errors that zipfile and NumPy raise for archives that are torn or made by hand."""


@dataclass(frozen=True)
class _ArrayHeader:
    """The header of an array, which stands before its data."""

    entry: str  # its name in the archive
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return prod(self.shape) * self.dtype.itemsize


def read_npz(source: Source, options: ReadOptions) -> FileTable:
    """Read all arrays of an archive, after a look at the shape of the target."""
    headers = _read_headers(source)
    wanted = [] if options.target is None else [options.target]
    check_names(source.name, "array", list(headers), [*wanted, *options.unread])
    for name in wanted:
        shape = headers[name].shape
        if len(shape) != 1 or not shape[0]:
            raise ValueError(
                f"{source.name}: {name!r} must have one label per row, got {shape}."
            )
    return FileTable(_read_arrays(source, headers))


def read_npy(source: Source, options: ReadOptions) -> FileTable:
    """Read one array whose last column is the class, as the arrays ``x`` and ``y``."""
    try:
        with source.open() as file:
            _read_header(source.name, file, source.size)
            file.seek(0)
            table = np.lib.format.read_array(file, allow_pickle=False)
    except _DAMAGED as error:
        raise ValueError(
            f"{source.name} cannot be read as .npy: {reason_of(error)}."
        ) from error
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(
            f"{source.name} must have shape (rows, d + 1) with the class in the last "
            f"column, got {table.shape}."
        )
    return FileTable({"x": table[:, :-1], "y": table[:, -1].astype(np.int64)})


def write_npz(
    arrays: Mapping[str, ndarray], columns: Mapping[str, ndarray], path: Path, _: str
) -> None:
    """Write the arrays as they were read, and more of them."""
    # Objects would be stored as pickles, which run code when they are read.
    texts = {
        name: values.astype(str) if values.dtype == object else values
        for name, values in columns.items()
    }
    write_arrays(path, {**arrays, **texts})


def _read_headers(source: Source) -> dict[str, _ArrayHeader]:
    """Read names, shapes and kinds of all arrays, and none of their data.

    An array of objects is refused, since reading it would run code; so is one whose shape
    is not what the archive holds.
    """
    headers: dict[str, _ArrayHeader] = {}
    with _open_archive(source) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                header = _read_header(entry.filename, file, entry.file_size)
            name = entry.filename.removesuffix(_SUFFIX)
            if name in headers:
                raise ValueError(f"it has more than one array {name!r}")
            headers[name] = header
    return headers


def _read_arrays(source: Source, headers: Mapping[str, _ArrayHeader]) -> dict[str, ndarray]:
    """Read the arrays of these headers, if there is memory for all of them."""
    size, free = sum(header.nbytes for header in headers.values()), free_bytes()
    if 2 * size > free:  # the arrays, and the features that are made of them
        raise ValueError(
            f"{source.name} unpacks to {size / 2**20:,.0f} MB, which are needed twice, and "
            f"{free / 2**20:,.0f} MB of memory are free: give fewer rows."
        )
    arrays = {}
    with _open_archive(source) as archive:
        for name, header in headers.items():
            with archive.open(header.entry) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, ndarray]) -> None:
    """Write an archive as ``np.savez`` does, with arrays of any name."""
    with ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}{_SUFFIX}", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _read_header(name: str, file: Any, size: int) -> _ArrayHeader:
    """Read a header; refuse objects, and data that are not as long as it says."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        # Version 3.0: NumPy cannot read its header without the array.
        raise ValueError(f"{name!r} has fields with names that are not ASCII")
    if dtype.hasobject:
        raise ValueError(f"{name!r} is an array of objects, which are never read")
    header, data = _ArrayHeader(name, shape, dtype), size - file.tell()
    if header.nbytes != data:
        raise ValueError(
            f"{name!r} says it has {header.nbytes:,} bytes of data, and {data:,} are there"
        )
    return header


@contextmanager
def _open_archive(source: Source) -> Iterator[ZipFile]:
    try:
        with source.open() as file, ZipFile(file) as archive:
            yield archive
    except _DAMAGED as error:
        raise ValueError(
            f"{source.name} cannot be read as .npz, perhaps it is cut short: "
            f"{reason_of(error)}."
        ) from error
