"""Scores of class probabilities, one value per episode, and their intervals.

Only points that are not labelled and whose class is known are scored: a labelled point
would reward copying. An episode with no such point scores NaN, which :func:`interval`
leaves out; a whole batch without any is an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit
from torch import Tensor
from torch.nn.functional import normalize

from icssl._util.random import generator_for
from icssl.episodes.episode import Episode

NEAR = 0.02
"""Two points: a null model that comes so near to a score explains it."""

_NAN = float("nan")
_BINS = 15  # of the calibration error
_REPLICATES = 1000  # bootstrap samples of its interval

# Loose, since half precision rounds: this only tells probabilities from other scores.
_SUM_TOLERANCE = 0.01


@dataclass(frozen=True)
class Estimate:
    """A mean over episodes with its 95% interval.

    Parameters
    ----------
    mean : float
        Mean over the episodes that could be scored.
    half_width : float
        Half the width of the interval; NaN where fewer than two episodes could be scored.
    count : int
        Number of episodes behind the mean.

    Examples
    --------
    >>> print(Estimate(0.9131, 0.0042, count=200))
    0.913 ± 0.004
    """

    mean: float
    half_width: float
    count: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half_width

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.half_width:.3f}"


@dataclass(frozen=True)
class Comparison:
    """A comparison of two methods on the same episodes.

    Parameters
    ----------
    difference : Estimate
        Mean of the first method minus the second, with its paired interval.
    """

    difference: Estimate

    @property
    def verdict(self) -> str:
        """The place of the first, larger values ahead: "ahead", "behind" or "level"."""
        if self.difference.low > 0:
            return "ahead"
        return "behind" if self.difference.high < 0 else "level"


def interval(values: Float[Tensor, " b"]) -> Estimate:
    """Return the mean over episodes with Student's 95% interval; NaN is left out."""
    scored = values[~values.isnan()].detach().cpu().double()
    count = len(scored)
    half_width = _NAN
    if count > 1:
        half_width = float(stdtrit(count - 1, 0.975)) * float(scored.std()) / count**0.5
    return Estimate(float(scored.mean()), half_width, count)


def compare_paired(a: Float[Tensor, " a"], b: Float[Tensor, " b"]) -> Comparison:
    """Compare the values of two methods, episode by episode.

    Episodes that are NaN for either method are left out.
    """
    if len(a) != len(b):
        raise ValueError(
            "a paired comparison needs the same episodes for both methods, got "
            f"{len(a)} and {len(b)}."
        )
    return Comparison(interval((a - b).double()))


def is_explained(ahead: float) -> bool:
    """Whether a null model explains a score that is so far ahead of its own.

    It does so within two points, and where it is ahead itself. Intervals play no part: few
    episodes or seeds make a score uncertain, but explain nothing.

    Examples
    --------
    >>> is_explained(0.015), is_explained(0.03)
    (True, False)
    """
    return ahead <= NEAR


def accuracy(
    probabilities: Float[Tensor, "b n c"], episode: Episode
) -> Float[Tensor, " b"]:
    """Return the share of the scored points whose likeliest class is the true one."""
    probabilities, scored = _prepare(probabilities, episode)
    hit = (probabilities.argmax(dim=-1) == episode.y).to(probabilities.dtype)
    return _mean_over(scored, hit)


def balanced_accuracy(
    probabilities: Float[Tensor, "b n c"], episode: Episode
) -> Float[Tensor, " b"]:
    """Return the mean recall over the classes that occur among the scored points."""
    probabilities, scored = _prepare(probabilities, episode)
    hit = (probabilities.argmax(dim=-1) == episode.y).to(probabilities.dtype)
    member = _members(probabilities, episode) & scored[:, None]
    return _mean_over(member, hit[:, None]).nanmean(dim=-1)


def auroc(probabilities: Float[Tensor, "b n c"], episode: Episode) -> Float[Tensor, " b"]:
    """Return the area under the ROC curve; NaN where all scored points are of one class.

    With two classes it is that of the probability of class 1; with more, the mean over each
    class against the rest, where both sides have points.
    """
    probabilities, scored = _prepare(probabilities, episode)
    member = _members(probabilities, episode)
    scores = probabilities.mT.contiguous()
    if scores.shape[1] == 2:
        member, scores = member[:, 1:], scores[:, 1:].contiguous()
    positive, negative = member & scored[:, None], ~member & scored[:, None]
    # A positive wins against the negatives below it, and half against those level: its
    # two places among the sorted negatives, added, count both twice.
    ranked = scores.where(negative, torch.inf).sort(dim=-1).values
    twice_won = torch.searchsorted(ranked, scores)
    twice_won += torch.searchsorted(ranked, scores, right=True)
    won = twice_won.where(positive, 0).sum(dim=-1).to(scores.dtype) / 2
    area = won / (positive.sum(dim=-1) * negative.sum(dim=-1))
    return area.nanmean(dim=-1)


def log_loss(
    probabilities: Float[Tensor, "b n c"], episode: Episode
) -> Float[Tensor, " b"]:
    """Return the mean of -log p of the true class, with p at least eps from 0 and 1."""
    probabilities, scored = _prepare(probabilities, episode)
    eps = torch.finfo(probabilities.dtype).eps
    truth = episode.y.clamp(min=0)[..., None]  # -1 is no index; it is not scored
    likelihood = probabilities.gather(-1, truth)[..., 0].clamp(eps, 1 - eps)
    return _mean_over(scored, -likelihood.log())


METRICS: dict[str, Callable[[Tensor, Episode], Tensor]] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "auroc": auroc,
    "log_loss": log_loss,
}
"""Scores that have a value for every episode."""

METRIC_NAMES = (*METRICS, "expected_calibration_error")


def expected_calibration_error(
    probabilities: Float[Tensor, "b n c"],
    episode: Episode,
    *,
    generator: torch.Generator,
) -> Estimate:
    """Return the distance of confidence from accuracy, in equal bins of confidence.

    One episode has too few points for this, so all scored points are pooled. The
    half-width is 1.96 standard deviations over bootstrap samples of the episodes; their
    quantiles would not do, since noise raises the error of a sample on average.

    The samples are drawn with ``generator``, on the CPU.
    """
    gaps, sizes = _gaps(probabilities, episode)
    count = len(sizes)

    def error_of(times: Tensor) -> Tensor:
        """Return the error with every episode taken so many times."""
        return (times @ gaps).abs().sum(dim=-1) / (times @ sizes)

    drawn = torch.randint(count, (_REPLICATES, count), generator=generator)
    times = sizes.new_zeros(_REPLICATES, count)
    times.scatter_add_(1, drawn, torch.ones_like(times))
    half_width = 1.96 * float(error_of(times).std()) if count > 1 else _NAN
    return Estimate(float(error_of(torch.ones_like(sizes))), half_width, count)


def _gaps(probabilities: Tensor, episode: Episode) -> tuple[Tensor, Tensor]:
    """Return hits minus confidence, summed by bin, and the number of scored points.

    Both have one row per episode that has a scored point.
    """
    probabilities, scored = _prepare(probabilities, episode)
    confidence, guess = probabilities.max(dim=-1)
    gap = (guess == episode.y).to(confidence.dtype) - confidence
    place = (confidence * _BINS).ceil().long().sub(1).clamp(0, _BINS - 1)
    gaps = confidence.new_zeros(len(gap), _BINS).scatter_add(1, place, gap.where(scored, 0))
    used = scored.any(dim=1)
    return gaps[used].cpu().double(), scored[used].sum(dim=1).cpu().double()


def summarise(
    predictions: Sequence[Float[Tensor, "b n c"]], episode: Episode
) -> tuple[dict[str, Float[Tensor, " b"]], dict[str, Estimate]]:
    """Return all ``METRICS`` by episode, and estimates of them and the calibration error.

    Parameters
    ----------
    predictions : sequence of Tensor of shape (b, n, c)
        Probabilities of a method, or of several, such as models of different seeds. Several
        are scored one by one and the scores are averaged, episode by episode; the mean of
        their probabilities would be another method, an ensemble.
    episode : Episode
        The episodes that were predicted.
    """
    values = {
        name: torch.stack([metric(p, episode) for p in predictions]).mean(dim=0).cpu()
        for name, metric in METRICS.items()
    }
    estimates = {name: interval(value) for name, value in values.items()}
    errors = [
        expected_calibration_error(p, episode, generator=generator_for(0, "bootstrap"))
        for p in predictions
    ]
    # Never too narrow: the mean of several varies at most as much as they do in the mean.
    estimates["expected_calibration_error"] = Estimate(
        fmean(error.mean for error in errors),
        fmean(error.half_width for error in errors),
        errors[0].count,
    )
    return values, estimates


def separation_score(
    features: Float[Tensor, "b n k"], y: Int[Tensor, "b n"]
) -> Float[Tensor, " b"]:
    """Return the mean cosine similarity within classes minus that between them.

    The paper's remark "Separation Score": within a class the mean is over pairs of two
    different points, then over the classes that have such a pair; between classes it is
    over all pairs. Points of unknown class (-1) are left out. NaN where an episode has
    no pair of either kind.
    """
    dtype = torch.promote_types(features.dtype, torch.float32)
    unit = normalize(features.to(dtype), dim=-1)
    classes = torch.arange(max(int(y.max()) + 1, 1), device=y.device)
    member = (y[:, None] == classes[:, None]).to(dtype)  # (b, c, n)
    # Similarities add up to the inner product of sums, so no n x n matrix is needed.
    sums, sizes = member @ unit, member.sum(dim=-1)
    squares = sums.square().sum(dim=-1)
    selves = (member @ unit.square()).sum(dim=-1)
    within = (squares - selves) / (sizes * (sizes - 1))
    within = within.where(sizes > 1, _NAN).nanmean(dim=-1)
    total = sums.sum(dim=1).square().sum(dim=-1)
    pairs = sizes.sum(dim=-1).square() - sizes.square().sum(dim=-1)
    return within - (total - squares.sum(dim=-1)) / pairs


def _prepare(probabilities: Tensor, episode: Episode) -> tuple[Tensor, Tensor]:
    """Return checked probabilities, in float32 at least, and which points are scored."""
    shape, wanted = tuple(probabilities.shape), tuple(episode.y.shape)
    if shape[:2] != wanted or shape[2] < episode.n_classes:
        raise ValueError(
            f"probabilities must have shape {(*wanted, episode.n_classes)} to fit the "
            f"episode, got {shape}."
        )
    probabilities = probabilities.detach()
    sums = probabilities.float().sum(dim=-1)
    if (probabilities < 0).any() or not ((sums - 1).abs() <= _SUM_TOLERANCE).all():
        raise ValueError(
            "probabilities must be at least 0 and sum to one over the classes, got values "
            f"from {float(probabilities.min()):.3g} to {float(probabilities.max()):.3g} "
            f"and sums from {float(sums.min()):.3g} to {float(sums.max()):.3g}: of logits, "
            "give the softmax."
        )
    scored = ~episode.labelled & (episode.y >= 0)
    if not scored.any():
        labelled, unknown = int(episode.labelled.sum()), int((episode.y < 0).sum())
        raise ValueError(
            "nothing to score: a scored point is not labelled and its class is known, got "
            f"{scored.numel()} points, {labelled} labelled and {unknown} of unknown class."
        )
    dtype = torch.promote_types(probabilities.dtype, torch.float32)
    return probabilities.to(dtype), scored


def _members(probabilities: Tensor, episode: Episode) -> Bool[Tensor, "b c n"]:
    """Return whether each point belongs to each class."""
    classes = torch.arange(probabilities.shape[-1], device=episode.y.device)
    return episode.y[:, None] == classes[:, None]


def _mean_over(mask: Tensor, values: Tensor) -> Tensor:
    """Return the mean over the last axis where ``mask`` holds; NaN if nowhere."""
    return values.where(mask, 0).sum(dim=-1) / mask.sum(dim=-1)
