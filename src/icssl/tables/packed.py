"""Tables in packed files (.gz and .zip), unpacked no further than the memory allows."""

import zlib
from gzip import BadGzipFile, GzipFile
from pathlib import PurePath
from typing import Any
from zipfile import BadZipFile, ZipFile

from icssl._util.errors import list_names, reason_of
from icssl._util.hardware import free_bytes
from icssl.tables.table_file import ReadOptions, Source

PACKED = (".gz", ".zip")
"""Suffixes behind that of the table, as in data.csv.gz; .zip can stand alone."""

_DAMAGED = (BadGzipFile, BadZipFile, zlib.error, EOFError, RuntimeError, OSError)
_PIECE = 2**20
_STARTS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"\x1f\x8b": ".gz",
    b"{": ".jsonl",
    b"[": ".json",
}


def unpack(source: Source, options: ReadOptions) -> Source:
    """Return the file that is inside a packed one, in memory."""
    try:
        with source.open() as raw:
            if source.name.lower().endswith(".gz"):
                with GzipFile(fileobj=raw) as file:
                    content = _read_some(file, source, options)
                return _source_inside(source.name[: -len(".gz")], content)
            with ZipFile(raw) as archive:
                member = _only_member(source.name, archive)
                with archive.open(member) as file:
                    content = _read_some(file, source, options)
                return _source_inside(f"{source.name}/{PurePath(member).name}", content)
    except _DAMAGED as error:
        raise ValueError(
            f"{source.name} cannot be unpacked, perhaps it is cut short: "
            f"{reason_of(error)}."
        ) from error


def suffix_by_content(content: bytes) -> str:
    """Return the suffix that a file without a name would have, by how it begins.

    Examples
    --------
    >>> suffix_by_content(b'{"a": 1}'), suffix_by_content(b"a,b")
    ('.jsonl', '.csv')
    """
    if content.startswith(b"PK"):
        parts = ((b"xl/workbook", ".xlsx"), (b".npy", ".npz"))
        return next((suffix for part, suffix in parts if part in content), ".zip")
    return next(
        (suffix for start, suffix in _STARTS.items() if content.startswith(start)), ".csv"
    )


def _source_inside(name: str, content: bytes) -> Source:
    """Return a file that was unpacked, with a suffix in any case."""
    suffix = PurePath(name).suffix
    return Source(name if suffix else name + suffix_by_content(content), content)


def _only_member(name: str, archive: ZipFile) -> str:
    """Return the name of the one file in an archive; notes of systems do not count."""
    members = [
        info.filename
        for info in archive.infolist()
        if not info.is_dir()
        and not info.filename.startswith("__MACOSX/")
        and not PurePath(info.filename).name.startswith(".")
    ]
    if len(members) != 1:
        listed = list_names(members) if members else "none"
        raise ValueError(f"{name} must hold one table, and it holds {listed}.")
    return members[0]


def _read_some(file: Any, source: Source, options: ReadOptions) -> bytes:
    """Read a file piece by piece, and refuse it as soon as it is too large."""
    limits, pieces, size = options.limits, [], 0
    # The bytes are needed several times: as they are, as text, and as cells.
    most = free_bytes() // 6 if limits is None else limits.unpacked
    while piece := file.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if limits is not None:
            limits.check_unpacked(source.name, size)
        if size > most:
            raise ValueError(
                f"{source.name} unpacks to more than {most / 2**20:,.0f} MB, a sixth of "
                "the memory that is free: unpack it, and give a part of it."
            )
    return b"".join(pieces)
