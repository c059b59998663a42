"""Cells that a spreadsheet would run as formulas, written so that it shows them."""

import re
from typing import Any

# What programs run. A minus before a number, or a mark for no value, is neither.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.,\s]*[\d.,%€$ ]*$|-*$)")


def is_formula(cell: Any) -> bool:
    """Whether a spreadsheet would run a text.

    Examples
    --------
    >>> [is_formula(cell) for cell in ("=1+1", "@SUM(A1)", "-2+3+cmd|' /C calc'!A0", "-5")]
    [True, True, True, False]
    """
    return isinstance(cell, str) and _FORMULA.match(cell) is not None


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
