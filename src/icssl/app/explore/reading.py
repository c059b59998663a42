"""``Reading``: how a person says that a file is to be read, as texts on the page."""

from dataclasses import dataclass
from typing import Any

from icssl._util.errors import check_choice
from icssl.tables.column_reading import KINDS
from icssl.tables.table_file import Limits, ReadOptions

_TAB = ("tab", "\\t")


@dataclass(frozen=True)
class Reading:
    """How a file is read; an empty text means that it is found out.

    Parameters
    ----------
    separator, encoding, decimal : str
        As for :func:`icssl.read_table`; "tab" is a separator too.
    missing : str
        Texts that stand for no value, with semicolons between them.
    types : str
        Columns and what they are, as ``age=number; zip=category``.
    drop : str
        Names of columns to leave out, with semicolons between them.
    relabel : str
        Labels and what they are to be, as ``Yes=yes; No=no``.

    Examples
    --------
    >>> Reading(missing="?; unknown", types="zip=category").arguments()["missing"]
    ('?', 'unknown')
    """

    separator: str = ""
    encoding: str = ""
    decimal: str = ""
    missing: str = ""
    types: str = ""
    drop: str = ""
    relabel: str = ""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`icssl.read_table`."""
        separator = "\t" if self.separator.lower() in _TAB else self.separator
        if len(separator) > 1:
            raise ValueError(
                f"the separator is one character or the word tab, got {self.separator!r}."
            )
        if self.decimal:
            check_choice("decimal mark", self.decimal, (".", ","))
        return {
            "separator": separator or None,
            "encoding": self.encoding.strip() or None,
            "decimal": self.decimal or None,
            "missing": _parts(self.missing),
            "types": dict(_read_type(part) for part in _parts(self.types)),
            "drop": _parts(self.drop),
            "relabel": dict(_pair("labels", part) for part in _parts(self.relabel)),
        }

    def options(self, limits: Limits) -> ReadOptions:
        """Return the options with which the file alone is read, without its columns."""
        known = self.arguments()
        names = ("separator", "encoding", "decimal")
        return ReadOptions(limits=limits, **{name: known[name] for name in names})


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _read_type(part: str) -> tuple[str, str]:
    """Return a column and its type from ``age=number``."""
    column, kind = _pair("types", part)
    check_choice("type", kind, KINDS)
    return column, kind


def _pair(what: str, part: str) -> tuple[str, str]:
    """Return a name and its value from ``name=value``."""
    name, mark, value = (piece.strip() for piece in part.rpartition("="))
    if not mark or not name:
        raise ValueError(
            f"{what} are written as NAME=VALUE, with semicolons between them, got {part!r}."
        )
    return name, value
