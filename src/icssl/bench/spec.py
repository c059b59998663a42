"""``Scores``: a method on test episodes at one label budget, and the key of its row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.bench.store import key_of
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.metrics import interval
from icssl.evaluation.predictors import ModelMethod, needed_truth, predictors_named
from icssl.evaluation.scoring import Row, evaluate
from icssl.methods import BASELINES, Method
from icssl.methods.registry import recipe_of
from icssl.model.build import AnyModel
from icssl.training.config import TrainConfig

TEST_SEED = 7

# Rows were stored before this method was renamed. Their keys hold its old name; the model
# itself is in the trainings, field by field, so that no other row can have them.
_STORED_NAMES = {"paper_scalars": "paper"}


@runtime_checkable
class Spec(Protocol):
    """What one row comes from: models to train, and what to measure with them."""

    @property
    def trainings(self) -> tuple[TrainConfig, ...]:
        """The models that it needs, which other specs may need too."""
        ...

    @property
    def key(self) -> str:
        """A hash of everything that decides the row."""
        ...

    @property
    def title(self) -> str:
        """A few words for a person who waits."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the row, as plain values."""
        ...

    def measure(self, models: Sequence[AnyModel], device: str) -> dict[str, Any]:
        """Return the measured part of the row, from the trained models."""
        ...


@runtime_checkable
class RecordsFailure(Protocol):
    """A spec whose failure becomes its row, instead of ending the run."""

    def failure(self, why: str) -> dict[str, Any]:
        """Return the measured part of the row of a spec that failed."""
        ...


@dataclass(frozen=True)
class Scores:
    """One method on the test episodes of one source at one label budget.

    Parameters
    ----------
    method : str
        Name of a method, see :data:`icssl.evaluation.predictors.METHODS`.
    data : DataConfig
        Data that it is tested on.
    labels : int or float
        Number or share of labelled points.
    trainings : tuple of TrainConfig
        Runs of a trained method, one per seed. They are scored one by one and averaged.
    episodes, tuning : int
        Test episodes, and training episodes on which a classical method is tuned.
    seed : int
        Seed of both.
    """

    method: str
    data: DataConfig
    labels: float
    trainings: tuple[TrainConfig, ...] = ()
    episodes: int = 500
    tuning: int = 200
    seed: int = TEST_SEED

    @cached_property
    def key(self) -> str:
        """A hash of the whole spec."""
        return key_of(self.describe())

    @property
    def title(self) -> str:
        """Method, source and budget."""
        return f"{self.method}, {'+'.join(self.data.sources)}, {self.labels} labels"

    def describe(self) -> dict[str, Any]:
        """Return the spec as plain values; a classical method with how it is tuned."""
        values = {
            "kind": "scores",
            "method": _STORED_NAMES.get(self.method, self.method),
            "data": self.data.to_dict(),
            "labels": self.labels,
            "trainings": trainings_values(self.trainings),
            "episodes": self.episodes,
            "seed": self.seed,
        }
        if self.trainings:
            return values
        # A classical method by its settings too: with other ones it is another method.
        return {
            **values,
            "tuning": self.tuning,
            "settings": _stated_settings(self.method),
        }

    def measure(self, models: Sequence[AnyModel], device: str) -> dict[str, Any]:
        """Return metrics with intervals, and accuracies of seeds and of episodes."""
        methods: list[Method] = [ModelMethod(model.to(device)) for model in models]
        methods = methods or predictors_named(self.method, self.data)
        named = {str(i): method for i, method in enumerate(methods)}
        rows = evaluate(
            named,
            needed_truth(named, self.data),
            [self.labels],
            episodes=self.episodes,
            tuning=1 if models else self.tuning,  # nothing of a model is tuned
            seed=self.seed,
            device=device if models else "cpu",
        )
        return _summary_of(rows)


def _summary_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows of one method's seeds as one, averaged episode by episode."""
    metrics = {}
    for name in rows[0].values:
        values = torch.stack([row.values[name].double().cpu() for row in rows])
        estimate = interval(values.mean(dim=0))
        metrics[name] = {"mean": estimate.mean, "half_width": estimate.half_width}
    errors = [row.metrics["expected_calibration_error"].mean for row in rows]
    metrics["expected_calibration_error"] = {"mean": sum(errors) / len(errors)}
    accuracies = torch.stack([row.accuracies.double().cpu() for row in rows])
    return {
        "metrics": _round_all(metrics),
        "seeds": [round(value, 5) for value in accuracies.mean(dim=1).tolist()],
        "accuracies": [round(value, 4) for value in accuracies.mean(dim=0).tolist()],
        "majority_rate": round(rows[0].majority_rate, 5),
        "settings": rows[0].settings,
    }


def accuracies_of(row: dict[str, Any]) -> Float[Tensor, " episodes"]:
    """Return the accuracy of every test episode, for paired comparisons."""
    return torch.tensor(row["accuracies"], dtype=torch.float64)


@cache
def training_values(config: TrainConfig) -> dict[str, Any]:
    """Return a training run as plain values, one object that many specs share."""
    return config.to_dict()


def trainings_values(configs: Sequence[TrainConfig]) -> list[dict[str, Any]]:
    """Return runs as plain values; those that differ in the seed alone stand once."""
    seeds: dict[TrainConfig, list[int]] = {}
    for config in configs:
        seeds.setdefault(replace(config, seed=0), []).append(config.seed)
    return [{**training_values(c), "seed": listed} for c, listed in seeds.items()]


def _stated_settings(method: str) -> str:
    """Return the settings of a classical method as the registry states them."""
    if method not in BASELINES:
        return "None"  # refused when it is measured
    return str(recipe_of("evaluate", method).stated_settings)


def _round_all(metrics: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {part: round(value, 5) for part, value in parts.items()}
        for name, parts in metrics.items()
    }
