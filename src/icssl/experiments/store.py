"""``Store``: rows in a file of JSON lines, found by the hash of their spec."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icssl.files import replacing


class Store:
    """Append-only rows; a line that was torn by a kill is dropped.

    Parameters
    ----------
    path : Path
        The file, which need not exist yet.

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
        self._rows: dict[str, dict[str, Any]] = {}
        self._torn = False
        if path.exists():
            self._read()

    def _read(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        lines = text.splitlines()
        self._torn = bool(lines) and not text.endswith("\n")  # if only by its last byte
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                self._rows[row["key"]] = row
            except (json.JSONDecodeError, TypeError, KeyError) as error:
                if number < len(lines):
                    raise ValueError(
                        f"{self.path}, line {number}, is no row: {error}. Only the last "
                        "line can be torn by a kill; delete this one to go on."
                    ) from error
                self._torn = True

    def append(self, row: dict[str, Any]) -> None:
        """Add a row, which is on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._torn:  # what is left of a line would spoil the next one
            self._rewrite()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        self._rows[row["key"]] = row

    def _rewrite(self) -> None:
        whole = [json.dumps(row, separators=(",", ":")) + "\n" for row in self]
        with replacing(self.path) as unfinished:
            unfinished.write_text("".join(whole), encoding="utf-8")
        self._torn = False

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._rows[key]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)
