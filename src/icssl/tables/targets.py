"""Targets of which some are missing: classes, and codes with -1 for unlabelled rows."""

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from icssl._util.warn import warn_caller
from icssl.tables.cells import is_missing, plain_column

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:[.][0-9]+)?|[.][0-9]+)")


def read_targets(y: Any) -> tuple[ndarray, Int[ndarray, " n"]]:
    """Return the sorted classes, and the class of every row as its place among them.

    The place is -1 for rows without a label.

    A row is unlabelled where ``y`` is -1, None, NaN, ``pd.NA`` or masked. Among texts it
    also is where it is empty, or the text "-1", which NumPy makes of the number, unless
    another text is a number: then "-1" is a class. The same holds for bytes. Blanks around
    texts do not count. Labels are
    whole numbers, texts, bytes or booleans, all of one kind; at least two different ones
    are needed.

    Whole numbers keep all digits: they must fit in 64 bits, and floats among them must be
    so small that their type holds every whole number up to them (2^53 for float64).

    Examples
    --------
    >>> read_targets(["cat", None, "dog", "cat"])
    (array(['cat', 'dog'], dtype=object), array([ 0, -1,  1,  0]))
    >>> read_targets([0.0, float("nan"), 1.0, -1.0])
    (array([0, 1]), array([ 0, -1,  1, -1]))
    """
    cells, labelled = find_labels(y)
    classes, places = np.unique(_labels(cells[labelled]), return_inverse=True)
    _check_classes(classes, _minus_one(cells))
    codes = np.full(len(cells), -1, dtype=np.int64)
    codes[labelled] = places
    return classes, codes


def find_labels(y: Any) -> tuple[ndarray, Bool[ndarray, " n"]]:
    """Return the cells of ``y``, and which of them are labels, as for ``read_targets``.

    Examples
    --------
    >>> find_labels(["cat", None, "dog"])[1]
    array([ True, False,  True])
    """
    cells = _cells(y)
    return cells, ~(_minus_one(cells) | _are_missing(cells))


def _cells(y: Any) -> ndarray:
    """Return one cell per row, exactly as it was given."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None.")
    from sklearn.utils.validation import column_or_1d  # slow, and not needed for a --help

    return _strip_blanks(column_or_1d(plain_column(y), warn=True))


def _strip_blanks(cells: ndarray) -> ndarray:
    """Return cells without blanks around texts: they are seldom meant."""
    if cells.dtype.kind == "U":
        return np.char.strip(cells)
    if cells.dtype.kind != "O":
        return cells
    stripped = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
    filled = np.empty(len(cells), dtype=object)
    filled[:] = stripped
    return filled


def _minus_one(cells: ndarray) -> Bool[ndarray, " n"]:
    if cells.dtype.kind == "O":
        return np.array([_kind(cell) == "numbers" and cell == -1 for cell in cells], bool)
    return cells == -1 if cells.dtype.kind in "if" else np.zeros(len(cells), bool)


def _are_missing(cells: ndarray) -> Bool[ndarray, " n"]:
    if cells.dtype.kind in "OmMUS":
        blank = blank_texts(cells)
        text = [isinstance(cell, (str, bytes)) and cell in blank for cell in cells]
        return np.array([is_missing(cell) for cell in cells], bool) | np.array(text, bool)
    return np.isnan(cells) if cells.dtype.kind == "f" else np.zeros(len(cells), bool)


def blank_texts(cells: Iterable[Any]) -> set[str | bytes]:
    """Return the texts and bytes among the cells that stand for no label."""
    stripped = {cell: _strip(cell) for cell in cells if isinstance(cell, (str, bytes))}
    # Where other labels are numbers written as texts, "-1" is one of them.
    numbers = any(text != "-1" and _NUMBER.fullmatch(text) for text in stripped.values())
    blank = {""} if numbers else {"", "-1"}
    return {cell for cell, text in stripped.items() if text in blank}


def _strip(cell: str | bytes) -> str:
    text = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell
    return text.strip()


def _kind(cell: Any) -> str:
    if isinstance(cell, (np.timedelta64, np.datetime64)):  # the first is an np.integer
        return type(cell).__name__
    if isinstance(cell, (bool, np.bool_)):
        return "booleans"
    if isinstance(cell, (int, float, np.integer, np.floating)):
        return "numbers"
    if isinstance(cell, (str, bytes)):
        return "texts" if isinstance(cell, str) else "bytes"
    return type(cell).__name__


def _labels(cells: ndarray) -> ndarray:
    """Return labels as an array that can be sorted; refuse those of several kinds."""
    several = cells if cells.dtype.kind == "O" else cells[:1]
    kinds = sorted({_kind(cell) for cell in several})
    if len(kinds) > 1:
        raise ValueError(
            f"Unknown label type: labels are {' and '.join(kinds)}; give one kind only."
        )
    if kinds == ["numbers"]:
        return _whole_numbers(cells)
    if kinds == ["booleans"]:
        return cells.astype(bool)
    if kinds and kinds[0] not in ("texts", "bytes"):
        raise ValueError(
            f"Unknown label type: {kinds[0]}; labels are whole numbers, texts or booleans."
        )
    return cells


def _whole_numbers(cells: ndarray) -> ndarray:
    """Return labels as int64 or uint64, or refuse them where these cannot hold them."""
    if cells.dtype.kind in "iu":
        return cells
    # Floats repeat: each value is checked once, and put back in its places.
    places: Any = slice(None)
    if cells.dtype.kind == "f":
        cells, places = np.unique(cells, return_inverse=True)
    numbers = [_whole_number(cell) for cell in cells]
    least, most = min(numbers), max(numbers)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= least and most <= np.iinfo(dtype).max:
            return np.array(numbers, dtype=dtype)[places]
    raise ValueError(
        f"labels are whole numbers from {_short_text(least)} to {_short_text(most)}, and "
        "no integer type of 64 bits holds both: give labels as texts."
    )


def _whole_number(cell: Any) -> int:
    """Return a label as an int, if it is certain which one was meant."""
    if isinstance(cell, (int, np.integer)):
        return int(cell)
    if math.isinf(cell):
        raise ValueError(f"Input y contains infinity: {cell} is no label.")
    if not cell.is_integer():
        raise ValueError(
            f"Unknown label type: continuous. {cell} is no whole number; labels are whole "
            "numbers, texts or booleans; for numbers to predict use ICSSLRegressor."
        )
    info = np.finfo(type(cell))
    # From here on the type skips whole numbers: two labels may have become one float.
    if abs(cell) >= 2.0 ** (info.nmant + 1):
        raise ValueError(
            f"label {cell} is a {info.dtype} of 2^{info.nmant + 1} or more, where floats "
            "skip whole numbers and two labels can become one: give labels as integers or "
            "as texts."
        )
    return int(cell)


def _short_text(number: int) -> str:
    """Return a number as a text short enough for a message."""
    return str(number) if abs(number) < 10**40 else f"about 2^{number.bit_length()}"


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
    """Warn of labelled rows that are equal to others that have another label."""
    labelled = np.flatnonzero(codes >= 0)
    _, group = np.unique(rows[labelled], axis=0, return_inverse=True)
    group = group.ravel()
    pairs = np.unique(np.stack([group, codes[labelled]]), axis=1)[0]
    conflicting = np.bincount(pairs) > 1  # groups with several labels
    if conflicting.any():
        warn_caller(
            f"{conflicting[group].sum():,} labelled rows that are equal in all columns "
            "have different labels; all of these labels are used.",
        )
