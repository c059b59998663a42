"""Which column holds the labels, where nobody has said so."""

from collections.abc import Collection, Sequence

import numpy as np

from icssl._util.errors import list_names
from icssl.tables.table_file import FileTable
from icssl.tables.table_warning import TableWarning, quote
from icssl.tables.targets import find_labels

LABEL_NAMES = ("label", "target", "class", "y")
"""Names of columns that are taken for labels unless a person names the column."""

_MANY = 30  # different values: a column with more hardly holds classes
_MANY_NUMBERS = 10  # the same of numbers, which may also count something
_GUESSED = 3  # columns that a message about a guess lists, at most


def guess_target(
    name: str, file: FileTable, others: Collection[str] = ()
) -> tuple[str, TableWarning]:
    """Return the column that looks most like labels, and a warning that says so.

    Rows without a label are what a target is for: among columns with some, one that is
    named like labels comes first; then, among those with few different values, the one
    with most missing cells, and of these the last.
    """
    names = [one for one in file.names if one not in others]
    by_case = {one.lower(): one for one in reversed(names)}
    named = [by_case[one] for one in LABEL_NAMES if one in by_case]
    open_ones = [one for one in named if _has_unlabelled(file, one)]
    found = [] if open_ones else _candidates(file, names)
    if open_ones or (named and not found):
        chosen = (open_ones or named)[0]
        said = f"the labels are taken from column {chosen!r}, because of its name."
        return chosen, TableWarning(said, "target", [chosen])
    if not found:
        listed = list_names(file.names)
        if len(file.names) == 1:
            raise ValueError(
                f"{name} has one column, {listed}: a table needs one for the labels and "
                "others to learn from. If it has more, name the --separator."
            )
        raise ValueError(
            f"{name} has no column that looks like labels, with two or more different "
            f"values, but few, and empty cells: name the target, one of {listed}."
        )
    chosen, absent, rows = found[0]
    are = "is" if absent == 1 else "are"
    said = (
        f"the labels are taken from column {chosen!r}: {absent:,} of its {rows:,} cells "
        f"{are} empty."
    )
    if named:
        said = f"{said} Column {named[0]!r} has a label in every row."
    if len(found) > 1:
        more = quote([one for one, *_ in found[1 : 1 + _GUESSED]])
        said = f"{said} It could also be {more}."
    return chosen, TableWarning(said, "target", [chosen])


def _has_unlabelled(file: FileTable, name: str) -> bool:
    """Whether a column has rows without a label; also if it cannot be read as labels."""
    try:
        return not find_labels(file.labels(name))[1].all()
    except (ValueError, TypeError):
        return True  # an error then says what is wrong with it


def _candidates(file: FileTable, names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return columns that may be the target, the likeliest first, with missing cells."""
    found = []
    for place, name in enumerate(names):
        if isinstance(file.cells, dict) and np.ndim(file.cells[name]) != 1:
            continue
        try:
            cells, is_label = find_labels(file.labels(name))
        except (ValueError, TypeError):
            continue
        absent, labels = int((~is_label).sum()), cells[is_label]
        texts = {str(label) for label in labels[: 50 * _MANY]}
        most = _MANY_NUMBERS if all(map(_is_number, texts)) else _MANY
        if absent and 2 <= len(texts) <= min(most, len(labels)):
            found.append((absent, place, name, len(cells)))
    return [(name, absent, rows) for absent, _, name, rows in sorted(found, reverse=True)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
