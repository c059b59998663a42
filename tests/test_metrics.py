"""Scores against scikit-learn episode by episode, statistics against SciPy."""

import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn import metrics as sklearn_metrics

from helpers import F64, random_episode
from icssl import Episode
from icssl.evaluation.metrics import (
    METRICS,
    Comparison,
    Estimate,
    accuracy,
    auroc,
    compare_paired,
    expected_calibration_error,
    interval,
    separation_score,
    summarise,
)


def scored_case(generator, *, b=6, n=15, c=2, device="cpu", decimals=1):
    """Random probabilities, rounded so that they tie, and some points of unknown class."""
    episode = random_episode(generator, b=b, n=n, c=c)
    unknown = (torch.rand(b, n, generator=generator) < 0.2) & ~episode.labelled
    y = torch.where(unknown, -1, episode.y)
    weights = torch.rand(b, n, c, generator=generator, dtype=torch.float64) + 0.05
    weights = weights.round(decimals=decimals).clamp(min=0.1)
    episode = Episode(episode.x, y, episode.labelled, n_classes=c)
    return (weights / weights.sum(dim=-1, keepdim=True)).to(device), episode.to(device)


def sklearn_auroc(y, p):
    """One class against the rest, over the classes that have points on both sides."""
    classes = [1] if p.shape[1] == 2 else range(p.shape[1])
    areas = [
        sklearn_metrics.roc_auc_score(y == i, p[:, i])
        for i in classes
        if 0 < (y == i).sum() < len(y)
    ]
    return np.mean(areas) if areas else np.nan


def sklearn_balanced_accuracy(y, p):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return sklearn_metrics.balanced_accuracy_score(y, p.argmax(axis=1))


SKLEARN = {
    "accuracy": lambda y, p: sklearn_metrics.accuracy_score(y, p.argmax(axis=1)),
    "balanced_accuracy": sklearn_balanced_accuracy,
    "auroc": sklearn_auroc,
    "log_loss": lambda y, p: sklearn_metrics.log_loss(y, p, labels=range(p.shape[1])),
}


def by_episode(probabilities, episode):
    """Classes and probabilities of the scored points, one episode after another."""
    for p, y, labelled in zip(probabilities, episode.y, episode.labelled, strict=True):
        kept = [i for i in range(len(y)) if y[i] >= 0 and not labelled[i]]
        yield y[kept].cpu().numpy(), p[kept].cpu().numpy()


def estimates(probabilities, episode):
    """Of one method."""
    return summarise([probabilities], episode)[1]


def perfect(episode):
    truth = torch.nn.functional.one_hot(episode.y.clamp(min=0), episode.n_classes)
    return truth.to(episode.x.dtype)


@pytest.mark.parametrize("c", [2, 3])
@pytest.mark.parametrize("name", METRICS)
def test_metric_is_scikit_learns(generator, device, name, c):
    probabilities, episode = scored_case(generator, c=c, device=device)
    result = METRICS[name](probabilities, episode)
    expected = np.array(
        [SKLEARN[name](*case) for case in by_episode(probabilities, episode)]
    )
    assert result.device == probabilities.device
    torch.testing.assert_close(
        result.cpu(), torch.from_numpy(expected), equal_nan=True, **F64
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_loss_of_a_certain_mistake_is_scikit_learns(dtype):
    episode = Episode.single([[0.0]] * 4, [0, 1, 0, 1], [True, False, False, False])
    certain = torch.tensor([1.0, 0.0], dtype=dtype).expand(1, 4, 2)
    (expected,) = (SKLEARN["log_loss"](y, p) for y, p in by_episode(certain, episode))
    assert METRICS["log_loss"](certain, episode).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_labelled_and_unknown_points_are_never_scored(generator, name):
    probabilities, episode = scored_case(generator, c=3)
    expected = METRICS[name](probabilities, episode)
    hidden = episode.labelled | (episode.y < 0)
    other = probabilities.flip(1).where(hidden[..., None], probabilities)
    assert not other.equal(probabilities)
    assert METRICS[name](other, episode).equal(expected)
    assert estimates(other, episode) == estimates(probabilities, episode)


def test_perfect_and_reversed_predictions(generator):
    episode = random_episode(generator, n=30)
    right = perfect(episode)
    for name, best in [("accuracy", 1), ("balanced_accuracy", 1), ("auroc", 1)]:
        assert METRICS[name](right, episode).tolist() == [best, best]
        assert METRICS[name](right.flip(-1), episode).tolist() == [0, 0]


def test_one_class_has_no_auroc(generator):
    """The labelled points may have both classes: they do not count."""
    probabilities, episode = scored_case(generator, b=3, c=3)
    y = episode.y.clone()
    y[0] = torch.where(episode.labelled[0], y[0], 1)
    y[1] = torch.where(episode.labelled[1], y[1], torch.arange(15) % 2)
    episode = Episode(episode.x, y, episode.labelled, n_classes=3)
    result = auroc(probabilities, episode)
    assert result.isnan().tolist() == [True, False, False]
    expected = [sklearn_auroc(*case) for case in by_episode(probabilities, episode)]
    torch.testing.assert_close(result, torch.tensor(expected), equal_nan=True, **F64)
    assert interval(result).count == 2
    for name in set(METRICS) - {"auroc"}:
        assert METRICS[name](probabilities, episode).isfinite().all()


def test_an_episode_with_nothing_to_score_is_left_out(generator):
    probabilities, episode = scored_case(generator, b=3, n=40)
    y = episode.y.clone()
    y[1] = torch.where(episode.labelled[1], y[1], -1)
    episode = Episode(episode.x, y, episode.labelled, n_classes=2)
    for metric in METRICS.values():
        assert metric(probabilities, episode).isnan().tolist() == [False, True, False]
    keep = torch.tensor([0, 2])
    assert estimates(probabilities, episode) == estimates(
        probabilities[keep], episode[keep]
    )


def test_half_precision_is_scored_in_single(generator):
    probabilities, episode = scored_case(generator, n=40)
    assert estimates(probabilities.requires_grad_(), episode)  # and gradients do not warn
    half = probabilities.to(torch.bfloat16)
    for metric in METRICS.values():
        expected = metric(half.float(), episode)
        assert metric(half, episode).equal(expected)


def naive_ece(cases, bins=15):
    points = [
        (max(p), float(np.argmax(p) == y))
        for y, p in cases
        for y, p in zip(y, p, strict=True)
    ]
    error = 0.0
    for i in range(bins):
        inside = [(p, hit) for p, hit in points if i / bins < p <= (i + 1) / bins]
        if inside:
            confidence, hit = np.mean(inside, axis=0)
            error += len(inside) / len(points) * abs(confidence - hit)
    return error


@pytest.mark.parametrize("c", [2, 3])
def test_ece_is_its_definition(generator, device, c):
    probabilities, episode = scored_case(generator, c=c, device=device, decimals=6)
    result = expected_calibration_error(probabilities, episode, generator=generator)
    assert result.mean == pytest.approx(naive_ece(by_episode(probabilities, episode)))
    assert result.count == 6


def test_ece_interval_is_the_spread_over_new_episodes():
    """Of well-calibrated predictions, drawn again and again."""

    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        p = torch.rand(100, 20, generator=generator)
        y = (torch.rand(100, 20, generator=generator) < p).long()
        labelled = torch.arange(20).expand(100, 20) < 1
        episode = Episode(torch.zeros(100, 20, 1), y, labelled, n_classes=2)
        probabilities = torch.stack([1 - p, p], -1)
        return expected_calibration_error(probabilities, episode, generator=generator)

    draws = [draw(seed) for seed in range(40)]
    spread = 1.96 * np.std([draw.mean for draw in draws], ddof=1)
    assert np.mean([draw.half_width for draw in draws]) == pytest.approx(spread, rel=0.35)
    assert max(draw.mean for draw in draws) < 0.06
    assert draw(3) == draw(3)


def test_summary_has_every_metric(generator):
    probabilities, episode = scored_case(generator, n=40)
    summary = estimates(probabilities, episode)
    assert list(summary) == [*METRICS, "expected_calibration_error"]
    assert summary["accuracy"] == interval(accuracy(probabilities, episode))
    assert estimates(probabilities, episode) == summary
    one = estimates(probabilities[:1], episode[:1])
    assert all(np.isnan(e.half_width) and e.count == 1 for e in one.values())


def test_several_are_scored_one_by_one_and_averaged(generator):
    """Not their mean probabilities: an ensemble is right where two of three are not."""
    each = [scored_case(generator, n=40)[0] for _ in range(3)]
    _, episode = scored_case(generator, n=40)
    values, summary = summarise(each, episode)
    for name, metric in METRICS.items():
        alone = torch.stack([metric(p, episode) for p in each])
        torch.testing.assert_close(values[name], alone.mean(dim=0))
        assert summary[name] == interval(values[name])
    ensemble = accuracy(torch.stack(each).mean(dim=0), episode)
    assert not torch.allclose(values["accuracy"], ensemble)
    errors = [estimates(p, episode)["expected_calibration_error"].mean for p in each]
    assert summary["expected_calibration_error"].mean == pytest.approx(np.mean(errors))


def test_interval_is_students(generator):
    values = torch.randn(12, generator=generator, dtype=torch.float64)
    with_nan = torch.cat([values, torch.tensor([torch.nan])])
    low, high = scipy.stats.t.interval(
        0.95, 11, loc=values.mean(), scale=scipy.stats.sem(values)
    )
    for result in (interval(values), interval(with_nan)):
        assert result.count == 12
        assert (result.low, result.high) == pytest.approx((low, high))


def test_interval_of_few():
    assert str(Estimate(0.91349, 0.0042, 7)) == "0.913 ± 0.004"
    one = interval(torch.tensor([0.5, torch.nan]))
    assert (one.mean, one.count) == (0.5, 1)
    assert np.isnan(one.half_width)
    none = interval(torch.tensor([torch.nan]))
    assert np.isnan([none.mean, none.half_width]).all()
    assert none.count == 0


def test_paired_is_the_t_test(generator):
    a = torch.randn(20, generator=generator, dtype=torch.float64)
    for shift in (0.0, 0.3, -2.0):
        b = a - shift + 0.5 * torch.randn(20, generator=generator, dtype=torch.float64)
        result, expected = compare_paired(a, b), scipy.stats.ttest_rel(a, b)
        low, high = expected.confidence_interval(0.95)
        assert (result.difference.low, result.difference.high) == pytest.approx((low, high))
        assert (result.verdict == "level") == (expected.pvalue >= 0.05)
    assert (result.verdict, compare_paired(b, a).verdict) == ("behind", "ahead")


def test_paired_of_special_values():
    a = torch.tensor([0.5, 0.25, 0.75, torch.nan])
    assert compare_paired(a, a) == Comparison(Estimate(0.0, 0.0, 3))
    assert compare_paired(a, a).verdict == "level"
    assert compare_paired(a + 1, a) == Comparison(Estimate(1.0, 0.0, 3))
    assert compare_paired(a + 1, a).verdict == "ahead"
    assert compare_paired(a[2:], a[2:] - 1).verdict == "level"  # one episode proves nothing
    with pytest.raises(ValueError, match="same episodes for both methods, got 4 and 3"):
        compare_paired(a, a[:3])


def naive_separation(features, y):
    def mean_similarity(pairs):
        cosines = [
            np.dot(features[i], features[j])
            / (np.linalg.norm(features[i]) * np.linalg.norm(features[j]))
            for i, j in pairs
        ]
        return np.mean(cosines) if cosines else np.nan

    known = [i for i in range(len(y)) if y[i] >= 0]
    pairs = [(i, j) for i in known for j in known if i != j]
    classes = {y[i] for i in known}
    within = [
        mean_similarity([p for p in pairs if y[p[0]] == y[p[1]] == c]) for c in classes
    ]
    between = mean_similarity([(i, j) for i, j in pairs if y[i] != y[j]])
    return np.mean([w for w in within if not np.isnan(w)] or [np.nan]) - between


def test_separation_is_its_definition(generator, device):
    y = torch.randint(-1, 3, (4, 11), generator=generator)
    y[1] = torch.tensor([0] * 5 + [1] + [-1] * 5)  # class 1 has no pair
    y[2] = 1  # nothing to separate
    features = torch.randn(4, 11, 5, generator=generator, dtype=torch.float64)
    result = separation_score(features.to(device), y.to(device)).cpu()
    expected = [
        naive_separation(f, c) for f, c in zip(features.numpy(), y.tolist(), strict=True)
    ]
    torch.testing.assert_close(result, torch.tensor(expected), equal_nan=True, **F64)
    assert result.isnan().tolist() == [False, False, True, False]


def test_separation_of_classes_on_opposite_sides():
    features = torch.tensor([[[1.0, 0.0], [3.0, 0.0], [-1.0, 0.0], [-7.0, 0.0]]])
    assert separation_score(features, torch.tensor([[0, 0, 1, 1]])).item() == 2
    assert separation_score(features, torch.tensor([[-1] * 4])).isnan().all()


def test_bad_input(generator):
    probabilities, episode = scored_case(generator, b=2)
    y = torch.where(episode.labelled, episode.y, -1)
    hidden = Episode(episode.x, y, episode.labelled, n_classes=2)
    for metric in METRICS.values():
        with pytest.raises(ValueError, match="30 points, 8 labelled and 22 of unknown"):
            metric(probabilities, hidden)
    with pytest.raises(ValueError, match="nothing to score"):
        estimates(probabilities, hidden)
    with pytest.raises(ValueError, match=r"shape \(2, 15, 2\) to fit.*got \(2, 14, 2\)"):
        accuracy(probabilities[:, 1:], episode)
    with pytest.raises(ValueError, match="of logits, give the softmax"):
        accuracy(probabilities.log(), episode)
    with pytest.raises(ValueError, match="got values from nan"):
        accuracy(probabilities * torch.nan, episode)
