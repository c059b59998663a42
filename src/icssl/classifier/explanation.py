"""Answers beside classes: why a row gets its class, and which rows to label next."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

_TINY = 1e-12


class Explanation(NamedTuple):
    """Why rows get their classes: ``parts.sum(axis=1) + base`` are their logits.

    Parameters
    ----------
    parts : ndarray of shape (rows, labelled rows, classes)
        What each labelled row contributes, in the order of the table.
    base : ndarray of shape (rows, classes)
        Logits without any labelled row: the logarithm of ``class_prior_``.
    """

    parts: Float[ndarray, "rows labelled classes"]
    base: Float[ndarray, "rows classes"]


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
        How much labelled evidence reached each row.
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
