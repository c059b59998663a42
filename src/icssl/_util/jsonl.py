"""Files of JSON lines that several processes append to at once.

Every line carries a checksum of its own values, so that one that was edited or damaged is
refused by its number. A kill while a line is written leaves a last line without its end:
it is passed over when the file is read, and cut off when the next line is appended.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from filelock import FileLock

from icssl._util.errors import DamagedFileError, UnwrittenFileError

CHECKSUM = "sum"
Values = dict[str, Any]


@dataclass(frozen=True)
class _Place:
    """A place in a file, at the end of a line: bytes and lines before it."""

    offset: int = 0
    lines: int = 0


START = _Place()


def lock_of(path: Path) -> FileLock:
    """Return the lock under which a file is changed; it ends with the process that has it.

    It lies beside the file, hidden, and stays there: to delete a lock that another process
    waits for would let two of them in.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"))


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Append one line, which is on the disk when this returns.

    Raises ``OSError`` if it cannot be written, for example on a full disk; the file then
    holds the lines that it held before.
    """
    line = line_of(values).encode()
    with lock_of(path), FileIO(path, "a+") as file:
        end = _cut_torn_line(file)
        try:
            _write_all(file, line)
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(end)
            reason = (error.strerror or str(error)).lower()
            raise UnwrittenFileError(
                f"{path} could not take another line: {reason}. The lines before it are "
                "whole; make room and run the same command again."
            ) from error


def read_lines(path: Path, place: _Place = START) -> tuple[list[Values], _Place]:
    """Return the values of all lines after a place, and the place where they end.

    What a kill left of a last line is passed over. A line that is whole and is not as
    :func:`append_line` wrote it raises ``DamagedFileError`` with its number.
    """
    with path.open("rb") as file:
        file.seek(place.offset)
        content = file.read()
    *whole, rest = content.split(b"\n")
    end = _Place(place.offset + len(content) - len(rest), place.lines + len(whole))
    if rest and not _is_torn(rest):  # only the end of the line is missing
        whole.append(rest)
    values = [_values(path, n, text) for n, text in enumerate(whole, place.lines + 1)]
    return values, end


def line_of(values: Mapping[str, Any]) -> str:
    """Return plain values as a line, with their checksum."""
    checked = {**values, CHECKSUM: checksum(values)}
    return json.dumps(checked, separators=(",", ":")) + "\n"


def checksum(values: Mapping[str, Any]) -> str:
    """Return a short hash of plain values, the same whatever the order of their names."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _values(path: Path, number: int, text: bytes) -> Values:
    """Return the values of a line; refuse one that was edited or damaged."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_a_row(path, number, f"{type(error).__name__}: {error}") from error
    if not isinstance(values, dict) or CHECKSUM not in values:
        raise not_a_row(path, number, "it has no checksum")
    if values.pop(CHECKSUM) != checksum(values):
        raise not_a_row(path, number, "it was changed since it was written")
    return values


def not_a_row(path: Path, number: int, reason: str) -> DamagedFileError:
    """Return the error for a whole line that cannot be used."""
    return DamagedFileError(
        f"{path}, line {number}, is no row: {reason.rstrip('.')}. Delete this line, and "
        "what it was of is run again."
    )


def _is_torn(text: bytes) -> bool:
    """Whether text is only a part of a line: no part of an object is JSON by itself."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _cut_torn_line(file: FileIO) -> int:
    """End the file with a whole line, in place, and return its length then."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    content = file.readall()
    end = content.rfind(b"\n") + 1
    if _is_torn(content[end:]):
        file.truncate(end)
        return end
    _write_all(file, b"\n")
    return size + 1


def _write_all(file: FileIO, content: bytes) -> None:
    """Write unbuffered: a buffer would try again, after an error, when it is closed."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
