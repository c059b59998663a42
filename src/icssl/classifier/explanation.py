"""Answers beside classes: why a row gets its class, and which rows to label next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl._util.errors import printable
from icssl._util.percent import percent

_TINY = 1e-12
_MOST_NAMED = 3  # labelled rows in a sentence
_ENOUGH = 0.5  # share of what speaks for a class that the named rows must have
_LITTLE = 0.05  # of a logit: less evidence in all changes a probability by a point at most
_MOST_SENTENCES = 10  # of a printed explanation
_LONGEST_NAME = 40  # characters


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why rows get their classes: ``parts.sum(axis=1) + base`` are their logits.

    Printed, it is a sentence per row. It can be unpacked: ``parts, base = explanation``.

    Parameters
    ----------
    parts : ndarray of shape (rows, labelled rows, classes)
        What each labelled row contributes, in the order of the table.
    base : ndarray of shape (rows, classes)
        Logits without any labelled row: the logarithm of ``class_prior_``.
    classes : ndarray of shape (classes,)
        The classes.
    labelled_rows : ndarray of shape (labelled rows,)
        Numbers of the labelled rows in the table of ``fit``, counted from 0.
    labelled_classes : ndarray of shape (labelled rows,)
        Places of their labels among the classes.
    is_new : bool
        Whether the rows are new ones, and not those of ``fit``.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from icssl import ICSSLClassifier
    >>> X, truth = load_wine(return_X_y=True)
    >>> y = [-1] * 178
    >>> y[36], y[48], y[100], y[160] = "A", "A", "B", "C"
    >>> explanation = ICSSLClassifier().fit(X, y).explain()
    >>> print(explanation.sentence(3))
    row 3: 99% A, because of row 48
    """

    parts: Float[ndarray, "rows labelled classes"]
    base: Float[ndarray, "rows classes"]
    classes: ndarray
    labelled_rows: Int[ndarray, " labelled"]
    labelled_classes: Int[ndarray, " labelled"]
    is_new: bool = False

    def __iter__(self) -> Iterator[ndarray]:
        return iter((self.parts, self.base))

    def __len__(self) -> int:
        """Return the number of rows that are explained."""
        return len(self.base)

    @property
    def logits(self) -> Float[ndarray, "rows classes"]:
        """The logits: what all labelled rows contribute, and the base."""
        return self.parts.sum(axis=1) + self.base

    @property
    def probabilities(self) -> Float[ndarray, "rows classes"]:
        """The softmax of the logits, also for labelled rows, which keep their label."""
        logits = self.logits
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def evidence(
        self, row: SupportsIndex, code: SupportsIndex | None = None
    ) -> Float[ndarray, " labelled"]:
        """Return how much each labelled row speaks for one class of a row.

        It is what the labelled row adds to the logit of the class, less the mean of what
        it adds to the logits of all classes; below 0 it speaks against the class.

        Parameters
        ----------
        row : int
            Which of the explained rows.
        code : int, optional
            Place of the class among ``classes``; by default that of the likeliest.
        """
        parts = self.parts[self._check_row(row)]
        code = self._likeliest(row) if code is None else code
        return parts[:, index(code)] - parts.mean(axis=1)

    def decisive_rows(self, row: SupportsIndex) -> list[int]:
        """Return the labelled rows that decided a row's class, the strongest first.

        They are at most three, and no more than make up half of what speaks for the class.
        """
        evidence = self.evidence(row)
        order = np.argsort(-evidence, kind="stable")
        order = order[evidence[order] > _TINY][:_MOST_NAMED]
        total = evidence[evidence > 0].sum()
        needed = 1 + np.searchsorted(evidence[order].cumsum(), _ENOUGH * total)
        return [int(place) for place in self.labelled_rows[order[:needed]]]

    def sentence(self, row: SupportsIndex) -> str:
        """Return why a row gets its class, as a sentence.

        Parameters
        ----------
        row : int
            Which of the explained rows.
        """
        row = self._check_row(row)
        name = f"new row {row}" if self.is_new else f"row {row}"
        code = self._own_label(row)
        share = ""
        if code is None:
            code = self._likeliest(row)
            share = f"{percent(self.probabilities[row, code])} "
        label = printable(self.classes[code], _LONGEST_NAME)
        return f"{name}: {share}{label}, {self.reason(row)}"

    def reason(self, row: SupportsIndex) -> str:
        """Return why a row gets its class, as the end of its sentence.

        Parameters
        ----------
        row : int
            Which of the explained rows.
        """
        if self._own_label(row) is not None:
            return "its own label"
        rows, evidence = self.decisive_rows(row), self.evidence(row)
        if evidence[evidence > 0].sum() < _LITTLE:
            return "because of the shares of the classes: no label is near"
        return f"because of {_rows_in_words(rows)}"

    def sentences(self) -> list[str]:
        """Return why each row gets its class, one sentence per row."""
        return [self.sentence(row) for row in range(len(self))]

    def __str__(self) -> str:
        shown = min(len(self), _MOST_SENTENCES)
        lines = [self.sentence(row) for row in range(shown)]
        more = len(self) - shown
        return "\n".join([*lines, f"and {more:,} rows more"] if more else lines)

    def __repr__(self) -> str:
        rows, labelled, classes = self.parts.shape
        return (
            f"<Explanation of {rows:,} rows by {labelled:,} labelled rows and {classes:,} "
            "classes: print it, or use to_frame(), plot(row) or sentence(row)>"
        )

    def to_frame(self, rows: Sequence[SupportsIndex] | None = None) -> Any:
        """Return a pandas data frame with what each labelled row adds to each logit.

        It has a line per row, class and labelled row, and one per row and class for the
        base, whose ``labelled_row`` is missing. Summed over these lines, ``part`` is the
        logit.

        Parameters
        ----------
        rows : sequence of int, optional
            Which of the explained rows; by default all.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas: install icssl with its extra 'tables', in a clone "
                "of it by pip install '.[tables]'."
            ) from error
        chosen = range(len(self)) if rows is None else [self._check_row(r) for r in rows]
        n, c, m = len(chosen), len(self.classes), len(self.labelled_rows)
        parts = np.concatenate([self.base[chosen][:, None], self.parts[chosen]], axis=1)
        own = np.arange(m + 1) - 1  # -1 for the base
        numbers = pd.array([None, *self.labelled_rows.tolist()], dtype="Int64")
        labels = np.array([None, *self.classes[self.labelled_classes]], dtype=object)
        probabilities = self.probabilities[chosen]
        return pd.DataFrame(
            {
                "row": np.repeat(np.asarray(chosen, dtype=np.int64), c * (m + 1)),
                "class": np.tile(np.repeat(self.classes, m + 1), n),
                "probability": np.repeat(probabilities.ravel(), m + 1),
                "labelled_row": numbers.take(np.tile(own + 1, n * c)),
                "label": np.tile(labels, n * c),
                "part": parts.transpose(0, 2, 1).ravel(),
            }
        )

    def plot(self, row: SupportsIndex = 0, *, most: int = 10, ax: Any = None) -> Any:
        """Draw as bars how much labelled rows speak for the likeliest class of a row.

        Parameters
        ----------
        row : int
            Which of the explained rows.
        most : int
            How many labelled rows to draw, those of most weight.
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        matplotlib axes
            What was drawn on.
        """
        from icssl.classifier.pictures import draw_evidence

        return draw_evidence(self, self._check_row(row), most, ax)

    def _likeliest(self, row: SupportsIndex) -> int:
        row = self._check_row(row)
        return int((self.parts[row].sum(axis=0) + self.base[row]).argmax())

    def _own_label(self, row: SupportsIndex) -> int | None:
        """Return the place of a row's own label among the classes, if it has one."""
        own = np.flatnonzero(self.labelled_rows == self._check_row(row))
        return None if self.is_new or not len(own) else int(self.labelled_classes[own[0]])

    def _check_row(self, row: SupportsIndex) -> int:
        if not 0 <= index(row) < len(self):
            raise ValueError(
                f"row must be from 0 to {len(self) - 1}, the explained rows, got {row}."
            )
        return index(row)


def _rows_in_words(rows: Sequence[int]) -> str:
    """Return row numbers as words.

    Examples
    --------
    >>> _rows_in_words([4]), _rows_in_words([4, 7, 1])
    ('row 4', 'rows 4, 7 and 1')
    """
    if len(rows) == 1:
        return f"row {rows[0]}"
    return f"rows {', '.join(map(str, rows[:-1]))} and {rows[-1]}"


def rows_worth_labelling(
    probabilities: Float[ndarray, "n c"],
    reach: Float[ndarray, " n"],
    points: Float[ndarray, "n k"],
    count: int,
) -> list[int]:
    """Return rows in doubt, each far from those before it.

    Parameters
    ----------
    probabilities : ndarray
        Probabilities of the classes.
    reach : ndarray
        How likely a walk leads from each row to a labelled one.
    points : ndarray
        Where rows are: distances keep the chosen ones apart.
    count : int
        How many rows to choose.
    """
    p = np.sort(probabilities, axis=1)
    doubt = 1 - (p[:, -1] - p[:, -2]) * reach
    chosen = [int(doubt.argmax())]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < count:
        value = doubt * distance / max(distance.max(), _TINY)
        value[chosen] = -1.0
        chosen.append(int(value.argmax()))
        from_last = np.linalg.norm(points - points[chosen[-1]], axis=1)
        distance = np.minimum(distance, from_last)  # to the nearest of those chosen
    return chosen
