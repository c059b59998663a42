"""Scales of columns and shares of classes, as a user of the classifier has them.

What is tested here holds for any weights of the gate.
"""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler

from helpers import F64_DEEP, SAME, few_labels
from icssl import ICSSLClassifier, ICSSLRegressor
from icssl.classifier.gate import HEADS

SCALES = ["auto", "each", "common"]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def iris(rng, per_class=3, rows=60):
    """Some flowers, with columns of one unit and different spreads, and few labels."""
    X, truth = load_iris(return_X_y=True)
    chosen = rng.permutation(150)[:rows]
    return X[chosen], few_labels(truth[chosen], per_class, rng)


# Scales of columns


@pytest.mark.parametrize("column_scale", SCALES)
@pytest.mark.parametrize("model", ["all views", "one view"])
def test_geometry_says_what_was_used_and_with_what_weight(rng, column_scale, model):
    X, y = iris(rng)
    found = ICSSLClassifier(model, column_scale=column_scale).fit(X, y).geometry_
    assert tuple(found) == HEADS
    assert sum(found.values()) == pytest.approx(1)
    assert found["linear"] > 0
    # One view takes the geometry that the spreads of the columns suggest.
    in_common = column_scale == "common" or (model == "one view" and column_scale == "auto")
    assert (found["each"] == 0) is in_common
    assert (found["common"] == 0) is (column_scale == "each")


def test_columns_that_were_standardised_are_read_in_their_own_scale_alone(rng):
    X, y = iris(rng)
    scaled = StandardScaler().fit_transform(X)
    found = ICSSLClassifier().fit(scaled, y)
    assert found.geometry_["common"] == 0
    asked = ICSSLClassifier(column_scale="each").fit(scaled, y)
    np.testing.assert_allclose(
        found.label_distributions_, asked.label_distributions_, **F64_DEEP
    )


def test_a_common_scale_keeps_what_each_scale_loses(rng):
    """The wide column tells classes; scaled by themselves, nine of noise drown it."""
    truth = np.arange(120) % 2
    X = rng.normal(size=(120, 10))
    X[:, 0] = 8 * (truth - 0.5) + X[:, 0]
    y = few_labels(truth, 2, rng)
    hidden = y == -1
    accuracy = {
        scale: (ICSSLClassifier(column_scale=scale).fit(X, y).transduction_ == truth)[
            hidden
        ].mean()
        for scale in ("each", "common")
    }
    assert accuracy["common"] == 1
    assert accuracy["each"] < accuracy["common"]


@pytest.mark.parametrize("column_scale", SCALES)
def test_new_rows_are_read_in_the_scale_of_the_table(rng, column_scale):
    """A row of the table comes out as it is there, but for its place in the graphs."""
    X, y = iris(rng)
    found = ICSSLClassifier(column_scale=column_scale).fit(X, y)
    hidden = y == -1
    own, new = found.label_distributions_[hidden], found.predict_proba(X[hidden])
    assert (own.argmax(axis=1) == new.argmax(axis=1)).mean() > 0.9
    assert np.abs(own - new).mean() < 0.05


@pytest.mark.parametrize("estimator", [ICSSLClassifier, ICSSLRegressor])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("comon", "unknown column_scale 'comon': .*'common', 'each'.*mean 'common'"),
        ("standard", "unknown column_scale 'standard': choose one of 'auto'"),
        (None, "unknown column_scale None: choose one of 'auto', 'common', 'each'"),
        (["each"], r"unknown column_scale \['each'\]"),
    ],
)
def test_another_scale_is_refused_by_name(rng, estimator, given, words):
    X = rng.normal(size=(12, 2))
    y = [0, 1] + [-1 if estimator is ICSSLClassifier else np.nan] * 10
    with pytest.raises(ValueError, match=words):
        estimator(column_scale=given).fit(X, y)


def test_a_graph_that_was_given_has_one_geometry(rng):
    X, y = iris(rng)
    found = ICSSLClassifier(metric="precomputed").fit(rbf_kernel(X), y)
    assert found.geometry_ == {"each": 1.0, "common": 0.0, "linear": 0.0}


def test_a_table_of_categories_alone_has_no_units(rng):
    X = rng.choice(["a", "b", "c"], size=(40, 4)).astype(object)
    y = np.full(40, -1)
    y[:4] = 0, 1, 0, 1
    for column_scale in SCALES:
        found = ICSSLClassifier(column_scale=column_scale).fit(X, y)
        assert np.isfinite(found.label_distributions_).all()
        assert sum(found.geometry_.values()) == pytest.approx(1)
    assert ICSSLClassifier().fit(X, y).geometry_["common"] == 0


@pytest.mark.parametrize("column_scale", SCALES)
def test_signs_and_order_do_not_matter_in_any_scale(rng, column_scale):
    """Of columns that were standardised too, whose factors are one but for rounding."""
    X, y = iris(rng)
    for table in (X, StandardScaler().fit_transform(X)):
        classifier = ICSSLClassifier(column_scale=column_scale)
        expected = classifier.fit(table, y).label_distributions_
        flipped = classifier.fit(table * [-1, 1, -1, 1], y)
        found = flipped.label_distributions_
        np.testing.assert_allclose(found, expected, rtol=0, atol=SAME)
        rows, columns = rng.permutation(len(X)), rng.permutation(4)
        classes = rng.permutation(3)
        moved = classifier.fit(table[rows][:, columns], np.append(classes, -1)[y][rows])
        found = moved.label_distributions_[:, classes]
        np.testing.assert_allclose(found, expected[rows], rtol=0, atol=SAME)


# Shares of classes


def test_shares_are_estimated_by_default(rng):
    X, y = iris(rng)
    found = ICSSLClassifier().fit(X, y)
    asked = ICSSLClassifier(class_prior="estimate").fit(X, y)
    np.testing.assert_array_equal(found.class_prior_, asked.class_prior_)
    assert found.class_prior_.sum() == pytest.approx(1)
    assert (found.class_prior_ > 0).all()
    given = ICSSLClassifier(class_prior=found.class_prior_).fit(X, y)
    np.testing.assert_allclose(given.predict_proba(X), found.predict_proba(X), **F64_DEEP)


def test_estimated_shares_are_nearer_to_those_of_uneven_classes_than_equal_ones(rng):
    """Two blobs far apart, a tenth of the rows in one, and five labels of each."""
    truth = (np.arange(200) < 20).astype(int)
    X = 12 * truth[:, None] + rng.normal(size=(200, 2))
    y = few_labels(truth, 5, rng)
    found = ICSSLClassifier().fit(X, y).class_prior_
    equal = ICSSLClassifier(class_prior="labels").fit(X, y).class_prior_
    np.testing.assert_allclose(equal, [0.5, 0.5])
    assert 0.05 < found[1] < 0.4


def test_shares_follow_the_names_of_classes(rng):
    X, y = iris(rng)
    plain = ICSSLClassifier().fit(X, y)
    named = ICSSLClassifier().fit(X, np.append([2, 0, 1], -1)[y])
    np.testing.assert_allclose(
        named.class_prior_[[2, 0, 1]], plain.class_prior_, **F64_DEEP
    )


def test_weights_of_labels_count_in_estimated_shares(rng):
    X, y = iris(rng)
    plain = ICSSLClassifier().fit(X, y).class_prior_
    heavy = ICSSLClassifier().fit(X, y, np.where(y == 2, 50.0, 1.0)).class_prior_
    assert heavy[2] > plain[2]


@pytest.mark.parametrize("column_scale", SCALES)
def test_a_row_far_from_everything_has_the_estimated_shares(rng, column_scale):
    X, y = iris(rng, rows=150)
    found = ICSSLClassifier(column_scale=column_scale).fit(X, y)
    far = 1e4 * rng.choice([-1.0, 1.0], size=(20, 4))
    expected = np.tile(found.class_prior_, (20, 1))
    np.testing.assert_allclose(found.predict_proba(far), expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("column_scale", SCALES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_explanation_sums_to_the_logits_exactly(rng, column_scale, n_classes):
    X, y = iris(rng)
    y = np.where(y >= n_classes, -1, y)
    found = ICSSLClassifier(column_scale=column_scale).fit(X, y)
    parts, base = found.explain(X)
    assert parts.shape == (60, 3 * n_classes, n_classes)
    np.testing.assert_array_equal(base, np.tile(np.log(found.class_prior_), (60, 1)))
    logits = parts.sum(axis=1) + base
    expected = logits[:, 1] - logits[:, 0] if n_classes == 2 else logits
    np.testing.assert_allclose(found.decision_function(X), expected, **F64_DEEP)
    np.testing.assert_allclose(found.predict_proba(X), softmax(logits, axis=1), **F64_DEEP)
