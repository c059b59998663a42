"""``ICSSLRegressor``, and kernel ridge regression in closed form."""

import json
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_swiss_roll
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import F64, F64_DEEP
from icssl import ICSSLRegressor, LabelledFold
from icssl.classifier.kernels import KERNELS
from icssl.classifier.ridge import (
    PENALTIES,
    RidgeSystem,
    log_likelihoods,
    solve_ridge,
    weigh_kernels,
)
from regressor import main as run_benchmark

ROWS_STAY = "a row of weight zero stays in the table, and repeated rows change the graph"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": ROWS_STAY,
    "check_sample_weight_equivalence_on_sparse_data": ROWS_STAY,
}


@parametrize_with_checks(
    [ICSSLRegressor()], expected_failed_checks=lambda _: EXPECTED_FAILURES
)
def test_common_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# Ridge regression

CONDITION = {"rtol": 1e-6, "atol": 1e-7}  # float64, where the least penalty is 0.003


def solve(kernel, target, weight, penalty):
    """Return coefficients and constant, from the equations that define them."""
    m = len(target)
    left = np.ones((m + 1, m + 1))
    left[:m, :m] = kernel + penalty * np.diag(1 / weight)
    left[m, m] = 0
    solution = np.linalg.solve(left, np.append(target, 0))
    return solution[:m], solution[m]


@pytest.fixture
def problem(rng):
    """Two kernels, targets, and weights of mean one."""
    points = rng.normal(size=(9, 3))
    kernels = np.stack([points @ points.T + 2, rbf_kernel(points)])
    weight = rng.uniform(0.3, 2, 9)
    return kernels, rng.normal(size=9) + 5, weight / weight.mean()


def test_coefficients_solve_the_equations(problem):
    kernels, target, weight = problem
    penalties = torch.tensor(PENALTIES).double()
    system = RidgeSystem.of_kernels(torch.tensor(kernels), torch.tensor(weight))
    found = system.coefficients(torch.tensor(target), penalties)
    for e in range(2):
        for p, penalty in enumerate(PENALTIES):
            expected, _ = solve(kernels[e], target, weight, penalty)
            np.testing.assert_allclose(found[e, p], expected, **CONDITION)


def test_one_regression_is_solved_without_eigenvectors(problem):
    kernels, target, weight = problem
    for penalty in PENALTIES:
        given = map(torch.tensor, (kernels[0], target, weight))
        coefficients, constant = solve_ridge(*given, penalty)
        expected, expected_constant = solve(kernels[0], target, weight, penalty)
        np.testing.assert_allclose(coefficients, expected, **CONDITION)
        assert constant == pytest.approx(expected_constant, rel=1e-6)


def test_equal_weights_are_kernel_ridge_of_scikit_learn_on_a_centred_kernel(problem):
    kernels, target, _ = problem
    centring = np.eye(9) - 1 / 9
    kernel = centring @ kernels[1] @ centring
    system = RidgeSystem.of_kernels(torch.tensor(kernels[1:]), torch.ones(9).double())
    found = system.coefficients(torch.tensor(target), torch.tensor([0.3]).double())
    expected = KernelRidge(alpha=0.3, kernel="precomputed").fit(
        kernel, target - target.mean()
    )
    np.testing.assert_allclose(found[0, 0], expected.dual_coef_, **F64_DEEP)


def test_residuals_are_those_of_regressions_without_the_row(problem):
    kernels, target, weight = problem
    penalties = torch.tensor(PENALTIES).double()
    system = RidgeSystem.of_kernels(torch.tensor(kernels), torch.tensor(weight))
    found = system.residuals(torch.tensor(target), penalties).numpy()
    for e in range(2):
        for p, penalty in enumerate(PENALTIES):
            for row in range(9):
                rest = np.delete(np.arange(9), row)
                kernel = kernels[e][np.ix_(rest, rest)]
                a, constant = solve(kernel, target[rest], weight[rest], penalty)
                expected = target[row] - kernels[e][row, rest] @ a - constant
                np.testing.assert_allclose(found[e, p, row], expected, **CONDITION)


def test_kernels_are_centred_by_any_weights(problem, rng):
    """A kernel that is centred over other rows is as good."""
    kernels, target, weight = problem
    shift = rng.normal(size=9)
    penalties = torch.tensor(PENALTIES).double()
    plain, shifted = (
        RidgeSystem.of_kernels(torch.tensor(gram), torch.tensor(weight)).residuals(
            torch.tensor(target), penalties
        )
        for gram in (kernels, kernels - shift)  # from every column its own number
    )
    torch.testing.assert_close(shifted, plain, **F64_DEEP)


def test_likelihoods_do_not_depend_on_the_unit_of_the_targets(problem):
    kernels, target, weight = problem
    system = RidgeSystem.of_kernels(torch.tensor(kernels), torch.tensor(weight))
    penalties = torch.tensor(PENALTIES).double()
    plain, scaled = (
        log_likelihoods(system, torch.tensor(t), penalties)
        for t in (target, 1000 * target - 7)
    )
    torch.testing.assert_close(scaled, plain, **F64_DEEP)


def test_alike_kernels_share_the_weight_of_their_group():
    scores = torch.zeros(len(KERNELS), len(PENALTIES)).double()
    weights = dict(zip(map(str, KERNELS), weigh_kernels(KERNELS, scores), strict=True))
    # Three kinds in each of seven graphs: linear, four of coordinates, five of diffusion.
    # The two sharper graphs have diffusion alone.
    groups = 3 * 7 + 2
    expected = {"raw.linear": 1, "raw.cosine": 1 / 4, "raw.steps2": 1 / 5}
    expected |= {"raw6.steps2": 1 / 5, "common half.linear": 1, "ranks.absolute": 1 / 5}
    for name, share in expected.items():
        assert float(weights[name]) == pytest.approx(share / groups)
    scores[3] += 4.0
    sharper = weigh_kernels(KERNELS, scores)
    assert sharper[3] / sharper[2] == pytest.approx(np.exp(2))
    assert float(sharper.sum()) == pytest.approx(1)


# The regressor


def roll(rng, n=150, known=20):
    X, position = make_swiss_roll(n, random_state=int(rng.integers(1000)))
    y = np.full(n, np.nan)
    rows = rng.choice(n, known, replace=False)
    y[rows] = position[rows]
    return X, position, y


def test_attributes_fit_together(rng):
    X, _, y = roll(rng)
    regressor = ICSSLRegressor().fit(X, y)
    known = np.isfinite(y)
    np.testing.assert_array_equal(regressor.transduction_[known], y[known])
    assert np.isfinite(regressor.transduction_).all()
    assert regressor.predict(X).shape == (150,)
    assert ((regressor.reach_ >= 0) & (regressor.reach_ <= 1)).all()
    assert regressor.transform(X).shape == regressor.embedding_.shape
    assert regressor.penalty_ in PENALTIES
    # The axes of a roll are about as wide as each other: a common scale would be the same.
    names = [str(kernel) for kernel in KERNELS if kernel.graph.geometry == "each"]
    assert list(regressor.kernel_weights_) == names
    assert sum(regressor.kernel_weights_.values()) == pytest.approx(1)
    stretched = ICSSLRegressor().fit(X * [1.0, 1.0, 3.0], y)
    assert list(stretched.kernel_weights_) == list(map(str, KERNELS))
    np.testing.assert_array_equal(
        ICSSLRegressor().fit_predict(X, y), regressor.transduction_
    )


def test_predictions_solve_the_ridge_equations_in_the_mixture(rng):
    """Rows of fit, by the kernels that were used, and by nothing else of the head."""
    X, _, y = roll(rng)
    regressor = ICSSLRegressor().fit(X, y)
    fitted = regressor._fitted
    values, centred = fitted.centred.context, fitted.centred
    kernels = ((values.kernels - centred.centre) / centred.trace)[0].numpy()
    weights = list(regressor.kernel_weights_.values())
    mixed = np.einsum("e,enm->nm", weights, kernels)
    rows = regressor._order.rows
    places = np.flatnonzero(np.isfinite(y[rows]))  # of the labelled rows, in that order
    a, constant = solve(
        mixed[places], y[rows][places], np.ones(len(places)), regressor.penalty_
    )
    contact = np.minimum(values.contact[0].numpy() / 1e-9, 1)
    mean = y[rows][places].mean()
    expected = mean + contact * (mixed @ a + constant - mean)
    hidden = np.isnan(y[rows])
    found = regressor.transduction_[rows][hidden]
    np.testing.assert_allclose(found, expected[hidden], rtol=1e-6)


def test_targets_in_other_units_give_the_same(rng):
    X, _, y = roll(rng)
    plain = ICSSLRegressor().fit(X, y).predict(X)
    for factor, shift in ((1e-6, 0.0), (-1e4, 3.0), (1e300, 0.0)):
        found = ICSSLRegressor().fit(X, factor * y + shift).predict(X)
        np.testing.assert_allclose(found / factor - shift / factor, plain, rtol=1e-6)


def test_order_of_rows_and_columns_does_not_matter(rng):
    X, _, y = roll(rng)
    order, columns = rng.permutation(150), [2, 0, 1]
    plain = ICSSLRegressor().fit(X, y)
    shuffled = ICSSLRegressor().fit(X[order][:, columns], y[order])
    np.testing.assert_allclose(
        shuffled.transduction_, plain.transduction_[order], **F64_DEEP
    )


def test_a_new_row_does_not_depend_on_those_beside_it(rng):
    X, _, y = roll(rng)
    regressor = ICSSLRegressor().fit(X, y)
    new = X[:5] + 0.1
    alone = [regressor.predict(row[None])[0] for row in new]
    np.testing.assert_allclose(regressor.predict(new), alone, **F64_DEEP)


def test_a_row_far_from_everything_has_the_mean_target(rng):
    X, _, y = roll(rng)
    weights = rng.uniform(0.5, 2, 150)
    far = 1e4 * rng.choice([-1.0, 1.0], size=(10, 3))
    known = np.isfinite(y)
    for weight in (None, weights):
        regressor = ICSSLRegressor().fit(X, y, weight)
        mean = np.average(y[known], weights=None if weight is None else weight[known])
        np.testing.assert_allclose(regressor.predict(far), mean, rtol=1e-6)
        assert regressor.predict_reach(far).max() < 0.01


def test_a_linear_function_is_found(rng):
    X = rng.normal(size=(200, 4))
    truth = X @ [3.0, -2.0, 0.0, 1.0] + 10
    y = np.where(np.arange(200) < 30, truth, np.nan)
    regressor = ICSSLRegressor().fit(X, y)
    assert r2_score(truth[30:], regressor.transduction_[30:]) > 0.95
    linear = sum(
        weight
        for name, weight in regressor.kernel_weights_.items()
        if name.endswith(".linear")
    )
    assert linear > 0.5


def test_rows_without_a_target_help_on_a_curve(rng):
    """The references see the rows with a target only."""
    ours, alone, nearest = [], [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, position, y = roll(rng, n=300, known=12)
        known = np.isfinite(y)
        regressor = ICSSLRegressor().fit(X, y)
        ours.append(r2_score(position[~known], regressor.transduction_[~known]))
        few = ICSSLRegressor().fit(X[known], y[known])
        alone.append(r2_score(position[~known], few.predict(X[~known])))
        peer = KNeighborsRegressor(2).fit(X[known], y[known])
        nearest.append(r2_score(position[~known], peer.predict(X[~known])))
    assert np.mean(ours) > np.mean(alone) + 0.1, (ours, alone)
    assert np.mean(ours) > np.mean(nearest) + 0.1, (ours, nearest)


def test_constant_targets_are_predicted_everywhere(rng):
    X = rng.normal(size=(30, 3))
    y = np.where(np.arange(30) < 5, 7.0, np.nan)
    np.testing.assert_allclose(ICSSLRegressor().fit(X, y).predict(X), 7.0, **F64)


@pytest.mark.parametrize("rows", [2, 3, 60])
def test_two_targets_are_enough(rng, rows):
    X, y = rng.normal(size=(rows, 2)), np.full(rows, np.nan)
    y[:2] = 1.0, 2.0
    regressor = ICSSLRegressor().fit(X, y)
    assert np.isfinite(regressor.transduction_).all()
    assert np.isfinite(regressor.predict(X)).all()


def test_equal_weights_are_none_and_weights_count(rng):
    X, _, y = roll(rng)
    plain = ICSSLRegressor().fit(X, y).predict(X)
    equal = ICSSLRegressor().fit(X, y, np.full(150, 3.0)).predict(X)
    np.testing.assert_array_equal(equal, plain)
    weights = rng.uniform(0.1, 2, 150)
    weighted = ICSSLRegressor().fit(X, y, weights).predict(X)
    assert np.abs(weighted - plain).max() > 1e-3
    order = rng.permutation(150)
    again = ICSSLRegressor().fit(X[order], y[order], weights[order]).predict(X)
    np.testing.assert_allclose(again, weighted, **F64_DEEP)


def test_a_target_of_weight_zero_is_none(rng):
    X, _, y = roll(rng)
    row = np.flatnonzero(np.isfinite(y))[0]
    weights, without = np.ones(150), y.copy()
    weights[row], without[row] = 0, np.nan
    found = ICSSLRegressor().fit(X, y, weights)
    expected = ICSSLRegressor().fit(X, without)
    np.testing.assert_array_equal(found.transduction_, expected.transduction_)


def test_more_targets_than_are_read_for_the_weights(rng):
    """Above 256 targets the kernels are weighed by some of them; all are fitted."""
    X = rng.uniform(-2, 2, size=(700, 2))
    truth = np.sin(2 * X[:, 0]) + X[:, 1]
    y = np.where(np.arange(700) < 600, truth, np.nan)
    regressor = ICSSLRegressor().fit(X, y)
    assert r2_score(truth[600:], regressor.transduction_[600:]) > 0.98


def test_devices_agree(rng, device):
    X, _, y = roll(rng)
    weights = rng.uniform(0.5, 2, 150)
    expected = ICSSLRegressor(device="cpu").fit(X, y, weights)
    found = ICSSLRegressor(device=device).fit(X, y, weights)
    np.testing.assert_allclose(found.transduction_, expected.transduction_, rtol=1e-6)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-6)


def test_a_given_graph(rng):
    X, position, y = roll(rng, n=300, known=40)
    graph = rbf_kernel(X, gamma=0.1)
    regressor = ICSSLRegressor(metric="precomputed").fit(graph, y)
    known = np.isfinite(y)
    assert r2_score(position[~known], regressor.transduction_[~known]) > 0.8
    assert regressor.predict(graph[:5]).shape == (5,)
    thin = ICSSLRegressor(metric="precomputed").fit(sparse.csr_matrix(graph), y)
    np.testing.assert_allclose(thin.transduction_, regressor.transduction_)
    nothing = regressor.predict(np.zeros((1, 300)))
    np.testing.assert_allclose(nothing, y[known].mean())


def test_frames_categories_and_missing_cells(rng):
    pd = pytest.importorskip("pandas")
    X, position, y = roll(rng)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = np.where(position > 9, "outer", "inner")
    frame.loc[3:9, "kind"] = None
    frame.loc[5:20, "b"] = np.nan
    regressor = ICSSLRegressor().fit(frame, pd.Series(y))
    assert np.isfinite(regressor.predict(frame)).all()
    assert regressor.feature_names_in_.tolist() == ["a", "b", "c", "kind"]


# Scores and other company


def test_score_is_r2_on_rows_with_a_target(rng):
    X, position, y = roll(rng)
    regressor = ICSSLRegressor().fit(X, y)
    predicted = regressor.predict(X)
    assert regressor.score(X, position) == r2_score(position, predicted)
    some = np.arange(150) < 40
    partly = np.where(some, position, np.nan)
    with pytest.warns(UserWarning, match="leaves out 110 of 150 rows"):
        found = regressor.score(X, partly)
    # Rows are predicted by themselves, but sums over more rows are rounded otherwise.
    assert found == pytest.approx(r2_score(position[some], predicted[some]), rel=1e-12)
    with pytest.raises(ValueError, match="none of the 150 rows has one"):
        regressor.score(X, np.full(150, np.nan))


def test_pickle_clone_pipeline_and_cross_validation(rng):
    X, _, y = roll(rng)
    regressor = ICSSLRegressor().fit(X, y)
    again = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))
    with pytest.raises(NotFittedError):
        clone(regressor).predict(X)
    pipeline = make_pipeline(StandardScaler(), ICSSLRegressor()).fit(X, y)
    np.testing.assert_allclose(pipeline.predict(X), regressor.predict(X), **F64_DEEP)
    folds = LabelledFold(4, targets="numbers")
    assert np.isfinite(cross_val_score(ICSSLRegressor(), X, y, cv=folds)).all()
    grid = {"model": ["all views", "one view"]}
    search = GridSearchCV(ICSSLRegressor(), grid, cv=folds).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["a", "b"] * 10, "got texts. For classes use ICSSLClassifier"),
        ([True, False] * 10, "got booleans"),
        ([1.0] + [np.nan] * 19, "y has 1 known target in 20 rows, and at least 2"),
        ([np.nan] * 20, "y has 0 known targets in 20 rows"),
        ([1.0, 2.0], "inconsistent numbers of samples"),
        ([1.0, np.inf] * 10, "infinity"),
    ],
    ids=["texts", "booleans", "one", "none", "length", "infinite"],
)
def test_targets_that_cannot_be_used(rng, y, words):
    with pytest.raises(ValueError, match=words):
        ICSSLRegressor().fit(rng.normal(size=(20, 2)), np.array(y))


def test_options_that_cannot_be_used(rng):
    X, position, y = roll(rng)
    with pytest.raises(ValueError, match="'all views', 'auto', 'main views', 'one view'"):
        ICSSLRegressor(model="weights.safetensors").fit(X, y)
    with pytest.raises(ValueError, match="'columns', 'precomputed'"):
        ICSSLRegressor(metric="rbf").fit(X, y)
    with pytest.raises(ValueError, match="not negative, got -1"):
        ICSSLRegressor().fit(X, y, np.full(150, -1.0))
    with pytest.raises(ValueError, match="zero for every row that has a target") as raised:
        ICSSLRegressor().fit(X, y, np.zeros(150))
    assert "class" not in str(raised.value)
    regressor = ICSSLRegressor().fit(X, y)
    with pytest.raises(ValueError, match="zero for every row that has a target"):
        regressor.score(X, position, np.zeros(150))


@pytest.mark.parametrize(
    ("y", "warns"),
    [
        ([1.0, 0.0, 2.0, *[-1.0] * 17], True),
        ([1.0, 0.0, *[-1.0] * 3, *[np.nan] * 15], True),
        ([1.0, 0.0, *[-1.0] * 2, *[np.nan] * 16], False),  # half of them
        ([0.5, 0.0, 2.0, *[-1.0] * 17], False),
        ([-2.0, 0.0, 2.0, *[-1.0] * 17], False),
    ],
    ids=["most", "most of the given", "half", "fractions", "less"],
)
def test_minus_one_as_most_of_the_targets_is_warned_of(rng, y, warns):
    X = rng.normal(size=(20, 2))
    folds = LabelledFold(2, targets="numbers")
    for work in (lambda: ICSSLRegressor().fit(X, y), lambda: next(folds.split(X, y))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
        said = [str(each.message) for each in caught if "-1" in str(each.message)]
        assert bool(said) is warns
        assert all("by NaN or None. For classes use ICSSLClassifier" in one for one in said)


def test_diabetes_is_not_worse_than_ridge_regression():
    X, truth = load_diabetes(return_X_y=True)
    ours, theirs = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        known = np.zeros(len(X), dtype=bool)
        known[rng.choice(len(X), 20, replace=False)] = True
        y = np.where(known, truth, np.nan)
        predicted = ICSSLRegressor().fit(X, y).transduction_
        ours.append(np.std((predicted - truth)[~known]))
        peer = Ridge().fit(X[known] / X.std(0), truth[known])
        theirs.append(np.std((peer.predict(X / X.std(0)) - truth)[~known]))
    assert np.mean(ours) < np.mean(theirs), (ours, theirs)


def test_its_benchmark_writes_only_where_it_is_asked_to(monkeypatch, capsys, tmp_path):
    published = Path(__file__).parents[1] / "results" / "benchmark-regressor.json"
    before = published.read_bytes()
    few = "regressor.py --draws 1 --targets 10 --methods ridge,k-NN --tables diabetes"
    monkeypatch.setattr(sys, "argv", few.split())
    run_benchmark()
    assert published.read_bytes() == before
    path = tmp_path / "errors.json"
    monkeypatch.setattr(sys, "argv", [*few.split(), "--output", str(path)])
    run_benchmark()
    line = json.loads(path.read_text())
    assert line == json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(line["error"]) == ["ridge", "k-NN"]
