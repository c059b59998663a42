"""How the texts of a column are read: as numbers, dates or categories.

Files and data frames are read by the same rules, so that a table gives the same answer in
the terminal, on the page and in Python.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from icssl.tables.cells import as_number, is_missing
from icssl.tables.lost_cells import LostCells
from icssl.tables.table_warning import TableWarning, quote
from icssl.tables.text_dates import written_date
from icssl.tables.text_numbers import (
    are_grouped,
    is_currency,
    plain_numbers,
    plain_unit,
    written_number,
)

_ORDERS = {"day-first": True, "month-first": False}
KINDS = ("number", "category", "date", *_ORDERS, "text", "ignore")
"""What a person can say that a column is."""

NOT_THERE = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"}
    | {"1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""Texts of files that are missing in every column: the list of pandas."""

_WORDS = """
- -- --- \u2013 \u2014 . .. ... \u2026 ? ?? n/a na n.a. n.a null nil none nan missing
unknown unk undefined undef tbd tba k.a. (null) (none) <null> <na> #n/a #na #null! #div/0!
#value! #ref! #name? #num! \\n
"""
_PHRASES = {"", "k. a.", "not available", "not applicable", "not known", "keine angabe"}
MARKS = frozenset(_WORDS.split()) | _PHRASES
"""Texts, without regard to case, that stand for no value among numbers or dates."""

LEAST_SHARE = 0.9
"""Share of cells that must be numbers, or dates, for all to be read as such."""

_HINTED_SHARE = 0.5  # from which on a column that is not read so is pointed out
_BOOLEANS = {"true": 1.0, "false": 0.0}
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Hints:
    """What is known of a whole table: how its numbers and dates are written.

    Parameters
    ----------
    decimal : {".", ",", ""}
        The decimal mark; empty if nothing says which.
    order : {"day", "month", ""}
        What comes first in dates.
    certain : bool
        Whether a person said the decimal mark.
    missing : frozenset of str
        Texts that a person says stand for no value, without blanks around them.
    """

    decimal: str = ""
    order: str = ""
    certain: bool = False
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ColumnReading:
    """How the cells of one column are read; the same for rows that come later.

    Parameters
    ----------
    kind : {"number", "date", "category", "text", "ignore"}
        What they become.
    decimal : {".", ","}
        The decimal mark of its numbers.
    day_first : bool
        Whether 3/4 is the third of April.
    unit : str
        What may stand behind every number.
    missing : frozenset of str
        Further texts that stand for no value.
    lenient : bool
        Whether cells that cannot be read count as missing.
    """

    kind: str = "category"
    decimal: str = "."
    day_first: bool = False
    unit: str = ""
    missing: frozenset[str] = frozenset()
    lenient: bool = False

    def number(self, cell: Any) -> float | None:
        """Return a cell as a number, NaN if it is missing, None if it is no number."""
        if not isinstance(cell, str):
            return as_number(cell)
        text = cell.strip()
        if text in self.missing or text.casefold() in MARKS:
            return float("nan")
        if self.kind == "number" and self.decimal == "." and "_" not in text:
            try:
                return float(text)  # most columns of files need nothing else
            except ValueError:
                pass
        value = self._date(text) if self.kind == "date" else self._number(text)
        return float("nan") if value is None and self.lenient else value

    def described(self) -> str:
        """Return what its cells are, such as "numbers in kg, with a decimal comma"."""
        if self.kind != "number":
            return "dates" if self.kind == "date" else "categories"
        unit = f" in {self.unit}" if self.unit else ""
        return f"numbers{unit}{', with a decimal comma' * (self.decimal == ',')}"

    def numbers(self, cells: Iterable[Any]) -> Float[ndarray, " n"]:
        """Return cells as numbers, dates in seconds since 1970; NaN where there is none.

        Raises ``ValueError`` for a cell that cannot be read, unless the reading is lenient.
        """
        known: dict[Any, float] = {}
        numbers = []
        for cell in cells:
            if cell not in known:
                number = self.number(cell)
                if number is None:
                    raise ValueError(f"{cell!r} is no {self.kind}")
                known[cell] = number
            numbers.append(known[cell])
        return np.array(numbers, dtype=np.float64)

    def _number(self, text: str) -> float | None:
        if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        written = written_number(text)
        if written is None or not written.fits(self.decimal):
            return None
        return written.value(self.decimal) if self.knows(written.unit) else None

    def knows(self, unit: str) -> bool:
        """Whether a number with this unit is read."""
        return plain_unit(unit) in ("", "%", self.unit) or is_currency(unit)

    def _date(self, text: str) -> float | None:
        written = written_date(text)
        moment = written.moment(self.day_first) if written is not None else None
        return None if moment is None else (moment - _EPOCH).total_seconds()


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column in which some cells are texts, before it is known how to read it.

    Parameters
    ----------
    name : str
        Name of the column, for messages.
    cells : sequence
        All cells, texts or not.
    missing : frozenset of str
        Texts that a person says stand for no value.
    """

    name: str
    cells: Sequence[Any] = field(repr=False)
    missing: frozenset[str] = frozenset()

    @cached_property
    def texts(self) -> Counter[str]:
        """Texts, without blanks around them, that may say something, and how often."""
        # Counted before they are stripped: most columns repeat few texts.
        counts = Counter(cell for cell in self.cells if isinstance(cell, str))
        texts: Counter[str] = Counter()
        for cell, count in counts.items():
            text = cell.strip()
            if text not in self.missing and text.casefold() not in MARKS:
                texts[text] += count
        return texts

    @cached_property
    def others(self) -> list[Any]:
        """Cells that are there, and are no texts."""
        return [c for c in self.cells if not isinstance(c, str) and not is_missing(c)]

    @cached_property
    def is_plain(self) -> bool:
        """Whether all texts are numbers as programs write them."""
        return plain_numbers(list(self.texts)) is not None

    @cached_property
    def _parsed_texts(self) -> list[tuple[Any, int]]:
        return [(written_number(text), count) for text, count in self.texts.items()]

    @property
    def _units(self) -> Counter[str]:
        """Units of its numbers, and how many have each; empty for none."""
        units: Counter[str] = Counter()
        for one, count in () if self.is_plain else self._parsed_texts:
            if one is not None:
                units[plain_unit(one.unit)] += count
        return units

    @property
    def decimal(self) -> str:
        """The decimal mark that its numbers prove; empty if they fit both or neither."""
        if self.is_plain:
            texts = [text for text in self.texts if "." in text]
            return "." if texts and not are_grouped(texts) else ""
        fits = {
            mark: sum(count for one, count in self._parsed_texts if one and one.fits(mark))
            for mark in ".,"
        }
        if fits["."] == fits[","]:
            return ""
        best = max(fits, key=fits.__getitem__)
        return best if fits[best] >= LEAST_SHARE * self.texts.total() else ""

    @property
    def order(self) -> str:
        """What comes first in its dates, if they prove it."""
        if self.is_plain:
            return ""
        dates = [written_date(text) for text in self.texts]
        if sum(map(bool, dates)) < LEAST_SHARE * len(dates):
            return ""
        proofs = {date.evidence for date in dates if date} - {""}
        return proofs.pop() if len(proofs) == 1 else ""

    def read(self, hints: Hints) -> "tuple[ColumnReading, list[TableWarning]]":
        """Return how to read the column, and what is doubtful about that."""
        if not self.texts:
            # Several marks tell rows apart; a single one, or none, says nothing.
            marks = {cell.strip() for cell in self.cells if isinstance(cell, str)}
            says = len(marks - self.missing - NOT_THERE) > 1
            says = says or any(as_number(cell) is None for cell in self.others)
            kind = "category" if says else "number"
            return ColumnReading(kind, missing=self.missing), []
        if all(text.lower() in _BOOLEANS for text in self.texts):
            return ColumnReading("number", missing=self.missing), []
        tries = [self._as_numbers(hints)]
        if not self.is_plain:
            tries.append(self._as_dates(hints))
        shares = [self.share_read(reading) for reading in tries]
        best = int(np.argmax(shares))
        reading, share = tries[best], shares[best]
        if share >= LEAST_SHARE:
            is_lenient = share < 1 and bool(self.unread(reading))
            reading = replace(reading, lenient=is_lenient)
            return reading, self._doubts(reading, hints)
        warnings = []
        if share >= _HINTED_SHARE:
            warnings.append(
                TableWarning(
                    f"column {self.name!r} is read as categories, and {share:.0%} of its "
                    f"cells are {reading.kind}s; {quote(self.unread(reading))} are not.",
                    "types",
                    [f"{self.name}={reading.kind}"],
                )
            )
        return ColumnReading("category", missing=self.missing), warnings

    def as_kind(self, kind: str, hints: Hints) -> ColumnReading:
        """Return the reading of a kind that a person said; what does not fit is missing."""
        if kind in _ORDERS:
            return ColumnReading(
                "date", day_first=_ORDERS[kind], missing=self.missing, lenient=True
            )
        reading = {"number": self._as_numbers, "date": self._as_dates}.get(kind)
        if reading is None:
            return ColumnReading(kind, missing=self.missing)
        return replace(reading(hints), lenient=True)

    def unread(self, reading: ColumnReading) -> list[str]:
        """Return texts that are neither read nor marks for no value."""
        strict = replace(reading, lenient=False)
        return [text for text in self.texts if strict.number(text) is None]

    def share_read(self, reading: ColumnReading) -> float:
        """Return the share of cells, without missing ones, that can be read."""
        if reading.kind == "number" and self.is_plain and not self.others:
            return 1.0
        unread = sum(self.texts[text] for text in self.unread(reading))
        others = sum(as_number(cell) is None for cell in self.others)
        total = self.texts.total() + len(self.others)
        return 1 - (unread + others) / total

    def _as_numbers(self, hints: Hints) -> ColumnReading:
        decimal = self.decimal or hints.decimal or "."
        if hints.certain:
            decimal = hints.decimal
        # A unit is read only where nearly all numbers have it: it tells none of them apart.
        units = self._units
        unit, share = units.most_common(1)[0] if units else ("", 0)
        unit = unit if share >= LEAST_SHARE * units.total() else ""
        return ColumnReading("number", decimal, unit=unit, missing=self.missing)

    def _as_dates(self, hints: Hints) -> ColumnReading:
        order = self.order or hints.order or ("day" if hints.decimal == "," else "month")
        return ColumnReading("date", day_first=order == "day", missing=self.missing)

    def _doubts(self, reading: ColumnReading, hints: Hints) -> list[TableWarning]:
        """Return warnings about guesses."""
        warnings = []
        units = {unit for unit in self._units if reading.knows(unit)}
        # Money is often without its sign; a share or a weight is not.
        bare = "" in units and not all(map(is_currency, units - {""}))
        units -= {""}
        if reading.kind == "number" and len(units) + bare > 1:
            named = f"numbers with {quote(sorted(units))}"
            named += " and numbers without a unit" if bare else ""
            warnings.append(
                TableWarning(
                    f"column {self.name!r} mixes {named}: they are read as if they could "
                    "be compared. Write all of them in one way."
                )
            )
        if reading.kind == "number" and not hints.certain and self._is_ambiguous(hints):
            example = next(text for text in self.texts if "." in text or "," in text)
            value = reading.number(example)
            other = {".": ",", ",": "."}[reading.decimal]
            warnings.append(
                TableWarning(
                    f"column {self.name!r}: {example!r} is read as {value:,.10g}, and it "
                    "is not certain whether its mark is the decimal one.",
                    "decimal",
                    [other],
                )
            )
        if reading.kind == "date" and not hints.order and self._has_no_order():
            which = "day" if reading.day_first else "month"
            warnings.append(
                TableWarning(
                    f"column {self.name!r}: no date says whether day or month comes first; "
                    f"{next(iter(self.texts))!r} is read with the {which} first.",
                    "types",
                    [f"{self.name}={'month' if reading.day_first else 'day'}-first"],
                )
            )
        return warnings

    def lost_cells(self, reading: ColumnReading) -> LostCells | None:
        """Return the cells that a reading as numbers or dates passes over, if any."""
        if not reading.lenient or reading.kind not in ("number", "date"):
            return None
        unread = self.unread(reading)
        count = sum(self.texts[text] for text in unread)
        is_all = not self.others and len(unread) == len(self.texts)
        lost = LostCells(self.name, reading.kind, tuple(unread), count, is_all)
        return lost if unread else None

    def _is_ambiguous(self, hints: Hints) -> bool:
        """Whether another decimal mark would give other numbers, and nothing decides."""
        if self.is_plain:  # the numbers of programs, unless the table has decimal commas
            return hints.decimal == "," and are_grouped(self.texts)
        marked = any("." in text or "," in text for text in self.texts)
        return marked and not self.decimal and not hints.decimal

    def _has_no_order(self) -> bool:
        dates = [written_date(text) for text in self.texts]
        return not self.order and any(date and not date.order for date in dates)


def hints_of(columns: Iterable[TextColumn], given: Hints) -> Hints:
    """Return what some columns prove about all of them, beside what is given already."""
    columns = list(columns)
    decimal = given.decimal
    marks = Counter(mark for column in columns if (mark := column.decimal))
    if not given.certain and marks:
        # Plain numbers prove a point only for themselves: many programs write them.
        decimal = "," if marks[","] else "."
    orders = Counter(order for column in columns if (order := column.order))
    order = given.order or (orders.most_common(1)[0][0] if orders else "")
    return replace(given, decimal=decimal, order=order)
