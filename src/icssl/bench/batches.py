"""What is trained together, what is measured then, and what belongs to one process."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from icssl.bench.spec import Spec
from icssl.episodes.data_config import DataConfig
from icssl.training.config import TrainConfig
from icssl.training.group import SHARED

AT_ONCE = {"cpu": 1, "cuda": 48}  # models; more do not train faster


@dataclass(frozen=True)
class Batch:
    """Models to train at once, and the specs that can be measured when they are trained."""

    configs: tuple[TrainConfig, ...]
    specs: tuple[Spec, ...]

    @property
    def cost(self) -> float:
        """About how long it takes, in a unit of its own, for the time that is left."""
        trained = sum(config.steps * config.batch for config in self.configs)
        return trained / 50_000 + len(self.specs) * (0.1 if self.configs else 1)

    def __str__(self) -> str:
        if not self.configs:
            return ", ".join(spec.title for spec in self.specs)
        first = next(iter(self.specs), None)
        of = f", {first.title}" if first else ""
        return f"training {len(self.configs)} models{of}"


def batches_of(specs: Sequence[Spec], device: str) -> list[Batch]:
    """Trainings that can share a run, with every spec in the batch that completes it."""
    alike: dict[str, list[TrainConfig]] = {}
    for config in dict.fromkeys(c for spec in specs for c in spec.trainings):
        alike.setdefault(_architecture(config), []).append(config)
    at_once = AT_ONCE["cuda" if device.startswith("cuda") else "cpu"]
    groups = [
        tuple(configs[i : i + at_once])
        for configs in alike.values()
        for i in range(0, len(configs), at_once)
    ]
    place = {config: i for i, group in enumerate(groups) for config in group}
    ready: dict[int, list[Spec]] = {}
    for spec in dict.fromkeys(specs):
        if spec.trainings:
            ready.setdefault(max(place[c] for c in spec.trainings), []).append(spec)
    batches = [Batch(group, tuple(ready.get(i, ()))) for i, group in enumerate(groups)]
    return [*batches, *(Batch((), (s,)) for s in dict.fromkeys(specs) if not s.trainings)]


def _architecture(config: TrainConfig) -> str:
    """What models trained at once must agree in, the shape of episodes included."""
    shape = _shape(replace(config.data, sources=config.data.sources[:1], episodes=0))
    return repr([*(getattr(config, name) for name in SHARED), shape])


@cache
def _shape(data: DataConfig) -> tuple[int, ...]:
    return tuple(data.build().draw(1, generator=torch.Generator()).x.shape)


def families_of(specs: Sequence[Spec]) -> dict[TrainConfig, set[str]]:
    """Keys of the specs that share models with each model, directly or through others.

    A process claims such specs together: models that two of them need are trained once.
    """
    found: dict[TrainConfig, set[str]] = {}
    for spec in specs:
        joined = {spec.key}.union(*(found.get(c, set()) for c in spec.trainings))
        members = {c for c, keys in found.items() if keys & joined} | {*spec.trainings}
        found |= dict.fromkeys(members, joined)
    return found


def keys_to_claim(batch: Batch, families: dict[TrainConfig, set[str]]) -> set[str]:
    """Return keys of all specs that a process should claim before it runs a batch."""
    return {spec.key for spec in batch.specs}.union(*(families[c] for c in batch.configs))
