"""``ColumnEncoder``: columns as numbers; ``ColumnScale``; ``row_chunks`` of a table."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.decomposition import TruncatedSVD
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from icssl._util.warn import warn_caller
from icssl.tables.cells import as_numbers, as_texts, plain_table
from icssl.tables.column_reading import ColumnReading, Hints, TextColumn, hints_of
from icssl.tables.frame_reading import read_columns
from icssl.tables.table_columns import (
    CategoryCells,
    columns_of,
    has_parts,
    is_frame,
    refuse_complex,
    refuse_equal_names,
    refuse_one_dimension,
    stack_columns,
)
from icssl.tables.units import UNIT_NUMBERS, column_kinds, common_factors, unit_numbers

MOST_CATEGORIES = 50
"""Most columns that one column of categories becomes."""

MOST_DENSE_CELLS = 2**24
"""Most cells of a sparse matrix that is made dense: 128 MB of float64."""

CATEGORY = 0.5**0.5
"""Value in the column of a category where a row has it."""

OFTEN_MISSING = 0.05
"""Share of missing cells from which on a further column says where they are."""

CHUNK_CELLS = 2**20
"""Most cells processed at once: 8 MB as float64, about a second of work."""

_COMPONENTS = 256  # columns that a larger sparse matrix becomes
# Standard deviations that a new row can be away; their squares fit in float32.
_FARTHEST = 1e6


class ColumnEncoder(BaseEstimator):  # type: ignore[misc]
    """Encoder of tables of any kind as float64, every column with about the same weight.

    Numbers, booleans (0 and 1) and times (in seconds) are centred by their mean and
    divided by their standard deviation over the fitted rows; a missing cell counts as the
    median of its column, and where a twentieth of a column's cells or more are missing, a
    further column says which, like a category. A column that is constant, or has no number,
    becomes zeros. Values up to the largest float64 do not overflow, and a new row is at
    most a million standard deviations away. An infinite cell is refused.

    Texts and categories, numeric ones of pandas too, become a column for each of the 50
    most frequent categories: ``1 / sqrt(2)`` where a row has it, else 0, so that two rows
    of different categories are as far apart as numbers that differ by one standard
    deviation. An unknown or missing category is 0 everywhere.

    Texts of a data frame that are numbers or dates are read by the rules of files, unless
    they are categories there. Texts of an array or a list are categories.

    A sparse matrix is made dense where it has at most 2^24 cells. A larger one is
    projected on its 256 leading singular vectors (with fixed random numbers, so that equal
    data give equal columns); these are divided by one number, since the trailing ones are
    noise, and none of its cells may be missing.

    Numbers come first in the result, then categories, then where cells are missing.

    Attributes
    ----------
    common_factors_ : ndarray of shape (n_encoded,)
        What to multiply the encoded columns with so that columns of one unit keep their
        spreads (:func:`icssl.tables.units.common_factors`).
    unit_numbers_ : ndarray of shape (6,)
        What tells whether columns share a unit (:func:`icssl.tables.units.unit_numbers`).
    standard_unit_numbers_ : ndarray of shape (6,)
        The same, had the columns been standardised before: then units tell nothing.
    readings_ : dict of int to ColumnReading
        How columns of texts were read that are numbers or dates, by their places.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Names of the columns, where the table has names and all are texts.

    Examples
    --------
    >>> rows = [[1.0, "red"], [3.0, "red"], [2.0, "blue"], [None, None]]
    >>> ColumnEncoder().fit_transform(rows).round(2) + 0.0
    array([[-1.41,  0.  ,  0.71,  0.  ],
           [ 1.41,  0.  ,  0.71,  0.  ],
           [ 0.  ,  0.71,  0.  ,  0.  ],
           [ 0.  ,  0.  ,  0.  ,  0.71]])
    """

    def fit(self, X: Any, y: Any = None) -> "ColumnEncoder":
        """Learn scales and categories; ``y`` is not used."""
        table = self._read(X, reset=True)
        self._projection: _Projection | None = None
        if sparse.issparse(table):
            if table.shape[0] * table.shape[1] > MOST_DENSE_CELLS:
                self._projection = _Projection.of(table)
                self.common_factors_ = np.ones(len(self._projection.mean))  # one scale
                self.unit_numbers_ = self.standard_unit_numbers_ = np.zeros(UNIT_NUMBERS)
                return self
            table = table.toarray()
        columns = columns_of(table)
        numbers = [self._numbers(cells, j) for j, cells in enumerate(columns)]
        self.readings_ = self._read_texts(columns, numbers) if is_frame(table) else {}
        for j, reading in self.readings_.items():
            numbers[j] = self._finite(reading.numbers(columns[j]), j)
        self._numeric = [j for j, column in enumerate(numbers) if column is not None]
        stacked = stack_columns([numbers[j] for j in self._numeric], table)
        self._scale = ColumnScale.fit(stacked)
        self._categories = {
            j: _frequent(as_texts(columns[j]))
            for j in range(len(columns))
            if numbers[j] is None
        }
        missing = np.isnan(stacked).mean(axis=1)
        self._often_missing = np.flatnonzero((missing >= OFTEN_MISSING) & (missing < 1))
        self._read_units(stacked)
        return self

    def _read_units(self, stacked: Float[ndarray, "d n"]) -> None:
        """Set what is known of the columns' units; categories have none."""
        others = sum(max(len(names), 1) for names in self._categories.values())
        others += len(self._often_missing)
        spread = np.pad(self._scale.log_deviation, (0, others), constant_values=-np.inf)
        kinds = np.pad(column_kinds(stacked), (0, others))
        factors = common_factors(spread[None], kinds[None])
        self.common_factors_ = factors[0]
        self.unit_numbers_ = unit_numbers(spread[None], kinds[None], factors)[0]
        level = np.where(np.isfinite(spread), 0.0, spread)[None]
        self.standard_unit_numbers_ = unit_numbers(
            level, np.zeros_like(kinds)[None], np.ones_like(factors)
        )[0]

    def transform(self, X: Any) -> Float[ndarray, "n d"]:
        """Encode every row by itself; rows of ``fit`` become what they were there."""
        check_is_fitted(self, "n_features_in_")
        table = self._read(X, reset=False)
        if self._projection is not None:
            return self._projection(table)
        if sparse.issparse(table):
            table = table.toarray()
        columns = columns_of(table)
        texts = is_frame(table)
        numbers = [self._must_be_numbers(columns[j], j, texts) for j in self._numeric]
        stacked = stack_columns(numbers, table)
        parts = [self._scale(stacked)]
        parts += [
            _one_hot(as_texts(columns[j]), categories)
            for j, categories in self._categories.items()
        ]
        parts.append(CATEGORY * np.isnan(stacked[self._often_missing]).T)
        return np.ascontiguousarray(np.hstack(parts))

    def fit_transform(self, X: Any, y: Any = None) -> Float[ndarray, "n d"]:
        """Learn from rows, and encode the same rows."""
        return self.fit(X).transform(X)

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Return a data frame, a 2-d array or CSR, its columns checked."""
        X = plain_table(X)
        if isinstance(X, (list, tuple)):
            cells = np.asarray(X)
            # A text would make texts of all numbers.
            X = np.asarray(X, dtype=object) if cells.dtype.kind in "US" else cells
        refuse_one_dimension(X)
        rules = {"dtype": None, "ensure_all_finite": False, "estimator": self}
        if is_frame(X):
            refuse_equal_names(X)
            check_array(np.broadcast_to(0, X.shape), **rules)  # for scikit-learn's errors
            table = X
        else:
            table = check_array(X, accept_sparse="csr", **rules)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if sparse.issparse(table):
            table = table.astype(np.float64)
            self._refuse_infinite_sparse(table)
        return table

    def _name(self, j: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return str(j) if names is None else repr(names[j])

    def _numbers(self, cells: "ndarray | CategoryCells", j: int) -> ndarray | None:
        """Return a column as finite numbers and NaN, or None if it holds anything else."""
        if isinstance(cells, CategoryCells):
            return None
        refuse_complex(cells)
        numbers = as_numbers(cells)
        return None if numbers is None else self._finite(numbers, j)

    def _finite(self, numbers: ndarray, j: int) -> ndarray:
        if np.isinf(numbers).any():
            self._refuse_infinite(int(np.isinf(numbers).argmax()), j)
        return numbers

    def _read_texts(
        self, columns: Sequence[Any], numbers: Sequence[ndarray | None]
    ) -> dict[int, ColumnReading]:
        """Return how columns of texts are read that are numbers or dates."""
        names = getattr(self, "feature_names_in_", range(len(columns)))
        found = {
            j: TextColumn(str(names[j]), list(cells))
            for j, cells in enumerate(columns)
            if numbers[j] is None
            and not isinstance(cells, CategoryCells)
            and any(isinstance(cell, str) for cell in cells)
        }
        hints = hints_of(found.values(), Hints())
        if not hints.decimal and any(map(has_parts, numbers)):
            hints = Hints(".", hints.order)
        readings, doubts = read_columns(found, hints)
        for doubt in doubts:
            warn_caller(doubt)
        return {j: one for j, one in readings.items() if one.kind != "category"}

    def _must_be_numbers(
        self, cells: "ndarray | CategoryCells", j: int, may_be_texts: bool
    ) -> ndarray:
        plain = np.array(list(cells), dtype=object)
        plain = plain if isinstance(cells, CategoryCells) else cells
        numbers, said = self._numbers(plain, j), "a cell that is no number"
        if numbers is None and may_be_texts:
            known = self.readings_.get(j)
            tries = [known] if known else [ColumnReading("number"), ColumnReading("date")]
            for reading in tries:
                try:
                    numbers = self._finite(reading.numbers(plain), j)
                    break
                except ValueError as error:
                    said = f"a cell that is none: {error}"
        if numbers is None:
            raise ValueError(
                f"column {self._name(j)} held numbers when it was fitted, and now has "
                f"{said}."
            )
        return numbers

    def _refuse_infinite(self, row: int, j: int) -> None:
        raise ValueError(
            "Input X contains infinity or a value too large for dtype('float64'): row "
            f"{row}, column {self._name(j)}."
        )

    def _refuse_infinite_sparse(self, table: Any) -> None:
        if not np.isinf(table.data).any():
            return
        cells = table.tocoo()
        first = int(np.isinf(cells.data).argmax())
        self._refuse_infinite(int(cells.row[first]), int(cells.col[first]))


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """The centre and the standard deviation of columns, computed without overflow.

    Pretraining computes the same of many tables at once, on the GPU, in ``encode_tables``.

    A column is first divided by a power of two, which loses no digit, so that its largest
    value is about one. The median, then the mean of the rest, are subtracted.
    """

    exponent: ndarray
    median: ndarray
    mean: ndarray  # of what is left when the median is subtracted
    sd: ndarray  # infinite for a constant column, which then becomes zeros

    @classmethod
    def fit(cls, values: Float[ndarray, "d n"]) -> "ColumnScale":
        """Measure columns, one per row of ``values``; NaN is a missing cell."""
        # fmax skips NaN; frexp gives the power of two above the largest value.
        exponent = np.frexp(np.fmax.reduce(np.abs(values), axis=1, initial=0.0))[1][:, None]
        # Sums of sorted numbers do not depend on the order of the rows.
        unit = np.sort(np.ldexp(values, -exponent), axis=1)  # missing ones at the end
        missing = np.isnan(unit)
        count = (~missing).sum(axis=1, keepdims=True)
        # The two middle places among those that are there; one and the same if odd.
        middle = (np.maximum(count - 1, 0) // 2, np.minimum(count // 2, unit.shape[1] - 1))
        median = sum(np.take_along_axis(unit, places, axis=1) / 2 for places in middle)
        median = np.nan_to_num(median)  # of a column without a number
        # Off the median first: what is left keeps its digits even where it is tiny.
        rest = np.where(missing, median, unit) - median
        mean = rest.mean(axis=1, keepdims=True)
        sd = rest.std(axis=1, keepdims=True)
        # There is nothing to divide by: infinity makes zeros of it, also in new rows.
        constant = rest.min(axis=1) == rest.max(axis=1)
        sd[constant] = np.inf
        return cls(exponent, median, mean, sd)

    @property
    def log_deviation(self) -> Float[ndarray, " d"]:
        """Logarithms of the standard deviations; -inf for constant columns."""
        with np.errstate(divide="ignore"):
            unit = np.log(np.where(np.isinf(self.sd), 0.0, self.sd))
        return (unit + np.log(2) * self.exponent)[:, 0]

    def __call__(self, values: Float[ndarray, "d n"]) -> Float[ndarray, "n d"]:
        """Return scaled columns, missing cells at the median; rows come first now."""
        # Only a new row far from the fitted ones can be too large here.
        with np.errstate(over="ignore", invalid="ignore"):
            unit = np.ldexp(values, -self.exponent)
            rest = np.where(np.isnan(unit), self.median, unit) - self.median - self.mean
            scaled = np.where(np.isinf(self.sd), 0.0, rest / self.sd)
        return np.clip(scaled, -_FARTHEST, _FARTHEST).T


@dataclass(frozen=True, eq=False)
class _Projection:
    """The leading singular vectors of a sparse matrix, all divided by one number."""

    size: float
    svd: TruncatedSVD
    mean: ndarray
    sd: float

    @classmethod
    def of(cls, table: Any) -> "_Projection":
        size = float(np.abs(table.data).max(initial=0.0)) or 1.0
        svd = TruncatedSVD(min(_COMPONENTS, *table.shape), random_state=0)
        with np.errstate(invalid="ignore"):  # shares of the variance, where there is none
            svd.fit(table / size)
        columns = svd.transform(table / size)
        mean = columns.mean(axis=0)
        return cls(size, svd, mean, float(np.sqrt(columns.var(axis=0).mean())) or 1.0)

    def __call__(self, table: Any) -> Float[ndarray, "n d"]:
        scaled = (self.svd.transform(table / self.size) - self.mean) / self.sd
        return np.clip(scaled, -_FARTHEST, _FARTHEST)


def _frequent(texts: Sequence[str | None]) -> tuple[str, ...]:
    """Return the most frequent texts, sorted; none if all cells are the same."""
    counts = Counter(texts)
    if len(counts) == 1:
        return ()
    del counts[None]
    by_count = sorted(counts, key=lambda text: (-counts[text], str(text)))
    return tuple(sorted(str(text) for text in by_count[:MOST_CATEGORIES]))


def _one_hot(
    texts: Sequence[str | None], categories: tuple[str, ...]
) -> Float[ndarray, "n d"]:
    """Return a column per category; one column of zeros if there is no category."""
    place = {text: j for j, text in enumerate(categories)}
    codes = np.array([place.get(text, -1) if text is not None else -1 for text in texts])
    columns = np.zeros((len(texts), max(len(categories), 1)))
    rows = np.flatnonzero(codes >= 0)
    columns[rows, codes[rows]] = CATEGORY
    return columns


def row_chunks(X: Any, *, show: str | None = None) -> Iterator[tuple[slice, Any]]:
    """Yield some rows at a time, so that memory does not grow with their number.

    An array, a data frame or a sparse matrix is cut. Anything else, for example a list, is
    yielded whole: all cells of a column decide together what its cells are.

    Parameters
    ----------
    X : table
        The rows.
    show : str, optional
        Text beside a progress bar on the standard error; by default there is no bar.

    Examples
    --------
    >>> table = np.zeros((10, 2**18))
    >>> [len(rows) for _, rows in row_chunks(table)]
    [4, 4, 2]
    """
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 2 or shape[0] * shape[1] <= CHUNK_CELLS:
        yield slice(None), X
        return
    size = max(1, CHUNK_CELLS // shape[1])
    parts = [slice(i, min(i + size, shape[0])) for i in range(0, shape[0], size)]
    table = X.tocsr() if hasattr(X, "tocsr") else X
    for part in parts if show is None else _with_bar(parts, show):
        yield part, table.iloc[part] if hasattr(table, "iloc") else table[part]


def _with_bar(parts: list[slice], text: str) -> Iterable[slice]:
    from rich.console import Console
    from rich.progress import track

    return track(parts, text, console=Console(stderr=True), transient=True)
