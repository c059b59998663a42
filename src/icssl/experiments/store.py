"""``Store``: rows in a file of JSON lines, found by the hash of their spec."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icssl.experiments.claims import Claims
from icssl.lines import START, append_line, not_a_row, read_lines

Row = dict[str, Any]


class Store:
    """Append-only rows, which several processes may add to at the same time.

    Parameters
    ----------
    path : Path
        The file, which need not exist yet.

    Attributes
    ----------
    added : int
        Rows that were appended here; others may come from other processes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Store(Path(folder) / "rows.jsonl").append({"key": "a", "value": 1})
    ...     "a" in Store(Path(folder) / "rows.jsonl")
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.added = 0
        self._rows: dict[str, Row] = {}
        self._place = START
        self.refresh()

    def refresh(self) -> None:
        """Read what was appended since, by this process or another one."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._place.offset:  # somebody took lines out
            self._rows, self._place = {}, START
        if not size:
            return
        before = self._place.lines
        rows, self._place = read_lines(self.path, self._place)
        for number, row in enumerate(rows, before + 1):
            if fault := _fault_of_key(row):
                raise not_a_row(self.path, number, fault)
            self._rows[row["key"]] = row

    def append(self, row: Row) -> None:
        """Add a row, which is on the disk when this returns."""
        if fault := _fault_of_key(row):
            raise ValueError(f"{self.path} takes no row like this: {fault}.")
        append_line(self.path, row)
        self.added += 1
        self.refresh()

    def claims(self) -> Claims:
        """Return what says, while it is entered, which rows this process is working on."""
        return Claims(self.path, self.refresh)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


def _fault_of_key(row: Row) -> str:
    """Say what is wrong with the key of a row; nothing if it is that of its spec."""
    key = row.get("key")
    wanted = key_of(row["spec"]) if "spec" in row else key
    if isinstance(key, str) and key == wanted:
        return ""
    return f"its key is {key!r}, and that of its spec {wanted!r}"


def key_of(values: Any) -> str:
    """Return a short hash of plain values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
