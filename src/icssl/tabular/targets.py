"""Targets of which some are missing: classes, and codes with -1 for unlabelled rows."""

import re
import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from sklearn.utils.validation import column_or_1d

from icssl.tabular.cells import as_number, is_missing

_EXACT = 2.0**53  # whole numbers up to here are exact in float64
_NUMBER = re.compile(r"[-+]?[0-9]*[.]?[0-9]+")


def read_targets(y: Any) -> tuple[ndarray, Int[ndarray, " n"]]:
    """Classes, sorted, and the class of every row as its place among them, or -1.

    A row is unlabelled where ``y`` is -1, None, NaN or ``pd.NA``. Among texts it also is
    where it is empty, or the text "-1", which NumPy makes of the number, unless another
    text is a number: then "-1" is a class. Labels are
    whole numbers (as floats too), texts or booleans, all of one kind; at least two
    different ones are needed.

    Examples
    --------
    >>> read_targets(["cat", None, "dog", "cat"])
    (array(['cat', 'dog'], dtype=object), array([ 0, -1,  1,  0]))
    >>> read_targets([0.0, float("nan"), 1.0, -1.0])
    (array([0, 1]), array([ 0, -1,  1, -1]))
    """
    cells = _cells(y)
    minus_one = _minus_one(cells)
    labelled = ~(minus_one | _missing(cells))
    classes, places = np.unique(_labels(cells[labelled]), return_inverse=True)
    _check_classes(classes, minus_one)
    codes = np.full(len(cells), -1, dtype=np.int64)
    codes[labelled] = places
    return classes, codes


def _cells(y: Any) -> ndarray:
    """One cell a row, as it was given: texts stay texts and numbers numbers."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None.")
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()  # keeps pd.NA and booleans, which np.asarray makes floats
    elif isinstance(y, (list, tuple)) and np.asarray(y).dtype.kind in "US":
        y = np.asarray(y, dtype=object)  # else None and NaN become texts
    return column_or_1d(y, warn=True)


def _minus_one(cells: ndarray) -> Bool[ndarray, " n"]:
    if cells.dtype.kind == "O":
        return np.array([_kind(cell) == "numbers" and cell == -1 for cell in cells], bool)
    return cells == -1 if cells.dtype.kind in "if" else np.zeros(len(cells), bool)


def _missing(cells: ndarray) -> Bool[ndarray, " n"]:
    if cells.dtype.kind in "OmMUS":
        blank = _blank_texts(cells)
        text = [isinstance(cell, str) and cell in blank for cell in cells]
        return np.array([is_missing(cell) for cell in cells], bool) | np.array(text, bool)
    return np.isnan(cells) if cells.dtype.kind == "f" else np.zeros(len(cells), bool)


def _blank_texts(cells: ndarray) -> set[Any]:
    """Texts that are no label, among these."""
    texts = {cell for cell in cells if isinstance(cell, str)}
    empty = {text for text in texts if not text.strip()}
    minus_one = {text for text in texts if text.strip() == "-1"}
    numbers = any(_NUMBER.fullmatch(text.strip()) for text in texts - minus_one)
    return empty if numbers else empty | minus_one


def _kind(cell: Any) -> str:
    if isinstance(cell, (bool, np.bool_)):
        return "booleans"
    if isinstance(cell, (int, float, np.integer, np.floating)):
        return "numbers"
    if isinstance(cell, (str, bytes)):
        return "texts"
    return type(cell).__name__


def _labels(cells: ndarray) -> ndarray:
    """Labels as an array that can be sorted, or an error that says what they are."""
    several = cells if cells.dtype.kind == "O" else cells[:1]
    kinds = sorted({_kind(cell) for cell in several})
    if len(kinds) > 1:
        raise ValueError(
            f"Unknown label type: labels are {' and '.join(kinds)}; give one kind only."
        )
    if kinds == ["numbers"]:
        return _whole(cells)
    if kinds == ["booleans"]:
        return cells.astype(bool)
    if kinds and kinds != ["texts"]:
        raise ValueError(
            f"Unknown label type: {kinds[0]}; labels are whole numbers, texts or booleans."
        )
    return cells


def _whole(cells: ndarray) -> ndarray:
    if cells.dtype.kind in "iu":
        return cells
    numbers = np.array([as_number(cell) for cell in cells])
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise ValueError(f"Input y contains infinity: {cells[row]} is no label.")
    broken = numbers != np.floor(numbers)
    if broken.any():
        raise ValueError(
            f"Unknown label type: continuous. {cells[broken.argmax()]} is no whole number; "
            "labels are whole numbers, texts or booleans."
        )
    return numbers.astype(np.int64) if np.abs(numbers).max() <= _EXACT else numbers


def _check_classes(classes: ndarray, minus_one: Bool[ndarray, " n"]) -> None:
    if len(classes) > 1:
        return
    if not len(classes):
        raise ValueError(
            f"y has no label: all {len(minus_one)} rows are unlabelled (-1, None, NaN or "
            "empty); two classes at least are needed."
        )
    if minus_one.any() and classes[0] == 1:
        raise ValueError(
            "y holds -1 and 1, and -1 marks unlabelled rows, so that there is one class "
            "only. If -1 is a class of yours, relabel your classes, for instance 0 and 1, "
            "and mark unlabelled rows by -1, None or NaN."
        )
    raise ValueError(
        f"y has one class only, {classes.tolist()[0]!r}: two classes at least are needed."
    )


def warn_of_conflicts(rows: Float[ndarray, "n d"], codes: Int[ndarray, " n"]) -> None:
    """Say how many labelled rows are equal to others that have another label."""
    known = np.flatnonzero(codes >= 0)
    _, group = np.unique(rows[known], axis=0, return_inverse=True)
    group = group.ravel()
    pairs = np.unique(np.stack([group, codes[known]]), axis=1)[0]
    torn = np.bincount(pairs) > 1  # groups with several labels
    if torn.any():
        warnings.warn(
            f"{torn[group].sum():,} labelled rows that are equal in all columns have "
            "different labels; all of these labels are used.",
            UserWarning,
            stacklevel=3,
        )
