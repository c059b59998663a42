"""What a person is told about a row: its class, how sure that is, and why."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from icssl._util.errors import printable
from icssl.app.labelling import Labelling
from icssl.app.tally import NAME, UNREACHED

_LEAST_CERTAIN = 10  # rows shown
_CELLS = 20  # of a row that are shown
_HIGH = 0.4  # a reach from which a row is much like a labelled one
_MOST_BARS = 5  # labelled rows that a note has
_LEAST_EVIDENCE = 0.005  # of a labelled row that a note has: less is written as 0.00
NO_WHY = "not computed for a table of this size"


@dataclass(frozen=True)
class RowNote:
    """What a person is told about a row.

    Parameters
    ----------
    row : int
        Its number, counted from 0.
    label, runner_up : str
        The class that it has or gets, and the likeliest other one.
    probability, runner_up_probability, reach : float
        Of the row.
    cells : tuple of str
        Its first cells, as they stand in the file.
    why : str
        A sentence on the labelled rows that decided, without the row's number.
    evidence : tuple of (int, str, float)
        Labelled rows of most weight: number, label, and how much they speak for the class.
    """

    row: int
    label: str
    probability: float
    runner_up: str
    runner_up_probability: float
    reach: float
    cells: tuple[str, ...]
    why: str
    evidence: tuple[tuple[int, str, float], ...]


def row_notes(labelling: Labelling, rows: Iterable[int]) -> list[RowNote]:
    """Return notes about some rows of a table that was labelled."""
    return [_note(labelling, int(row)) for row in rows]


def least_certain(labelling: Labelling) -> list[int]:
    """Return the rows without a label whose likeliest class is least likely, in order."""
    rows = labelling.unlabelled_rows
    order = np.argsort(labelling.probability[rows], kind="stable")[:_LEAST_CERTAIN]
    return [int(row) for row in rows[order]]


def cell_names(labelling: Labelling) -> tuple[str, ...]:
    """Return the names of the columns whose cells are shown beside a row."""
    return tuple(printable(name, NAME) for name in labelling.table.shown_columns[:_CELLS])


def reach_in_words(reach: float) -> str:
    """Return how alike a row is to a labelled one, in a word or two.

    Examples
    --------
    >>> [reach_in_words(reach) for reach in (0.02, 0.2, 0.9)]
    ['hardly', 'somewhat', 'much']
    """
    if reach < UNREACHED:
        return "hardly"
    return "somewhat" if reach < _HIGH else "much"


def _note(labelling: Labelling, row: int) -> RowNote:
    distribution = labelling.distributions[row]
    others = np.argsort(-distribution, kind="stable")
    second = int(others[others != labelling.codes[row]][0])
    table = labelling.table
    cells = (table.shown_cell(row, name) for name in table.shown_columns[:_CELLS])
    return RowNote(
        row,
        printable(labelling.labels[row], NAME),
        float(labelling.probability[row]),
        printable(labelling.classes[second], NAME),
        float(distribution[second]),
        float(labelling.reach[row]),
        tuple(printable(cell, NAME) for cell in cells),
        _why(labelling, row),
        _evidence(labelling, row),
    )


def _why(labelling: Labelling, row: int) -> str:
    if labelling.why is None:
        return NO_WHY
    return labelling.why.reason(row)


def _evidence(labelling: Labelling, row: int) -> tuple[tuple[int, str, float], ...]:
    why = labelling.why
    if why is None:
        return ()
    evidence = why.evidence(row, labelling.codes[row])
    order = np.argsort(-np.abs(evidence), kind="stable")[:_MOST_BARS]
    order = order[np.abs(evidence[order]) >= _LEAST_EVIDENCE]
    return tuple(
        (
            int(why.labelled_rows[place]),
            printable(why.classes[why.labelled_classes[place]], NAME),
            float(evidence[place]),
        )
        for place in order
    )
