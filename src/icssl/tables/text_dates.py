"""Dates as people write them: ISO 8601, day or month first, and names of months."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from icssl.tables.text_numbers import LONGEST

_TIME = (
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})"
    r"(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?\s*(?P<half>[AaPp]\.?[Mm]\.?)?)?"
    r"\s*(?P<zone>Z|[-+]\d{2}:?(?:\d{2})?|UTC|GMT)?"
)
_PATTERNS = tuple(
    re.compile(pattern + _TIME)
    for pattern in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?:(?P=mark)(?P<day>\d{1,2}))?",
        r"(?P<year>(?:19|20)\d{2})(?P<month>\d{2})(?P<day>\d{2})",
        r"(?P<first>\d{1,2})(?P<mark>[./-])\s?(?P<second_>\d{1,2})(?P=mark)\s?"
        r"(?P<year>\d{4}|\d{2})",
        r"(?P<day>\d{1,2})\.?[\s-]+(?P<name>[^\W\d]{3,9})\.?,?[\s-]+(?P<year>\d{4}|\d{2})",
        r"(?P<name>[^\W\d]{3,9})\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})",
    )
)
_MONTHS = {
    name: number
    for number, names in enumerate(
        [
            "jan january januar",
            "feb february februar",
            "mar march mär märz mrz",
            "apr april",
            "may mai",
            "jun june juni",
            "jul july juli",
            "aug august",
            "sep sept september",
            "oct october okt oktober",
            "nov november",
            "dec december dez dezember",
        ],
        start=1,
    )
    for name in names.split()
}
_CENTURY = 69  # years of two digits from here on are of the last century, as in POSIX


@dataclass(frozen=True)
class WrittenDate:
    """A date as it was written; two numbers may be day and month in either order.

    Parameters
    ----------
    year : int
    first, second : int
        Day and month, if ``order`` is "day"; month and day, if it is "month"; else unknown.
    order : {"day", "month", ""}
        Which comes first, if the text says so.
    clock : tuple of int
        Hour, minute, second and microsecond.
    zone : str
        Difference from UTC, such as "+02:00", or an empty text.
    """

    year: int
    first: int
    second: int
    order: str
    clock: tuple[int, int, int, int]
    zone: str

    def moment(self, day_first: bool) -> datetime | None:
        """Return the moment in UTC, or None if there is no such day."""
        is_day = day_first if not self.order else self.order == "day"
        day, month = (self.first, self.second) if is_day else (self.second, self.first)
        try:
            moment = datetime(self.year, month, day, *self.clock)
            if not self.zone:
                return moment
            zoned = datetime.fromisoformat(moment.isoformat() + self.zone)
            return zoned.astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            return None

    @property
    def evidence(self) -> str:
        """What the numbers say about the order: "day", "month" or nothing."""
        if self.order:
            return ""
        if self.first > 12:
            return "day"
        return "month" if self.second > 12 else ""


@lru_cache(maxsize=2**16)
def written_date(text: str) -> WrittenDate | None:
    """Return the parts of a date, or None if the text is none.

    Examples
    --------
    >>> written_date("14.03.2021 08:30").moment(day_first=False)
    datetime.datetime(2021, 3, 14, 8, 30)
    >>> written_date("03/04/2021").moment(day_first=True)
    datetime.datetime(2021, 4, 3, 0, 0)
    """
    if len(text) > LONGEST:
        return None
    for pattern in _PATTERNS:
        match = pattern.fullmatch(text.strip())
        if match is not None:
            return _date_of(match.groupdict())
    return None


def _date_of(parts: dict[str, str | None]) -> WrittenDate | None:
    year = int(parts["year"] or 0)
    if len(parts["year"] or "") == 2:
        year += 1900 if year >= _CENTURY else 2000
    if parts.get("name"):
        month = _MONTHS.get(str(parts["name"]).lower())
        if month is None:
            return None
        first, second, order = int(parts["day"] or 1), month, "day"
    elif parts.get("first"):
        first, second = int(parts["first"] or 0), int(parts["second_"] or 0)
        order = "day" if parts["mark"] == "." else ""  # who writes points has days first
    else:
        first, second, order = int(parts["month"] or 1), int(parts["day"] or 1), "month"
    hour = int(parts["hour"] or 0)
    if parts["half"]:
        hour = hour % 12 + (12 if parts["half"][0] in "pP" else 0)
    micro = int((parts["part"] or "0").ljust(6, "0")[:6])
    clock = (hour, int(parts["minute"] or 0), int(parts["second"] or 0), micro)
    zone = {"Z": "+00:00", "UTC": "+00:00", "GMT": "+00:00", None: ""}.get(
        parts["zone"], parts["zone"]
    )
    return WrittenDate(year, first, second, order, clock, str(zone))
