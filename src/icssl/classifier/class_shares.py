"""How frequent each class is taken to be: what ``class_prior`` allows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from icssl._util.errors import check_choice, list_names

_PRIORS = ("estimate", "labels", "uniform")

_ALSO = "an array with one share per class, or a dict from class to share"
_TYPES = {int: "whole numbers", str: "texts", bool: "booleans", bytes: "bytes"}
_SUM_TOLERANCE = 1e-3  # shares that people have rounded to three digits sum to this


def prior_for(
    class_prior: Any, counts: Float[ndarray, " classes"], classes: ndarray
) -> Float[ndarray, " classes"]:
    """Return how frequent each class is taken to be: positive shares whose sum is one.

    Parameters
    ----------
    class_prior : str, array, dict, Series or None
        "estimate", "labels", "uniform", or the shares; None is "labels". So is "estimate"
        here: the model replaces it by what it estimates from all rows.
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
    if class_prior is None or isinstance(class_prior, str):
        name = "labels" if class_prior is None else class_prior
        check_choice("class_prior", name, _PRIORS, _ALSO)
        # One label more per class: that a class has few labels does not make it rare.
        counted = np.ones(len(classes)) if name == "uniform" else counts + 1.0
        return counted / counted.sum()
    shares = _as_numbers(_in_order_of_classes(class_prior, classes))
    if shares.shape != classes.shape or not (np.isfinite(shares) & (shares > 0)).all():
        raise ValueError(
            "class_prior must have a positive number for each of the "
            f"{len(classes)} classes, got {class_prior!r}; a class that is nearly absent "
            "can have a small share, such as 1e-6."
        )
    with np.errstate(over="ignore"):  # an infinite sum is refused in the next line
        total = shares.sum()
    if not abs(total - 1) <= _SUM_TOLERANCE:
        raise ValueError(
            f"the shares of class_prior must sum to one, and sum to {total:.6g}: divide "
            f"them by their sum; got {class_prior!r}."
        )
    return shares / total


def _in_order_of_classes(class_prior: Any, classes: ndarray) -> Any:
    """Return the shares of a dict or a Series in the order of the classes."""
    if _is_series(class_prior):
        if not class_prior.index.is_unique:
            repeated = class_prior.index[class_prior.index.duplicated()].unique().tolist()
            raise ValueError(
                f"class_prior has several shares for {list_names(repeated)}: give one each."
            )
        class_prior = class_prior.to_dict()
    if not isinstance(class_prior, Mapping):
        return class_prior
    names = classes.tolist()
    missing = [name for name in names if name not in class_prior]
    unknown = [name for name in class_prior if name not in names]
    if missing or unknown:
        parts = [f"has no share for {list_names(missing)}"] if missing else []
        if unknown:
            which = "which is no class" if len(unknown) == 1 else "which are no classes"
            parts.append(f"has a share for {list_names(unknown)}, {which}")
        raise ValueError(
            f"class_prior {' and '.join(parts)}: give a share for each of the classes "
            f"{list_names(names)}{_other_type(missing, unknown)}."
        )
    return [class_prior[name] for name in names]


def _is_series(class_prior: Any) -> bool:
    """Return whether shares are read by an index: frames, which have two axes, are not."""
    has_index = hasattr(class_prior, "to_dict") and hasattr(class_prior, "index")
    return has_index and getattr(class_prior, "ndim", 2) == 1


def _other_type(missing: list[Any], unknown: list[Any]) -> str:
    """Return the end of a message: that names are the classes, but of another type."""
    same = [
        (_TYPES.get(type(name), "other values"), _TYPES.get(type(other), "other values"))
        for name in missing
        for other in unknown
        if str(name) == str(other)
    ]
    return "; the classes are {}, not {}".format(*same[0]) if same else ""


def _as_numbers(class_prior: Any) -> ndarray:
    """Return an array of numbers, or an empty one where something else was given."""
    try:
        return np.asarray(class_prior, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)
