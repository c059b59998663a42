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
    wanted = [str(labels[row]) for row in rows]
    if len(rows) < _FEW or len(set(wanted)) < 2:
        return doubts
    for name in used:
        column = frame[name]
        if name in written or column.dtype.kind in "biufcmM":
            continue
        cells = column.array[rows]
        if all(str(cell).strip() == text for cell, text in zip(cells, wanted, strict=True)):
            said = (
                f"column {name!r} has the words of the labels in all {len(rows):,} rows "
                "with a label: if it is a copy of them, it alone decides."
            )
            doubts.append(TableWarning(said, "drop", [name]))
    return doubts
