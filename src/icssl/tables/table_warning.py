"""``TableWarning``: what looks wrong in a table, and the setting that changes it."""

import shlex
from collections.abc import Sequence
from typing import Literal

from icssl._util.errors import printable

Surface = Literal["python", "terminal", "page", "report"]
"""Where a warning is read, which decides how its setting is called.

The page is that of ``icssl explore``. A report has no settings, so that it names none.
"""

FIELDS = {
    "target": "Column of labels",
    "separator": "Separator",
    "encoding": "Encoding",
    "decimal": "Decimal mark",
    "missing": "Texts for no value",
    "types": "Types of columns",
    "drop": "Columns to leave out",
    "relabel": "Labels to rename",
}
"""Titles of the fields of the page, by setting."""

_LONGEST = 40  # characters of a value that is quoted


class TableWarning(UserWarning):
    """A warning about a table, with the setting of ``read_table`` that answers it.

    Parameters
    ----------
    said : str
        What was seen, in whole sentences that name no setting.
    setting : str
        The argument of :func:`icssl.read_table` to give: "missing", "types", "drop",
        "relabel", "decimal", "encoding" or "target"; empty if there is none.
    values : sequence of str
        Values of that argument; for "types" texts such as "age=number".
    confirms : bool
        Whether the setting says that what was done is right.

    Examples
    --------
    >>> warning = TableWarning("'?' looks like no label.", "missing", ["?"])
    >>> print(warning)
    '?' looks like no label. icssl.read_table(..., missing=['?']) or another y changes this.
    >>> print(warning.text("terminal"))
    '?' looks like no label. --missing '?' changes this.
    >>> print(warning.text("page"))
    '?' looks like no label. To change this, write ? into Texts for no value.
    """

    def __init__(
        self,
        said: str,
        setting: str = "",
        values: Sequence[str] = (),
        *,
        confirms: bool = False,
    ) -> None:
        super().__init__(said, setting, tuple(values))
        self.said, self.setting, self.values = said, setting, tuple(values)
        self.confirms = confirms

    def text(self, surface: Surface) -> str:
        """Return the warning in the words of Python, the terminal, the page or a report."""
        if surface in ("report", "page"):  # where nothing stands before it
            said = self.said[:1].upper() + self.said[1:]
            return f"{said}{self._on_page}" if surface == "page" else said
        if not self.setting:
            return self.said
        if self.setting == "target":
            option = "--target" if surface == "terminal" else "target=..."
            return f"{self.said} Name another column with {option}."
        does = "confirms this" if self.confirms else "changes this"
        does = "leaves it out" if self.setting == "drop" else does
        if surface == "terminal":
            return f"{self.said} {self.options} {does}."
        if self.confirms:
            does = "or NaN in their place confirms this"
        elif self.setting in ("missing", "relabel"):
            does = "or another y changes this"
        if self.setting == "drop":
            does = "or an X without it leaves it out"
        return f"{self.said} icssl.read_table(..., {self._argument}) {does}."

    def __str__(self) -> str:
        return self.text("python")

    @property
    def options(self) -> str:
        """The options of the terminal that answer the warning; empty if there are none."""
        if self.setting in ("", "target"):
            return ""
        option = {"types": "type"}.get(self.setting, self.setting)
        return " ".join(f"--{option} {shlex.quote(one)}" for one in self.values)

    @property
    def field_text(self) -> str:
        """What to write into the field of the page; empty where no field can hold it."""
        # A semicolon stands between two values.
        if self.setting in ("", "target") or any(";" in value for value in self.values):
            return ""
        return "; ".join(self.values)

    @property
    def _on_page(self) -> str:
        """What to do on the page, in words."""
        field = FIELDS.get(self.setting)
        if self.setting == "target":
            return f" Choose another column under {field}."
        text = self.field_text
        does = "confirm" if self.confirms else "change"
        return f" To {does} this, write {text} into {field}." if text else ""

    @property
    def _argument(self) -> str:
        if self.setting in ("types", "relabel"):
            pairs = dict(value.rsplit("=", 1) for value in self.values)
            return f"{self.setting}={pairs!r}"
        many = self.setting in ("missing", "drop")
        return f"{self.setting}={list(self.values) if many else self.values[0]!r}"


def text_of(warning: Warning | str, surface: Surface) -> str:
    """Return any warning in the words of Python, the terminal, the page or a report."""
    known = isinstance(warning, TableWarning)
    return warning.text(surface) if known else str(warning)  # type: ignore[union-attr]


def quote(values: Sequence[object], most: int = 3) -> str:
    """Return the first values in quotes, and how many more there are.

    Examples
    --------
    >>> quote(["a", "b", "c", "d"])
    "'a', 'b', 'c' and 1 more"
    """
    first = [repr(printable(value, _LONGEST)) for value in values[:most]]
    more = len(values) - most
    if more > 0:
        return f"{', '.join(first)} and {more:,} more"
    return " and ".join([", ".join(first[:-1]), first[-1]] if len(first) > 1 else first)
