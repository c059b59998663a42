"""Tables that a person drops on the page: remember them, label them, give them back.

Nothing that the page sends names a file: a table is found by the fingerprint of its bytes,
and is read from memory.
"""

import base64
import binascii
import hashlib
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import printable
from icssl._util.progress import begin_steps
from icssl.app.explore.clouds import cache_last
from icssl.app.explore.reading import Reading
from icssl.app.labelling import Labelling, label_rows
from icssl.app.quality import not_measured
from icssl.classifier.graph_memory import GraphMemory, remember_graphs
from icssl.tables.cells import exact_number, is_missing
from icssl.tables.columns import MOST_CATEGORIES
from icssl.tables.formats import page_suffixes, read_file, suffix_of
from icssl.tables.label_table import LabelTable, read_table
from icssl.tables.output import default_output, write_table
from icssl.tables.table_file import FileTable, Limits, ReadOptions, Source
from icssl.tables.table_warning import text_of
from icssl.tables.target_guess import guess_target

MOST_BYTES = 8 * 2**20
MOST_ROWS = 5_000
MOST_COLUMNS = 10_000
_MOST_NUMBERS = 2**24  # numbers that the classifier makes of all cells
_LONGEST_NAME = 10_000  # characters of the name of a column
_REMEMBERED = 4  # tables per client
_MOST_HELD = 2**28  # bytes of the tables of all clients
_GONE = 3600  # seconds without a sign of a client
_ASK_INSTEAD = "icssl classify FILE, in a terminal, has no such limit."
_MOST_JUDGED = 1_000  # rows up to which labels are hidden to see how good it is
_ASK_FOR_SCORE = not_measured(
    _MOST_JUDGED, "icssl classify FILE, in a terminal, measures it if it is asked to."
)
_GRAPHS = GraphMemory()  # most graphs stay the same when a row gets a label
_LIMITS = Limits(MOST_ROWS, MOST_COLUMNS, 2**26, "the page", _ASK_INSTEAD)


@dataclass(frozen=True)
class Upload:
    """A file as it was dropped; two with the same fingerprint are equal.

    Parameters
    ----------
    name : str
        Name without any folder, for messages and the download; it is never opened.
    content : bytes
        The file itself.
    columns : tuple of str
        Names of the columns.
    key : str
        Fingerprint of name and content.
    guess : str
        Name of the column that looks most like labels, or an empty text.
    """

    name: str = field(compare=False)
    content: bytes = field(repr=False, compare=False)
    columns: tuple[str, ...] = field(compare=False)
    key: str
    guess: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """Bytes of memory that it needs, about."""
        return len(self.content) + sum(64 + len(name) for name in self.columns)


class Uploads:
    """The last few tables of every client, by fingerprint.

    A client's older tables make room for its new ones, never for those of others. When the
    memory for all is spent, clients that were not heard of for long are forgotten.

    Parameters
    ----------
    most : int
        Most bytes of all tables together.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, most: int = _MOST_HELD, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._uploads: dict[str, OrderedDict[str, Upload]] = {}
        self._seen: dict[str, float] = {}
        self._most, self._clock = most, clock
        self._lock = threading.Lock()  # every request has a thread of its own
        self._reading = threading.Lock()  # one file is unpacked at a time

    def add(self, name: str, contents: str, client: str = "") -> Upload:
        """Check a file as the browser sends it, and remember it."""
        with self._reading:
            upload = read_upload(name, contents)
        with self._lock:
            uploads = self._uploads.get(client, OrderedDict()).copy()
            uploads.pop(upload.key, None)
            while len(uploads) >= _REMEMBERED:
                uploads.popitem(last=False)
            uploads[upload.key] = upload
            self._make_room(client, uploads)
            self._uploads[client], self._seen[client] = uploads, self._clock()
        return upload

    def get(self, key: str, client: str = "") -> Upload:
        """Return a table that the client added; raise ``ValueError`` if it is gone."""
        upload = self._find(key, client)
        if upload is None:
            raise ValueError(
                "The table of this link is not on this page any more, or was dropped in "
                "another browser: drop the file again."
            )
        return upload

    def columns(self, key: str, client: str = "") -> list[str]:
        """Return the columns of a table that the client added, and none of any other."""
        upload = self._find(key, client)
        return [] if upload is None else list(upload.columns)

    def _find(self, key: str, client: str) -> Upload | None:
        with self._lock:
            if client not in self._uploads:
                return None
            self._seen[client] = self._clock()
            return self._uploads[client].get(key)

    def _make_room(self, client: str, uploads: Mapping[str, Upload]) -> None:
        """Forget clients that are gone, if a client's tables do not fit beside others."""
        if self._fits(client, uploads):
            return
        late = self._clock() - _GONE
        for other in [other for other, seen in self._seen.items() if seen < late]:
            del self._uploads[other], self._seen[other]
        if not self._fits(client, uploads):
            raise ValueError(
                "The page holds as many tables of other people as it can: try again later, "
                f"or on a page of your own (icssl explore). {_ASK_INSTEAD}"
            )

    def _fits(self, client: str, uploads: Mapping[str, Upload]) -> bool:
        tables = {**self._uploads, client: uploads}.values()
        size = sum(upload.size for of_client in tables for upload in of_client.values())
        return size <= self._most


def read_upload(name: str, contents: str) -> Upload:
    """Read a file from ``data:...;base64,...``; refuse what is no table for the page."""
    name = printable(PurePath(name.replace("\\", "/")).name, 200) or "table"
    suffixes = page_suffixes()
    if suffix_of(name) not in suffixes:
        raise ValueError(
            f"{name} is no table that the page reads: drop a file that ends in "
            f"{' or '.join(suffixes)}."
        )
    content = _decode(name, contents)
    key = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()[:16]
    table = read_file(Source(name, content), ReadOptions(limits=_LIMITS), suffixes)
    longest = max(table.names, key=len, default="")
    if len(longest) > _LONGEST_NAME:  # a browser that lists it would stop
        raise ValueError(
            f"{name} has a column whose name, {printable(longest, 80)!r}, has "
            f"{len(longest):,} characters: is its first line the header, and its separator "
            "one that tables have?"
        )
    return Upload(name, content, tuple(table.names), key, _likely_target(name, table))


def check_size(name: str, size: int) -> None:
    """Refuse a file of more bytes than the page takes."""
    if size > MOST_BYTES:
        raise ValueError(
            f"{name} has {size / 2**20:,.1f} MB, and the page takes "
            f"{MOST_BYTES // 2**20} MB: drop a part of it. {_ASK_INSTEAD}"
        )


def _decode(name: str, contents: str) -> bytes:
    _, _, encoded = contents.partition(",")
    try:
        content = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} did not arrive whole: drop it again.") from error
    check_size(name, len(content))
    if not content:
        raise ValueError(f"{name} is empty: drop a file with a header and rows.")
    return content


def columns_of(upload: Upload, reading: Reading) -> list[str]:
    """Return the columns of a table, if it is read in a way that a person has set."""
    if not (reading.separator or reading.encoding):
        return list(upload.columns)
    source = Source(upload.name, upload.content)
    return list(read_file(source, reading.options(_LIMITS), page_suffixes()).names)


def label_upload(
    upload: Upload,
    target: str,
    marks: Sequence[tuple[int, str]],
    reading: Reading | None = None,
) -> tuple[Labelling, tuple[str, ...]]:
    """Label a table, with labels that were given on the page; return warnings too."""
    return _label_upload(upload, target, tuple(marks), reading or Reading())


@cache_last(_REMEMBERED)
def _label_upload(
    upload: Upload, target: str, marks: tuple[tuple[int, str], ...], reading: Reading
) -> tuple[Labelling, tuple[str, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        source = Source(upload.name, upload.content)
        table = read_table(source, target, limits=_LIMITS, **reading.arguments())
        _check_encoded(upload.name, table.features)
        table = replace(table, target=_add_marks(table, marks))
        judge = len(table.target) <= _MOST_JUDGED
        try:
            with remember_graphs(_GRAPHS):
                labelling = label_rows(
                    table,
                    device="cpu",
                    suggestions=10,
                    judge=judge,
                    on_progress=lambda text: begin_steps(0, text.removesuffix(" ...")),
                )
        except ValueError as error:
            raise ValueError(f"{error} {_hint(target)}") from error
        labelling = replace(labelling, unmeasured="" if judge else _ASK_FOR_SCORE)
    return labelling, tuple(text_of(warning.message, "page") for warning in caught)


def _check_encoded(name: str, features: Any) -> None:
    """Refuse a table whose texts become too many columns of numbers, one per text."""
    columns = sum(
        1 if column.dtype.kind in "biufmM" else min(column.nunique(), MOST_CATEGORIES)
        for _, column in features.items()
    )
    if columns * len(features) > _MOST_NUMBERS:
        raise ValueError(
            f"{name} has {len(features):,} rows, and with a column for each text it has "
            f"{columns:,} columns: together more than the {_MOST_NUMBERS:,} numbers that "
            "the page takes. Upload it without some of its columns of texts. "
            f"{_ASK_INSTEAD}"
        )


def download(
    upload: Upload, labelling: Labelling, marks: Sequence[tuple[int, str]] = ()
) -> tuple[str, bytes]:
    """Return the file with its new columns, and with the labels that were given here.

    These also stand in the column of labels: somebody looked them up, and a new run should
    begin with them.
    """
    table = _with_marks(labelling.table, marks)
    with TemporaryDirectory() as folder:
        name = default_output(Path(upload.name)).name
        path = Path(folder) / f"out{suffix_of(name)}"
        write_table(table, labelling.columns, path)
        return name, path.read_bytes()


def _with_marks(table: LabelTable, marks: Sequence[tuple[int, str]]) -> LabelTable:
    """Return a table to write whose stored column of labels has those of the page."""
    stored, name = table.stored, table.target_name
    given = [(row, table.target[row]) for row, _ in marks]
    if not given:
        return table
    if hasattr(stored, "column_names"):
        import pyarrow as pa

        cells = stored.column(name).to_pylist()
        for row, label in given:
            cells[row] = label
        place, kind = stored.column_names.index(name), stored.schema.field(name).type
        stored = stored.set_column(place, name, pa.array(cells, kind))
    else:
        cells = stored[name].astype(object)
        for row, label in given:
            cells.iloc[row] = label
        stored = stored.assign(**{name: cells})
    return replace(table, stored=stored)


def _hint(target: str) -> str:
    return (
        f"Is {target!r} the column of labels? It needs two different ones at least, and "
        "empty cells for the rows to label."
    )


def _add_marks(table: LabelTable, marks: tuple[tuple[int, str], ...]) -> ndarray:
    """Return the target with labels from the page, of the same kind as its own."""
    target = np.array(table.target, dtype=object)
    example = next((cell for cell in target if not is_missing(cell) and cell != -1), "")
    for row, label in marks:
        if not 0 <= row < len(target):
            raise ValueError(f"row {row} is not in the table: it has {len(target)}.")
        target[row] = _like(example, label)
    return target


def _like(example: Any, label: str) -> Any:
    """Return the label as a number or a boolean where the example is one."""
    if isinstance(example, (bool, np.bool_)):
        if label.lower() not in ("true", "false"):
            raise ValueError(f"labels of this column are true and false, got {label!r}.")
        return label.lower() == "true"
    if isinstance(example, (int, float, np.integer, np.floating)):
        try:
            return exact_number(label)
        except ArithmeticError as error:  # what Decimal raises
            raise ValueError(
                f"labels of this column are whole numbers, got {label!r}."
            ) from error
    return label


def _likely_target(name: str, file: FileTable) -> str:
    """Return the column that looks most like labels, or an empty text."""
    try:
        return guess_target(name, file)[0]
    except ValueError:
        return ""
