"""Plain NumPy arrays from what people pass: tensors, masked arrays, columns of tables."""

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
