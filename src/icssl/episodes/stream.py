"""Sources of episodes, endless streams of them, and finite sets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Generator

from icssl._util.files import FileKind, making_sense, read_tensors, write_tensors
from icssl._util.random import generator_for
from icssl.episodes.episode import Episode
from icssl.episodes.labels import choose_labelled

KIND = FileKind("icssl-episodes", "icssl sample")

EPISODES_AT_ONCE = 64
"""Episodes that :func:`make_dataset` draws together; another number gives other ones."""


@runtime_checkable
class Source(Protocol):
    """A source of episodes: a spec, a mixture, a table of features."""

    def draw(
        self,
        b: int,
        *,
        generator: Generator,
        labels: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Episode:
        """Draw ``b`` episodes on the generator's device."""
        ...


@dataclass(frozen=True)
class Mixture:
    """A mixture of sources; each batch comes from one of them, drawn by weight.

    A batch of one source has one shape, so sources may differ in n, d and c.
    """

    sources: Sequence[Source]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("a mixture needs at least one source, got none.")
        if self.weights is not None:
            if len(self.weights) != len(self.sources):
                raise ValueError(
                    f"a mixture needs one weight per source, got {len(self.weights)} "
                    f"weights for {len(self.sources)} sources."
                )
            if min(self.weights) < 0 or sum(self.weights) <= 0:
                raise ValueError(f"weights must be >= 0, not all 0, got {self.weights}.")

    def draw(
        self,
        b: int,
        *,
        generator: Generator,
        labels: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Episode:
        """Draw ``b`` episodes of one source."""
        weights = torch.tensor(
            self.weights or [1.0] * len(self.sources), dtype=torch.float64
        )
        # The choice is made on the CPU, so that no device is waited for.
        chooser = torch.Generator().manual_seed(generator.initial_seed())
        index = int(torch.multinomial(weights, 1, generator=chooser))
        return self.sources[index].draw(b, generator=generator, labels=labels, dtype=dtype)


@dataclass(frozen=True)
class FiniteSource:
    """A finite number of episodes, drawn once and given new labels again and again.

    Parameters
    ----------
    source : Source
        Where the episodes come from.
    size : int
        Number of different episodes.
    seed : int
        Seed of :func:`make_dataset`.
    device : str
        Where the episodes are made and stay.
    placement : {"random", "covering"}
        Choice of the points that get the new labels.
    """

    source: Source
    size: int
    seed: int = 0
    device: str = "cpu"
    placement: str = "random"

    @cached_property
    def episodes(self) -> Episode:
        """All episodes, made when they are first asked for."""
        return make_dataset(self.source, self.size, seed=self.seed, device=self.device)

    def draw(
        self,
        b: int,
        *,
        generator: Generator,
        labels: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Episode:
        """Draw ``b`` of the episodes with replacement, each with new labels."""
        episodes = self.episodes
        device = generator.device
        index = torch.randint(self.size, (b,), generator=generator, device=device)
        chosen = episodes[index.to(episodes.x.device)].to(device, dtype)
        amount = int(episodes.labelled[0].sum()) if labels is None else labels
        labelled = choose_labelled(
            chosen.y,
            amount,
            self.placement,
            n_classes=chosen.n_classes,
            generator=generator,
        )
        return chosen.with_labels(labelled)


@dataclass(frozen=True)
class EpisodeStream:
    """An endless stream of episodes; batch ``step`` does not depend on those before it.

    Parameters
    ----------
    source : Source
        Where the episodes come from.
    batch : int
        Number of episodes per step.
    seed : int
        Seed of the stream.
    name : str
        Streams of different names, such as "train" and "test", share no episodes.
    device : str
        Where episodes are made and stay.

    Examples
    --------
    >>> from icssl.episodes.synthetic import ManifoldSpec
    >>> stream = EpisodeStream(ManifoldSpec("torus"), batch=2, seed=0)
    >>> torch.equal(stream[5].x, stream[5].x)
    True
    """

    source: Source
    batch: int = 64
    seed: int = 0
    name: str = "train"
    device: str = "cpu"

    def at(self, step: int, labels: float | None = None) -> Episode:
        """Return the batch of a step, with another number of labels if one is given."""
        generator = generator_for(self.seed, self.name, step, device=self.device)
        return self.source.draw(self.batch, generator=generator, labels=labels)

    def __getitem__(self, step: int) -> Episode:
        return self.at(step)

    def __iter__(self) -> Iterator[Episode]:
        step = 0
        while True:
            yield self.at(step)
            step += 1


def make_dataset(
    source: Source, size: int, *, seed: int = 0, device: str = "cpu"
) -> Episode:
    """Return a finite set of episodes as one batch: the paper's "dataset size".

    The first episodes of a larger set are those of a smaller one.
    """
    if size < 1:
        raise ValueError(f"a dataset needs at least one episode, got {size}.")
    chunks = [
        source.draw(
            EPISODES_AT_ONCE, generator=generator_for(seed, "dataset", i, device=device)
        )
        for i in range(-(-size // EPISODES_AT_ONCE))
    ]
    return Episode.concat(chunks)[:size]


def save_episodes(episodes: Episode, path: Path, *, made_from: Any = None) -> None:
    """Write episodes as safetensors, whole or not at all, with what they were made from."""
    about = {"made_from": made_from, "n_classes": episodes.n_classes}
    write_tensors(path, episodes.tensors(), KIND, about)


def load_episodes(path: Path) -> tuple[Episode, Any]:
    """Return the checked episodes of a file, and what they were made from."""
    tensors, about = read_tensors(path, KIND)
    with making_sense(path, KIND):
        return Episode(**tensors, n_classes=about["n_classes"]), about["made_from"]


def describe(source: Any) -> Any:
    """Return a source as plain values for JSON: the name of its class and its fields."""
    if is_dataclass(source) and not isinstance(source, type):
        values = {field.name: getattr(source, field.name) for field in fields(source)}
        return {
            "kind": type(source).__name__,
            **{k: describe(v) for k, v in values.items()},
        }
    if isinstance(source, (list, tuple)):
        return [describe(value) for value in source]
    if isinstance(source, Path):
        return str(source)
    return source
