"""Specs that look into models: how alike representations are, and what stages compute."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from icssl.bench.spec import TEST_SEED, training_values, trainings_values
from icssl.bench.store import key_of
from icssl.episodes.data_config import EIGENVECTORS, DataConfig
from icssl.episodes.episode import Episode
from icssl.episodes.stream import EpisodeStream
from icssl.evaluation.metrics import accuracy, interval, separation_score
from icssl.evaluation.predictors import ModelMethod
from icssl.evaluation.representations import ALIGNMENTS, eigenmap_angles
from icssl.model.build import AnyModel
from icssl.model.head import GradientDescentHead
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer
from icssl.training.config import TrainConfig

EIG = "eig"
_Side = TrainConfig | tuple[TrainConfig, ...] | str


@dataclass(frozen=True)
class Alignment:
    """Two representations of the same test episodes: how alike, and how separated.

    Only unlabelled points count, since some models write the label into the others.

    Parameters
    ----------
    first, second : TrainConfig, tuple of TrainConfig, or "eig"
        Models, or the ground-truth eigenvectors. Of two tuples, models at the same place
        are compared, and measures are averaged over places.
    data : DataConfig
    labels : int or float
    episodes, seed : int
        Number of test episodes, and their seed.
    """

    first: _Side
    second: _Side
    data: DataConfig
    labels: float
    episodes: int = 100
    seed: int = TEST_SEED

    def __post_init__(self) -> None:
        first, second = (len(_models(side)) for side in (self.first, self.second))
        if first and second and first != second:
            raise ValueError(
                "an alignment compares models one by one, got sides of "
                f"{first} and {second} models."
            )

    @property
    def trainings(self) -> tuple[TrainConfig, ...]:
        """The models of both sides."""
        return tuple(config for s in (self.first, self.second) for config in _models(s))

    @cached_property
    def key(self) -> str:
        """A hash of the whole spec."""
        return key_of(self.describe())

    @property
    def title(self) -> str:
        """A few words for a person who waits."""
        return f"alignment, {'+'.join(self.data.sources)}, {self.labels} labels"

    def describe(self) -> dict[str, Any]:
        """Return the spec as plain values."""
        sides = [_side_values(side) for side in (self.first, self.second)]
        about = {"labels": self.labels, "episodes": self.episodes, "seed": self.seed}
        return {"kind": "alignment", "sides": sides, "data": self.data.to_dict(), **about}

    @torch.no_grad()
    def measure(self, models: Sequence[AnyModel], device: str) -> dict[str, Any]:
        """Return all alignments, and the separation of either side.

        Several models per side are compared one by one. Intervals are then over episodes,
        and the means of single comparisons stand beside them.
        """
        episode = _test_episodes(self, device)
        border = len(_models(self.first))
        # Eigenvectors are None, which is beside every model of the other side.
        pairs = list(zip_longest(models[:border], models[border:])) or [(None, None)]
        compared = [_compare(*pair, episode, device) for pair in pairs]
        found: dict[str, Any] = {}
        for name in compared[0]:
            values = torch.stack([measures[name] for measures in compared])
            found[name] = _estimate(values.mean(dim=0))
            if len(compared) > 1:
                means = values.double().mean(dim=1).tolist()
                found[name]["seeds"] = [round(mean, 5) for mean in means]
        return {"measures": found}


def _models(side: _Side) -> tuple[TrainConfig, ...]:
    """Return the models of a side of an alignment; the eigenvectors are none."""
    if isinstance(side, str):
        return ()
    return side if isinstance(side, tuple) else (side,)


def _side_values(side: _Side) -> Any:
    """Return a side as plain values; one model as it always was, for its key."""
    if isinstance(side, str):
        return side
    return trainings_values(side) if isinstance(side, tuple) else training_values(side)


def _compare(
    first: AnyModel | None, second: AnyModel | None, episode: Episode, device: str
) -> dict[str, Tensor]:
    """Return the measures of two representations, one value per episode."""
    a, b = (
        _of_unlabelled(
            _eigenvectors(episode) if m is None else m.to(device).features(episode), episode
        )
        for m in (first, second)
    )
    y = _of_unlabelled(episode.y, episode)
    values = {name: align(a, b) for name, align in ALIGNMENTS.items()}
    separations = {"first": separation_score(a, y), "second": separation_score(b, y)}
    return values | {f"separation_{side}": value for side, value in separations.items()}


@dataclass(frozen=True)
class Mechanism:
    """What the stages of trained models compute, beside what the lemmas say.

    Parameters
    ----------
    trainings : tuple of TrainConfig
        Models with all three stages, one per seed.
    data : DataConfig
        Test episodes, whose ground truth features are compared with.
    labels : int or float
    episodes, seed : int
        Number of test episodes, and their seed.
    iterations : int
        Iterations of the constructed model that is scored beside them.
    """

    trainings: tuple[TrainConfig, ...]
    data: DataConfig
    labels: float
    episodes: int = 50
    seed: int = TEST_SEED
    iterations: int = 3000

    @cached_property
    def key(self) -> str:
        """A hash of the whole spec."""
        return key_of(self.describe())

    @property
    def title(self) -> str:
        """A few words for a person who waits."""
        return f"mechanism, {'+'.join(self.data.sources)}"

    def describe(self) -> dict[str, Any]:
        """Return the spec as plain values."""
        return {
            "kind": "mechanism",
            "trainings": trainings_values(self.trainings),
            "data": self.data.to_dict(),
            "labels": self.labels,
            "episodes": self.episodes,
            "seed": self.seed,
            "iterations": self.iterations,
        }

    @torch.no_grad()
    def measure(self, models: Sequence[AnyModel], device: str) -> dict[str, Any]:
        """Return weights of stage 1, angles of stage 2 by layer, stage 3's expectation."""
        episode = _test_episodes(self, "cpu")
        staged = [m.cpu() for m in models if isinstance(m, ICSSLTransformer)]
        built = ICSSLTransformer(ModelConfig.constructed(k=2, iterations=self.iterations))
        return {
            "stage1": [_bandwidths(model) for model in staged],
            "stage2": [_angles(model, episode) for model in staged],
            "stage3": [_expectation(model) for model in staged],
            "trained": [_accuracy(model, episode) for model in staged],
            "constructed": _accuracy(built, episode),
        }


def _test_episodes(spec: Alignment | Mechanism, device: str) -> Episode:
    data = replace(spec.data, split="test", episodes=0, eigenvectors=EIGENVECTORS)
    # On the CPU, as for scores: the same episodes on every device.
    stream = EpisodeStream(data.build(), spec.episodes, spec.seed, "test")
    return stream.at(0, spec.labels).to(device)


def _of_unlabelled(values: Tensor, episode: Episode) -> Tensor:
    """Return rows of the unlabelled points, as many in every episode."""
    return values[~episode.labelled].unflatten(0, (len(episode), -1))


def _eigenvectors(episode: Episode) -> Tensor:
    assert episode.features is not None
    return episode.features


def _estimate(values: Tensor) -> dict[str, float]:
    estimate = interval(values)
    return {"mean": round(estimate.mean, 5), "half_width": round(estimate.half_width, 5)}


def _accuracy(model: ICSSLTransformer, episode: Episode) -> dict[str, float]:
    dtype = next(model.parameters()).dtype
    wide = episode.to(dtype=dtype)
    return _estimate(accuracy(ModelMethod(model)(wide), wide))


def _bandwidths(model: ICSSLTransformer) -> dict[str, Any]:
    """Each head's bandwidth 1 / sqrt(b c), and its weight in R, which Lemma 1 has at -1."""
    stage = model.laplacian
    assert stage is not None
    product = (stage.key_scale * stage.query_scale).double()
    return {
        "bandwidth": product.abs().rsqrt().tolist(),
        "attracts": (product > 0).tolist(),
        "mix": stage.mix_r.double().tolist(),
        "skip": stage.skip_r.double().tolist(),
    }


def _angles(model: ICSSLTransformer, episode: Episode) -> dict[str, list[float]]:
    angles = eigenmap_angles(model, episode, k=min(EIGENVECTORS, model.config.k))
    assert angles.to_truth is not None
    return {
        "to_operator": angles.to_operator.mean(dim=1).tolist(),
        "to_truth": angles.to_truth.mean(dim=1).tolist(),
    }


def _expectation(model: ICSSLTransformer) -> dict[str, list[float]] | None:
    """The MLP along the line through the class embeddings, beside the exact expectation."""
    head = model.head
    if not isinstance(head, GradientDescentHead) or head.mlp is None:
        return None
    w = head.class_embeddings(model.config.n_classes)
    direction = (w[1] - w[0]) / (w[1] - w[0]).norm()
    along = torch.linspace(-3, 3, 25, dtype=w.dtype)
    f = along[:, None] * direction
    exact = (f @ w.mT).softmax(dim=-1) @ w
    return {
        "f": along.tolist(),
        "mlp": (head.expectation(f, w) @ direction).tolist(),
        "exact": (exact @ direction).tolist(),
    }
