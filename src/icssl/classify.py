"""Label the rows of a table by the classifier, and say what came out."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl.tabular import read_targets
from icssl.tabular.files import LabelTable

UNREACHED = 1e-3
"""Below this ``reach_``, what a row is given is the class prior and little else."""

DEMO_LABELS = 3  # a class


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
    def unreached(self) -> int:
        """How many rows no labelled evidence reached."""
        return int((self.reach[self.unlabelled] < UNREACHED).sum())


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
    from icssl.estimator import ICSSLClassifier

    try:
        classes, given = read_targets(table.target)
        classifier = ICSSLClassifier(model, device=device)
        classifier.fit(table.features, table.target)
        count = min(suggestions, int((given < 0).sum()))
        suggested = [int(row) for row in classifier.suggest(count)] if count else []
    except ValueError as error:
        raise ValueError(f"{table.name}: {error}") from error
    return Labelling(
        table,
        classes,
        given,
        classifier.label_distributions_,
        classifier.embedding_,
        classifier.reach_,
        tuple(suggested),
        str(getattr(classifier, "model_name_", model)),  # what "auto" chose
    )


def summary_lines(labelling: Labelling) -> list[str]:
    """What a person asks first, a sentence or two a line."""
    rows, new = len(labelling.given), len(labelling.unlabelled)
    columns = labelling.table.features.shape[1]
    lines = [
        f"{labelling.table.name}: {rows:,} rows, {rows - new:,} labelled, {columns:,} "
        f"columns, {len(labelling.classes):,} classes. Model: {labelling.model}."
    ]
    if new:
        confidence = labelling.probability[labelling.unlabelled].mean()
        lines.append(
            f"Mean confidence {confidence:.3f} over the {new:,} rows that came without a "
            f"label; no labelled evidence reached {labelling.unreached:,} of them."
        )
    else:
        lines.append("Every row came with a label.")
    if labelling.table.truth is not None and new:
        hits = (labelling.labels == labelling.table.truth)[labelling.unlabelled]
        lines.append(f"The demo knows the truth: {hits.mean():.3f} of these are right.")
    return lines


CLASS_HEADER = ("class", "labels given", "rows in all", "mean probability")


def class_rows(labelling: Labelling) -> tuple[tuple[str, ...], ...]:
    """Every class with its rows: with a label from the start, and in all."""
    rows = []
    for code, name in enumerate(labelling.classes):
        own = labelling.probability[labelling.codes == code]
        given = int((labelling.given == code).sum())
        rows.append((str(name), f"{given:,}", f"{len(own):,}", f"{own.mean():.3f}"))
    return tuple(rows)
