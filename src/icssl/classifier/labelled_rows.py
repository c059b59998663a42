"""Rows of a table that have a target: scores are computed from these alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length

from icssl._util.errors import list_names
from icssl._util.warn import warn_caller
from icssl.classifier.label_weights import read_label_weights
from icssl.tables.cells import plain_table
from icssl.tables.targets import find_labels


def check_known(labels: ndarray, classes: ndarray) -> None:
    """Raise ``ValueError`` if targets are texts and classes are not, or the reverse."""
    given = list(dict.fromkeys(labels.tolist()))
    texts = [any(isinstance(name, str) for name in names) for names in (given, classes)]
    if texts[0] != texts[1]:
        raise ValueError(
            f"no target of score is a class that was fitted: it got {list_names(given)}, "
            f"and the classes are {list_names(classes.tolist())}. Texts are no numbers."
        )


def labelled_part(
    X: Any,
    y: Any,
    sample_weight: Any = None,
    find: Callable[[Any], tuple[ndarray, Bool[ndarray, " n"]]] = find_labels,
) -> tuple[ndarray, Any, Float[ndarray, " m"] | None]:
    """Return the targets of rows that have one, these rows, and their weights.

    There are no weights where all that count are equal, since only ratios matter.
    Warn of rows that are left out, and raise ``ValueError`` where none has a target.

    Parameters
    ----------
    X : table
        The rows.
    y : array of shape (n_rows,)
        Targets, some of which may be missing.
    sample_weight : array of shape (n_rows,), optional
        Weights of the rows, checked as ``fit`` does; those of rows without a target are
        not used.
    find : function
        What reads the targets, and says which are there.

    Examples
    --------
    >>> labels, rows, _ = labelled_part([[1.0], [2.0]], ["cat", "dog"])
    >>> labels.tolist(), rows
    (['cat', 'dog'], [[1.0], [2.0]])
    """
    cells, is_labelled = find(y)
    rows = plain_table(X)
    check_consistent_length(rows, cells)
    count, missing = len(cells), int((~is_labelled).sum())
    if missing == count:
        raise ValueError(
            f"score needs rows with a known target, and none of the {count} rows has one."
        )
    weights = read_label_weights(sample_weight, is_labelled)
    if not missing:
        return cells, rows, weights
    warn_caller(
        f"score leaves out {missing} of {count} rows, whose target is not known; "
        "LabelledFold makes test folds without such rows.",
    )
    chosen = np.flatnonzero(is_labelled)
    weights = None if weights is None else weights[chosen]
    return cells[chosen], _safe_indexing(rows, chosen), weights
