"""One order for the rows, columns and classes of a table, whatever order they came in.

Rounding, ties between equally near neighbours and an iteration that is cut short all see
the order of rows. Read in an order that the cells alone decide, equal tables give equal
results to the last bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

_CELLS = 2**20  # cells that are read at once
_ROUNDS = 2  # of hashing columns by their rows, and rows by their columns


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which a table is read.

    Parameters
    ----------
    rows : ndarray of shape (n,)
        Number of the row of the table that stands first, second, ...
    columns : ndarray of shape (d,)
        Numbers of the columns, likewise.
    classes : ndarray of shape (c,)
        Numbers of the classes, likewise.
    """

    rows: Int[ndarray, " n"]
    columns: Int[ndarray, " d"]
    classes: Int[ndarray, " c"]

    @classmethod
    def as_given(cls, table: Any, codes: Int[ndarray, " n"]) -> "Order":
        """Return the order that rows, columns and classes already have."""
        n, d = table.shape
        return cls(np.arange(n), np.arange(d), np.arange(codes.max(initial=-1) + 1))

    @classmethod
    def of_cells(cls, table: Float[ndarray, "n d"], codes: Int[ndarray, " n"]) -> "Order":
        """Sort columns by a hash of their cells, and rows by a hash of theirs.

        Hashes are added up without regard to the order of what is added, and never see
        the number of a row, a column or a class. Columns with the same cells in other rows,
        as those of equally frequent categories, are told apart by the rows they are in.
        Rows and columns are sorted by their size first. A table in which the sign of a
        column is turned has other cells, and the same order: what is computed from every so
        many rows, and how distances are rounded, then stay the same.
        """
        # Without the labels, if cells alone tell the columns apart: then their order, and
        # all graphs of the rows, stay the same when a row more gets a label.
        of_columns = _tell_columns_apart(table, np.full(len(table), -1))
        if len(np.unique(of_columns)) < table.shape[1]:
            of_columns = _tell_columns_apart(table, codes)
        columns = np.lexsort((of_columns, _column_sizes(table)))
        # Columns with equal hashes get numbers of their own, or rows that differ only
        # between them would stay equal.
        of_columns[columns] = np.arange(len(columns), dtype=np.uint64)
        of_rows = _hash_rows(table, of_columns, codes)
        classes = np.argsort(_hash_classes(of_rows, codes), kind="stable")
        return cls(np.lexsort((of_rows, _row_sizes(table))), columns, classes)

    @property
    def back(self) -> Int[ndarray, " n"]:
        """The place in this order of each row of the table."""
        return np.argsort(self.rows)

    @property
    def back_classes(self) -> Int[ndarray, " c"]:
        """The place in this order of each class."""
        return np.argsort(self.classes)

    def sort_codes(self, codes: Int[ndarray, " n"]) -> Int[ndarray, " n"]:
        """Return the codes of the rows, both in this order; -1 stays -1."""
        return np.append(self.back_classes, -1)[codes[self.rows]]


def _tell_columns_apart(table: Float[ndarray, "n d"], codes: Int[ndarray, " n"]) -> ndarray:
    """Hash every column, in rounds, by its cells and by the rows in which they are."""
    of_columns = _hash_columns(table, np.zeros(len(table), dtype=np.uint64))
    for _ in range(_ROUNDS):
        of_rows = _hash_rows(table, of_columns, codes)
        of_columns = _hash_columns(table, of_rows)
    return of_columns


def _row_sizes(table: Float[ndarray, "n d"]) -> Float[ndarray, " n"]:
    """Return the mean cube of the cells' sizes in every row, to nine digits.

    The cells of a row are added in the order of their sizes: sums then do not depend on the
    order of columns. Rounding hides the last digits, which can depend on signs.
    """
    sizes = np.empty(len(table))
    for part in _parts(table):
        sizes[part] = (np.sort(np.abs(table[part]), axis=1) ** 3).mean(axis=1)
    return np.round(sizes, 9)


def _column_sizes(table: Float[ndarray, "n d"]) -> Float[ndarray, " d"]:
    """Return the mean cube of the cells' sizes in every column, to nine digits.

    The cells of a column are added in the order of their sizes, as those of a row are.
    """
    sizes = [(np.sort(np.abs(column)) ** 3).mean() for column in table.T]
    return np.round(np.asarray(sizes, dtype=float), 9)


def _hash_columns(table: Float[ndarray, "n d"], of_rows: ndarray) -> ndarray:
    """Hash every column: its cells with the hashes of their rows."""
    total = np.zeros(table.shape[1], dtype=np.uint64)
    for part, bits in _bits(table):
        total += _mix(bits + _mix(of_rows[part])[:, None]).sum(axis=0)
    return total


def _hash_rows(
    table: Float[ndarray, "n d"], of_columns: ndarray, codes: ndarray
) -> ndarray:
    """Hash every row: its cells with the hashes of their columns, and its class."""
    total = np.empty(len(table), dtype=np.uint64)
    for part, bits in _bits(table):
        total[part] = _mix(bits + _mix(of_columns)).sum(axis=1)
    labelled = codes >= 0
    total[labelled] += _mix(_hash_classes(total, codes)[codes[labelled]])
    return total


def _hash_classes(of_rows: ndarray, codes: ndarray) -> ndarray:
    """Hash every class: the hashes of its labelled rows."""
    labelled = codes >= 0
    total = np.zeros(codes.max(initial=-1) + 1, dtype=np.uint64)
    np.add.at(total, codes[labelled], _mix(of_rows[labelled]))
    return total


def _bits(table: Float[ndarray, "n d"]) -> Iterator[tuple[slice, ndarray]]:
    """Yield the bits of cells, some rows at a time; 0.0 and -0.0 are the same number."""
    for part in _parts(table):
        yield part, (table[part] + 0.0).view(np.uint64)


def _parts(table: Float[ndarray, "n d"]) -> Iterator[slice]:
    """Yield slices of some rows each."""
    size = max(1, _CELLS // max(1, table.shape[1]))
    for start in range(0, len(table), size):
        yield slice(start, start + size)


def _mix(bits: ndarray) -> ndarray:
    """Spread bits over all 64, as the last step of the generator SplitMix64 does."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
