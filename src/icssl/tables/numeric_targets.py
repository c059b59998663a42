"""Targets that are numbers, of which some are missing."""

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from sklearn.utils.validation import column_or_1d

from icssl._util.warn import warn_caller
from icssl.tables.cells import as_numbers, is_missing, plain_column

_KINDS = {"b": "booleans", "U": "texts", "S": "bytes", "M": "times", "m": "times"}


def read_numbers(y: Any) -> Float[ndarray, " n"]:
    """Return targets as float64, NaN for rows without one.

    A row has no target where ``y`` is NaN, None, ``pd.NA`` or masked. All others must be
    finite numbers: texts, categories, booleans and times are refused. A warning says so
    where -1 seems to mean that there is no target, as it does for classes.

    Examples
    --------
    >>> read_numbers([1, None, 2.5])
    array([1. , nan, 2.5])
    """
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None.")
    is_categorical = str(getattr(y, "dtype", "")) == "category"
    cells = column_or_1d(plain_column(y), warn=True)
    kind = "categories" if is_categorical else _other_kind(cells)
    if kind:
        raise ValueError(
            f"targets of a regressor are numbers, NaN or None where there is none; got "
            f"{kind}. For classes use ICSSLClassifier."
        )
    numbers = as_numbers(cells)
    assert numbers is not None  # every cell is a number or missing
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise ValueError(f"Input y contains infinity or a value too large: row {row}.")
    _warn_of_marks(numbers[~np.isnan(numbers)])
    return numbers


def _warn_of_marks(known: Float[ndarray, " m"]) -> None:
    """Warn where -1 is most of the targets, and looks like the mark of rows without one."""
    if not (known == -1).sum() > len(known) / 2:
        return
    if known.min() == -1 and (known == np.round(known)).all():
        warn_caller(
            "most targets are -1, which is a number here: mark rows without a target by "
            "NaN or None. For classes use ICSSLClassifier.",
        )


def _other_kind(cells: ndarray) -> str:
    """Return what the cells are, if they are no numbers; else an empty text."""
    if cells.dtype.kind == "c":
        raise ValueError("Complex data not supported: give real numbers.")
    if cells.dtype.kind != "O":
        return _KINDS.get(cells.dtype.kind, "")
    for cell in cells:
        kind = np.asarray(cell).dtype.kind
        if kind in _KINDS:
            return _KINDS[kind]
        if not (is_missing(cell) or isinstance(cell, (Real, Decimal))):
            return f"a cell of type {type(cell).__name__}"
    return ""
