"""Numbers as people write them: decimal commas, thousands, money, percents."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray

LONGEST = 60
"""Characters of a number or a date, at most; longer texts are not looked at."""

_GAPS = " \u00a0\u202f\u2009'\u2019"  # between thousands, beside points and commas
_CELL = re.compile(
    r"(?P<open>\()?(?P<sign>[-+\u2212]?)\s*(?P<before>[^\d\s.,()+\u2212-]{0,4})\s*"
    rf"(?P<sign2>[-\u2212]?)(?P<body>[0-9.,](?:[0-9.,{_GAPS}]*[0-9.,])?)"
    r"(?P<power>[eE][-+]?[0-9]{1,3})?"
    r"\s*(?P<after>[^\d\s()][^\d()]{0,7})?(?P<close>\))?"
)


def _body(decimal: str, other: str) -> re.Pattern[str]:
    """Return the pattern of digits with this decimal mark, the other between thousands."""
    # In a number with groups the first is no zero: 0.123 is below one wherever it stands.
    groups = rf"[1-9][0-9]{{0,2}}([{other}{_GAPS}])[0-9]{{3}}(?:\1[0-9]{{3}})*"
    mark = re.escape(decimal)
    return re.compile(rf"(?:[0-9]+|{groups})(?:{mark}[0-9]*)?|{mark}[0-9]+")


_BODIES = {".": _body(".", ","), ",": _body(",", ".")}
_CURRENCIES = re.compile(
    "USD|EUR|GBP|CHF|JPY|CNY|RUB|SEK|NOK|DKK|PLN|CZK|HUF|INR|AUD|CAD|NZD|BRL|MXN|ZAR|TRY|"
    r"KRW|SGD|HKD|ILS|(?:US|[ACR])\$|kr\.?|zł|s?fr\.?|rs\.?|Kč|Ft|R",
    re.IGNORECASE,
)
# Each currency by its sign, or its code, with the other ways to write it.
_WRITTEN_AS = {
    **{"€": "EUR", "$": "USD US$", "£": "GBP", "¥": "JPY", "₹": "INR RS RS.", "₽": "RUB"},
    **{"₪": "ILS", "₩": "KRW", "₺": "TRY", "CHF": "FR FR. SFR SFR.", "PLN": "ZŁ"},
    **{"CZK": "KČ", "HUF": "FT", "BRL": "R$", "AUD": "A$", "CAD": "C$", "ZAR": "R"},
}
_SIGNS = {name: sign for sign, names in _WRITTEN_AS.items() for name in names.split()}
# What several countries write for their money.
_SHARED = {"KR": {"SEK", "NOK", "DKK"}, "KR.": {"SEK", "NOK", "DKK"}, "¥": {"CNY"}}
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+")


@dataclass(frozen=True)
class WrittenNumber:
    """A number as it was written, before it is known whether its comma is a decimal one.

    Parameters
    ----------
    body : str
        Digits, points, commas and gaps.
    negative : bool
        Whether it has a minus, or brackets as accountants write them.
    power : str
        The exponent, such as "e-3".
    unit : str
        What stands before or behind: a currency, a percent sign, a unit.
    """

    body: str
    negative: bool
    power: str
    unit: str

    def fits(self, decimal: str) -> bool:
        """Whether it can be read with this decimal mark."""
        return _BODIES[decimal].fullmatch(self.body) is not None

    def value(self, decimal: str) -> float:
        """Return the number, if it fits; a percent is a hundredth."""
        digits = "".join(c for c in self.body if c.isdigit() or c == decimal)
        size = float(digits.replace(",", ".") + self.power)
        return (-size if self.negative else size) / (100 if self.unit == "%" else 1)


@lru_cache(maxsize=2**16)
def written_number(text: str) -> WrittenNumber | None:
    """Return the parts of a number, or None if the text is no number with a unit.

    Examples
    --------
    >>> written_number("$35,480.96").value(".")
    35480.96
    >>> written_number("(1.234,5 €)").value(",")
    -1234.5
    >>> written_number("12,00-").value(",")
    -12.0
    >>> written_number("W001") is None
    True
    """
    match = _CELL.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    before, after = (match["before"] or "").strip(), (match["after"] or "").strip()
    behind = after[:1] if after[:1] in ("-", "\u2212") else ""
    # A minus behind the number, as in 12.00-: alone or before a currency, and no -kg.
    behind = behind if len(after) == 1 or is_currency(after[1:].strip()) else ""
    after = after.removeprefix(behind).strip()
    # Letters before digits make a code, unless they are a currency: W001, but CHF 5.
    if (before and not is_currency(before)) or (before and after):
        return None
    signs = [sign for sign in (match["sign"], match["sign2"], behind) if sign]
    if len(signs) > 1 or (match["open"] and signs):
        return None
    negative = bool(match["open"]) or signs in (["-"], ["\u2212"])
    return WrittenNumber(match["body"], negative, match["power"] or "", before or after)


def is_currency(unit: str) -> bool:
    """Whether a unit is a sign or a code of a currency."""
    if _CURRENCIES.fullmatch(unit):
        return True
    return len(unit) == 1 and unicodedata.category(unit) == "Sc"


def plain_unit(unit: str) -> str:
    """Return a unit in one way of writing it: a currency by its sign, others as they are.

    Examples
    --------
    >>> plain_unit("€"), plain_unit("eur"), plain_unit("kg")
    ('€', '€', 'kg')
    """
    return _SIGNS.get(unit.upper(), unit.upper()) if is_currency(unit) else unit


def same_money(one: str, other: str) -> bool:
    """Whether two signs or codes of currencies can stand for the same money.

    Examples
    --------
    >>> same_money("EUR", "€"), same_money("kr", "SEK"), same_money("¥", "€")
    (True, True, False)
    """
    a, b = plain_unit(one), plain_unit(other)
    return a == b or a in _SHARED.get(b, ()) or b in _SHARED.get(a, ())


def plain_numbers(texts: Sequence[str]) -> Float[ndarray, " n"] | None:
    """Return texts as numbers if all of them are numbers of a program, else None.

    Examples
    --------
    >>> plain_numbers(["1", "-2.5", "1e1"])
    array([ 1. , -2.5, 10. ])
    >>> plain_numbers(["1", "2,5"]) is None
    True
    """
    # Python takes 1_000 for a number; nobody else does.
    if any("_" in text for text in texts):
        return None
    try:
        numbers = np.array([float(text) for text in texts], dtype=np.float64)
    except ValueError:
        return None
    return None if np.isnan(numbers).any() else numbers


def are_grouped(texts: Iterable[str]) -> bool:
    """Whether every point in plain numbers could stand between thousands: 1.234."""
    pointed = [text.strip() for text in texts if "." in text]
    return bool(pointed) and all(_GROUPED.fullmatch(text) for text in pointed)
