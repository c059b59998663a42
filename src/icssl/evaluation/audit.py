"""``audit``: what a score is worth, beside what is reached without learning anything.

A score in context can come from the classes being uneven, from the order of the points, or
from a step that needs no training. Each has a null model here, and the method itself is
scored on episodes that lack one thing: their order, their points, their rule of the
classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.random import generator_for
from icssl.episodes.data_config import DataConfig, is_manifold
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import ground_truth
from icssl.episodes.labels import majority_rate
from icssl.episodes.stream import EpisodeStream
from icssl.evaluation.metrics import (
    NEAR,
    Estimate,
    accuracy,
    compare_paired,
    interval,
    is_explained,
)
from icssl.evaluation.predictors import needed_truth
from icssl.evaluation.scoring import each_of
from icssl.methods import BASELINES, TITLES, Method
from icssl.methods.simple import BayesCeiling

NULLS = (
    "label_vote",
    "position_vote",
    "free_head_linear",
    "free_head_eig_linear",
    "free_head",
)
_RADIUS = 0.5  # of the ball, where the rule of the data is the median
LARGEST = "largest class"


@dataclass(frozen=True)
class AuditLine:
    """One score of an audit.

    Parameters
    ----------
    what : str
        The null model, or what the episodes lack.
    score : Estimate
        Accuracy on unlabelled points.
    behind : Estimate, optional
        The method's score on the untouched episodes minus this one, paired.
    finding : str
        What it says about the method; nothing if that is nothing.
    """

    what: str
    score: Estimate
    behind: Estimate | None
    finding: str = ""


@dataclass(frozen=True)
class Audit:
    """All scores of a method at one number of labels, the method's own first."""

    name: str
    source: str
    labels: float
    lines: tuple[AuditLine, ...]

    @property
    def explained_by(self) -> tuple[str, ...]:
        """The null models that come as far as the method."""
        return tuple(line.what for line in self.lines if line.finding == EXPLAINS)


EXPLAINS = "explains the score"
UNDECIDED = "more than two points behind, but within the interval: take more episodes"
LEAKS = "the order of the points matters"
READS = "scores without points: something else gives classes away"
Predict = Callable[[Episode], Float[Tensor, " b"]]


def audit(
    method: Method | Sequence[Method],
    data: DataConfig,
    labels: Sequence[float],
    *,
    name: str = "method",
    episodes: int = 100,
    tuning: int = 60,
    seed: int = 0,
    device: str = "cpu",
) -> list[Audit]:
    """Return one audit per number of labels.

    Parameters
    ----------
    method : Method or sequence of them
        Anything that returns class probabilities of an episode; several are averaged.
    data : DataConfig
        Where test episodes come from. A manifold has a second rule of the classes.
    labels : sequence of int or float
    name : str
        Name of the method in what is returned.
    episodes, tuning, seed, device
        As of :func:`icssl.evaluation.scoring.evaluate`.

    Examples
    --------
    >>> vote = BASELINES["label_vote"]
    >>> (found,) = audit(vote, DataConfig(("torus",)), [3], episodes=8, tuning=4)
    >>> "vote of the labels" in found.explained_by
    True
    """
    if len(data.sources) != 1:
        raise ValueError(f"audit one source at a time, got {data.sources}.")
    models = each_of(method)
    if any(isinstance(model, BayesCeiling) for model in models):
        raise ValueError(
            "an audit of bayes_ceiling and noise in place of points exclude each other: "
            "noise has no distances along a manifold, and it predicts from nothing else."
        )
    nulls = {name: BASELINES[name] for name in NULLS}
    data = needed_truth({"method": models, **nulls}, replace(data, episodes=0))
    return [
        _audit_at(models, nulls, data, amount, name, (episodes, tuning, seed), device)
        for amount in labels
    ]


def _audit_at(
    models: Sequence[Method],
    nulls: dict[str, Method],
    data: DataConfig,
    labels: float,
    name: str,
    sizes: tuple[int, int, int],
    device: str,
) -> Audit:
    episodes, tuning, seed = sizes
    test = _draw(replace(data, split="test"), "test", episodes, seed, labels, device)
    training = _draw(replace(data, split="train"), "tune", tuning, seed, labels, device)
    ready = [model.tune(training) for model in models]

    def predict(episode: Episode) -> Float[Tensor, " b"]:
        return torch.stack([accuracy(m(episode), episode) for m in ready]).mean(0).cpu()

    own = predict(test)
    lines = [AuditLine(name, interval(own), None)]
    share = majority_rate(test.y, test.n_classes).cpu().to(own.dtype)
    lines.append(_null_line(LARGEST, own, share))
    for null, model in nulls.items():
        score = accuracy(model.tune(training)(test), test).cpu()
        lines.append(_null_line(_title(null), own, score))
    vote = accuracy(nulls["label_vote"](test), test).cpu()
    lines.append(_order_line(own, _without(predict, name, "order", _shuffle(test, seed))))
    noise = _without(predict, name, "points", _noise(test, seed, data.eigenvectors))
    lines.append(_noise_line(own, noise, vote, share))
    # More than two classes are those of the nearest centres: there is no other rule.
    if is_manifold(data.sources[0]) and data.n_classes == 2:
        other = _other_rule(data)
        swapped = _draw(other, "test", episodes, seed, labels, device)
        lines += _rule_lines(predict, nulls["label_vote"], swapped, other)
    return Audit(name, data.sources[0], labels, tuple(lines))


def _title(null: str) -> str:
    title = TITLES[null]
    return title[0].lower() + title[1:]


def _draw(
    data: DataConfig, stream: str, count: int, seed: int, labels: float, device: str
) -> Episode:
    drawn = EpisodeStream(data.build(), count, seed, stream).at(0, labels)
    return drawn.without("laplacian").to(device)


def _null_line(what: str, own: Tensor, score: Tensor) -> AuditLine:
    behind = compare_paired(own, score).difference
    finding = EXPLAINS if is_explained(behind.mean) else ""
    if not finding and behind.low <= 0:
        finding = UNDECIDED
    return AuditLine(what, interval(score), behind, finding)


def _order_line(own: Tensor, shuffled: Tensor) -> AuditLine:
    behind = compare_paired(own, shuffled).difference
    leaks = behind.low > 0 and behind.mean > NEAR / 2
    return AuditLine("points shuffled", interval(shuffled), behind, LEAKS if leaks else "")


def _noise_line(own: Tensor, noise: Tensor, vote: Tensor, largest: Tensor) -> AuditLine:
    """Return the score on noise; it says something if labels and a guess have less.

    Where classes are even, the vote of the labels is a little below a guess: the points
    that are left are of the other class. Where they are not, naming the largest class needs
    no points either.
    """
    above = [interval((noise - null).double()) for null in (vote, largest)]
    reads = all(gap.low > 0 and gap.mean > NEAR / 2 for gap in above)
    behind = compare_paired(own, noise).difference
    what = "noise in place of points"
    return AuditLine(what, interval(noise), behind, READS if reads else "")


def _without(predict: Predict, name: str, what: str, episode: Episode) -> Tensor:
    """Return scores on episodes that lack something; an error names both."""
    try:
        return predict(episode)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{name} cannot predict without the {what} of its episodes, which an audit "
            f"takes away: {error}"
        ) from error


def _shuffle(episode: Episode, seed: int) -> Episode:
    """Return the points of every context in another order, each with its label."""
    b, n = episode.y.shape
    generator = generator_for(seed, "audit: order")
    order = torch.rand(b, n, generator=generator).argsort(dim=1).to(episode.y.device)

    def reorder(values: Tensor) -> Tensor:
        index = order.view(b, n, *[1] * (values.ndim - 2)).expand_as(values)
        return values.gather(1, index)

    return Episode.unchecked(
        x=reorder(episode.x),
        y=reorder(episode.y),
        labelled=reorder(episode.labelled),
        n_classes=episode.n_classes,
        features=None if episode.features is None else reorder(episode.features),
    )


def _noise(episode: Episode, seed: int, eigenvectors: int) -> Episode:
    """Return the same labels on Gaussian noise of the points' own spread."""
    generator = generator_for(seed, "audit: noise")
    noise = torch.randn(episode.x.shape, generator=generator).to(episode.x)
    spread = episode.x.std(dim=1, keepdim=True)
    x = episode.x.mean(dim=1, keepdim=True) + spread * noise
    features = None
    if eigenvectors:  # those of the noise: true ones would give the points away
        neighbours = min(6, x.shape[1] - 1)
        features = ground_truth(x, eigenvectors, neighbours)[1].to(x.dtype)
    return Episode.unchecked(
        x=x,
        y=episode.y,
        labelled=episode.labelled,
        n_classes=episode.n_classes,
        features=features,
    )


def _other_rule(data: DataConfig) -> DataConfig:
    """Return test episodes by the other rule of the classes: a ball, or half of the points.

    A share of the ball belongs to the first rule, whatever it is.
    """
    is_share = replace(data, split="test").class_rule == "median"
    rule = _RADIUS if is_share else "median"
    return replace(data, split="test", test_threshold="", threshold=rule, ball_share=0.5)


def _rule_lines(
    predict: Predict, vote: Method, swapped: Episode, data: DataConfig
) -> list[AuditLine]:
    """Return the method and the vote of the labels under the other rule of the classes."""
    rule = data.threshold if isinstance(data.threshold, str) else f"radius {data.threshold}"
    own, voted = predict(swapped), accuracy(vote(swapped), swapped).cpu()
    behind = compare_paired(own, voted).difference
    explains = EXPLAINS + " under that rule" if is_explained(behind.mean) else ""
    return [
        AuditLine(f"other classes ({rule})", interval(own), None),
        AuditLine(f"vote of the labels ({rule})", interval(voted), behind, explains),
    ]
