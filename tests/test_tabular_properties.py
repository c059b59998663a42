"""What holds for every table: hypothesis looks for one that breaks it."""

from datetime import datetime

import numpy as np
import pytest

pytest.importorskip("hypothesis")
pytest.importorskip("pandas")
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from icssl.tables.columns import ColumnEncoder
from icssl.tables.targets import read_targets

# Some of these columns are numbers but for a few cells, and it is said.
pytestmark = pytest.mark.filterwarnings("ignore::icssl.tables.table_warning.TableWarning")

# Derandomised: the same tables in every run, so that a failure is one of the code.
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)

MISSING = st.sampled_from([None, float("nan"), pd.NA, pd.NaT])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
CELLS = {
    "float": FINITE,
    "infinite": st.floats(),
    "small": st.floats(-1, 1, width=32),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "text": st.text(max_size=3),
    "time": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    "mixed": st.one_of(FINITE, st.text(max_size=2), st.booleans(), st.integers()),
}


@st.composite
def columns(draw, rows):
    """Cells of one kind, some of them missing, perhaps as a categorical column."""
    kind = draw(st.sampled_from(sorted(CELLS)))
    cell = st.one_of(CELLS[kind], MISSING) if draw(st.booleans()) else CELLS[kind]
    cells = draw(st.lists(cell, min_size=rows, max_size=rows))
    column = pd.Series(cells, dtype=object)
    form = draw(st.sampled_from(["object", "inferred", "category"]))
    if form == "category":
        return column.astype(str).astype("category")
    return column.infer_objects() if form == "inferred" else column


@st.composite
def tables(draw):
    """A data frame, or its cells as an array of objects."""
    rows = draw(st.integers(1, 9))
    number = draw(st.integers(1, 4))
    frame = pd.DataFrame({f"column {j}": draw(columns(rows)) for j in range(number)})
    return frame if draw(st.booleans()) else frame.to_numpy(dtype=object)


def rows_of(table, order):
    return table.iloc[order] if isinstance(table, pd.DataFrame) else table[order]


def fitted(table):
    """The encoder and what it makes of the table, or None where an infinite cell is."""
    encoder = ColumnEncoder()
    try:
        return encoder, encoder.fit_transform(table)
    except ValueError as error:
        if "infinity" not in str(error):
            raise
        return None, None


@SETTINGS
@given(tables())
def test_a_table_becomes_finite_numbers_or_is_refused(table):
    _, found = fitted(table)
    if found is not None:
        assert found.dtype == np.float64
        assert found.shape[0] == len(table)
        assert found.shape[1] >= table.shape[1]
        assert np.isfinite(found).all()
        # No row is farther than a single one can be from the mean of all.
        assert np.abs(found).max() <= np.sqrt(len(table)) + 1e-6


@SETTINGS
@given(tables(), st.data())
def test_rows_do_not_depend_on_those_beside_them(table, data):
    encoder, found = fitted(table)
    if found is not None:
        np.testing.assert_array_equal(encoder.transform(table), found)
        order = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1))
        alone = encoder.transform(rows_of(table, order))
        np.testing.assert_array_equal(alone, found[order])


@SETTINGS
@given(tables(), st.data())
def test_the_order_of_rows_does_not_matter(table, data):
    _, found = fitted(table)
    if found is not None:
        order = data.draw(st.permutations(range(len(table))))
        _, shuffled = fitted(rows_of(table, order))
        np.testing.assert_array_equal(shuffled, found[order])


@SETTINGS
@given(tables(), st.data())
def test_new_rows_become_finite_numbers_or_are_refused(table, data):
    few = data.draw(st.integers(1, len(table)))
    encoder, found = fitted(rows_of(table, slice(few)))
    if found is not None:
        try:
            new = encoder.transform(table)
        except ValueError as error:
            if "infinity" not in str(error) and "held numbers" not in str(error):
                raise
            return
        assert np.isfinite(new).all()
        assert new.shape == (len(table), found.shape[1])


@SETTINGS
@given(st.lists(FINITE, min_size=2, max_size=9), st.integers(-60, 60))
def test_the_unit_of_a_column_does_not_matter(cells, exponent):
    """Powers of two, and nothing so small that digits are lost: exactly the same."""
    column = np.array(cells)[:, None]
    column[np.abs(column) < 1e-200] = 0
    other = np.ldexp(np.clip(column, -1e280, 1e280), exponent)
    column = np.clip(column, -1e280, 1e280)
    np.testing.assert_array_equal(fitted(other)[1], fitted(column)[1])


LABELS = [st.integers(-3, 3), st.sampled_from("abc"), st.booleans()]


@SETTINGS
@given(st.one_of(*(st.lists(st.one_of(kind, MISSING), max_size=12) for kind in LABELS)))
def test_codes_name_the_labels_or_the_targets_are_refused(y):
    try:
        classes, codes = read_targets(np.array(y, dtype=object))
    except ValueError:
        labels = {cell for cell in y if not pd.isna(cell) and cell != -1}
        assert len(labels) < 2
        return
    assert sorted(classes) == list(classes)
    for cell, code in zip(y, codes, strict=True):
        assert (code == -1) == (bool(pd.isna(cell)) or cell == -1)
        assert code == -1 or classes[code] == cell
