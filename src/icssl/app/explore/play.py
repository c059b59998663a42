"""What the classifier and its rivals say about a cloud with some labels."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from icssl.app.explore.sources import Cloud, draw_cloud, remembered
from icssl.bench.plots import principal_coordinates
from icssl.classifier.estimator import ICSSLClassifier
from icssl.tables.columns import ColumnEncoder

Labels = tuple[tuple[int, int], ...]

DRAWN = (
    "drawn are two principal coordinates of the classifier's embedding; points far from "
    "all others are drawn nearer (by the inverse hyperbolic sine)."
)
"""What :func:`drawable` does, for the notes beside its pictures."""

ALL_VIEWS_ROWS = 400  # up to here in all views: more would make a click wait
_REMEMBERED = 8
_MOST_SPREAD = 1_000  # points whose weights are all computed
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Answer:
    """The classifier on a cloud, and other methods with the same labels.

    Parameters
    ----------
    classes : ndarray of shape (c,)
        Codes of the classes that have a label.
    given : ndarray of shape (n,)
        The code of every label, -1 for none.
    predicted : ndarray of shape (n,)
        Codes.
    distributions : ndarray of shape (n, c)
    reach : ndarray of shape (n,)
    rivals : dict
        Codes that other methods predict.
    parts, base : ndarray of shape (n, m, c) and (n, c)
        What each labelled point contributes to each logit, and what is left.
    suggested : int
        The point worth labelling next.
    views : str
        In which views the classifier read the cloud.
    """

    classes: Int[ndarray, " c"]
    given: Int[ndarray, " n"]
    predicted: Int[ndarray, " n"]
    distributions: Float[ndarray, "n c"]
    reach: Float[ndarray, " n"]
    rivals: dict[str, Int[ndarray, " n"]]
    parts: Float[ndarray, "n m c"]
    base: Float[ndarray, "n c"]
    suggested: int
    views: str

    @property
    def probability(self) -> Float[ndarray, " n"]:
        """Of what is predicted."""
        return self.distributions.max(axis=1)

    @property
    def labelled(self) -> Int[ndarray, " m"]:
        """Points with a label, in the order of ``parts``."""
        return np.flatnonzero(self.given >= 0)

    def accuracy(self, predicted: ndarray, truth: ndarray) -> float:
        """Share of points without a label that are right."""
        asked = self.given < 0
        return float((predicted == truth)[asked].mean()) if asked.any() else float("nan")


def usable(labels: Labels, n: int) -> Labels:
    """Labels of points that there are: a table may have fewer rows than were asked for."""
    return tuple((point, code) for point, code in labels if point < n)


def codes_of(labels: Labels, n: int) -> Int[ndarray, " n"]:
    """The code of every point's label, -1 for none."""
    codes = np.full(n, -1)
    for point, code in usable(labels, n):
        codes[point] = code
    return codes


def answer(cloud: Cloud, labels: Labels) -> Answer | None:
    """What is predicted; None as long as fewer than two classes have a label."""
    labels = usable(labels, len(cloud.y))
    if len({code for _, code in labels}) < 2:
        return None
    return _answered(cloud.key, labels)


@remembered(_REMEMBERED)
def _answered(key: tuple[Any, ...], labels: Labels) -> Answer:
    cloud = draw_cloud(*key)
    given = codes_of(labels, len(cloud.y))
    few = len(cloud.y) <= ALL_VIEWS_ROWS
    classifier = ICSSLClassifier("all views" if few else "one view", device="cpu")
    with warnings.catch_warnings():
        # Equal points with different labels are the person's own doing.
        warnings.simplefilter("ignore", UserWarning)
        classifier.fit(cloud.x, given)
    parts, base = classifier.explain()
    unlabelled = bool((given < 0).any())
    return Answer(
        classifier.classes_,
        given,
        classifier.transduction_,
        classifier.label_distributions_,
        classifier.reach_,
        _rivals(cloud.x, given),
        parts,
        base,
        int(classifier.suggest(1)[0]) if unlabelled else 0,
        classifier.model_name_,
    )


def _rivals(x: ndarray, given: ndarray) -> dict[str, ndarray]:
    """Of the same columns, each in units of its standard deviation."""
    rows, known = ColumnEncoder().fit_transform(x), given >= 0
    # The setting that was best for real tables; of many points, their matrix is too large.
    spreading = LabelSpreading(kernel="rbf", alpha=0.8, gamma=10 / rows.shape[1])
    if len(rows) > _MOST_SPREAD:
        spreading = LabelSpreading(kernel="knn", alpha=0.9, max_iter=1000)
    # Where no label gets, scikit-learn divides zero by zero and takes the first class.
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spread = spreading.fit(rows, given).transduction_
    found = {"label_spreading": spread}
    rivals = {"svc": SVC(C=10.0), "logistic_regression": LogisticRegression(max_iter=1000)}
    for name, model in rivals.items():
        found[name] = model.fit(rows[known], given[known]).predict(rows)
    return found


def flat_or_solid(cloud: Cloud) -> Float[ndarray, "n axes"]:
    """Where points are drawn: their coordinates up to three, else the embedding in two.

    A coordinate that all points share, as on the paper's torus, is left out.
    """
    if cloud.x.shape[1] > 3:
        return _embedding(cloud.key)
    spread = np.ptp(cloud.x, axis=0)
    return cloud.x[:, spread > 1e-6 * spread.max()]


@remembered(_REMEMBERED)
def _embedding(key: tuple[Any, ...]) -> ndarray:
    cloud = draw_cloud(*key)
    # The embedding is that of all rows and does not look at labels, but fit wants some.
    given = codes_of(((0, 0), (1, 1)), len(cloud.y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        classifier = ICSSLClassifier("one view", device="cpu").fit(cloud.x, given)
    return drawable(classifier.embedding_)


def drawable(embedding: Float[ndarray, "n k"]) -> Float[ndarray, "n 2"]:
    """Two principal coordinates, with points far from the others drawn nearer.

    A few rows that the graph hardly joins would otherwise squeeze all others into a dot.
    """
    wide = np.column_stack([embedding, np.zeros((len(embedding), 2))])
    found = principal_coordinates(wide.astype(float))
    found = found - np.median(found, axis=0)
    usual = np.median(np.abs(found), axis=0)
    return np.arcsinh(found / np.maximum(usual, _TINY))


@dataclass(frozen=True)
class Reason:
    """Why a point has the logit it has for a class."""

    code: int
    labelled: tuple[int, ...]
    parts: tuple[float, ...]  # of each labelled point
    base: float
    logit: float
    probability: float


def reasons(found: Answer, point: int) -> list[Reason]:
    """For every class, the likeliest first: what each labelled point contributes.

    Probabilities are those of the logits; a point with a label keeps its own all the same.
    """
    parts, base = found.parts[point], found.base[point]
    logits = parts.sum(axis=0) + base
    share = np.exp(logits - logits.max())
    share = share / share.sum()
    labelled = tuple(int(i) for i in found.labelled)
    return [
        Reason(
            int(found.classes[c]),
            labelled,
            tuple(float(part) for part in parts[:, c]),
            float(base[c]),
            float(logits[c]),
            float(share[c]),
        )
        for c in np.argsort(-logits, kind="stable")
    ]
