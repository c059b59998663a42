"""Cells of tables from any container: which are missing, and which are numbers.

Tensors, masked arrays and columns of data frames become plain NumPy arrays here.
"""

import math
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy import ndarray


def plain_table(X: Any) -> Any:
    """Return ``X`` with masked cells missing and tensors as arrays; the rest as it is.

    Examples
    --------
    >>> plain_table(np.ma.array([[1, 2]], mask=[[False, True]]))
    array([[ 1., nan]])
    """
    X = _without_gradient(X)
    if isinstance(X, (list, tuple)) and any(np.ma.isMaskedArray(row) for row in X):
        X = np.ma.array(X)  # np.asarray would drop the masks of the rows
    if not np.ma.isMaskedArray(X):
        return X
    cells, mask = np.asarray(X.data), np.ma.getmaskarray(X)
    if not mask.any():
        return cells
    kind = cells.dtype.kind
    if kind in "mM":
        return np.where(mask, np.array("NaT", dtype=cells.dtype), cells)
    if kind in "iuf":
        return np.where(mask, np.nan, cells)
    return _with_none(cells, mask)


def plain_column(y: Any) -> Any:
    """Return a column as an array that holds each cell exactly as it was given.

    Whole numbers beside missing cells become objects, never floats: a float64 merges
    9007199254740992 and 9007199254740993.

    Examples
    --------
    >>> plain_column([2**53, 2**53 + 1, None])
    array([9007199254740992, 9007199254740993, None], dtype=object)
    """
    y = _without_gradient(y)
    if np.ma.isMaskedArray(y):
        mask = np.ma.getmaskarray(y)
        return _with_none(y.data, mask) if mask.any() else y.data
    if hasattr(y, "to_pylist"):  # pyarrow
        return np.array(y.to_pylist(), dtype=object)
    if hasattr(y, "get_columns"):  # a data frame of polars
        return np.array([column.to_list() for column in y.get_columns()], dtype=object).T
    if hasattr(y, "to_list") and not hasattr(y, "astype"):  # polars
        return np.array(y.to_list(), dtype=object)
    if hasattr(y, "to_numpy"):  # pandas
        typed = isinstance(getattr(y, "dtype", None), np.dtype)
        return y.to_numpy() if typed else np.asarray(y.astype(object), dtype=object)
    # NumPy makes floats of the list [2**63, -1], and texts of ["a", 1].
    return y if hasattr(y, "dtype") else np.asarray(y, dtype=object)


def _with_none(cells: ndarray, mask: ndarray) -> ndarray:
    """Return the cells as objects, None where they are masked."""
    objects = np.array(cells, dtype=object)
    objects[mask] = None
    return objects


def _without_gradient(X: Any) -> Any:
    """Return a tensor of torch as an array on the CPU; anything else as it is."""
    if not hasattr(X, "detach"):
        return X
    import torch

    tensor = X.detach().cpu()
    # NumPy has no bfloat16; float32 holds all of its values.
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


_SECOND = np.timedelta64(1, "s")
_DAY = 86_400.0  # seconds
_DIGITS = 300  # whole numbers with more digits are infinite, or nearly, as a float
# Mean lengths of months and years, whose true lengths differ.
_CALENDAR = {"M": 365.2425 / 12 * _DAY, "Y": 365.2425 * _DAY}


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, NaT, ``pd.NA`` or ``np.ma.masked``.

    Examples
    --------
    >>> [is_missing(cell) for cell in (None, float("nan"), 0, "", "nan")]
    [True, True, False, False, False]
    """
    if isinstance(cell, (float, np.floating)):
        return math.isnan(cell)
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(cell))
    # Compared by name, since pandas may not be installed.
    names = ("NAType", "NaTType", "MaskedConstant")
    return cell is None or type(cell).__name__ in names


def as_number(cell: Any) -> float | None:
    """Return a cell as a number, times in seconds; NaN if missing, None if no number.

    A number too large for float64 is infinite here.
    """
    if is_missing(cell):
        return float("nan")
    # np.timedelta64 is a Real too, and none that float() takes.
    times = (np.datetime64, np.timedelta64)
    if isinstance(cell, (Real, np.bool_, Decimal)) and not isinstance(cell, times):
        try:
            return float(cell)
        except OverflowError:
            return float("inf")
    return _seconds(cell)


def _seconds(cell: Any) -> float | None:
    """Return a moment as seconds since 1970, and a span of time as its seconds."""
    if isinstance(cell, datetime):
        return (cell - datetime(1970, 1, 1, tzinfo=cell.tzinfo)).total_seconds()
    if isinstance(cell, date):
        return (cell - date(1970, 1, 1)).days * _DAY
    if isinstance(cell, timedelta):
        return cell.total_seconds()
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        return float(as_numbers(np.array([cell]))[0])  # type: ignore[index]
    return None


def as_numbers(cells: ndarray) -> ndarray | None:
    """Return a column as float64, NaN where missing; None if a cell is no number."""
    kind = cells.dtype.kind
    if kind in "biuf":
        with np.errstate(over="ignore"):  # long doubles; the infinite ones are refused
            return cells.astype(np.float64)
    if kind in "mM":
        since = cells - np.datetime64(0, "s") if kind == "M" else cells
        unit, count = np.datetime_data(since.dtype)
        if unit in _CALENDAR:
            spans = since / np.array(1, dtype=since.dtype)
            return spans * (count * _CALENDAR[unit])
        return since / _SECOND  # NaT becomes NaN
    if kind != "O":
        return None
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        number = as_number(cell)
        if number is None:
            return None
        numbers[row] = number
    return numbers


def as_texts(cells: Iterable[Any]) -> list[str | None]:
    """Return a column as texts, None where missing; 1, 1.0 and "1" are the same text."""
    return [None if is_missing(cell) else _text(cell) for cell in cells]


def _text(cell: Any) -> str:
    whole = isinstance(cell, (float, np.floating)) and float(cell).is_integer()
    return str(int(cell) if whole else cell)


def exact_number(text: str) -> int | float:
    """Return the number that a text says: whole ones with all their digits.

    Examples
    --------
    >>> [exact_number(text) for text in ("9007199254740993", "2.0", "0.5", "1e400")]
    [9007199254740993, 2, 0.5, inf]
    """
    number = Decimal(text.strip())
    # An int of 10**(10**9) would fill the memory.
    huge = not number.is_finite() or number.adjusted() > _DIGITS
    return float(number) if huge or number != number.to_integral_value() else int(number)
