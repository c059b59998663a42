"""``sample_weight``: how much the label of each row counts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from icssl._util.errors import list_names

_LEAST_WEIGHT = 1e-12  # where the mean is one: smaller ones could become zero in float32


def read_label_weights(
    sample_weight: Any, labelled: Bool[ndarray, " n"]
) -> Float[ndarray, " n"] | None:
    """Return a weight for each row, or None where all labels count the same.

    Weights of labelled rows have mean one over those that are not zero: only their ratios
    count. Weights of other rows are not looked at, and come back as zero.

    Parameters
    ----------
    sample_weight : array of shape (n,) or None
        The weights that a user gave.
    labelled : ndarray
        Which rows have a label.

    Examples
    --------
    >>> labelled = np.array([True, False, True])
    >>> read_label_weights([3.0, 7.0, 1.0], labelled)
    array([1.5, 0. , 0.5])
    """
    if sample_weight is None:
        return None
    numbers = _as_numbers(sample_weight)
    if numbers.shape != labelled.shape:
        raise ValueError(
            f"sample_weight must have one number for each of the {len(labelled)} rows, got "
            f"an array of shape {numbers.shape}."
        )
    _check_values(numbers, labelled)
    weights = np.where(labelled, numbers, 0.0)
    positive = weights[weights > 0]
    if (positive == positive[0]).all() and len(positive) == labelled.sum():
        return None
    weights = weights / weights.max()  # or the sum of large weights would be infinite
    weights = weights / weights[weights > 0].mean()
    return np.where(weights > 0, np.maximum(weights, _LEAST_WEIGHT), 0.0)


def _as_numbers(sample_weight: Any) -> ndarray:
    if isinstance(sample_weight, (str, Mapping)):
        raise ValueError(
            "sample_weight must have one number for each row, got "
            f"{type(sample_weight).__name__}: give an array with one number per row, for "
            "example [weight[label] for label in y]."
        )
    try:
        return np.asarray(sample_weight, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "sample_weight must have one number for each row, got "
            f"{type(sample_weight).__name__}: {error}."
        ) from error


def _check_values(numbers: Float[ndarray, " n"], labelled: Bool[ndarray, " n"]) -> None:
    wrong = np.flatnonzero(labelled & ~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"sample_weight must be finite and not negative, got {numbers[row]} for row "
            f"{row}, which has a target; zero leaves a label out."
        )
    if not (numbers[labelled] > 0).any():
        raise ValueError(
            "sample_weight is zero for every row that has a target: give some of them a "
            "positive weight."
        )


def check_every_class_counts(counts: Float[ndarray, " classes"], classes: ndarray) -> None:
    """Raise ``ValueError`` if all labels of a class have the weight zero."""
    lost = classes[counts == 0].tolist()
    if lost:
        raise ValueError(
            f"sample_weight is zero for every label of {list_names(lost)}: at least one "
            "row of each class needs a positive weight."
        )
