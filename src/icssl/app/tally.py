"""``Tally``: a labelled table in numbers, which add up over its pieces."""

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from numpy import ndarray

from icssl._util.errors import printable

UNREACHED = 0.1
"""Below this ``reach_``, a row is hardly like any labelled row."""

NAME = 80
"""Most characters of a name or a cell that are shown."""

CLASS_HEADER = (
    *("class", "labels given", "rows in all", "mean probability where no label was given"),
)


@dataclass(frozen=True, eq=False)
class Tally:
    """A labelling in numbers, which add up over the pieces of a table.

    Parameters
    ----------
    name : str
        Name of the table.
    features : int
        Number of its columns without the target.
    model : str
        Name of the model.
    classes : ndarray
        Names of the classes.
    labelled, rows : ndarray of int
        Rows per class: those that came with a label, and all.
    probability : ndarray of float
        Sum of probabilities per class, over rows that came without a label.
    confidence : float
        Sum of probabilities over all rows that came without a label.
    unreached : int
        Number of these rows whose reach is below ``UNREACHED``: their labels are hardly
        more than guesses.
    """

    name: str
    features: int
    model: str
    classes: ndarray
    labelled: Int[ndarray, " c"]
    rows: Int[ndarray, " c"]
    probability: Float[ndarray, " c"]
    confidence: float
    unreached: int

    def __add__(self, other: "Tally") -> "Tally":
        return replace(
            self,
            labelled=self.labelled + other.labelled,
            rows=self.rows + other.rows,
            probability=self.probability + other.probability,
            confidence=self.confidence + other.confidence,
            unreached=self.unreached + other.unreached,
        )

    @property
    def lines(self) -> list[str]:
        """The answers to what a person asks first, one or two sentences per line."""
        rows, labelled = int(self.rows.sum()), int(self.labelled.sum())
        new = rows - labelled
        first = (
            f"{printable(self.name)}: {rows:,} rows, {labelled:,} labelled, "
            f"{self.features:,} columns, {len(self.classes):,} classes. Model: "
            f"{self.model}."
        )
        if not new:
            return [first, "Every row came with a label."]
        return [
            first,
            f"Mean confidence {self.confidence / new:.3f} over the {new:,} rows that came "
            f"without a label; {unreached_text(self.unreached)}",
        ]

    @property
    def class_rows(self) -> tuple[tuple[str, ...], ...]:
        """The cells of a table with one line per class, below ``CLASS_HEADER``."""
        columns = (self.classes, self.labelled, self.rows, self.probability)
        return tuple(
            (
                printable(name, NAME),
                f"{labelled:,}",
                f"{rows:,}",
                _mean_text(float(total), int(rows - labelled)),
            )
            for name, labelled, rows, total in zip(*columns, strict=True)
        )


def unreached_text(count: int) -> str:
    """Say how many of some rows are like no labelled row."""
    if not count:
        return "all of them are like some labelled row."
    if count == 1:
        is_far = f"1 of them has a reach below {UNREACHED:g}: it is"
        return f"{is_far} hardly like any labelled row, so check it."
    are_far = f"{count:,} of them have a reach below {UNREACHED:g}: they are"
    return f"{are_far} hardly like any labelled row, so check these."


def _mean_text(total: float, count: int) -> str:
    return f"{total / count:.3f}" if count else "-"
