"""How good a fit is, as far as its labels tell: ``label_score_`` and ``LabelledFold``."""

import math
import pickle

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.semi_supervised import LabelSpreading

from helpers import few_labels
from icssl import ICSSLClassifier, LabelledFold
from icssl.classifier.label_score import LabelScore, hidden_labels
from icssl.tables.numeric_targets import read_numbers
from icssl.tables.order import Order


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def iris(rng, per_class=2):
    X, truth = load_iris(return_X_y=True)
    return X[::3], few_labels(truth[::3], per_class, rng)


# The accuracy on labels that are hidden


@pytest.mark.parametrize(("hits", "rows"), [(0, 1), (1, 1), (3, 7), (17, 20), (40, 40)])
def test_the_interval_is_that_of_scipy(hits, rows):
    score = LabelScore.of_hits(hits, rows)
    expected = binomtest(hits, rows).proportion_ci(0.95, method="wilson")
    assert score.accuracy == hits / rows
    assert score.low == pytest.approx(expected.low, abs=1e-12)
    assert score.high == pytest.approx(expected.high, abs=1e-12)
    assert score.low <= score.accuracy <= score.high


def accuracy_one_by_one(X, y, judged, **options):
    """Hide one label after the other, and fit the whole table again."""
    hits = []
    for row in judged:
        hidden = y.copy()
        hidden[row] = -1
        hits.append(ICSSLClassifier(**options).fit(X, hidden).transduction_[row] == y[row])
    return np.mean(hits)


def test_few_labels_are_hidden_one_by_one(rng):
    X, y = iris(rng, per_class=3)
    classifier = ICSSLClassifier().fit(X, y)
    expected = accuracy_one_by_one(X, y, np.flatnonzero(y >= 0))
    assert classifier.label_score_ == LabelScore.of_hits(round(9 * expected), 9)
    assert "of 9 hidden labels" in str(classifier.label_score_)
    assert classifier.label_score_ is classifier.label_score_  # computed once


def test_labels_that_contradict_the_rows_are_not_predicted(rng):
    X = np.repeat([[0.0, 0.0], [20.0, 20.0]], 20, axis=0) + rng.normal(size=(40, 2))
    y = np.full(40, -1)
    y[:8], y[20:28] = 0, 1
    assert ICSSLClassifier().fit(X, y).label_score_.accuracy == 1
    y[0], y[20] = 1, 0  # in the wrong cluster
    assert ICSSLClassifier().fit(X, y).label_score_.accuracy == 14 / 16


def test_many_labels_are_hidden_in_ten_folds_with_a_share_of_every_class(rng):
    codes = rng.choice([-1, 0, 1, 2], size=200, p=[0.5, 0.3, 0.15, 0.05])
    order = Order.of_cells(rng.normal(size=(200, 3)), codes)
    folds = hidden_labels(codes, order)
    assert len(folds) == 10
    np.testing.assert_array_equal(
        np.sort(np.concatenate(folds)), np.flatnonzero(codes >= 0)
    )
    for c in range(3):
        counts = [(codes[fold] == c).sum() for fold in folds]
        assert max(counts) - min(counts) <= 1


def test_no_class_is_ever_hidden_as_a_whole(rng):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        codes = np.append(np.arange(4), rng.integers(-1, 4, size=rng.integers(1, 40)))
        order = Order.of_cells(rng.normal(size=(len(codes), 2)), codes)
        for fold in hidden_labels(codes, order):
            assert set(np.delete(codes, fold)) >= set(range(4))


def test_the_score_does_not_depend_on_the_order_of_rows_or_names_of_classes(rng):
    X, y = iris(rng, per_class=5)
    order = rng.permutation(len(y))
    plain = ICSSLClassifier().fit(X, y).label_score_
    names = np.array(["z", "y", "x", None], dtype=object)[y[order]]
    assert ICSSLClassifier().fit(X[order], names).label_score_ == plain


def test_labels_alone_in_their_class_are_not_judged(rng):
    X, y = iris(rng, per_class=1)
    score = ICSSLClassifier().fit(X, y).label_score_
    assert math.isnan(score.accuracy)
    assert (score.low, score.high, score.rows, score.alone) == (0, 1, 0, 3)
    assert str(score) == (
        "No label could be judged. 3 labels are not judged: no other row of their class "
        "has one."
    )
    y[np.flatnonzero(y == -1)[0]] = 0
    score = ICSSLClassifier().fit(X, y).label_score_
    assert (score.rows, score.alone) == (2, 2)


@pytest.mark.parametrize(
    "prior", ["labels", "uniform", None, [0.2, 0.3, 0.5], {"a": 0.2, "b": 0.3, "c": 0.5}]
)
def test_refits_have_the_same_class_prior(rng, prior):
    X, codes = iris(rng, per_class=2)
    y = np.array(["a", "b", "c", None], dtype=object)[codes]
    classifier = ICSSLClassifier(class_prior=prior).fit(X, y)
    by_place = [0.2, 0.3, 0.5] if isinstance(prior, dict) else prior
    judged = np.flatnonzero(codes >= 0)
    expected = accuracy_one_by_one(X, codes, judged, class_prior=by_place)
    assert classifier.label_score_.accuracy == expected


def test_a_given_graph_and_weights_have_a_score_and_pickle(rng):
    X, y = iris(rng, per_class=3)
    graph, weights = rbf_kernel(X), rng.uniform(0.5, 2, len(y))
    classifier = ICSSLClassifier(metric="precomputed").fit(graph, y, weights)
    before = pickle.loads(pickle.dumps(classifier))
    score = classifier.label_score_
    assert score.rows == 9
    assert before.label_score_ == score
    assert pickle.loads(pickle.dumps(classifier)).label_score_ == score


def test_a_new_fit_has_a_new_score(rng):
    X, y = iris(rng, per_class=3)
    classifier = ICSSLClassifier().fit(X, y)
    first = classifier.label_score_
    fewer = y.copy()
    fewer[np.flatnonzero(y == 0)[0]] = -1
    assert classifier.fit(X, fewer).label_score_.rows == first.rows - 1


def test_tools_that_read_every_attribute_start_no_refit(rng, monkeypatch):
    X, y = iris(rng)
    classifier = ICSSLClassifier().fit(X, y)
    assert not hasattr(ICSSLClassifier(), "label_score_")  # which says: not fitted
    monkeypatch.setattr(ICSSLClassifier, "fit", None)
    assert "ICSSLClassifier" in classifier._repr_html_()
    assert "label_score_" not in dir(classifier)
    assert {"transduction_", "predict"} <= set(dir(classifier))
    monkeypatch.undo()
    assert classifier.label_score_.rows == 6
    assert "label_score_" in dir(classifier)


# Folds that keep rows without a label


@pytest.mark.parametrize("shuffle", [False, True])
def test_folds_test_every_label_once_and_train_on_all_other_rows(rng, shuffle):
    X, y = iris(rng, per_class=6)
    state = 3 if shuffle else None
    splitter = LabelledFold(3, shuffle=shuffle, random_state=state)
    folds = list(splitter.split(X, y))
    assert len(folds) == splitter.get_n_splits(X, y) == 3
    tested = np.concatenate([test for _, test in folds])
    np.testing.assert_array_equal(np.sort(tested), np.flatnonzero(y >= 0))
    for train, test in folds:
        np.testing.assert_array_equal(np.sort(np.append(train, test)), np.arange(len(y)))
        assert np.bincount(y[test]).tolist() == [2, 2, 2]
        assert (y[train] == -1).sum() == (y == -1).sum()
    again = list(LabelledFold(3, shuffle=shuffle, random_state=state).split(X, y))
    for one, other in zip(folds, again, strict=True):
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("mark", [None, float("nan"), -1], ids=repr)
def test_cross_validation_of_the_classifier_scores_labelled_rows_without_a_warning(
    rng, mark
):
    X, codes = iris(rng, per_class=6)
    names = np.array([0, 1, 2, mark], dtype=object)
    y = names[codes]
    scores = cross_val_score(ICSSLClassifier(), X, y, cv=LabelledFold(3))
    expected = []
    for train, test in LabelledFold(3).split(X, codes):
        predicted = ICSSLClassifier().fit(X[train], codes[train]).predict(X[test])
        expected.append((predicted == codes[test]).mean())
    np.testing.assert_array_equal(scores, expected)


def test_grid_search_over_a_parameter(rng):
    X, y = iris(rng, per_class=6)
    grid = {"class_prior": ["labels", [0.998, 0.001, 0.001]], "n_neighbors": [12, 32]}
    search = GridSearchCV(ICSSLClassifier(), grid, cv=LabelledFold(3)).fit(X, y)
    assert search.best_params_["class_prior"] == "labels"
    assert search.best_score_ > 0.7


def test_label_spreading_of_scikit_learn(rng):
    X, y = iris(rng, per_class=6)
    scores = cross_val_score(LabelSpreading(), X, y, cv=LabelledFold(3))
    assert scores.mean() > 0.7
    grid = {"gamma": [1e-6, 20.0]}
    search = GridSearchCV(LabelSpreading(), grid, cv=LabelledFold(3)).fit(X, y)
    assert search.best_params_["gamma"] == 20.0


def test_folds_of_numbers(rng):
    X, truth = load_diabetes(return_X_y=True)
    y = np.where(rng.random(len(X)) < 0.1, truth, np.nan)
    y[np.flatnonzero(np.isfinite(y))[0]] = -1  # a number like others
    known = np.flatnonzero(np.isfinite(y))
    folds = list(LabelledFold(4, targets="numbers").split(X, y))
    np.testing.assert_array_equal(np.concatenate([test for _, test in folds]), known)
    for train, test in folds:
        assert len(train) + len(test) == len(X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_splits": 1}, "n_splits must be a whole number of at least 2, got 1"),
        ({"n_splits": 2.5}, r"n_splits must be a whole number of at least 2, got 2\.5"),
        ({"n_splits": "5"}, "n_splits must be a whole number of at least 2, got '5'"),
        ({"n_splits": True}, "n_splits must be a whole number of at least 2, got True"),
        ({"targets": "labels"}, "'classes', 'numbers'"),
    ],
)
def test_options_of_folds(options, words):
    with pytest.raises(ValueError, match=words):
        LabelledFold(**options)


def test_folds_that_cannot_be_made(rng):
    X, y = iris(rng, per_class=3)
    y[np.flatnonzero(y == 1)[0]] = -1
    with pytest.raises(ValueError, match=r"n_splits=3 .* 1 has 2: .* up to 2"):
        next(LabelledFold(3).split(X, y))
    y[np.flatnonzero(y == 1)[0]] = -1
    with pytest.raises(ValueError, match="label more rows"):
        next(LabelledFold(2).split(X, y))
    with pytest.raises(ValueError, match="LabelledFold needs y"):
        next(LabelledFold().split(X))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        next(LabelledFold(2).split(X, np.arange(49) % 3))
    few = np.where(np.arange(50) < 3, 0.5, np.nan)
    with pytest.raises(ValueError, match="there are 3: choose n_splits from 2 to 3"):
        next(LabelledFold(5, targets="numbers").split(X, few))
    for count in (0, 1):
        few = np.where(np.arange(50) < count, 0.5, np.nan)
        with pytest.raises(ValueError, match=f"there are {count}: give more targets"):
            next(LabelledFold(5, targets="numbers").split(X, few))


def test_numbers_read_as_classes_name_the_option_that_reads_them(rng):
    X, _ = iris(rng)
    with pytest.raises(ValueError, match=r"continuous.*set targets='numbers'"):
        next(LabelledFold(2).split(X, np.linspace(0, 1, 50)))


def test_the_number_of_folds_may_be_one_of_numpy(rng):
    X, y = iris(rng, per_class=3)
    splitter = LabelledFold(np.int64(3))
    assert splitter.get_n_splits() == len(list(splitter.split(X, y))) == 3


# Targets that are numbers


def test_numbers_from_any_container():
    pd = pytest.importorskip("pandas")
    expected = [1.0, np.nan, 2.5]
    for y in (
        [1, None, 2.5],
        np.array([1, np.nan, 2.5]),
        pd.Series([1, None, 2.5]),
        pd.array([1.0, pd.NA, 2.5], dtype="Float64"),
        np.ma.array([1, 7, 2.5], mask=[False, True, False]),
    ):
        np.testing.assert_array_equal(read_numbers(y), expected)
    np.testing.assert_array_equal(read_numbers(np.arange(3)), [0, 1, 2])


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["cat", "dog"], "got texts.*For classes use ICSSLClassifier"),
        (np.array(["cat", "dog"]), "got texts"),
        ([True, False], "got booleans"),
        (np.array([True, False]), "got booleans"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "got times"),
        ([1.0, [2.0]], "a cell of type list"),
        ([1.0, np.inf], "infinity or a value too large: row 1"),
        ([1j, 2j], "[Cc]omplex"),
        (None, "requires y"),
    ],
    ids=str,
)
def test_targets_that_are_no_numbers(y, words):
    if isinstance(y, list):
        cells = np.empty(len(y), dtype=object)
        cells[:] = y
        y = cells
    with pytest.raises(ValueError, match=words):
        read_numbers(y)


def test_categories_are_no_numbers():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="got categories"):
        read_numbers(pd.Series([1, 2, 1], dtype="category"))
