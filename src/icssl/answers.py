"""What :class:`icssl.ICSSLClassifier` says beside classes: why, and what to label next."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

_TINY = 1e-12


class Explanation(NamedTuple):
    """Why rows are what they are: ``parts.sum(axis=1) + base`` are their logits.

    Parameters
    ----------
    parts : ndarray of shape (rows, labelled rows, classes)
        What each labelled row contributes, in the order of the table.
    base : ndarray of shape (rows, classes)
        What they have without any: the logarithm of ``class_prior_``, and what keeps
        classes from having too many rows.
    """

    parts: Float[ndarray, "rows labelled classes"]
    base: Float[ndarray, "rows classes"]


def worth_labelling(
    probabilities: Float[ndarray, "n c"],
    reach: Float[ndarray, " n"],
    points: Float[ndarray, "n k"],
    count: int,
) -> list[int]:
    """Rows in doubt, each new one also by its distance from those before."""
    p = np.sort(probabilities, axis=1)
    doubt = 1 - (p[:, -1] - p[:, -2]) * reach
    chosen = [int(doubt.argmax())]
    apart = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < count:
        value = doubt * apart / max(apart.max(), _TINY)
        value[chosen] = -1.0
        chosen.append(int(value.argmax()))
        apart = np.minimum(apart, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen
