"""Cells that a spreadsheet would run as formulas, written so that it shows them."""

import re
from typing import Any

from icssl.tables.text_numbers import plain_numbers, written_number

_RUN = re.compile(r"[=@\t\r+-]")  # what a formula begins with
_DASHES = re.compile(r"[-+\s]*")  # a mark for no value


def is_formula(cell: Any) -> bool:
    """Whether a spreadsheet would run a text.

    Examples
    --------
    >>> [is_formula(cell) for cell in ("=1+1", "@SUM(A1)", "-2+3+cmd|'!A0", "-5 kg")]
    [True, True, True, False]
    """
    if not isinstance(cell, str) or not _RUN.match(cell):
        return False
    if cell[0] not in "+-":
        return True
    is_number = written_number(cell) is not None or plain_numbers([cell]) is not None
    return not (is_number or _DASHES.fullmatch(cell))


def harmless(frame: Any) -> Any:
    """Return a data frame whose formulas begin with an apostrophe, in names too."""
    frame = frame.rename(columns=_quote)
    changed = {
        name: column.map(_quote)
        for name, column in frame.items()
        if column.dtype.kind not in "biufcmM" and any(map(is_formula, column))
    }
    return frame.assign(**changed)


def _quote(cell: Any) -> Any:
    return f"'{cell}" if is_formula(cell) else cell
