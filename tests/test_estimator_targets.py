"""``ICSSLClassifier``: class shares, weights of labels, scores and decisions."""

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.datasets import load_iris

from helpers import F64, F64_DEEP, few_labels
from icssl import ICSSLClassifier
from icssl.classifier.class_shares import prior_for
from icssl.classifier.descent import descend
from icssl.classifier.label_weights import read_label_weights


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def iris(rng, per_class=2, classes=3):
    X, truth = load_iris(return_X_y=True)
    X, truth = X[truth < classes][::3], truth[truth < classes][::3]
    return X, truth, few_labels(truth, per_class, rng)


# Class shares


def test_shares_of_labels_have_one_label_more_each():
    shares = prior_for("labels", np.array([1.0, 1.0, 3.0]), np.arange(3))
    np.testing.assert_allclose(shares, np.array([2, 2, 4]) / 8, **F64)


def test_counts_of_labels_decide_if_asked_for_and_none_is_the_same(rng):
    X, _, y = iris(rng)
    y[np.flatnonzero(y == -1)[:2]] = 2
    counts = np.array([(y == c).sum() + 1 for c in range(3)])
    for prior in (None, "labels"):
        classifier = ICSSLClassifier(class_prior=prior).fit(X, y)
        np.testing.assert_allclose(classifier.class_prior_, counts / counts.sum(), **F64)


SHARES = {"a": 0.7, "b": 0.2, "c": 0.1}


def kinds_of_shares():
    yield [0.7, 0.2, 0.1]
    yield (0.7002, 0.2, 0.1)  # rounded shares, whose sum is nearly one
    yield SHARES
    yield dict(reversed(SHARES.items()))
    pd = pytest.importorskip("pandas")
    yield pd.Series(SHARES)[["c", "a", "b"]]  # in another order


def test_shares_by_place_and_by_class_are_the_same(rng):
    X, _, codes = iris(rng)
    y = np.array(["a", "b", "c", None], dtype=object)[codes]
    even = ICSSLClassifier(class_prior="uniform").fit(X, y).predict_proba(X)
    expected = even * list(SHARES.values())
    expected /= expected.sum(axis=1, keepdims=True)
    for prior in kinds_of_shares():
        classifier = ICSSLClassifier(class_prior=prior).fit(X, y)
        np.testing.assert_allclose(classifier.class_prior_, [0.7, 0.2, 0.1], rtol=1e-3)
        np.testing.assert_allclose(classifier.predict_proba(X), expected, rtol=1e-3)


def test_shares_of_classes_that_are_numbers_or_booleans():
    counts = np.ones(2)
    by_number = prior_for({5: 0.25, 3: 0.75}, counts, np.array([3, 5]))
    np.testing.assert_array_equal(by_number, [0.75, 0.25])
    by_truth = prior_for({True: 0.25, False: 0.75}, counts, np.array([False, True]))
    np.testing.assert_array_equal(by_truth, [0.75, 0.25])


POSITIVE = "positive number for each of the 3 classes"


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ([1, 1], POSITIVE),
        ([0.5, 0.5, 0], POSITIVE),
        ([1, 1, -1], POSITIVE),
        ([0.5, 0.5, np.nan], POSITIVE),
        (3.0, POSITIVE),
        (["x", "y", "z"], POSITIVE),
        ([[1], [2, 3]], POSITIVE),
        ({"a": 0.5, "b": 0.5, "c": "x"}, POSITIVE),
        ({"a": 0.5, "b": 0.5, "c": 0}, POSITIVE + ".*; .* a small share, such as 1e-6"),
        ({**SHARES, "d": 0.1, "e": 0.1}, "share for 'd', 'e', which are no classes"),
        ([8, 1, 1], "sum to one, and sum to 10"),
        ([0.3, 0.3, 0.3], r"sum to one, and sum to 0\.9:"),
        ([1e308, 1e308, 1e308], "sum to one, and sum to inf"),
        ({"a": 0.5, "b": 0.5}, "has no share for 'c': .* classes 'a', 'b', 'c'"),
        ({**SHARES, "d": 0.1}, "has a share for 'd', which is no class: .* 'a', 'b', 'c'"),
        ({"A": 0.5, "b": 0.3, "c": 0.2}, "no share for 'a' and has a share for 'A'"),
    ],
    ids=str,
)
def test_shares_that_cannot_be_used(rng, prior, words):
    X, _, codes = iris(rng)
    y = np.array(["a", "b", "c", None], dtype=object)[codes]
    with pytest.raises(ValueError, match=words):
        ICSSLClassifier(class_prior=prior).fit(X, y)


def test_a_series_with_two_shares_for_one_class():
    pd = pytest.importorskip("pandas")
    twice = pd.Series([0.5, 0.25, 0.25], index=["a", "b", "b"])
    with pytest.raises(ValueError, match="several shares for 'b'"):
        prior_for(twice, np.ones(2), np.array(["a", "b"], dtype=object))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_no_shares(library):
    module = pytest.importorskip(library)
    frame = module.DataFrame({"a": [0.5], "b": [0.5]})
    with pytest.raises(ValueError, match="positive number for each of the 2 classes"):
        prior_for(frame, np.ones(2), np.array(["a", "b"], dtype=object))


@pytest.mark.parametrize(
    ("classes", "names", "words"),
    [
        ([0, 1], ["0", "1"], "; the classes are whole numbers, not texts"),
        (["0", "1"], [0, 1], "; the classes are texts, not whole numbers"),
        ([False, True], ["False", "True"], "; the classes are booleans, not texts"),
    ],
)
def test_names_of_another_type_are_told_from_unknown_ones(classes, names, words):
    with pytest.raises(ValueError, match=words):
        prior_for(dict.fromkeys(names, 0.5), np.ones(2), np.array(classes))
    with pytest.raises(ValueError, match="which are no classes") as raised:
        prior_for({"x": 0.5, "y": 0.5}, np.ones(2), np.array(classes))
    assert "the classes are" not in str(raised.value)


# Weights of labels


def random_kernel(rng, m):
    points = rng.normal(size=(m, 3))
    return torch.as_tensor(points @ points.T + 1)[None]


def test_a_weight_of_two_is_a_label_twice(rng):
    """Every step of the descent is the same as with the row written down twice."""
    kernel, codes = random_kernel(rng, 6), torch.tensor([0, 1, 2, 0, 1, 0])
    target = torch.nn.functional.one_hot(codes).double()[None]
    weight = torch.tensor([[1.0, 2, 1, 3, 1, 1]]).double()
    copies = torch.arange(6).repeat_interleave(weight[0].long())
    valid = torch.ones(1, 6, dtype=torch.bool)
    for steps in (1, 5, 40):
        weighted = descend(kernel, target, valid, steps, weight)
        repeated = descend(
            kernel[:, copies][:, :, copies],
            target[:, copies],
            valid[:, copies],
            steps,
        )
        found = kernel @ weighted
        expected = kernel[:, :, copies] @ repeated
        torch.testing.assert_close(found, expected, **F64)


def test_weighted_descent_ends_where_the_weighted_loss_is_least(rng):
    """The reference is the gradient of the loss itself, by autograd."""
    kernel, codes = random_kernel(rng, 5), torch.tensor([0, 1, 1, 0, 1])
    target = torch.nn.functional.one_hot(codes).double()[None]
    weight = torch.tensor([[0.5, 1.5, 0.25, 2.0, 0.75]]).double()
    valid = torch.ones(1, 5, dtype=torch.bool)
    coefficients = descend(kernel, target, valid, 2000, weight).requires_grad_()
    by_class = torch.stack([weight[0, codes == c].sum() for c in (0, 1)])
    balanced = weight[0] / by_class[codes] * weight.sum() / 2
    logits = kernel @ coefficients
    losses = torch.nn.functional.cross_entropy(logits[0], codes, reduction="none")
    penalty = (coefficients * logits).sum() / 2
    loss = (balanced * losses).sum() + penalty
    (gradient,) = torch.autograd.grad(loss, coefficients)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 0.1, 7.0])
def test_equal_weights_are_no_weights_to_the_bit(rng, weight):
    X, _, y = iris(rng)
    plain = ICSSLClassifier().fit(X, y)
    weighted = ICSSLClassifier().fit(X, y, sample_weight=np.full(len(y), weight))
    np.testing.assert_array_equal(weighted.label_distributions_, plain.label_distributions_)


def test_ones_are_no_weights_to_the_bit(rng):
    kernel, codes = random_kernel(rng, 4), torch.tensor([0, 1, 2, 0])
    target = torch.nn.functional.one_hot(codes).double()[None]
    valid, ones = torch.ones(1, 4, dtype=torch.bool), torch.ones(1, 4).double()
    plain, weighted = (descend(kernel, target, valid, 9, w) for w in (None, ones))
    torch.testing.assert_close(weighted, plain, rtol=0, atol=0)


def test_only_ratios_of_weights_matter_and_those_of_unlabelled_rows_do_not(rng):
    X, _, y = iris(rng)
    weights = rng.uniform(0.5, 2, len(y))
    found = ICSSLClassifier().fit(X, y, weights)
    other = np.where(y == -1, np.nan, 1e300 * weights)
    again = ICSSLClassifier().fit(X, y, other)
    np.testing.assert_allclose(
        again.label_distributions_, found.label_distributions_, **F64_DEEP
    )
    plain = ICSSLClassifier().fit(X, y)
    apart = np.abs(plain.label_distributions_ - found.label_distributions_).max()
    assert apart > 1e-4


def test_weights_go_to_their_rows_whatever_the_order(rng):
    X, _, y = iris(rng)
    weights, order = rng.uniform(0.1, 3, len(y)), rng.permutation(len(y))
    found = ICSSLClassifier().fit(X, y, weights)
    again = ICSSLClassifier().fit(X[order], y[order], weights[order])
    np.testing.assert_allclose(
        again.label_distributions_, found.label_distributions_[order], **F64_DEEP
    )


def test_a_heavier_label_pulls_harder(rng):
    """Two labels that contradict each other at nearly the same place."""
    X = np.concatenate([rng.normal(size=(40, 2)), [[0.0, 0.0], [0.01, 0.0]]])
    y = np.array([-1] * 40 + [0, 1])
    y[:4] = 0, 1, 0, 1
    weights = np.ones(42)
    chances = []
    for heavy in (0.1, 1.0, 10.0):
        weights[41] = heavy
        classifier = ICSSLClassifier(class_prior="uniform").fit(X, y, weights)
        chances.append(classifier.predict_proba([[0.005, 0.0]])[0, 1])
    assert chances[0] < chances[1] < chances[2]


def test_a_label_of_weight_zero_is_none(rng):
    X, _, y = iris(rng)
    row = np.flatnonzero(y == 1)[0]
    weights, without = np.ones(len(y)), y.copy()
    weights[row], without[row] = 0, -1
    found = ICSSLClassifier().fit(X, y, weights)
    expected = ICSSLClassifier().fit(X, without)
    np.testing.assert_array_equal(found.transduction_, expected.transduction_)
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert row in found.suggest(int((without == -1).sum()))


def test_weights_count_in_the_class_prior(rng):
    X, _, y = iris(rng)
    weights = np.where(y == 2, 4.0, 1.0)
    found = ICSSLClassifier(class_prior="labels").fit(X, y, weights)
    counts = np.array([2, 2, 8]) / 2 + 1  # the mean weight is two
    np.testing.assert_allclose(found.class_prior_, counts / counts.sum(), **F64)


def test_devices_agree_with_weights(rng, device):
    X, _, y = iris(rng)
    weights = rng.uniform(0.5, 2, len(y))
    expected = ICSSLClassifier(device="cpu").fit(X, y, weights)
    found = ICSSLClassifier(device=device).fit(X, y, weights)
    np.testing.assert_allclose(
        found.label_distributions_, expected.label_distributions_, **F64_DEEP
    )


def test_a_given_graph_has_weights_too(rng):
    from sklearn.metrics.pairwise import rbf_kernel

    X, _, y = iris(rng)
    weights = np.where(y == 0, 1.0, 5.0)
    graph = rbf_kernel(X)
    plain = ICSSLClassifier(metric="precomputed").fit(graph, y)
    found = ICSSLClassifier(metric="precomputed").fit(graph, y, weights)
    assert np.abs(plain.predict_proba(graph) - found.predict_proba(graph)).max() > 1e-4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w, y: w[:-1], r"one number for each of the 50 rows, got .* \(49,\)"),
        (lambda w, y: w[:, None], r"shape \(50, 1\)"),
        (lambda w, y: 2.0, r"shape \(\)"),
        (lambda w, y: ["heavy"] * 50, "one number for each row, got list"),
        (lambda w, y: dict.fromkeys(range(50), 1.0), r"got dict: .*\[weight\[label\] for"),
        (lambda w, y: "balanced", "got str: give an array with one number per row"),
        (
            lambda w, y: np.where(y == 1, -1.0, w),
            r"not negative, got -1\.0 for row \d+.*; zero leaves a label out",
        ),
        (lambda w, y: np.where(y == 1, np.nan, w), r"must be finite .* got nan for row"),
        (lambda w, y: np.where(y == 1, np.inf, w), "must be finite .* got inf for row"),
        (
            lambda w, y: np.where(y == -1, w, 0),
            "zero for every row that has a target",
        ),
        (lambda w, y: np.where(y == 1, 0, w), "zero for every label of 1:"),
    ],
    ids=[
        "short",
        "2-d",
        "scalar",
        "texts",
        "dict",
        "text",
        "negative",
        "nan",
        "inf",
        "zero",
        "class",
    ],
)
def test_weights_that_cannot_be_used(rng, change, words):
    X, _, y = iris(rng)
    with pytest.raises(ValueError, match=words):
        ICSSLClassifier().fit(X, y, change(np.ones(50), y))


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e308])
def test_weights_of_any_size_become_ratios(size):
    labelled = np.array([True, True, False, True])
    given = size * np.array([1.0, 0.5, 1.0, 0.0])
    expected = [4 / 3, 2 / 3, 0, 0]
    np.testing.assert_allclose(read_label_weights(given, labelled), expected, **F64)


# Labels of all rows, decisions and scores


def test_fit_predict_gives_the_label_of_every_row(rng):
    X, _, y = iris(rng)
    weights = rng.uniform(0.5, 2, len(y))
    found = ICSSLClassifier().fit_predict(X, y, weights)
    expected = ICSSLClassifier().fit(X, y, weights).transduction_
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_decisions_are_logits_of_the_probabilities(rng, classes):
    X, _, y = iris(rng, classes=classes)
    prior = [0.2, 0.8] if classes == 2 else [0.2, 0.3, 0.5]
    classifier = ICSSLClassifier(class_prior=prior).fit(X, y)
    decisions, p = classifier.decision_function(X), classifier.predict_proba(X)
    if classes == 2:
        assert decisions.shape == (len(X),)
        np.testing.assert_allclose(expit(decisions), p[:, 1], **F64)
        chosen = (decisions > 0).astype(int)
    else:
        np.testing.assert_allclose(softmax(decisions, axis=1), p, **F64)
        explanation = classifier.explain(X)
        logits = explanation.parts.sum(axis=1) + explanation.base
        np.testing.assert_allclose(decisions, logits, **F64_DEEP)
        chosen = decisions.argmax(axis=1)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[chosen])


def test_score_is_the_accuracy_on_rows_with_a_label(rng):
    X, truth, y = iris(rng)
    classifier = ICSSLClassifier().fit(X, y)
    right = classifier.predict(X) == truth
    assert classifier.score(X, truth) == right.mean()
    weights, some = rng.uniform(size=50), np.arange(50) % 3 == 0
    expected = np.average(right, weights=weights)
    assert classifier.score(X, truth, weights) == pytest.approx(expected)
    partly = np.where(some, truth, -1)
    with pytest.warns(UserWarning, match="leaves out 33 of 50 rows"):
        assert classifier.score(X, partly) == right[some].mean()
    expected = np.average(right[some], weights=weights[some])
    with pytest.warns(UserWarning, match="leaves out 33 of 50 rows"):
        assert classifier.score(X, partly, weights) == pytest.approx(expected)


@pytest.mark.parametrize("mark", [None, float("nan")], ids=repr)
def test_score_of_texts_frames_and_other_marks(rng, mark):
    pd = pytest.importorskip("pandas")
    X, truth, codes = iris(rng)
    names = np.array(["a", "b", "c"], dtype=object)
    frame = pd.DataFrame(X, columns=["k", "l", "m", "n"])
    y = pd.Series([mark if code < 0 else names[code] for code in codes])
    classifier = ICSSLClassifier().fit(frame, y)
    right = classifier.predict(frame) == names[truth]
    some = np.arange(50) < 20
    partly = pd.Series(np.where(some, names[truth], mark), dtype=object)
    with pytest.warns(UserWarning, match="leaves out 30 of 50 rows"):
        assert classifier.score(frame, partly) == right[some].mean()


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.full(50, -1.0), "must be finite and not negative, got -1.0 for row 0"),
        (np.zeros(50), "zero for every row that has a target"),
        (np.full(50, np.nan), "must be finite"),
        ("balanced", "got str: give an array"),
        (np.ones(49), "one number for each of the 50 rows"),
    ],
    ids=["negative", "zero", "nan", "text", "short"],
)
def test_weights_of_scores_are_checked_as_those_of_fit(rng, weights, words):
    X, truth, y = iris(rng)
    classifier = ICSSLClassifier().fit(X, y)
    with pytest.raises(ValueError, match=words):
        classifier.score(X, truth, weights)


def test_weights_of_rows_without_a_label_do_not_matter_to_a_score(rng):
    X, truth, y = iris(rng)
    classifier, some = ICSSLClassifier().fit(X, y), np.arange(50) % 3 == 0
    right, weights = classifier.predict(X) == truth, rng.uniform(size=50)
    expected = np.average(right[some], weights=weights[some])
    weights[~some] = np.nan
    with pytest.warns(UserWarning, match="leaves out 33 of 50 rows"):
        found = classifier.score(X, np.where(some, truth, -1), weights)
    assert found == pytest.approx(expected)


def test_score_of_one_class_and_of_classes_never_seen(rng):
    X, truth, y = iris(rng)
    classifier = ICSSLClassifier().fit(X, y)
    ones = truth == 1
    expected = (classifier.predict(X[ones]) == 1).mean()
    assert classifier.score(X[ones], truth[ones]) == expected
    assert classifier.score(X, truth + 7) == 0


def test_score_needs_a_label(rng):
    X, _, y = iris(rng)
    classifier = ICSSLClassifier().fit(X, y)
    with pytest.raises(ValueError, match="none of the 50 rows has one"):
        classifier.score(X, np.full(50, -1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.score(X, y[:-1])
