"""Batches: models of one architecture are trained at once, and then specs are measured."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from icssl.bench.spec import Spec
from icssl.episodes.data_config import DataConfig
from icssl.episodes.episode import Episode
from icssl.episodes.stream import EpisodeStream
from icssl.model.build import AnyModel
from icssl.training.config import TrainConfig
from icssl.training.group import SHARED, Group, stack_episodes
from icssl.training.loop import NonFiniteLossError, OutOfMemoryError, train

AT_ONCE = {"cpu": 1, "cuda": 48}  # models; more do not train faster
_HELD_OUT = 256  # episodes, at most, on which the end of training is judged
_LATE = 0.8  # of the steps: where the slope of the held-out loss is taken from
_STILL_FALLING = -0.05  # nats for e times the episodes


@dataclass(frozen=True)
class Batch:
    """Models to train at once, and the specs that can be measured when they are trained."""

    configs: tuple[TrainConfig, ...]
    specs: tuple[Spec, ...]

    @property
    def cost(self) -> float:
        """Cost in an arbitrary unit, for an estimate of the time that is left."""
        trained = sum(config.steps * config.batch for config in self.configs)
        return trained / 50_000 + len(self.specs) * (0.1 if self.configs else 1)

    def __str__(self) -> str:
        if not self.configs:
            return ", ".join(spec.title for spec in self.specs)
        first = next(iter(self.specs), None)
        of = f", {first.title}" if first else ""
        return f"training {len(self.configs)} models{of}"


def batches_of(specs: Sequence[Spec], device: str) -> list[Batch]:
    """Group trainings that can share a run; a spec is in the batch that completes it."""
    groups = _groups_of(specs, AT_ONCE["cuda" if device.startswith("cuda") else "cpu"])
    place = {config: i for i, group in enumerate(groups) for config in group}
    ready: dict[int, list[Spec]] = {}
    for spec in dict.fromkeys(specs):
        if spec.trainings:
            ready.setdefault(max(place[c] for c in spec.trainings), []).append(spec)
    batches = [Batch(group, tuple(ready.get(i, ()))) for i, group in enumerate(groups)]
    return [*batches, *(Batch((), (s,)) for s in dict.fromkeys(specs) if not s.trainings)]


def _groups_of(specs: Sequence[Spec], at_once: int) -> list[tuple[TrainConfig, ...]]:
    """Return models to train at once, those of one spec in one group if they fit.

    Another process may claim a spec: models of it that were left behind in two groups would
    be trained a few at a time, which takes as long as many.
    """
    groups: list[list[TrainConfig]] = []
    last: dict[str, list[TrainConfig]] = {}  # the group of each architecture that has room
    placed: set[TrainConfig] = set()
    for spec in specs:
        alike: dict[str, list[TrainConfig]] = {}
        for config in dict.fromkeys(spec.trainings):
            if config not in placed:
                alike.setdefault(_architecture(config), []).append(config)
        placed.update(spec.trainings)
        for name, configs in alike.items():
            for i in range(0, len(configs), at_once):
                part = configs[i : i + at_once]
                if name not in last or len(last[name]) + len(part) > at_once:
                    last[name] = []
                    groups.append(last[name])
                last[name] += part
    return [tuple(group) for group in groups]


def _architecture(config: TrainConfig) -> str:
    """Return what models trained at once agree in, with the shape of episodes."""
    shape = _shape(replace(config.data, sources=config.data.sources[:1], episodes=0))
    return repr([*(getattr(config, name) for name in SHARED), shape])


@cache
def _shape(data: DataConfig) -> tuple[int, ...]:
    return tuple(data.build().draw(1, generator=torch.Generator()).x.shape)


def families_of(specs: Sequence[Spec]) -> dict[TrainConfig, set[str]]:
    """Return keys of the specs that share models with each model, also through others.

    A process claims such specs together: models that two of them need are trained once.
    """
    families: dict[TrainConfig, set[str]] = {}
    for spec in specs:
        keys = {spec.key}.union(*(families.get(c, set()) for c in spec.trainings))
        # All models of the families that this spec connects become one family.
        members = {c for c, other in families.items() if other & keys} | {*spec.trainings}
        families |= dict.fromkeys(members, keys)
    return families


def keys_to_claim(batch: Batch, families: dict[TrainConfig, set[str]]) -> set[str]:
    """Return keys of all specs that a process should claim before it runs a batch."""
    return {spec.key for spec in batch.specs}.union(*(families[c] for c in batch.configs))


@dataclass(frozen=True)
class Training:
    """A trained model, and whether it was still improving.

    Parameters
    ----------
    model : AnyModel
    held_out : float
        Loss on held-out episodes of its own source.
    slope : float
        Slope of that loss over the last fifth of the steps, against the logarithm of the
        number of steps; 0 for runs too short to have one.
    """

    model: AnyModel
    held_out: float
    slope: float

    @property
    def undertrained(self) -> bool:
        """Whether more episodes would still lower the loss visibly."""
        return self.slope < _STILL_FALLING


def train_all(configs: Sequence[TrainConfig], device: str) -> dict[TrainConfig, Training]:
    """Train models by :func:`train_batch`, in smaller groups where one run fails.

    A model whose loss becomes infinite stops all others: then they are trained one by one,
    and this one is left out. A group that does not fit the memory is halved.
    """
    try:
        return train_batch(configs, device)
    except NonFiniteLossError as error:
        if len(configs) == 1:
            warnings.warn(f"no rows of this model: {error}", RuntimeWarning, stacklevel=2)
            return {}
        parts = [[config] for config in configs]
    except (OutOfMemoryError, torch.OutOfMemoryError):
        if len(configs) == 1:
            raise
        middle = len(configs) // 2
        parts = [list(configs[:middle]), list(configs[middle:])]
    trained: dict[TrainConfig, Training] = {}
    for part in parts:
        trained |= train_all(part, device)
    return trained


def train_batch(configs: Sequence[TrainConfig], device: str) -> dict[TrainConfig, Training]:
    """Train models at once, and see on held-out episodes whether they still improve."""
    if not configs:
        return {}
    group, held_out = Group(configs), _held_out_episodes(configs, device)
    losses: dict[int, list[float]] = {}

    def observe(step: int, weights: Tensor) -> None:
        with torch.no_grad():
            losses[step] = group.losses(weights, held_out)[0].tolist()

    steps = configs[0].steps
    late = max(1, int(_LATE * steps))
    with _precision(configs[0]):
        models = train(configs, device=device, observe={late: observe, steps: observe})
    trained = {}
    for i, (config, model) in enumerate(zip(configs, models, strict=True)):
        gained = losses[steps][i] - losses[late][i]
        slope = gained / math.log(steps / late) if steps > late else 0.0
        trained[config] = Training(model, losses[steps][i], slope)
    return trained


@contextmanager
def _precision(config: TrainConfig) -> Iterator[None]:
    """Allow TF32 for encoders, which are mostly products of matrices."""
    before = torch.get_float32_matmul_precision()
    encoder = getattr(config.model, "head", "encoder") == "encoder"
    torch.set_float32_matmul_precision("high" if encoder else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _held_out_episodes(configs: Sequence[TrainConfig], device: str) -> Episode:
    """Draw episodes for every model from its own sources, in a separate stream."""
    drawn = []
    for config in configs:
        data = replace(config.episodes_config(), episodes=0)
        middle = sorted(config.labels)[len(config.labels) // 2]
        # As many for one source as for four: models trained at once share a shape.
        count = min(_HELD_OUT, max(8, config.steps * config.batch // 40 * 4))
        parts = [
            EpisodeStream(
                replace(data, sources=(source,)).build(),
                count // len(data.sources),
                config.seed,
                "held-out",
                device,
            ).at(0, middle)
            for source in data.sources
        ]
        drawn.append(Episode.concat(parts))
    return stack_episodes(drawn)
