"""Doubts about columns that give the labels away: an earlier answer, or a copy of them."""

from collections.abc import Sequence
from typing import Any

from numpy import ndarray

from icssl.tables.cells import is_missing
from icssl.tables.table_warning import TableWarning, quote

WRITTEN = ("label", "probability", "reach")
"""Columns that are written beside the rows; with a prefix where a name is taken."""

PREFIX = "icssl_"
_FEW = 6  # labelled rows, below which a column can have the same words by chance
_MANY = 5  # labelled rows per class, below which one value each may be chance
_NEARLY = 0.9  # share of labelled rows from which on the same words are a copy
_LEAST_FILLED = 0.5  # share of labelled rows in which such a column has a cell


def doubts_about_leaks(
    frame: Any, used: Sequence[str], labels: ndarray | None
) -> list[TableWarning]:
    """Return warnings of columns that are an earlier answer of ours, or repeat the labels.

    Parameters
    ----------
    frame : DataFrame
        All columns of the file by their names.
    used : sequence of str
        The columns that are features.
    labels : ndarray or None
        The labels, missing where there is none.
    """
    doubts = []
    written = [name for name in used if name.removeprefix(PREFIX) in WRITTEN]
    if {name.removeprefix(PREFIX) for name in written} == {*WRITTEN}:
        said = (
            f"columns {quote(written)} look like an earlier answer of icssl: as columns to "
            "learn from, they make mistakes of that answer look certain."
        )
        doubts.append(TableWarning(said, "drop", written))
    if labels is None:
        return doubts
    rows = [row for row, label in enumerate(labels.tolist()) if not is_missing(label)]
    wanted = [_plain(labels[row]) for row in rows]
    if len(rows) < _FEW or len(set(wanted)) < 2:
        return doubts
    for name in used:
        column = frame[name]
        if name in written or column.dtype.kind in "fcmM":
            continue
        cells = column.array[rows]
        pairs = [
            (_plain(cell), label)
            for cell, label in zip(cells, wanted, strict=True)
            if not is_missing(cell) and _plain(cell)
        ]
        said = _said_of(pairs, len(rows))
        if said:
            said = f"column {name!r} {said}: if it was made from them, it alone decides."
            doubts.append(TableWarning(said, "drop", [name]))
    return doubts


def _plain(cell: Any) -> str:
    return str(cell).strip().casefold()


def _said_of(pairs: Sequence[tuple[str, str]], labelled: int) -> str:
    """Return how cells repeat the labels beside them, or an empty text.

    Examples
    --------
    >>> _said_of([("a", "a"), ("b", "b")] * 4, 8)
    'has the words of the labels in all 8 labelled rows'
    >>> _said_of([("1", "a"), ("2", "b")] * 20, 41)
    'has one value per class in all 40 labelled rows where it has one'
    """
    if len(pairs) < max(_FEW, _LEAST_FILLED * labelled):
        return ""
    rows = f"all {len(pairs):,} labelled rows"
    rows += " where it has one" if len(pairs) < labelled else ""
    same = sum(cell == label for cell, label in pairs)
    if same == len(pairs):
        return f"has the words of the labels in {rows}"
    if same >= _NEARLY * len(pairs):
        return f"has the words of the labels in {same:,} of {labelled:,} labelled rows"
    codes, classes = (len(set(side)) for side in zip(*pairs, strict=True))
    # Few labels have one value per class by chance, or as the column is simply good.
    by_class = len(set(pairs)) == codes == classes and len(pairs) >= _MANY * classes
    return f"has one value per class in {rows}" if by_class else ""
