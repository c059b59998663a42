"""The order of rows and columns and the names of classes do not matter, nor do last digits.

Over random tables of mixed columns: ``benchmarks/order.py`` draws three thousand of them.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

import order as tables
from icssl import ICSSLClassifier
from icssl.classifier import context_estimator
from icssl.tables.order import Order

SEEDS = range(5000, 5015)  # three tables for each way to hold a graph, and six more


def worst(moved):
    return max(moved[way] for way in tables.WAYS)


@pytest.mark.parametrize("seed", SEEDS)
def test_order_and_names_do_not_matter(seed):
    moved = tables.measure(seed)
    assert moved["fitted"]
    assert worst(moved) < tables.MOVED, moved


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed % 5 != 4])
def test_a_model_that_reads_rows_as_they_come_does_not_see_their_order(seed, monkeypatch):
    """The order of reading is for ties of sparse graphs; the mathematics needs none."""
    monkeypatch.setattr(context_estimator.Order, "of_cells", Order.as_given)
    moved = tables.measure(seed)
    assert worst(moved) < tables.MOVED, moved


# Tables with numbers that have such digits, of the default and the exact backend.
@pytest.mark.parametrize("seed", [5001, 5002, 5003, 5006, 5007, 5008, 5010, 5012])
def test_last_digits_of_numbers_do_not_matter(seed):
    assert tables.measure_digits(seed) < tables.MOVED


def mixed(n=120):
    """Seed 45 of the review: a date, a text of 200 values, a category, random labels."""
    rng = np.random.default_rng(45)
    frame = pd.DataFrame(
        {
            "date": np.datetime64("2020-01-01") + rng.integers(0, 900, n).astype("m8[D]"),
            "text": [f"t{i}" for i in rng.integers(0, 200, n)],
            "category": rng.choice(["a", "b", "c"], n),
        }
    )
    y = np.full(n, -1)
    y[:24] = rng.integers(0, 3, 24)
    return frame, y


@pytest.mark.parametrize("n", [241, 4200])
def test_new_rows_do_not_see_the_order_of_the_fitted_ones(n):
    """4,200 rows are read by nearest neighbours, iterated, and in float32."""
    frame, y = mixed(n)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(n), [2, 0, 1]
    plain = ICSSLClassifier(device="cpu").fit(frame, y)
    other = ICSSLClassifier(device="cpu").fit(frame.iloc[rows, columns], y[rows])
    assert plain.backend_ == ("dense" if n == 241 else "sparse")
    found = other.label_distributions_
    np.testing.assert_allclose(found, plain.label_distributions_[rows], rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.reach_, plain.reach_[rows], rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.embedding_, plain.embedding_[rows], rtol=0, atol=1e-9)
    new, _ = mixed(40)
    np.testing.assert_allclose(
        other.predict_proba(new.iloc[:, columns]), plain.predict_proba(new), atol=1e-9
    )


def test_explanations_name_labelled_rows_in_the_order_of_the_table():
    frame, y = mixed()
    found = ICSSLClassifier(device="cpu").fit(frame, y)
    rows = np.random.default_rng(0).permutation(len(y))
    other = ICSSLClassifier(device="cpu").fit(frame.iloc[rows], y[rows])
    # Where each labelled row of the shuffled table stands among those of the plain one.
    places = np.searchsorted(np.flatnonzero(y >= 0), rows[y[rows] >= 0])
    expected = found.explain().parts[rows][:, places]
    np.testing.assert_allclose(other.explain().parts, expected, rtol=0, atol=1e-9)


# The order itself


def test_an_order_is_one_of_cells_alone():
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 3, (60, 5)).astype(float)
    codes = np.where(rng.random(60) < 0.3, rng.integers(0, 3, 60), -1)
    plain = Order.of_cells(cells, codes)
    expected = cells[plain.rows][:, plain.columns], plain.sort_codes(codes)
    rows, columns, names = rng.permutation(60), rng.permutation(5), np.array([2, 0, 1, -1])
    other_cells, other_codes = cells[rows][:, columns], names[codes[rows]]
    other = Order.of_cells(other_cells, other_codes)
    np.testing.assert_array_equal(other_cells[other.rows][:, other.columns], expected[0])
    np.testing.assert_array_equal(other.sort_codes(other_codes), expected[1])
    np.testing.assert_array_equal(cells[plain.rows][plain.back], cells)


def test_equally_frequent_categories_are_told_apart_by_their_rows():
    """Their columns have the same cells, and rows of two categories the same numbers."""
    rng = np.random.default_rng(2)
    one_hot = np.repeat(np.eye(6), 10, axis=0)
    cells = np.c_[one_hot, rng.normal(size=60)]
    codes = np.full(60, -1)
    plain = Order.of_cells(cells, codes)
    rows, columns = rng.permutation(60), rng.permutation(7)
    shuffled = cells[rows][:, columns]
    other = Order.of_cells(shuffled, codes)
    np.testing.assert_array_equal(
        shuffled[other.rows][:, other.columns], cells[plain.rows][:, plain.columns]
    )


def test_zero_and_minus_zero_are_the_same_cell():
    cells = np.array([[0.0, 1.0], [2.0, 3.0], [0.5, 0.0]])
    signed = np.where(cells == 0, -0.0, cells)
    codes = np.array([-1, 0, 1])
    plain, other = (Order.of_cells(one, codes) for one in (cells, signed))
    np.testing.assert_array_equal(other.rows, plain.rows)
    np.testing.assert_array_equal(other.columns, plain.columns)


# Graphs that are given


def given_graph(alone=()):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 2)) + 4 * (np.arange(60) % 2)[:, None]
    w = rbf_kernel(x)
    w[list(alone)] = 0
    w[:, list(alone)] = 0
    y = np.full(60, -1)
    y[[10, 12, 11, 13]] = [0, 0, 1, 1]
    return w, y


@pytest.mark.parametrize("backend", ["dense", "sparse"])
@pytest.mark.parametrize("count", [5, 46, 60])
def test_rows_of_a_graph_without_a_neighbour_have_no_reach_and_the_prior(backend, count):
    alone = [i for i in range(60) if i not in range(10, 24)] + list(range(10, 24))
    alone = alone[:count]
    w, y = given_graph(alone)
    options = {"metric": "precomputed", "backend": backend, "class_prior": [0.75, 0.25]}
    for form in (w, sparse.csr_matrix(w)):
        found = ICSSLClassifier(device="cpu", **options).fit(form, y)
        hidden = [i for i in alone if y[i] == -1]
        assert (found.reach_[hidden] == 0).all()
        prior = np.broadcast_to([0.75, 0.25], (len(hidden), 2))
        np.testing.assert_allclose(found.label_distributions_[hidden], prior, atol=1e-12)
        joined = np.setdiff1d(np.arange(60), alone)
        assert (found.reach_[joined] > 0.1).all()  # below, a row counts as out of reach


@pytest.mark.parametrize("backend", ["dense", "sparse"])
@pytest.mark.parametrize("size", [1e-300, 1e-13, 1e13, 1e300])
def test_the_unit_of_the_weights_of_a_graph_does_not_matter(backend, size):
    w, y = given_graph()
    options = {"metric": "precomputed", "backend": backend, "device": "cpu"}
    plain = ICSSLClassifier(**options).fit(w, y)
    found = ICSSLClassifier(**options).fit(w * size, y)
    np.testing.assert_allclose(
        found.label_distributions_, plain.label_distributions_, rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(
        found.predict_proba(w[20:30] * size), plain.predict_proba(w[20:30]), atol=1e-8
    )


@pytest.mark.parametrize("backend", ["dense", "sparse"])
@pytest.mark.parametrize("own", [1.0, 1e300])
def test_weights_of_rows_to_themselves_do_not_matter(backend, own):
    """Not even for the unit of the others."""
    w, y = given_graph()
    options = {"metric": "precomputed", "backend": backend, "device": "cpu"}
    other = 1e-30 * w
    np.fill_diagonal(other, own)
    plain, found = (ICSSLClassifier(**options).fit(one, y) for one in (w, other))
    np.testing.assert_allclose(
        found.label_distributions_, plain.label_distributions_, rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("weight", [5e-324, 1e308])
def test_weights_of_any_size_give_probabilities(weight):
    """Sums of the largest overflow, and the smallest are one digit."""
    _, y = given_graph()
    w = np.full((60, 60), weight) * (1 - np.eye(60))  # rows differ in where the zero is
    found = ICSSLClassifier(metric="precomputed", device="cpu").fit(w, y)
    assert np.isfinite(found.label_distributions_).all()
    assert np.isfinite(found.predict_proba(np.full((2, 60), 1.7e308))).all()
    assert found.predict_reach(np.zeros((1, 60))).tolist() == [0.0]
