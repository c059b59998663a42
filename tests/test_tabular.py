"""Tables as people have them: columns into numbers, targets into classes and codes."""

import warnings
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError

from helpers import F64
from icssl.tables import columns
from icssl.tables.columns import ColumnEncoder
from icssl.tables.targets import read_targets

pd = pytest.importorskip("pandas")

HALF = np.sqrt(0.5)  # of a category that a row has
MISSING = [None, float("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "s")]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def encoded(table):
    return ColumnEncoder().fit_transform(table)


def object_column(*cells):
    """A table of one column, whatever the cells are."""
    column = np.empty((len(cells), 1), dtype=object)
    column[:, 0] = cells
    return column


def standardised(values):
    values = np.asarray(values, dtype=float)
    return (values - values.mean(axis=0)) / values.std(axis=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint16])
def test_numbers_are_centred_and_scaled(rng, dtype):
    table = (rng.uniform(1, 100, size=(30, 4))).astype(dtype)
    found = encoded(table)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, standardised(table), **F64)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-10, 1.0, 1e10, 1e300, 1.7e308])
def test_columns_of_any_scale_come_out_the_same(scale):
    steps = np.linspace(-1, 1, 9)[:, None]
    np.testing.assert_allclose(encoded(steps * scale), standardised(steps), atol=1e-3)


def test_the_largest_numbers_of_both_signs_do_not_overflow():
    most = np.finfo(float).max
    np.testing.assert_allclose(
        encoded([[most], [-most], [0.0]]).T, [[1.5**0.5, -(1.5**0.5), 0]]
    )


def test_small_differences_on_a_large_number_are_kept():
    found = encoded(np.array([[1e15], [1e15 + 1], [1e15 + 2]]))
    np.testing.assert_allclose(found[:, 0], standardised([0, 1, 2]), **F64)


def test_a_new_row_far_away_is_finite_and_still_far():
    encoder = ColumnEncoder().fit([[0.0], [1e-300]])
    np.testing.assert_array_equal(encoder.transform([[1e300], [-1e300]]), [[1e6], [-1e6]])


@pytest.mark.parametrize("missing", MISSING)
def test_a_missing_number_counts_as_the_median(missing):
    found = encoded(object_column(1.0, 2.0, 10.0, missing))
    np.testing.assert_allclose(found[:, 0], standardised([1, 2, 10, 2]), **F64)


def test_columns_that_say_nothing_become_zeros():
    frame = pd.DataFrame(
        {
            "constant": [0.1] * 3,
            "empty": [np.nan] * 3,
            "nothing": [None] * 3,
            "same": ["a"] * 3,
            "wide": [1e308] * 3,
        }
    )
    assert not encoded(frame).any()
    assert encoded(frame).shape == (3, 5)
    # A constant has no scale to judge other values by.
    encoder = ColumnEncoder().fit(frame)
    assert not encoder.transform(frame.assign(constant=7.0, same="b")).any()


@pytest.mark.parametrize(
    "cells",
    [
        [False, True, True],
        [np.False_, np.True_, np.True_],
        [Decimal(0), Decimal("1.0"), 1],
        [date(2020, 1, 1), date(2020, 1, 2), datetime(2020, 1, 2)],
        [timedelta(0), timedelta(hours=1), timedelta(minutes=60)],
        [np.datetime64("2020-01-01"), np.datetime64("2020-01-02T00"), datetime(2020, 1, 2)],
        [pd.Timestamp("2020-01-01", tz="CET"), *[pd.Timestamp("2020-01-02", tz="CET")] * 2],
    ],
)
def test_booleans_decimals_and_times_are_numbers(cells):
    np.testing.assert_allclose(
        encoded(object_column(*cells))[:, 0], standardised([0, 1, 1])
    )


def test_times_with_missing_ones_are_numbers_in_every_unit():
    days = pd.Series(["2020-01-01", None, "2020-01-02", "2020-01-03"])
    for unit in ("D", "s", "us", "ns"):
        table = pd.to_datetime(days).to_numpy().astype(f"datetime64[{unit}]")
        np.testing.assert_allclose(
            encoded(table[:, None])[:, 0], standardised([0, 1, 1, 2])
        )


UNITS = ["ns", "ms", "s", "h", "D", "M", "Y"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["m8", "M8"])
def test_times_of_numpy_in_an_object_array_are_those_of_a_typed_column(kind, unit):
    times = np.array([3, 0, "NaT", 11, 40], dtype=f"{kind}[{unit}]")
    typed = encoded(times[:, None])
    assert np.ptp(typed) > 1
    np.testing.assert_allclose(encoded(object_column(*times)), typed, **F64)
    # Beside texts, in a table of objects; where times are missing is said at last.
    table = np.array([[time, "a"] for time in times], dtype=object)
    np.testing.assert_allclose(encoded(table)[:, [0, 2]], typed, **F64)


def test_missing_times_without_a_unit_are_missing_in_an_object_array():
    with warnings.catch_warnings():
        # NumPy is to require units; who has such a cell made it without ours.
        warnings.simplefilter("ignore", DeprecationWarning)
        missing = np.datetime64("NaT"), np.timedelta64("NaT")
    for nothing in missing:
        spans = object_column(np.timedelta64(1, "s"), nothing, np.timedelta64(5, "s"))
        np.testing.assert_allclose(encoded(spans), encoded([[1.0], [None], [5.0]]), **F64)


MASKED = {
    "floats": (np.array([[1.0, 2.0], [3.0, 9e9], [5.0, 4.0]]), np.nan),
    "whole": (np.array([[1, 2], [3, 10**9], [5, 4]]), np.nan),
    "booleans": (np.array([[True, False], [False, True], [True, True]]), None),
    "texts": (np.array([["a", "b"], ["c", "d"], ["a", "b"]]), None),
    "objects": (np.array([["a", 1], ["c", 10**9], ["a", 3]], dtype=object), None),
    "times": (np.array([[1, 2], [3, 10**9], [5, 4]], dtype="m8[s]"), None),
}


@pytest.mark.parametrize("kind", MASKED)
def test_masked_cells_are_missing_cells(kind):
    cells, missing = MASKED[kind]
    mask = np.array([[False, False], [False, True], [False, False]])
    twin = cells.astype(object)
    twin[mask] = missing
    masked = np.ma.array(cells, mask=mask)
    np.testing.assert_array_equal(encoded(masked), encoded(twin))
    np.testing.assert_array_equal(encoded(list(masked)), encoded(twin))
    fitted = ColumnEncoder().fit(cells)
    np.testing.assert_array_equal(fitted.transform(masked), fitted.transform(twin))
    unmasked = np.ma.array(cells)
    np.testing.assert_array_equal(encoded(unmasked), encoded(cells))


def test_a_tensor_with_a_gradient_is_read_like_any_other(rng):
    cells = rng.normal(size=(5, 2))
    tensor = torch.tensor(cells, requires_grad=True)
    np.testing.assert_array_equal(encoded(tensor), encoded(cells))
    short = tensor.to(torch.bfloat16)
    np.testing.assert_array_equal(encoded(short), encoded(short.detach().float().numpy()))


def test_different_categories_are_one_standard_deviation_apart():
    found = encoded(object_column("red", "blue", "red", None))
    np.testing.assert_array_equal(found, [[0, HALF], [HALF, 0], [0, HALF], [0, 0]])
    assert np.linalg.norm(found[0] - found[1]) == pytest.approx(1)


def test_unknown_categories_are_like_missing_ones():
    encoder = ColumnEncoder().fit(object_column("a", "b", "c"))
    assert not encoder.transform(object_column("d", None, "A")).any()


@pytest.mark.parametrize("missing", MISSING)
def test_missing_categories_are_zeros(missing):
    found = encoded(object_column("a", missing, "b"))
    np.testing.assert_array_equal(found, [[HALF, 0], [0, 0], [0, HALF]])


def test_the_most_frequent_of_many_categories_are_kept():
    rare = [f"rare {i}" for i in range(80)]
    often = [f"often {i}" for i in range(50)]
    found = encoded(object_column(*rare, *often, *often))
    assert found.shape == (180, 50)
    assert not found[:80].any()
    np.testing.assert_array_equal(found[80:].sum(axis=1), np.full(100, HALF))


def test_numeric_categories_of_pandas_are_categories():
    codes = pd.Series([3, 1, 3], dtype="category")
    encoder = ColumnEncoder().fit(pd.DataFrame({"a": codes}))
    expected = [[0, HALF], [HALF, 0], [0, HALF]]
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"a": codes})), expected)
    for dtype in (int, float, str):  # the same cells in a column of another kind
        plain = pd.DataFrame({"a": codes.astype(int).astype(dtype)})
        np.testing.assert_array_equal(encoder.transform(plain), expected)


def test_categories_of_large_whole_numbers_beside_missing_ones_stay_apart():
    large = pd.Index([2**53, 2**53 + 1])
    column = pd.Categorical.from_codes([0, 1, -1, 1], categories=large)
    found = encoded(pd.DataFrame({"id": column}))
    np.testing.assert_array_equal(found, [[HALF, 0], [0, HALF], [0, 0], [0, HALF]])


def test_text_is_not_read_as_numbers():
    assert encoded(np.array([["10"], ["20"], ["30"]])).shape == (3, 3)


def test_a_list_with_texts_keeps_its_numbers():
    found = encoded([[1.0, "a"], [2.0, "b"], [3.0, "a"]])
    np.testing.assert_allclose(found[:, 0], standardised([1, 2, 3]))
    np.testing.assert_array_equal(found[:, 1:], [[HALF, 0], [0, HALF], [HALF, 0]])


def test_numbers_come_first_then_categories():
    frame = pd.DataFrame({"b": ["x", "y"], "a": [1.0, 2.0]})
    np.testing.assert_allclose(encoded(frame), [[-1, HALF, 0], [1, 0, HALF]])


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ([1, 2, None], "Int64"),
        ([1, 2, None], "Float32"),
        ([True, False, None], "boolean"),
        ([1, 2, None], "double[pyarrow]"),
    ],
)
def test_nullable_columns_of_pandas(numbers, dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    series = pd.Series(numbers, dtype=dtype)
    plain = [float(x) if x is not None else None for x in numbers]
    np.testing.assert_allclose(
        encoded(series.to_frame("a")), encoded(object_column(*plain))
    )


@pytest.mark.parametrize("dtype", ["str", "object", "category", "string[pyarrow]"])
def test_texts_of_pandas(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": pd.Series(["x", None, "y"], dtype=dtype)})
    np.testing.assert_array_equal(encoded(frame), [[HALF, 0], [0, 0], [0, HALF]])


def test_polars_gives_what_pandas_gives():
    polars = pytest.importorskip("polars")
    cells = {
        "number": [1, None, 3],
        "share": [0.5, 0.25, None],
        "flag": [True, None, False],
        "day": [date(2020, 1, 1), None, date(2020, 1, 3)],
        "moment": [datetime(2020, 1, 1), datetime(2020, 1, 2), None],
        "name": ["x", None, "y"],
        "group": ["u", "v", None],
    }
    frame = polars.DataFrame(cells).with_columns(
        polars.col("group").cast(polars.Categorical)
    )
    encoder = ColumnEncoder()
    np.testing.assert_allclose(encoder.fit_transform(frame), encoded(pd.DataFrame(cells)))
    assert encoder.feature_names_in_.tolist() == list(cells)
    with pytest.raises(ValueError, match="feature names should match"):
        encoder.transform(frame.rename({"name": "other"}))


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array", "dok_array"])
def test_a_sparse_matrix_gives_what_the_dense_one_gives(rng, form):
    dense = rng.normal(size=(20, 6)) * (rng.random((20, 6)) < 0.3)
    found = encoded(getattr(sparse, form)(dense))
    np.testing.assert_allclose(found, encoded(dense), **F64)


def test_a_large_sparse_matrix_keeps_its_geometry(rng, monkeypatch):
    """All the components there are: distances are those of the rows, up to one scale."""
    monkeypatch.setattr(columns, "MOST_DENSE_CELLS", 100)
    dense = rng.normal(size=(12, 40)) * (rng.random((12, 40)) < 0.3)
    encoder = ColumnEncoder()
    found = encoder.fit_transform(sparse.csr_array(dense * 1e200))
    assert found.shape == (12, 12)
    truth = np.linalg.norm(dense[:, None] - dense[None], axis=-1)
    ours = np.linalg.norm(found[:, None] - found[None], axis=-1)
    np.testing.assert_allclose(ours / ours.max(), truth / truth.max(), atol=1e-8)
    np.testing.assert_allclose(encoder.transform(dense * 1e200), found, **F64)
    assert found.var(axis=0).mean() == pytest.approx(1)


def test_a_large_sparse_matrix_of_one_row_or_of_zeros(monkeypatch):
    monkeypatch.setattr(columns, "MOST_DENSE_CELLS", 3)
    for dense in (np.ones((1, 5)), np.zeros((4, 5))):
        assert not encoded(sparse.csr_array(dense)).any()


@pytest.mark.parametrize(
    "make", [np.asarray, sparse.csr_array, pd.DataFrame, np.ndarray.tolist]
)
def test_an_infinite_cell_is_refused_by_its_place(make):
    table = np.arange(12.0).reshape(4, 3)
    encoder = ColumnEncoder().fit(make(table))
    table[2, 1] = -np.inf
    for method in (encoder.transform, ColumnEncoder().fit):
        with pytest.raises(ValueError, match=r"contains infinity.* row 2, column 1"):
            method(make(table))


@pytest.mark.parametrize("cell", [10**400, Decimal("1e999"), np.longdouble("1e4000")])
def test_a_number_too_large_is_refused_by_its_name(cell):
    frame = pd.DataFrame({"a": [1, 2], "big": pd.Series([0, cell], dtype=object)})
    with pytest.raises(ValueError, match=r"too large for .*: row 1, column 'big'"):
        encoded(frame)


def test_text_where_numbers_were_is_refused_by_name():
    encoder = ColumnEncoder().fit(pd.DataFrame({"age": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="column 'age' held numbers"):
        encoder.transform(pd.DataFrame({"age": ["old", "young"]}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.ones(3), "Expected 2D array, got 1D array"),
        (np.ones((2, 3, 4)), "Found array with dim 3"),
        (np.ones((0, 3)), "Found array with 0 sample"),
        (np.ones((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1"),
        (pd.DataFrame({"a": []}), "Found array with 0 sample"),
        (pd.DataFrame(index=range(3)), r"0 feature\(s\)"),
        (np.ones((3, 1)) * 1j, "Complex data not supported"),
        (pd.DataFrame({"a": [1j]}), "Complex data not supported"),
        (np.array([[1j], [None]], dtype=object), "Complex data not supported"),
        ([[1, 2], [3]], "inhomogeneous"),
        (3.0, "Expected 2D array, got scalar"),
    ],
)
def test_what_is_no_table_is_refused_in_scikit_learns_words(table, words):
    with pytest.raises(ValueError, match=words):
        encoded(table)


def test_names_and_number_of_columns_are_checked():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]})
    encoder = ColumnEncoder().fit(frame)
    assert encoder.n_features_in_ == 2
    assert encoder.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="must be in the same order"):
        encoder.transform(frame[["b", "a"]])
    with pytest.raises(ValueError, match="yet now missing:\n- b"):
        encoder.transform(frame[["a"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        encoder.transform(frame.to_numpy())
    encoder.fit(frame.to_numpy())
    assert not hasattr(encoder, "feature_names_in_")
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 2"):
        encoder.transform(np.ones((4, 3)))


def test_it_is_fitted_first_and_can_be_cloned():
    with pytest.raises(NotFittedError):
        clone(ColumnEncoder()).transform([[1.0]])


def test_a_cell_that_is_anything_is_a_category():
    found = encoded(object_column({"a": 1}, (1, 2), {"a": 1}))
    np.testing.assert_array_equal(found, [[0, HALF], [HALF, 0], [0, HALF]])


@pytest.mark.parametrize(
    ("y", "classes", "codes"),
    [
        ([0, 1, -1], [0, 1], [0, 1, -1]),
        (np.array([5, -1, 2], dtype=np.int8), [2, 5], [1, -1, 0]),
        (np.array([5, 2], dtype=np.uint8), [2, 5], [1, 0]),
        ([0.0, np.nan, 3.0, -1.0], [0, 3], [0, -1, 1, -1]),
        ([-2, -1, 2], [-2, 2], [0, -1, 1]),
        ([True, None, False], [False, True], [1, -1, 0]),
        (np.array([True, False]), [False, True], [1, 0]),
        (["b", None, "a"], ["a", "b"], [1, -1, 0]),
        (["b", float("nan"), "a", -1, pd.NA], ["a", "b"], [1, -1, 0, -1, -1]),
        (np.array(["b", "a"]), ["a", "b"], [1, 0]),
        (["-1", "1"], ["-1", "1"], [0, 1]),
        ([1, None, 0], [0, 1], [1, -1, 0]),
        (pd.Series([1, None, 0], dtype="Int64"), [0, 1], [1, -1, 0]),
        (pd.Series([True, None, False], dtype="boolean"), [False, True], [1, -1, 0]),
        (pd.Series(["b", None, "a"]), ["a", "b"], [1, -1, 0]),
        (pd.Series(["b", None, "a"], dtype="category"), ["a", "b"], [1, -1, 0]),
        (pd.Categorical([2, None, 1]), [1, 2], [1, -1, 0]),
    ],
)
def test_targets(y, classes, codes):
    found_classes, found_codes = read_targets(y)
    assert found_classes.tolist() == classes
    assert {type(name) for name in found_classes.tolist()} == {type(classes[0])}
    assert found_codes.dtype == np.int64
    np.testing.assert_array_equal(found_codes, codes)


def test_targets_of_polars():
    polars = pytest.importorskip("polars")
    for cells in ([1, None, 0], ["b", None, "a"], [True, None, False]):
        classes, codes = read_targets(polars.Series(cells))
        np.testing.assert_array_equal(codes, [1, -1, 0])
        assert classes.tolist() == [cells[2], cells[0]]


def test_a_column_of_targets_is_warned_about():
    with pytest.warns(DataConversionWarning):
        _, codes = read_targets(np.array([[0], [1]]))
    np.testing.assert_array_equal(codes, [0, 1])


@pytest.mark.parametrize("y", [[-1, 1, 1], [-1.0, 1.0, np.nan], [-1, 1, None]])
def test_minus_one_as_a_class_is_explained(y):
    with pytest.raises(ValueError, match=r"-1 marks unlabelled rows.*relabel your classes"):
        read_targets(y)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([-1, -1], "no label: all 2 rows"),
        ([None, np.nan], "no label"),
        (np.array([]), "no label: all 0 rows"),
        ([1, 1, 1], "one class only, 1:"),
        (["a", None], "one class only, 'a'"),
        ([-1, 2], "one class only, 2:"),
        ([0.5, 1.0], "Unknown label type: continuous. 0.5"),
        ([0, np.inf], "y contains infinity"),
        ([0, 10**400, None], r"from 0 to about 2\^1329, and no integer type of 64 bits"),
        ([0, "a"], "labels are numbers and texts"),
        ([True, 2, None], "labels are booleans and numbers"),
        ([True, 2], "labels are booleans and numbers"),
        ([{1}, {2}, None], "Unknown label type: set"),
        (np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), "Unknown label type"),
        (np.array([1j, 2]), "Complex data not supported"),
        (np.ones((3, 2)), "1d array"),
        (None, "requires y to be passed, but the target y is None"),
    ],
)
def test_targets_that_cannot_be_used(y, words):
    with pytest.raises(ValueError, match=words):
        read_targets(y)


@pytest.mark.parametrize("y", [["a", "-1", "b", ""], np.array(["a", -1, "b", " "])])
def test_empty_and_minus_one_among_texts_are_no_labels(y):
    """NumPy makes a text of the number where others are texts."""
    classes, codes = read_targets(y)
    assert classes.tolist() == ["a", "b"]
    assert codes.tolist() == [0, -1, 1, -1]


BYTES = {
    "blank": ["a", "", "b", "  ", "\t"],
    "minus one": ["a", "-1", "b", " -1 "],
    "minus one among numbers": ["-1", "1", "", "2.5"],
    "not ascii": ["é", "\u00a0", "ü", ""],
}


@pytest.mark.parametrize("dtype", ["S", object])
@pytest.mark.parametrize("case", BYTES)
def test_blank_bytes_are_no_class_and_all_bytes_are_read_like_texts(case, dtype):
    texts = BYTES[case]
    y = np.array([text.encode() for text in texts], dtype=dtype)
    classes, codes = read_targets(y)
    expected, expected_codes = read_targets(texts)
    assert [name.decode() for name in classes.tolist()] == expected.tolist()
    np.testing.assert_array_equal(codes, expected_codes)


def test_bytes_and_texts_are_no_labels_together():
    with pytest.raises(ValueError, match="labels are bytes and texts"):
        read_targets([b"a", "a", None])
