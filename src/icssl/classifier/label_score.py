"""``LabelScore``: how often the classifier is right about labels that it does not see."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray
from sklearn.base import clone

from icssl._util.progress import begin_steps, showing, stepper
from icssl.tables.order import Order
from icssl.tables.table_warning import TableWarning

_MOST_FOLDS = 10  # refits
_NORMAL_QUANTILE = 1.959963984540054  # of which 95% of a normal distribution is within


@dataclass(frozen=True)
class LabelScore:
    """The accuracy on labelled rows whose label was hidden.

    Parameters
    ----------
    accuracy : float
        Share of the judged rows whose label was predicted; NaN if none was judged.
    low, high : float
        A 95% interval of it, by Wilson's formula.
    rows : int
        Labelled rows that were judged.
    alone : int
        Labelled rows that could not be judged, because no other row has their label.

    Examples
    --------
    >>> score = LabelScore.of_hits(17, 20)
    >>> print(score)
    17 of 20 hidden labels are predicted: 0.85 (95% interval 0.64 to 0.95).
    """

    accuracy: float
    low: float
    high: float
    rows: int
    alone: int = 0

    @classmethod
    def of_hits(cls, hits: int, rows: int, alone: int = 0) -> "LabelScore":
        """Return the score of so many hits among the judged rows."""
        if not rows:
            return cls(math.nan, 0.0, 1.0, 0, alone)
        share, z = hits / rows, _NORMAL_QUANTILE
        centre = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
        variance = share * (1 - share) / rows + z**2 / (4 * rows**2)
        half = z * math.sqrt(variance) / (1 + z**2 / rows)
        # Rounding could leave the end of the interval on the wrong side of 0 or 1.
        low, high = max(0.0, centre - half), min(1.0, centre + half)
        return cls(share, min(low, share), max(high, share), rows, alone)

    def __str__(self) -> str:
        """Return the score as one or two sentences."""
        text = "No label could be judged."
        if self.rows:
            interval = f"95% interval {self.low:.2f} to {self.high:.2f}"
            hits = round(self.accuracy * self.rows)
            verb = "is" if hits == 1 else "are"
            share = f"{hits:,} of {self.rows:,} hidden labels {verb} predicted"
            text = f"{share}: {self.accuracy:.2f} ({interval})."
        if not self.alone:
            return text
        count = "1 label is" if self.alone == 1 else f"{self.alone} labels are"
        whose = "its" if self.alone == 1 else "their"
        return f"{text} {count} not judged: no other row of {whose} class has one."


def judge_labels(
    classifier: Any,
    table: Any,
    codes: Int[ndarray, " n"],
    weights: ndarray | None,
    order: Order,
) -> LabelScore:
    """Return how often a classifier predicts labels that are hidden from it.

    Some labels at a time are hidden, and the classifier is fitted again to the same rows.

    Parameters
    ----------
    classifier : ICSSLClassifier
        One that takes the codes as labels.
    table : table
        The rows.
    codes : ndarray
        Classes of the rows; -1 for none.
    weights : ndarray, optional
        Weights of the labels.
    order : Order
        The order of the rows and classes, which decides what is hidden together.
    """
    folds, hits = hidden_labels(codes, order), 0
    begin_steps(len(folds), "predictions of hidden labels")
    step = stepper()
    for hidden in folds:
        shown = codes.copy()
        shown[hidden] = -1
        with warnings.catch_warnings(), showing(None):
            # The first fit has said which rows are equal, and what is doubtful of columns.
            warnings.filterwarnings("ignore", ".*labelled rows that are equal")
            warnings.simplefilter("ignore", TableWarning)
            predicted = clone(classifier).fit_predict(table, shown, weights)
        hits += int((predicted[hidden] == codes[hidden]).sum())
        step()
    judged = sum(map(len, folds))
    return LabelScore.of_hits(hits, judged, int((codes >= 0).sum()) - judged)


def judge_logistic(
    rows: Any,
    codes: Int[ndarray, " n"],
    weights: ndarray | None,
    order: Order,
) -> LabelScore:
    """Return how often logistic regression predicts the same hidden labels.

    It sees the columns as the classifier encodes them, and the labels that are not hidden;
    it does not use rows without a label.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        The encoded rows.
    codes, weights, order
        As for :func:`judge_labels`.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    folds, hits = hidden_labels(codes, order), 0
    for hidden in folds:
        shown = np.setdiff1d(np.flatnonzero(codes >= 0), hidden)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(max_iter=1000).fit(
                rows[shown], codes[shown], None if weights is None else weights[shown]
            )
        hits += int((model.predict(rows[hidden]) == codes[hidden]).sum())
    judged = sum(map(len, folds))
    return LabelScore.of_hits(hits, judged, int((codes >= 0).sum()) - judged)


def hidden_labels(codes: Int[ndarray, " n"], order: Order) -> list[ndarray]:
    """Return which labelled rows to hide together, at most ten times.

    Every labelled row is hidden once, unless no other row has its class. Rows of one class
    are spread evenly, so that no class is hidden as a whole.

    Examples
    --------
    >>> codes = np.array([0, 0, 1, -1, 1, 2])
    >>> order = Order.as_given(codes[:, None], codes)
    >>> [rows.tolist() for rows in hidden_labels(codes, order)]
    [[0], [1], [2], [4]]
    """
    counts = np.bincount(codes[codes >= 0])
    # The order of the table must not matter: rows and classes come in the other order.
    in_order = order.sort_codes(codes)
    judged = np.flatnonzero((in_order >= 0) & (np.append(counts, 0)[codes[order.rows]] > 1))
    by_class = judged[np.argsort(in_order[judged], kind="stable")]
    rows, folds = order.rows[by_class], min(_MOST_FOLDS, len(by_class))
    return [np.sort(rows[start::folds]) for start in range(folds)]
