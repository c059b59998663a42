"""Mistakes that used to give a wrong answer without a word."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from icssl import ICSSLClassifier, LabelledFold


def narrow_and_informative(deviations, *, seed):
    """The first column tells the classes, and is the narrowest."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, 400)
    x = rng.normal(size=(400, len(deviations)))
    x[:, 0] = 0.4 * x[:, 0] + 1.6 * (truth - 0.5)
    y = np.full(400, -1)
    for c in (0, 1):
        y[rng.choice(np.flatnonzero(truth == c), 5, replace=False)] = c
    return x * deviations, truth, y


@pytest.mark.parametrize("deviations", [(1, 50), (1, 10), (1, 1, 50, 50), (1, 60, 60, 60)])
def test_one_view_does_not_lose_a_narrow_column_that_tells_the_classes(deviations):
    """A common scale would leave the wide noise alone: about one half would be right."""
    right = []
    for seed in range(6):
        x, truth, y = narrow_and_informative(np.array(deviations, float), seed=seed)
        found = ICSSLClassifier("one view").fit(x, y)
        assert found.geometry_["common"] == 0
        right.append((found.transduction_ == truth)[y < 0].mean())
        labelled = y >= 0
        column = x[:, :1] / deviations[0]
        line = LogisticRegression().fit(column[labelled], y[labelled])
        assert (line.predict(column) == truth).mean() > 0.9  # this column tells the classes
    assert np.mean(right) > 0.8


def test_many_columns_of_one_unit_may_have_narrow_ones_among_them():
    rng = np.random.default_rng(0)
    widths = np.r_[0.01, 0.1, np.linspace(1, 3, 30)]  # as pixels at a border
    x = rng.normal(size=(60, 32)) * widths
    x[:30, 2:] += 4
    y = np.full(60, -1)
    y[0], y[59] = 0, 1
    assert ICSSLClassifier("one view").fit(x, y).geometry_["each"] == 0


def iris():
    X, truth = load_iris(return_X_y=True)
    y = np.full(150, -1)
    y[::10] = truth[::10]
    return X, truth, y


def test_targets_of_another_type_have_no_score():
    X, truth, y = iris()
    classifier = ICSSLClassifier().fit(X, y)
    with pytest.raises(
        ValueError, match=r"it got '0', '1', '2', and the classes are 0, 1, 2"
    ):
        classifier.score(X, truth.astype(str))
    # Classes of the same type that are not known are wrong, and no error.
    other = np.where(truth == 2, 9, truth)
    assert 0.4 < classifier.score(X, other) < 0.7


def test_parameters_that_are_set_after_fit_do_not_change_the_label_score():
    X, _, y = iris()
    before = ICSSLClassifier().fit(X, y).label_score_
    classifier = ICSSLClassifier().fit(X, y)
    classifier.set_params(metric="precomputed", class_prior="nonsense")
    assert classifier.label_score_ == before


def test_folds_of_numbers_say_what_to_give():
    X = np.arange(40.0)[:, None]
    with pytest.raises(ValueError, match="give targets='numbers'"):
        list(LabelledFold(3).split(X, np.arange(40)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        list(LabelledFold(3).split(X, [0, 1]))
