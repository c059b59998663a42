"""Scoring of methods on the same test episodes: rows with intervals and comparisons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from jaxtyping import Float
from torch import Tensor

from icssl.episodes.data_config import DataConfig
from icssl.episodes.episode import Episode
from icssl.episodes.labels import majority_rate
from icssl.episodes.stream import EpisodeStream
from icssl.evaluation.metrics import Comparison, Estimate, compare_paired, summarise
from icssl.methods import Method

Methods = Mapping[str, Method | Sequence[Method]]
"""Methods by name; several of one name are models that differ in their seed."""


@dataclass(frozen=True, eq=False)
class Row:
    """Scores of one method at one label budget.

    Parameters
    ----------
    method, source : str
        Names of the method and of where the episodes come from.
    labels : int or float
        The budget, a count or a fraction.
    metrics : dict of Estimate
        Means over test episodes, each with its 95% interval.
    majority_rate : float
        Mean share of the largest class: the accuracy that needs no method.
    values : dict of Tensor of shape (episodes,)
        The metrics that every episode has, for paired comparisons.
    settings : str
        Settings that tuning chose.
    models : int
        Number of models that were scored; metrics and values are their means.
    """

    method: str
    source: str
    labels: float
    metrics: dict[str, Estimate]
    majority_rate: float
    values: dict[str, Float[Tensor, " episodes"]]
    settings: str
    models: int = 1

    @property
    def accuracies(self) -> Float[Tensor, " episodes"]:
        """The accuracy of every episode."""
        return self.values["accuracy"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a line of JSON."""
        return {
            "method": self.method,
            "source": self.source,
            "labels": self.labels,
            "episodes": len(self.accuracies),
            "majority_rate": self.majority_rate,
            "settings": self.settings,
            "models": self.models,
            "metrics": {
                name: {"mean": e.mean, "half_width": e.half_width, "count": e.count}
                for name, e in self.metrics.items()
            },
        }

    def versus(self, other: "Row", metric: str = "accuracy") -> Comparison:
        """Compare a metric of ``values`` with another method's on the same episodes."""
        return compare_paired(self.values[metric], other.values[metric])


def evaluate(
    methods: Methods,
    data: DataConfig,
    labels: Sequence[float],
    *,
    episodes: int = 300,
    tuning: int = 200,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Return one row per method and label budget.

    All methods see the same test episodes. A method that has settings to choose chooses
    them on training episodes with as many labels, drawn from another stream.

    Parameters
    ----------
    methods : mapping of str to Method or a sequence of them
        Methods by name. Of several under one name, each is scored and the row holds the
        mean over them, episode by episode.
    data : DataConfig
        The source of episodes, with the ground truth that the methods read.
    labels : sequence of int or float
        Label budgets, as counts or fractions.
    episodes, tuning : int
        Test episodes, and training episodes for tuning, at each budget.
    seed : int
        Seed of both.
    device : str
        Where methods run.
    progress : callable, optional
        Called with a line of text before each method.
    """
    if len(data.sources) != 1:
        # A batch is of one source, so a mixture would be scored on one of them alone.
        raise ValueError(f"evaluate one source at a time, got {data.sources}.")
    (source,) = data.sources
    for_test = replace(data, split="test", episodes=0)
    for_tuning = replace(data, split="train", episodes=0)
    rows = []
    for amount in labels:
        test = _draw(for_test, "test", episodes, seed, device, amount)
        training = _draw(for_tuning, "tune", tuning, seed, device, amount)
        rate = majority_rate(test.y, test.n_classes).mean().item()
        for name, method in methods.items():
            if progress is not None:
                progress(f"{source}, {amount} labels, {name}")
            chosen = [model.tune(training) for model in each_of(method)]
            values, metrics = summarise([model(test) for model in chosen], test)
            rows.append(
                Row(
                    method=name,
                    source=source,
                    labels=amount,
                    metrics=metrics,
                    majority_rate=rate,
                    values=values,
                    settings=_settings(chosen[0]),
                    models=len(chosen),
                )
            )
    return rows


def each_of(method: Method | Sequence[Method]) -> Sequence[Method]:
    """Return the methods of one name as a sequence."""
    return method if isinstance(method, Sequence) else [method]


@lru_cache(maxsize=8)  # a suite scores many methods on the same episodes
def _draw(
    data: DataConfig, name: str, count: int, seed: int, device: str, labels: float
) -> Episode:
    # Drawn on the CPU always, since a GPU's generator gives other numbers: rows made on
    # either device can then be compared episode by episode.
    drawn = EpisodeStream(data.build(), count, seed, name).at(0, labels)
    return drawn.without("laplacian").to(device)


def _settings(method: Method) -> str:
    text = repr(method)
    return "" if "\n" in text else text
