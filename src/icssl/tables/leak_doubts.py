"""Doubts about columns that give the labels away: an earlier answer, or a copy of them."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from numpy import ndarray

from icssl.tables.cells import is_missing
from icssl.tables.column_reading import MARKS, NOT_THERE
from icssl.tables.table_warning import TableWarning, quote

WRITTEN = ("label", "probability", "reach")
"""Columns that are written beside the rows; with a prefix where a name is taken."""

PREFIX = "icssl_"
_FEW = 6  # labelled rows, below which a column can have the same words by chance
_FEW_OF_TWO = 8  # the same where there are two classes
_MANY = 5  # labelled rows per class, below which one value each may be chance
_NEARLY = 0.9  # share of labelled rows from which on the same words are a copy
_AGREEMENT = 0.8  # Cohen's kappa from which on they are: two rare words agree by chance


def doubts_about_leaks(
    frame: Any, used: Sequence[str], labels: ndarray | None, missing: Collection[str] = ()
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
    missing : collection of str
        Texts that a person says stand for no value.
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
    absent = {text.strip().casefold() for text in (*missing, *NOT_THERE, *MARKS)}
    rows = [row for row, label in enumerate(labels.tolist()) if not is_missing(label)]
    wanted = [_plain(labels[row]) for row in rows]
    if len(rows) < _FEW or len(set(wanted)) < 2:
        return doubts
    for name in used:
        if name in written or frame[name].dtype.kind in "cmM":
            continue
        cells = [_plain(cell) for cell in frame[name].array[rows]]
        cells = ["" if cell in absent else cell for cell in cells]
        said = said_of_copy(cells, wanted)
        if said:
            said = f"column {name!r} {said}: if it was made from them, it alone decides."
            doubts.append(TableWarning(said, "drop", [name]))
    return doubts


def _plain(cell: Any) -> str:
    """Return a cell as a text without case, a whole number without its point."""
    if is_missing(cell):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip().casefold()


def said_of_copy(cells: Sequence[str], labels: Sequence[str]) -> str:
    """Return how cells repeat the labels beside them, or an empty text.

    Parameters
    ----------
    cells, labels : sequence of str
        Of the labelled rows; empty where a cell has no value.

    Examples
    --------
    >>> said_of_copy(["a", "b"] * 4, ["a", "b"] * 4)
    'has the words of the labels in all 8 labelled rows'
    >>> said_of_copy(["1", "2"] * 20 + [""], ["a", "b"] * 20 + ["a"])
    'has one value per class in all 40 labelled rows where it has one'
    """
    pairs = [pair for pair in zip(cells, labels, strict=True) if pair[0]]
    classes, codes = ({pair[side] for pair in pairs} for side in (1, 0))
    count = len(pairs)
    rows = "labelled rows" + " where it has one" * (count < len(labels))
    if len(classes) < 2 or count < max(_FEW, len(labels) / 2):
        return _said_of_gaps(cells, labels)
    if len(classes) == 2 and count < _FEW_OF_TWO:
        return ""
    same = sum(cell == label for cell, label in pairs)
    if same == count:
        return f"has the words of the labels in all {count:,} {rows}"
    if same >= _NEARLY * count and _beyond_chance(pairs, same) >= _AGREEMENT:
        return f"has the words of the labels in {same:,} of {count:,} {rows}"
    # Few labels have one value per class by chance, or as the column is simply good.
    by_class = len(set(pairs)) == len(codes) == len(classes)
    if by_class and count >= _MANY * len(classes):
        return f"has one value per class in all {count:,} {rows}"
    return ""


def _beyond_chance(pairs: Sequence[tuple[str, str]], same: int) -> float:
    """Return Cohen's kappa of two columns: 0 for agreement by chance, 1 for all."""
    total = len(pairs)
    cells, labels = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    chance = sum(cells[word] * labels[word] for word in labels) / total**2
    return (same / total - chance) / (1 - chance)


def _said_of_gaps(cells: Sequence[str], labels: Sequence[str]) -> str:
    """Return that a column has values in the rows of one class alone, and in all of them.

    Examples
    --------
    >>> said_of_copy(["", "paid"] * 6, ["a", "b"] * 6)
    "has a value in all labelled rows of class 'b', and in no other"
    """
    filled = {label for cell, label in zip(cells, labels, strict=True) if cell}
    empty = {label for cell, label in zip(cells, labels, strict=True) if not cell}
    if len(filled) != 1 or filled & empty or len(empty) * _MANY > len(labels):
        return ""
    (name,) = filled
    enough = labels.count(name) >= _MANY
    return f"has a value in all labelled rows of class {name!r}, and in no other" * enough
