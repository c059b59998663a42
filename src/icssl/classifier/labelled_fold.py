"""``LabelledFold``: cross-validation of tables in which most rows have no target."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray
from sklearn.model_selection import BaseCrossValidator, KFold, StratifiedKFold
from sklearn.utils.validation import check_consistent_length

from icssl._util.errors import check_choice, check_whole
from icssl.tables.numeric_targets import read_numbers
from icssl.tables.targets import read_targets

TARGETS = ("classes", "numbers")
_NUMBERS = 4  # from one class in so many rows on, targets may be numbers


class LabelledFold(BaseCrossValidator):  # type: ignore[misc]
    """Splitter whose test rows have a target, and whose training rows may have none.

    Rows that have a target are divided into folds. Each is the test fold once; the rows of
    the other folds **and all rows without a target** are the training rows. So scores mean
    something, and a semi-supervised estimator keeps the rows that it learns from.

    Test rows are predicted as new rows, which the estimator has not seen. For the accuracy
    on rows that stay in the table, see ``ICSSLClassifier.label_score_``.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds; at least 2.
    targets : {"classes", "numbers"}, default "classes"
        What ``y`` is. Of classes, every fold has about the same share; -1, None and NaN
        mark rows without one. Numbers are for ``ICSSLRegressor``, and -1 is one of them.
    shuffle : bool, default False
        Whether rows are put into folds at random, instead of in the order of the table.
    random_state : int, RandomState or None
        Decides the random folds, if ``shuffle`` is true.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from icssl import ICSSLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> y[np.arange(150) % 10 > 0] = -1  # five flowers of each kind keep their label
    >>> for train, test in LabelledFold().split(X, y):
    ...     print(len(train), (y[train] != -1).sum(), y[test])
    147 12 [0 1 2]
    147 12 [0 1 2]
    147 12 [0 1 2]
    147 12 [0 1 2]
    147 12 [0 1 2]
    >>> scores = cross_val_score(ICSSLClassifier(), X, y, cv=LabelledFold())
    >>> bool(scores.mean() > 0.8)
    True
    """

    def __init__(
        self,
        n_splits: Any = 5,
        *,
        targets: str = "classes",
        shuffle: bool = False,
        random_state: Any = None,
    ) -> None:
        if isinstance(n_splits, np.integer):
            n_splits = int(n_splits)
        check_whole("n_splits", n_splits, 2)
        check_choice("targets", targets, TARGETS)
        self.n_splits = n_splits
        self.targets = targets
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds; no argument is used."""
        return int(self.n_splits)

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[ndarray, ndarray]]:
        """Yield training rows and test rows of every fold.

        Parameters
        ----------
        X : table
            The rows, of which only the number is used.
        y : array of shape (n_rows,)
            Their targets, of which some are missing.
        groups : None
            Not used.
        """
        if y is None:
            raise ValueError("LabelledFold needs y: folds are made of known targets.")
        if X is not None:
            check_consistent_length(X, y)
        values, labelled = self._read(y)
        rows = np.flatnonzero(labelled)
        kind = StratifiedKFold if self.targets == "classes" else KFold
        folds = kind(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        everything = np.arange(len(values))
        for _, part in folds.split(rows, values[rows]):
            test = rows[part]
            yield np.setdiff1d(everything, test), test

    def _read(self, y: Any) -> tuple[ndarray, ndarray]:
        """Return targets, and which rows have one, if there are enough of them."""
        if self.targets == "numbers":
            numbers = read_numbers(y)
            count = int(np.isfinite(numbers).sum())
            if count < self.n_splits:
                advice = "give more targets"
                if count > 1:
                    advice = f"choose n_splits from 2 to {count}, or {advice}"
                raise ValueError(
                    f"n_splits={self.n_splits} needs at least as many rows with a target, "
                    f"and there are {count}: {advice}."
                )
            return numbers, np.isfinite(numbers)
        classes, codes = _read_classes(y)
        counts = np.bincount(codes[codes >= 0])
        if counts.min() < self.n_splits:
            least = int(counts.min())
            rarest = classes.tolist()[int(counts.argmin())]
            advice = f"choose n_splits up to {least}" if least > 1 else "label more rows"
            if len(classes) > len(y) / _NUMBERS and classes.dtype.kind in "iuf":
                advice += "; for targets that are numbers, give targets='numbers'"
            raise ValueError(
                f"n_splits={self.n_splits} needs at least as many labels of every class, "
                f"and {rarest!r} has {least}: {advice}."
            )
        return codes, codes >= 0


def _read_classes(y: Any) -> tuple[ndarray, ndarray]:
    """Return classes and codes; an error over numbers names the option that reads them."""
    try:
        return read_targets(y)
    except ValueError as error:
        if "continuous" not in str(error):
            raise
        raise ValueError(
            f"{error} In LabelledFold: if y holds numbers to predict, set "
            "targets='numbers'."
        ) from error
