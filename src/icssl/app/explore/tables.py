"""Tables that a person drops on the page: kept in memory, labelled, given back.

Nothing that the page sends names a file: a table is known by the fingerprint of its bytes,
and is read from memory, or from a temporary folder that is gone afterwards.
"""

import base64
import binascii
import csv
import hashlib
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO, TextIOWrapper
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import printable
from icssl.app.explore.clouds import cache_last
from icssl.app.labelling import Labelling, label_rows
from icssl.tables.cells import exact_number, is_missing
from icssl.tables.columns import MOST_CATEGORIES
from icssl.tables.features import LABEL_NAMES
from icssl.tables.files import (
    LabelTable,
    allow_long_cells,
    check_names,
    default_output,
    read_table,
    write_table,
)
from icssl.tables.parquet import (
    check_flat,
    count_rows,
    opened_parquet,
    read_frame,
    unpacked_bytes,
)

MOST_BYTES = 8 * 2**20
MOST_ROWS = 5_000
MOST_COLUMNS = 10_000
MOST_UNPACKED = 2**26  # bytes of all cells in memory
MOST_NUMBERS = 2**24  # that the classifier makes of all cells
SUFFIXES = (".csv", ".parquet")
_REMEMBERED = 4  # tables of a client
_MOST_KEPT = 2**28  # bytes of the tables of all clients
_GONE = 3600  # seconds without a sign of a client
_MANY = 30  # different values: more are hardly classes
_ASK_INSTEAD = "icssl classify FILE --target COLUMN, in a terminal, has no such limit."


@dataclass(frozen=True)
class Upload:
    """A file as it was dropped; two of the same fingerprint are equal.

    Parameters
    ----------
    name : str
        Its name, without any folder: for messages and the download, never opened.
    content : bytes
    columns : tuple of str
    key : str
        Fingerprint of name and content.
    guess : str
        The column that looks most like labels, or nothing.
    """

    name: str = field(compare=False)
    content: bytes = field(repr=False, compare=False)
    columns: tuple[str, ...] = field(compare=False)
    key: str
    guess: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """Bytes that it takes as long as it is kept, about."""
        return len(self.content) + sum(64 + len(name) for name in self.columns)


class Uploads:
    """The last few tables of every client, by fingerprint.

    A client's own tables make room for its new ones, and for nobody else's. When the memory
    for all is spent, those of clients that were not heard of for long are forgotten.

    Parameters
    ----------
    most : int
        Bytes of all tables together.
    clock : callable
        Seconds.
    """

    def __init__(
        self, most: int = _MOST_KEPT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept: dict[str, OrderedDict[str, Upload]] = {}
        self._seen: dict[str, float] = {}
        self._most, self._clock = most, clock
        self._lock = threading.Lock()  # every request has a thread of its own
        self._reading = threading.Lock()  # one file is unpacked at a time

    def add(self, name: str, contents: str, client: str = "") -> Upload:
        """Check a file as the browser sends it, and keep it."""
        with self._reading:
            upload = read_upload(name, contents)
        with self._lock:
            own = self._kept.get(client, OrderedDict()).copy()
            own.pop(upload.key, None)
            while len(own) >= _REMEMBERED:
                own.popitem(last=False)
            own[upload.key] = upload
            self._make_room(client, own)
            self._kept[client], self._seen[client] = own, self._clock()
        return upload

    def get(self, key: str, client: str = "") -> Upload:
        """A table that the client added, or a ``ValueError`` that says to drop it again."""
        upload = self._find(key, client)
        if upload is None:
            raise ValueError(
                "The table of this link is not on this page any more, or was dropped in "
                "another browser: drop the file again."
            )
        return upload

    def columns(self, key: str, client: str = "") -> list[str]:
        """Of a table that the client added; none of any other."""
        upload = self._find(key, client)
        return [] if upload is None else list(upload.columns)

    def _find(self, key: str, client: str) -> Upload | None:
        with self._lock:
            if client not in self._kept:
                return None
            self._seen[client] = self._clock()
            return self._kept[client].get(key)

    def _make_room(self, client: str, own: Mapping[str, Upload]) -> None:
        """Forget clients that are gone, if a client's tables fit no more beside others."""
        if self._fits(client, own):
            return
        late = self._clock() - _GONE
        for other in [other for other, seen in self._seen.items() if seen < late]:
            del self._kept[other], self._seen[other]
        if not self._fits(client, own):
            raise ValueError(
                "The page holds as many tables of other people as it can: try again later, "
                f"or on a page of your own (icssl explore). {_ASK_INSTEAD}"
            )

    def _fits(self, client: str, own: Mapping[str, Upload]) -> bool:
        tables = {**self._kept, client: own}.values()
        return sum(each.size for kept in tables for each in kept.values()) <= self._most


def read_upload(name: str, contents: str) -> Upload:
    """A file from ``data:...;base64,...``; what is no table of ours is refused."""
    name = printable(PurePath(name.replace("\\", "/")).name, 200) or "table"
    suffix = PurePath(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{name} is no table that the page reads: drop a file that ends in "
            f"{' or '.join(SUFFIXES)}."
        )
    content = _decoded(name, contents)
    key = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()[:16]
    read = _parquet_frame if suffix == ".parquet" else _csv_frame
    frame = read(name, content)
    columns = tuple(str(column) for column in frame.columns)
    return Upload(name, content, columns, key, _likely_target(frame))


def check_size(name: str, size: int) -> None:
    """Refuse a file of more bytes than the page takes."""
    if size > MOST_BYTES:
        raise ValueError(
            f"{name} has {size / 2**20:,.1f} MB, and the page takes "
            f"{MOST_BYTES // 2**20} MB: drop a part of it. {_ASK_INSTEAD}"
        )


def _decoded(name: str, contents: str) -> bytes:
    _, _, encoded = contents.partition(",")
    try:
        content = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} did not arrive whole: drop it again.") from error
    check_size(name, len(content))
    if not content:
        raise ValueError(f"{name} is empty: drop a file with a header and rows.")
    return content


def _csv_frame(name: str, content: bytes) -> Any:
    """Every column, of a row more than the page takes at most."""
    with _explained(name):
        import pandas as pd

        columns = _widest_line(content)
    # Before pandas reads it, which needs 3 kB for each column.
    _check_count(name, "columns", columns, MOST_COLUMNS)
    with _explained(name):
        frame = pd.read_csv(
            BytesIO(content),
            encoding="utf-8-sig",
            index_col=False,
            low_memory=False,
            nrows=MOST_ROWS + 1,
        )
    _check_count(name, "rows", len(frame), MOST_ROWS, f"more than {MOST_ROWS:,}")
    return frame


def _widest_line(content: bytes) -> int:
    """Return the most cells that a line has."""
    allow_long_cells(len(content))
    text = TextIOWrapper(BytesIO(content), encoding="utf-8-sig", newline="")
    try:
        # All of them: pandas skips blank lines and would read on.
        return max(map(len, csv.reader(text)), default=0)
    except csv.Error as error:
        raise ValueError(str(error)) from error


def _parquet_frame(name: str, content: bytes) -> Any:
    """Every column, if what the file unpacks to is not above what is taken."""
    with _explained(name):
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    with opened_parquet(name, BytesIO(content)) as file:
        rows, about, schema = count_rows(file), file.metadata, file.schema_arrow
    _check_count(name, "rows", rows, MOST_ROWS)
    _check_count(name, "columns", about.num_columns, MOST_COLUMNS)
    check_names(name, "column", schema.names, [])
    check_flat(name, schema)
    with opened_parquet(name, BytesIO(content)) as file:
        size = unpacked_bytes(file, content, MOST_UNPACKED)
    if size > MOST_UNPACKED:
        raise ValueError(
            f"{name} unpacks to more than the {MOST_UNPACKED // 2**20} MB that the page "
            f"takes: drop a part of it. {_ASK_INSTEAD}"
        )
    return read_frame(name, BytesIO(content))


def _check_count(name: str, kind: str, count: int, most: int, said: str = "") -> None:
    """Refuse more rows or columns than the page takes."""
    if count > most:
        raise ValueError(
            f"{name} has {said or f'{count:,}'} {kind}, and the page takes {most:,}: drop "
            f"fewer. {_ASK_INSTEAD}"
        )


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Errors of a reader with the name of the file, or of what is not installed."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"tables need {error.name}: pip install 'icssl[tables]'."
        ) from error
    except (ValueError, OSError) as error:
        said = str(error).rstrip(".")
        raise ValueError(f"{name} cannot be read as a table: {said}.") from error


def labelled_table(
    upload: Upload, target: str, marks: Sequence[tuple[int, str]]
) -> tuple[Labelling, tuple[str, ...]]:
    """What the classifier says, with labels that were given on the page; and warnings."""
    return _labelled(upload, target, tuple(marks))


@cache_last(_REMEMBERED)
def _labelled(
    upload: Upload, target: str, marks: tuple[tuple[int, str], ...]
) -> tuple[Labelling, tuple[str, ...]]:
    with TemporaryDirectory() as folder:
        path = _stored(upload, folder)
        try:
            read = read_table(path, target)
        except (ValueError, OSError) as error:
            raise ValueError(_said(error, path, upload)) from error
    _check_encoded(upload.name, read.features)
    table = replace(read, name=upload.name, target=_marked(read, marks))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            found = label_rows(table, device="cpu", suggestions=10)
        except ValueError as error:
            raise ValueError(f"{error} {_hint(target)}") from error
    return found, tuple(str(warning.message) for warning in caught)


def _check_encoded(name: str, features: Any) -> None:
    """Refuse a table whose texts make too many columns of numbers, one for each text."""
    columns = sum(
        1 if column.dtype.kind in "biufmM" else min(column.nunique(), MOST_CATEGORIES)
        for _, column in features.items()
    )
    if columns * len(features) > MOST_NUMBERS:
        raise ValueError(
            f"{name} has {len(features):,} rows, and with a column for each text it has "
            f"{columns:,} columns: together more than the {MOST_NUMBERS:,} numbers that "
            f"the page takes. Drop fewer columns of texts. {_ASK_INSTEAD}"
        )


def download(upload: Upload, found: Labelling) -> tuple[str, bytes]:
    """The file with its new columns: its name and its bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"out{PurePath(upload.name).suffix.lower()}"
        write_table(found.table, found.columns, path)
        return default_output(Path(upload.name)).name, path.read_bytes()


def _stored(upload: Upload, folder: str) -> Path:
    """The bytes in a file whose name is ours."""
    path = Path(folder) / f"table{PurePath(upload.name).suffix.lower()}"
    path.write_bytes(upload.content)
    return path


def _said(error: Exception, path: Path, upload: Upload) -> str:
    """The message with the name that the person knows."""
    return str(error).replace(str(path), upload.name).rstrip(".") + "."


def _hint(target: str) -> str:
    return (
        f"Is {target!r} the column of labels? It needs two different ones at least, and "
        "empty cells for the rows to label."
    )


def _marked(table: LabelTable, marks: tuple[tuple[int, str], ...]) -> ndarray:
    """The target with the page's labels, as cells of the same kind as its own."""
    target = np.array(table.target, dtype=object)
    example = next((cell for cell in target if not is_missing(cell) and cell != -1), "")
    for row, label in marks:
        if not 0 <= row < len(target):
            raise ValueError(f"row {row} is not in the table: it has {len(target)}.")
        target[row] = _like(example, label)
    return target


def _like(example: Any, label: str) -> Any:
    """``label`` as a number or a truth value where the others are."""
    if isinstance(example, (bool, np.bool_)):
        if label.lower() not in ("true", "false"):
            raise ValueError(f"labels of this column are true and false, got {label!r}.")
        return label.lower() == "true"
    if isinstance(example, (int, float, np.integer, np.floating)):
        try:
            return exact_number(label)
        except ArithmeticError as error:  # that Decimal raises
            raise ValueError(
                f"labels of this column are whole numbers, got {label!r}."
            ) from error
    return label


def _likely_target(frame: Any) -> str:
    """A column called like labels, else one with few values that some rows lack."""
    names = [str(column) for column in frame.columns]
    for wanted in LABEL_NAMES:
        if wanted in names:
            return wanted
    for name, (_, column) in zip(names, frame.items(), strict=True):
        if column.isna().any() and 2 <= column.nunique() <= _MANY:
            return name
    return ""
