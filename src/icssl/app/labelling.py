"""Label the rows of a table by the classifier, and say what came out."""

import re
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl._util.errors import printable
from icssl.tables.files import LabelTable
from icssl.tables.targets import read_targets

if TYPE_CHECKING:
    from icssl.classifier.estimator import ICSSLClassifier

UNREACHED = 0.1
"""Below this ``reach_``, walks of some steps hardly ever meet a labelled row."""

NAME = 80
"""Characters of a name or a cell that are shown."""

_TOO_FEW = 20  # rows of which nothing is said of columns that differ in each

DEMO_LABELS = 3  # a class


@dataclass(frozen=True, eq=False)
class Tally:
    """A labelling in numbers, which add up over the pieces of a table.

    Parameters
    ----------
    name : str
        Of the table.
    features : int
        Its columns without the target.
    model : str
    classes : ndarray
    given, rows : ndarray of int
        Of each class: rows that came with a label, and rows in all.
    probability : ndarray of float
        Of each class: the sum over its rows that came without a label.
    confidence : float
        The sum over the rows that came without a label.
    unreached : int
        How many of these little labelled evidence reached.
    """

    name: str
    features: int
    model: str
    classes: ndarray
    given: Int[ndarray, " c"]
    rows: Int[ndarray, " c"]
    probability: Float[ndarray, " c"]
    confidence: float
    unreached: int

    def __add__(self, other: "Tally") -> "Tally":
        return replace(
            self,
            given=self.given + other.given,
            rows=self.rows + other.rows,
            probability=self.probability + other.probability,
            confidence=self.confidence + other.confidence,
            unreached=self.unreached + other.unreached,
        )

    @property
    def lines(self) -> list[str]:
        """What a person asks first, a sentence or two a line."""
        rows, labelled = int(self.rows.sum()), int(self.given.sum())
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
            f"without a label; {self.unreached:,} of them have a reach below "
            f"{UNREACHED:g}: hardly any labelled evidence.",
        ]

    @property
    def class_rows(self) -> tuple[tuple[str, ...], ...]:
        """Every class with its rows: with a label from the start, and in all."""
        each = zip(self.classes, self.given, self.rows, self.probability, strict=True)
        return tuple(
            (
                printable(name, NAME),
                f"{given:,}",
                f"{rows:,}",
                _mean(float(total), int(rows - given)),
            )
            for name, given, rows, total in each
        )


def _mean(total: float, count: int) -> str:
    return f"{total / count:.3f}" if count else "-"


@dataclass(frozen=True, eq=False)
class Labelling:
    """What the classifier says about a table."""

    table: LabelTable
    classes: ndarray
    given: Int[ndarray, " n"]  # -1 where the table has no label
    distributions: Float[ndarray, "n c"]
    embedding: Float[ndarray, "n k"]
    reach: Float[ndarray, " n"]
    suggested: tuple[int, ...]
    model: str

    @cached_property
    def codes(self) -> Int[ndarray, " n"]:
        """The class of every row: the one it was given, else the likeliest."""
        likeliest = self.distributions.argmax(axis=1)
        return np.where(self.given >= 0, self.given, likeliest)

    @property
    def labels(self) -> ndarray:
        """The same by the name of the class."""
        return self.classes[self.codes]

    @property
    def unlabelled(self) -> ndarray:
        """Rows that came without a label."""
        return np.flatnonzero(self.given < 0)

    @cached_property
    def probability(self) -> Float[ndarray, " n"]:
        """Of the label of every row, those that were given too."""
        return self.distributions[np.arange(len(self.codes)), self.codes]

    @property
    def columns(self) -> dict[str, ndarray]:
        """What is written beside the rows."""
        values = (self.labels, self.probability, self.reach)
        return dict(zip(("label", "probability", "reach"), values, strict=True))

    @property
    def tally(self) -> Tally:
        """The same in a few numbers."""
        c, known = len(self.classes), self.given >= 0
        return Tally(
            self.table.name,
            self.table.features.shape[1],
            self.model,
            self.classes,
            np.bincount(self.given[known], minlength=c),
            np.bincount(self.codes, minlength=c),
            np.bincount(self.codes[~known], self.probability[~known], c).astype(float),
            float(self.probability[~known].sum()),
            int((self.reach[~known] < UNREACHED).sum()),
        )


def demo_table() -> LabelTable:
    """Wine of three growers by 13 chemical measurements; three bottles of each labelled."""
    from sklearn.datasets import load_wine

    wine = load_wine()
    names = np.array(["grower A", "grower B", "grower C"])[wine.target]
    rng = np.random.default_rng(0)
    target = np.full(len(names), None, dtype=object)
    for name in np.unique(names):
        chosen = rng.choice(np.flatnonzero(names == name), DEMO_LABELS, replace=False)
        target[chosen] = name
    kept = {"target": target, "x": wine.data}
    return LabelTable("Wine (demo)", wine.data, target, kept, truth=names)


def label_rows(
    table: LabelTable,
    *,
    model: str = "auto",
    device: str = "auto",
    suggestions: int = 10,
) -> Labelling:
    """Fit :class:`icssl.ICSSLClassifier` to a table, which trains nothing."""
    _warn_of_names(table)
    classifier = fitted(table, model=model, device=device)
    labelling = labelling_of(table, classifier)
    count = min(suggestions, len(labelling.unlabelled))
    suggested = [int(row) for row in classifier.suggest(count)] if count else []
    return replace(labelling, suggested=tuple(suggested))


def _warn_of_names(table: LabelTable) -> None:
    """Texts and whole numbers that differ in every row may only say which row it is."""
    columns = table.features.items() if hasattr(table.features, "items") else ()
    for name, column in columns:
        if len(column) < _TOO_FEW or column.nunique() < len(column):
            continue
        if column.dtype.kind in "iu":
            counted = int(column.max()) - int(column.min()) + 1 == len(column)
        else:
            counted = all(isinstance(cell, str) for cell in column)
        if counted:
            warnings.warn(
                f"column {name!r} is different in every row: --drop it if it only says "
                "which row this is.",
                UserWarning,
                stacklevel=2,
            )


def fitted(
    table: LabelTable, *, model: str = "auto", device: str = "auto"
) -> "ICSSLClassifier":
    """The classifier, with the table as its context; an error names the table."""
    from icssl.classifier.estimator import ICSSLClassifier

    try:
        classifier = ICSSLClassifier(model, device=device)
        return classifier.fit(table.features, table.target)
    except ValueError as error:
        said = re.sub(r"^y has", "its target has", str(error))
        raise ValueError(f"{table.name}: {said}") from error


def labelling_of(table: LabelTable, classifier: "ICSSLClassifier") -> Labelling:
    """What a classifier says about the table to which it was fitted."""
    classes, given = read_targets(table.target)
    return Labelling(
        table,
        classes,
        given,
        classifier.label_distributions_,
        classifier.embedding_,
        classifier.reach_,
        (),
        classifier.model_name_,
    )


def summary_lines(labelling: Labelling) -> list[str]:
    """What a person asks first, a sentence or two a line."""
    lines, new = labelling.tally.lines, labelling.unlabelled
    if labelling.table.truth is not None and len(new):
        hits = (labelling.labels == labelling.table.truth)[new]
        lines.append(f"The demo knows the truth: {hits.mean():.3f} of these are right.")
    return lines


CLASS_HEADER = ("class", "labels given", "rows in all", "mean probability of the others")


def class_rows(labelling: Labelling) -> tuple[tuple[str, ...], ...]:
    """Every class with its rows: with a label from the start, and in all."""
    return labelling.tally.class_rows
