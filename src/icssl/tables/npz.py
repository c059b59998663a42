"""NPZ archives: sizes are checked before data are read, and any name is kept."""

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
"""What zipfile and NumPy raise for archives that are torn or made by hand."""


@dataclass(frozen=True)
class ArrayHeader:
    """What an archive says about an array before its data.

    Parameters
    ----------
    entry : str
        Name in the archive.
    shape : tuple of int
    dtype : numpy dtype
    """

    entry: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return prod(self.shape) * self.dtype.itemsize


def read_headers(path: Path) -> dict[str, ArrayHeader]:
    """Read names, shapes and kinds of all arrays, and none of their data.

    An array of objects is refused, since reading it would run code; so is one whose shape
    is not what the archive holds.
    """
    headers: dict[str, ArrayHeader] = {}
    with _opened(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                header = _read_header(entry.filename, file)
                length = file.tell()
            if length + header.nbytes != entry.file_size:
                raise ValueError(
                    f"{entry.filename!r} says it has {header.nbytes:,} bytes of data, and "
                    f"{entry.file_size - length:,} are there"
                )
            name = entry.filename.removesuffix(_SUFFIX)
            if name in headers:
                raise ValueError(f"it has more than one array {name!r}")
            headers[name] = header
    return headers


def read_arrays(path: Path, headers: Mapping[str, ArrayHeader]) -> dict[str, ndarray]:
    """Read the arrays of these headers, if there is memory for all of them."""
    size, free = sum(header.nbytes for header in headers.values()), free_bytes()
    if 2 * size > free:  # the arrays, and the features that are made of them
        raise ValueError(
            f"{path} unpacks to {size / 2**20:,.0f} MB, which are needed twice, and "
            f"{free / 2**20:,.0f} MB of memory are free: give fewer rows."
        )
    arrays = {}
    with _opened(path) as archive:
        for name, header in headers.items():
            with archive.open(header.entry) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, ndarray]) -> None:
    """Write an archive as ``np.savez`` does, whose own parameters no name can be."""
    with ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}{_SUFFIX}", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _read_header(name: str, file: Any) -> ArrayHeader:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        # Version 3.0, of which NumPy reads no header without the array.
        raise ValueError(f"{name!r} has fields with names that are not ASCII")
    if dtype.hasobject:
        raise ValueError(f"{name!r} is an array of objects, which are never read")
    return ArrayHeader(name, shape, dtype)


@contextmanager
def _opened(path: Path) -> Iterator[ZipFile]:
    try:
        with ZipFile(path) as archive:
            yield archive
    except _DAMAGED as error:
        raise ValueError(
            f"{path} cannot be read as .npz, perhaps it is cut short: {reason_of(error)}."
        ) from error
