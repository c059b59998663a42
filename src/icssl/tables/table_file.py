"""A file that holds a table: where it is, how to read it, and its cells.

Readers of all formats take a :class:`Source` with :class:`ReadOptions` and return a
:class:`FileTable`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import check_choice, did_you_mean, list_names
from icssl.tables.column_reading import KINDS
from icssl.tables.table_warning import TableWarning


@dataclass(frozen=True)
class Source:
    """A file to read: on a disk, or in memory.

    Parameters
    ----------
    name : str
        Name for messages; its suffix says which format it has. It is opened only if there
        is no ``content``.
    content : bytes, optional
        The file itself, where it is not on a disk.
    """

    name: str
    content: bytes | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return Path(self.name).stat().st_size if self.content is None else len(self.content)

    def open(self) -> BufferedReader | BytesIO:
        """Open the file to read its bytes."""
        return Path(self.name).open("rb") if self.content is None else BytesIO(self.content)

    def check(self) -> None:
        """Raise an error if there is no such file, or nothing in it."""
        path = Path(self.name)
        if self.content is None and not path.exists():
            raise FileNotFoundError(f"{self.name} does not exist.")
        if self.content is None and path.is_dir():
            raise ValueError(f"{self.name} is a folder: give the name of a file.")
        if self.size == 0:
            raise ValueError(f"{self.name} is empty.")


@dataclass(frozen=True)
class Limits:
    """Limits for tables from strangers, checked before a table is unpacked.

    Parameters
    ----------
    rows, columns : int
        Most rows, without the header, and most columns.
    unpacked : int
        Most bytes that all cells need in memory.
    taker : str
        Who has these limits, for messages: "the page".
    advice : str
        Sentence that ends a message: who has no such limit.
    """

    rows: int
    columns: int
    unpacked: int
    taker: str
    advice: str

    def check_rows(self, name: str, count: int, text: str = "") -> None:
        """Refuse more rows than are taken; ``text`` is for a count that is not exact."""
        self._check(name, "rows", count, self.rows, text)

    def check_columns(self, name: str, count: int) -> None:
        """Refuse more columns than are taken."""
        self._check(name, "columns", count, self.columns)

    def check_unpacked(self, name: str, size: int) -> None:
        """Refuse cells that need more memory than is given."""
        if size > self.unpacked:
            raise ValueError(
                f"{name} unpacks to more than the {self.unpacked // 2**20} MB that "
                f"{self.taker} takes: drop a part of it. {self.advice}"
            )

    def _check(self, name: str, kind: str, count: int, most: int, text: str = "") -> None:
        if count > most:
            raise ValueError(
                f"{name} has {text or f'{count:,}'} {kind}, and {self.taker} takes "
                f"{most:,}: give it a part of them. {self.advice}"
            )


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file.

    Parameters
    ----------
    target : str, optional
        Column whose cells must keep all their digits, since they are labels.
    unread : sequence of str
        Columns that are not computed with, so that their cells may be lists.
    separator : str, optional
        Character between the cells of a text file; by default it is found out.
    encoding : str, optional
        Encoding of a text file; by default it is found out.
    decimal : {".", ","}, optional
        The decimal mark of numbers in texts; by default it is found out.
    missing : sequence of str
        Further texts that stand for no value.
    types : mapping of str to str
        What columns are, where it must not be found out: "number", "category", "date",
        "day-first", "month-first", "text" or "ignore".
    relabel : mapping of str to str
        Labels, and what they are to be instead.
    limits : Limits, optional
        The largest table to read.
    """

    target: str | None = None
    unread: Sequence[str] = ()
    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    relabel: Mapping[str, str] = field(default_factory=dict)
    limits: Limits | None = None

    def check(self) -> None:
        """Raise ``ValueError`` for an option that no file can be read with."""
        if self.separator is not None and (
            len(self.separator) != 1 or self.separator in '"\r\n'
        ):
            raise ValueError(f"separator must be one character, got {self.separator!r}.")
        if self.decimal is not None:
            check_choice("decimal mark", self.decimal, [".", ","])
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError as error:
                raise ValueError(
                    f"unknown encoding {self.encoding!r}: utf-8, utf-16, latin-1 and "
                    "cp1252 are common."
                ) from error
        for kind in self.types.values():
            check_choice("type of a column", kind, KINDS)


@dataclass(frozen=True, eq=False)
class FileTable:
    """All cells of a file, before a column is chosen as the target.

    Parameters
    ----------
    cells : data frame or dict of ndarray
        Columns of a table, or named arrays, some of which have one row per label.
    exact_labels : callable, optional
        Returns the cells of a column by its name, from where they are exact: a data frame
        has floats where some of a column's whole numbers are missing.
    read_stored : callable, optional
        Returns what is written back, each cell as it stands in the file; by default
        ``cells``.
    hint : str
        End of a message that a column is missing: what may be wrong with the file.
    notes : tuple of str
        What was found out about the file, such as its encoding.
    warnings : tuple of TableWarning
        What is doubtful about that.
    is_text : bool
        Whether cells are as they stand in a text file, numbers too.
    separator : str
        Character between the cells, in a text file.
    """

    cells: Any
    exact_labels: Callable[[str], ndarray] | None = None
    read_stored: Callable[[], Any] | None = None
    hint: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[TableWarning, ...] = ()
    is_text: bool = False
    separator: str = ","

    @property
    def names(self) -> list[str]:
        """Names of columns or arrays."""
        return [str(name) for name in self.cells]

    @property
    def stored_cells(self) -> Any:
        """The cells to write back."""
        return self.cells if self.read_stored is None else self.read_stored()

    def labels(self, name: str) -> ndarray:
        """Return the cells of a column as labels; None where there are only blanks."""
        read = self.exact_labels or partial(_column_of, self.cells)
        return without_blanks(read(name))


def _column_of(cells: Any, name: str) -> ndarray:
    return np.asarray(cells[name])


def without_blanks(cells: ndarray) -> ndarray:
    """Return the cells with None where there is nothing but blanks."""
    if cells.dtype.kind == "U":
        cells = cells.astype(object)
    if cells.dtype.kind != "O":
        return cells
    filled = cells.copy()
    filled[[isinstance(cell, str) and not cell.strip() for cell in cells]] = None
    return filled


def check_names(
    path: Path | str, kind: str, names: Sequence[str], wanted: Sequence[str], hint: str = ""
) -> None:
    """Raise ``ValueError`` unless each name occurs once, and all that are wanted occur.

    Parameters
    ----------
    path : Path or str
        The file, for messages.
    kind : str
        What the names are of: "column" or "array".
    names, wanted : sequence of str
        Names in the file, and names that must be among them. A file can have very many, so
        the time must be linear in their number.
    hint : str
        End of the message that a name is missing.
    """
    # Counted once: searching the list for each of 100,000 names would take minutes.
    counts = Counter(names)
    for name, count in counts.items():
        if count > 1:
            raise ValueError(f"{path} has more than one {kind} {name!r}.")
    for name in wanted:
        if name not in counts:
            raise ValueError(
                f"{path} has no {kind} {name!r}: it has {list_names(names)}."
                f"{did_you_mean(name, names)}{hint}"
            )
