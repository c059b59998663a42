"""Scoring of methods on the same test episodes: rows with intervals and comparisons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import isnan
from typing import Any

from jaxtyping import Float
from torch import Tensor

from icssl import __version__
from icssl._util.errors import check_choice
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
    data : DataConfig, optional
        What the test episodes were drawn from.
    seed : int
        Seed of the test episodes.
    n : int
        Points per episode.
    """

    method: str
    source: str
    labels: float
    metrics: dict[str, Estimate]
    majority_rate: float
    values: dict[str, Float[Tensor, " episodes"]]
    settings: str
    models: int = 1
    data: DataConfig | None = None
    seed: int = 0
    n: int = 0

    @property
    def accuracies(self) -> Float[Tensor, " episodes"]:
        """The accuracy of every episode."""
        return self.values["accuracy"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a line of JSON: with those of every episode."""
        return {
            "method": self.method,
            "source": self.source,
            "labels": self.labels,
            "n": self.n,
            "episodes": len(self.accuracies),
            "seed": self.seed,
            "threshold": None if self.data is None else self.data.threshold,
            "placement": None if self.data is None else self.data.placement,
            "majority_rate": self.majority_rate,
            "settings": self.settings,
            "models": self.models,
            "version": __version__,
            "metrics": {
                name: {"mean": e.mean, "half_width": e.half_width, "count": e.count}
                for name, e in self.metrics.items()
            },
            "values": {name: _plain(values) for name, values in self.values.items()},
        }

    def versus(self, other: "Row", metric: str = "accuracy") -> Comparison:
        """Compare with another method on the same episodes: this row minus the other.

        A positive difference of accuracy says that this row is better; of ``log_loss``,
        that it is worse. Rows of other episodes (another source, number of labels, seed or
        rule of the classes) are refused, since they have no pairs.

        Parameters
        ----------
        other : Row
            What is subtracted.
        metric : str
            One of ``values``.
        """
        check_choice("metric of single episodes", metric, self.values)
        mine, theirs = self._episodes(), other._episodes()
        apart = [
            f"{name} {value!r} and {theirs[name]!r}"
            for name, value in mine.items()
            if name in theirs and value != theirs[name]
        ]
        if apart:
            raise ValueError(
                f"rows of {self.method} and {other.method} are of different episodes, so "
                f"they have no pairs: {', '.join(apart)}. Compare rows of one call of "
                "evaluate at one number of labels."
            )
        return compare_paired(self.values[metric], other.values[metric])

    def _episodes(self) -> dict[str, Any]:
        """Return all that decides the test episodes, apart from their ground truth."""
        about = {"source": self.source, "labels": self.labels, "seed": self.seed}
        about["episodes"] = len(self.accuracies)
        drawn = {} if self.data is None else asdict(self.data)
        # Ground truth is computed from the points, so it changes no episode.
        for unread in ("eigenvectors", "distances"):
            drawn.pop(unread, None)
        return {**drawn, **about}


def _plain(values: Tensor) -> list[float | None]:
    """Return numbers for JSON, which has no NaN: an episode without a score has None."""
    return [None if isnan(v) else round(v, 6) for v in values.double().tolist()]


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
                    data=for_test,
                    seed=seed,
                    n=test.y.shape[1],
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
