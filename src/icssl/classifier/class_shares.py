"""How frequent each class is taken to be: what ``class_prior`` allows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from icssl._util.errors import check_choice, list_names

PRIORS = ("estimate", "labels", "uniform")
"""Names that ``class_prior`` can have."""

_ALSO = "an array with one share per class, or a dict from class to share"
_SUM_TOLERANCE = 1e-3  # shares that people have rounded to three digits sum to this


def prior_for(
    asked: Any, counts: Float[ndarray, " classes"], classes: ndarray
) -> Float[ndarray, " classes"]:
    """Return how frequent each class is taken to be: positive shares whose sum is one.

    Parameters
    ----------
    asked : str, array, dict, Series or None
        A name of :data:`PRIORS`, or the shares; None is "labels". So is "estimate" here:
        the model replaces it by what it estimates from all rows.
    counts : ndarray
        Labels of each class, or their summed weights.
    classes : ndarray
        The classes, in the order of the counts.

    Examples
    --------
    >>> counts, classes = np.array([3.0, 1.0]), np.array(["cat", "dog"])
    >>> prior_for("labels", counts, classes).round(3).tolist()
    [0.667, 0.333]
    >>> prior_for({"dog": 0.9, "cat": 0.1}, counts, classes).tolist()
    [0.1, 0.9]
    """
    if asked is None or isinstance(asked, str):
        name = "labels" if asked is None else asked
        check_choice("class_prior", name, PRIORS, _ALSO)
        # One label more per class: that a class has few labels does not make it rare.
        counted = np.ones(len(classes)) if name == "uniform" else counts + 1.0
        return counted / counted.sum()
    shares = _as_numbers(_in_order_of_classes(asked, classes))
    if shares.shape != classes.shape or not (np.isfinite(shares) & (shares > 0)).all():
        raise ValueError(
            "class_prior must have a positive number for each of the "
            f"{len(classes)} classes, got {asked!r}."
        )
    with np.errstate(over="ignore"):  # an infinite sum is refused in the next line
        total = shares.sum()
    if not abs(total - 1) <= _SUM_TOLERANCE:
        raise ValueError(
            f"the shares of class_prior must sum to one, and sum to {total:.6g}: divide "
            f"them by their sum; got {asked!r}."
        )
    return shares / total


def _in_order_of_classes(asked: Any, classes: ndarray) -> Any:
    """Return the shares of a dict or a Series in the order of the classes."""
    if hasattr(asked, "to_dict"):  # a Series is read by its index
        if not asked.index.is_unique:
            repeated = asked.index[asked.index.duplicated()].unique().tolist()
            raise ValueError(
                f"class_prior has several shares for {list_names(repeated)}: give one each."
            )
        asked = asked.to_dict()
    if not isinstance(asked, Mapping):
        return asked
    names = classes.tolist()
    missing = [name for name in names if name not in asked]
    unknown = [name for name in asked if name not in names]
    if missing or unknown:
        parts = [f"has no share for {list_names(missing)}"] if missing else []
        parts += [f"has a share for {list_names(unknown)}, no class"] if unknown else []
        raise ValueError(
            f"class_prior {' and '.join(parts)}: give a share for each of the classes "
            f"{list_names(names)}."
        )
    return [asked[name] for name in names]


def _as_numbers(asked: Any) -> ndarray:
    """Return an array of numbers, or an empty one where something else was given."""
    try:
        return np.asarray(asked, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)
