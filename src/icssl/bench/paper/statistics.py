"""Intervals over seeds and episodes together, and seeds that learned nothing.

A row keeps the accuracy of every seed (its mean over episodes) and of every episode (its
mean over seeds). Both vary, and a statement about a method has to hold for other seeds as
well as for other episodes, so both are drawn again.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean, stdev
from typing import Any

import torch
from jaxtyping import Float
from scipy.special import stdtrit
from scipy.stats import rankdata
from torch import Tensor

from icssl._util.random import generator_for
from icssl.bench.spec import accuracies_of
from icssl.evaluation.metrics import Estimate

Row = dict[str, Any]

_SAMPLES = 2000
_NORMAL = 1.959964
_HIGHEST = 1 - 1e-6  # correlation whose z is still a number
_SPEARMAN = 1.06  # variance of z times n - 3, where it is of ranks
_EPISODES = ("data", "labels", "episodes", "seed")  # fields of a spec that decide them
_BELOW_A_GUESS = 0.05  # nats that a model which learned anything is below a guess
DEAD = 0.02  # a seed no further than this above the largest class has learned nothing
_BALANCED = 0.55  # up to this share of the largest class, a guess is right half of the time


def two_way(seeds: Sequence[Sequence[float]], episodes: Float[Tensor, " e"]) -> Estimate:
    """Return the mean over episodes, with a bootstrap interval over seeds and episodes.

    Every sample draws the episodes again with replacement, and adds what other seeds would
    move the mean by: a normal draw as wide as the spread of the seeds, widened until seeds
    alone would give Student's interval, as two or three say little about their spread. What
    is random in a seed and an episode together is counted on both sides, so the interval is
    rather too wide than too narrow.

    Parameters
    ----------
    seeds : sequence of sequences of float
        Means of every seed of each method; methods were trained apart, so their seeds are
        drawn apart. One seed has no spread.
    episodes : Tensor of shape (e,)
        What is averaged, by episode: accuracies, or paired differences of them.

    Examples
    --------
    >>> same = torch.full((200,), 0.8, dtype=torch.float64)
    >>> print(two_way([[0.79, 0.80, 0.81]], same))
    0.800 ± 0.024
    """
    episodes = episodes.double()
    count = len(episodes)
    if count < 2:
        return Estimate(float(episodes.mean()), float("nan"), count)
    moved = _weights(count) @ (episodes - episodes.mean())
    for number, means in enumerate(seeds):
        if len(means) > 1:
            error = stdev(means) / len(means) ** 0.5
            width = error * float(stdtrit(len(means) - 1, 0.975)) / _NORMAL
            moved = moved + width * _normal_draws(number)
    ends = torch.tensor([0.025, 0.975], dtype=moved.dtype)
    low, high = torch.quantile(moved, ends).tolist()
    return Estimate(float(episodes.mean()), (high - low) / 2, count)


@cache
def _weights(count: int) -> Float[Tensor, "samples e"]:
    """Return how often every sample holds every episode, as shares."""
    generator = generator_for(0, "bootstrap of episodes")
    drawn = torch.randint(count, (_SAMPLES, count), generator=generator)
    times = torch.zeros(_SAMPLES, count, dtype=torch.float64)
    return times.scatter_add_(1, drawn, torch.ones_like(times)) / count


@cache
def _normal_draws(number: int) -> Float[Tensor, " samples"]:
    generator = generator_for(0, "bootstrap of seeds", number)
    return torch.randn(_SAMPLES, generator=generator, dtype=torch.float64)


def measure_of(measure: Mapping[str, Any]) -> Estimate:
    """Return a stored measure; where it has several seeds, its interval covers them too.

    Its values of single episodes are not stored, so both intervals are added as if they
    were independent: it is rather too wide than too narrow.

    Examples
    --------
    >>> print(measure_of({"mean": 0.3, "half_width": 0.01}))
    0.300 ± 0.010
    >>> print(measure_of({"mean": 0.3, "half_width": 0.01, "seeds": [0.29, 0.3, 0.31]}))
    0.300 ± 0.027
    """
    half_width, seeds = measure["half_width"], measure.get("seeds", ())
    if len(seeds) > 1:
        error = stdev(seeds) / len(seeds) ** 0.5
        half_width = math.hypot(half_width, error * stdtrit(len(seeds) - 1, 0.975))
    return Estimate(measure["mean"], half_width, 0)


def level_of(row: Row) -> Estimate:
    """Return the accuracy of a row, with its interval over seeds and episodes."""
    return two_way([row["seeds"]], accuracies_of(row))


def difference_of(row: Row, other: Row) -> Estimate:
    """Return the first row minus the other, paired over episodes where these are shared."""
    a, b = accuracies_of(row), accuracies_of(other)
    if _are_paired(row, other):
        return two_way([row["seeds"], other["seeds"]], a - b)
    first, second = level_of(row), level_of(other)
    half_width = math.hypot(first.half_width, second.half_width)
    return Estimate(first.mean - second.mean, half_width, min(first.count, second.count))


def _are_paired(row: Row, other: Row) -> bool:
    """Whether two rows are of the same episodes: of one source, rule, seed and budget."""
    specs = [r.get("spec") for r in (row, other)]
    if None in specs:  # rows that were made up in a test
        return len(row["accuracies"]) == len(other["accuracies"])
    first, second = ({k: s.get(k) for k in _EPISODES} for s in specs if s is not None)
    return first == second


def mean_difference(pairs: Sequence[tuple[Row, Row | None]]) -> Estimate:
    """Return the mean of differences (or levels) whose rows share models and episodes.

    Rows of several numbers of labels come from the same models on the same points. So they
    are averaged seed by seed and episode by episode first: they vary together.
    """
    firsts = [row for row, _ in pairs]
    seconds = [row for _, row in pairs if row is not None]
    if not all(row is None or _are_paired(first, row) for first, row in pairs):
        levels = [mean_difference([(r, None) for r in rows]) for rows in (firsts, seconds)]
        half_width = math.hypot(*(level.half_width for level in levels))
        return Estimate(levels[0].mean - levels[1].mean, half_width, levels[0].count)
    values = torch.stack([accuracies_of(row) for row in firsts])
    seeds = [_mean_by_seed(firsts)]
    if seconds:
        values = values - torch.stack([accuracies_of(row) for row in seconds])
        seeds.append(_mean_by_seed(seconds))
    return two_way(seeds, values.mean(dim=0))


def difference_of_gains(
    pairs: Sequence[tuple[Row, Row]], others: Sequence[tuple[Row, Row]]
) -> Estimate:
    """Return one mean difference minus another one, all on the same episodes.

    Rows of each of the four places share models, as in :func:`mean_difference`.
    """
    columns = [*zip(*pairs, strict=True), *zip(*others, strict=True)]
    values = [torch.stack([accuracies_of(row) for row in rows]) for rows in columns]
    gains = (values[0] - values[1]) - (values[2] - values[3])
    return two_way([_mean_by_seed(rows) for rows in columns], gains.mean(dim=0))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Return Fisher's z of Spearman's correlation: its tanh is the correlation.

    The interval is that of Fieller, Hartley and Pearson (1957), for independent points.

    Examples
    --------
    >>> found = rank_correlation([1, 2, 3, 4, 5, 6], [1, 2, 4, 3, 5, 6])
    >>> round(math.tanh(found.mean), 3), found.count
    (0.943, 6)
    """
    ranks = torch.stack([torch.from_numpy(rankdata(values)) for values in (x, y)])
    found = float(torch.corrcoef(ranks)[0, 1].nan_to_num())  # a constant follows nothing
    # A perfect correlation has an infinite z; no interval of so few points says that much.
    z = math.atanh(min(max(found, -_HIGHEST), _HIGHEST))
    if len(x) <= 3:  # too few points for an interval
        return Estimate(z, math.inf, len(x))
    return Estimate(z, _NORMAL * (_SPEARMAN / (len(x) - 3)) ** 0.5, len(x))


def _mean_by_seed(rows: Sequence[Row]) -> list[float]:
    return [fmean(each) for each in zip(*(row["seeds"] for row in rows), strict=False)]


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of estimates from different episodes and different trainings."""
    count = len(estimates)
    half_width = math.hypot(*(e.half_width for e in estimates)) / count
    return Estimate(
        sum(e.mean for e in estimates) / count, half_width, min(e.count for e in estimates)
    )


def dead_seeds(row: Row) -> int | None:
    """Return how many seeds are no better than a guess; None where a guess is not half.

    Where classes are uneven, naming the larger class is no sign of a model that failed.
    """
    if row.get("majority_rate", 1.0) > _BALANCED or "episodes_seen" not in row:
        return None
    return sum(mean <= row["majority_rate"] + DEAD for mean in row["seeds"])


def learned_seeds(row: Row, shares: Sequence[float]) -> list[float]:
    """Return accuracies of the seeds whose training came below a guess; else of all seeds.

    Training is judged by its own loss on held-out episodes, never by the score.

    Parameters
    ----------
    row : Row
        Scores of a trained method.
    shares : sequence of float
        Mean share of the larger of two classes in each source of its training episodes.
        A guess that knows the share has its entropy as a loss.

    Examples
    --------
    >>> row = {"seeds": [0.8, 0.5], "held_out_loss": [0.3, 0.69]}
    >>> learned_seeds(row, [0.5]), learned_seeds(row, [0.9])
    ([0.8], [0.8, 0.5])
    """
    if "held_out_loss" not in row or not shares:
        return list(row["seeds"])
    guess = fmean(-p * math.log(p) - (1 - p) * math.log1p(-p) for p in shares)
    learned = [
        seed
        for seed, loss in zip(row["seeds"], row["held_out_loss"], strict=True)
        if loss < guess - _BELOW_A_GUESS
    ]
    return learned or list(row["seeds"])
