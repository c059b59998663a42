"""The columns of arrays and data frames, one by one, and tables that are none."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from icssl._util.errors import list_names

_NUMBERS = "biuf"


class CategoryCells(list[Any]):
    """Cells of a column that its table says are categories, whatever they look like."""


def is_frame(X: Any) -> bool:
    """Whether a table has named columns, each of one kind."""
    return hasattr(X, "iloc") or hasattr(X, "get_columns")  # pandas, polars


def columns_of(table: Any) -> Sequence[ndarray | CategoryCells]:
    """Return the columns of a data frame or of a 2-d array, in order."""
    if isinstance(table, ndarray):
        return list(table.T)
    if hasattr(table, "get_columns"):
        return [_polars_cells(column) for column in table.get_columns()]
    columns: list[Any] = [None] * table.shape[1]
    plain: dict[str, list[int]] = {}
    for place, dtype in enumerate(table.dtypes):
        if isinstance(dtype, np.dtype) and dtype.kind in _NUMBERS:
            plain.setdefault(dtype.str, []).append(place)
        else:
            columns[place] = _pandas_cells(table.iloc[:, place])
    for places in plain.values():
        # All of a type at once: pandas takes long for each of very many columns.
        block = table.iloc[:, places].to_numpy()
        for place, cells in zip(places, block.T, strict=True):
            columns[place] = cells
    return columns


def _pandas_cells(column: Any) -> ndarray | CategoryCells:
    if str(column.dtype) != "category":
        return column.to_numpy()
    # As objects, since categories of large whole numbers would become floats.
    return CategoryCells(column.astype(object))


def _polars_cells(column: Any) -> ndarray | CategoryCells:
    if str(column.dtype).startswith(("Categorical", "Enum")):
        return CategoryCells(column.to_list())
    return column.to_numpy()


def refuse_one_dimension(X: Any) -> None:
    """Refuse one dimension in the words of scikit-learn, which would print all cells."""
    shape = getattr(X, "shape", ())
    if len(shape) == 1:
        raise ValueError(
            f"Expected 2D array, got 1D array of shape {shape}. Reshape your data: "
            "X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row."
        )


def refuse_equal_names(table: Any) -> None:
    """Refuse a data frame in which several columns have one name."""
    counts = Counter(map(str, table.columns))
    several = [name for name, count in counts.items() if count > 1]
    if several:
        raise ValueError(
            f"X has several columns called {list_names(several)}: give each a name of its "
            "own."
        )


def refuse_complex(cells: ndarray) -> None:
    """Refuse complex numbers in the words of scikit-learn."""
    kind, wrong = cells.dtype.kind, (complex, np.complexfloating)
    if kind == "c" or (kind == "O" and any(isinstance(cell, wrong) for cell in cells)):
        raise ValueError("Complex data not supported: give real numbers.")


def stack_columns(columns: Sequence[Any], table: Any) -> Float[ndarray, "d n"]:
    """Return columns one below the other; without columns, an empty array of this width."""
    return np.stack(columns) if columns else np.empty((0, table.shape[0]))


def has_parts(numbers: ndarray | None) -> bool:
    """Whether a column has numbers that are not whole."""
    return numbers is not None and bool((np.nan_to_num(numbers) % 1 != 0).any())
