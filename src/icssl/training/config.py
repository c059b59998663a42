"""``TrainConfig``: everything that decides which weights a training run ends with."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from icssl._util.config_fields import added_later, check_kinds, stated_values
from icssl._util.errors import check_at_least, check_choice, check_positive
from icssl.episodes.data_config import EIGENVECTORS, DataConfig, is_manifold
from icssl.episodes.labels import label_count
from icssl.episodes.void_options import check_data_effects
from icssl.model.baseline import BaselineConfig
from icssl.model.build import KINDS, AnyConfig, config_from_dict, config_to_dict
from icssl.model.model_config import ModelConfig
from icssl.model.void_options import check_effects
from icssl.training.presets import PRESETS


@dataclass(frozen=True)
class TrainConfig:
    """Configuration of a training run: what is trained, on what, and how.

    Parameters
    ----------
    model : ModelConfig or BaselineConfig
        Architecture of the model.
    data : DataConfig
        Source of the training episodes.
    labels : tuple of int or float
        Label budgets, counts or fractions; each step draws one of them.
    steps, batch : int
        Number of optimiser steps, and of episodes in each.
    seed : int
        Seed of the initial weights, the episodes and the budgets.
    learning_rate : float
        Highest rate of AdamW.
    warmup : float
        Share of the steps over which the rate rises linearly.
    final_rate : float
        Share of the rate that its cosine decay ends at.
    weight_decay : float
        Weight decay of AdamW.
    clip : float
        Largest length of the gradient.
    laplacian_weight, eigenmap_weight : float
        Weights of two further losses: see :class:`icssl.training.group.Objective`.
    gamma_rate : float
        Highest rate of AdamW for the logarithm of the head's gamma, where it differs from
        ``learning_rate``; 0 if not. A head alone has little else to learn, and at a rate of
        1e-2 some hundred steps do not reach a gamma that is far from its start.
    """

    model: AnyConfig = field(default_factory=lambda: ModelConfig.preset("free"))
    data: DataConfig = field(default_factory=DataConfig)
    labels: tuple[float, ...] = (3, 5, 10, 15, 21, 30, 39)
    steps: int = 2000
    batch: int = 64
    seed: int = 0
    learning_rate: float = 1e-2
    warmup: float = 0.05
    final_rate: float = 0.01
    weight_decay: float = 0.0
    clip: float = 1.0
    laplacian_weight: float = 0.0
    eigenmap_weight: float = 0.0
    # Came later: rows that were stored before have keys without it.
    gamma_rate: float = added_later(0.0)

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("seed", "warmup", "final_rate", "weight_decay", "laplacian_weight"):
            check_at_least(name, getattr(self, name), 0)
        for name in ("eigenmap_weight", "gamma_rate"):
            check_at_least(name, getattr(self, name), 0)
        self._check_gamma_rate()
        self._check_points()
        check_positive("learning_rate", self.learning_rate)
        check_positive("clip", self.clip)
        for name in ("warmup", "final_rate"):
            if getattr(self, name) > 1:
                raise ValueError(
                    f"{name} is a share, at most 1, got {getattr(self, name)}."
                )
        if not self.labels:
            raise ValueError("labels must name at least one budget, got none.")
        for amount in self.labels:
            label_count(amount, self.data.n)
        if self.data.split != "train":
            raise ValueError(f"data.split must be 'train' here, got {self.data.split!r}.")
        staged = isinstance(self.model, ModelConfig) and self.model.features == "eigenmap"
        if (self.laplacian_weight or self.eigenmap_weight) and not staged:
            raise ValueError(
                "laplacian_weight and eigenmap_weight need a model with stages 1 and 2, "
                "that is features='eigenmap'."
            )

    def _check_points(self) -> None:
        """Raise ``ValueError`` for a model that cannot take so many points."""
        n, model = self.data.n, self.model
        if not any(map(is_manifold, self.data.sources)):
            return  # pictures and tables have their own number
        if isinstance(model, ModelConfig) and model.tied_to_n and model.n_points != n:
            learned = "learn_r_start=True" if model.learn_r_start else "start='learned'"
            raise ValueError(
                f"model.n_points={model.n_points} and data.n={n} exclude each other: with "
                f"{learned} a model has one number of points. Give both the same number."
            )
        if isinstance(model, BaselineConfig) and 0 < model.positions < n:
            raise ValueError(
                f"model.positions={model.positions} and data.n={n} exclude each other: "
                "every point needs a position. Give at least as many positions as points."
            )

    def _check_gamma_rate(self) -> None:
        """Raise ``ValueError`` for a rate of gamma where the model has none."""
        model = self.model
        has_gamma = isinstance(model, ModelConfig) and (
            model.head == "descent" and model.kernel != "linear"
        )
        if self.gamma_rate and not has_gamma:
            kind = "a model without a descent head"
            if isinstance(model, ModelConfig):
                kind = f"head={model.head!r} with kernel={model.kernel!r}"
            raise ValueError(
                f"gamma_rate={self.gamma_rate} and {kind} exclude each other: it has no "
                "gamma. Use a descent head with kernel 'rbf' or 'softmax'."
            )

    def episodes_config(self) -> DataConfig:
        """Return the data, with the ground truth that this model and this loss need."""
        needed = 0
        if isinstance(self.model, ModelConfig):
            if self.model.features == "eigenvectors":
                needed = self.model.k
            elif self.laplacian_weight or self.eigenmap_weight:
                needed = EIGENVECTORS
        return replace(self.data, eigenvectors=max(needed, self.data.eigenvectors))

    def to_dict(self, *, complete: bool = False) -> dict[str, Any]:
        """Return plain values, as a TOML or JSON file holds them.

        Unless ``complete``, fields that came later are left out at their defaults, so that
        keys of rows and files of checkpoints stay the same: see
        :mod:`icssl._util.config_fields`.
        """
        values = asdict(self) if complete else stated_values(self)
        values["model"] = config_to_dict(self.model, complete=complete)
        values["data"] = asdict(self.data) if complete else self.data.to_dict()
        return values


def config_from(values: Mapping[str, Any]) -> TrainConfig:
    """Return a configuration from plain values.

    The error for an unknown field names the nearest field. ``preset`` starts from one of
    :data:`PRESETS`.
    """
    values = dict(values)
    if "preset" in values:
        values = _with_preset(values)
    for name in values:
        if name in _OTHER_NAMES:
            raise ValueError(
                f"unknown field {name!r}. Did you mean {_OTHER_NAMES[name]!r}?"
            )
        check_choice("field", name, [f.name for f in fields(TrainConfig)])
    if isinstance(values.get("data"), Mapping):
        values["data"] = _data_config(values["data"])
    if isinstance(values.get("model"), Mapping):
        values["model"] = _model_config(values["model"])
    if "labels" in values:
        values["labels"] = _as_tuple(values["labels"])
    check_kinds(TrainConfig, values)
    return TrainConfig(**values)


# What other libraries call these fields.
_OTHER_NAMES = {
    "lr": "learning_rate",
    "batch_size": "batch",
    "n_steps": "steps",
    "max_steps": "steps",
    "grad_clip": "clip",
    "random_state": "seed",
}


def load_config(name: str, overrides: Iterable[str] = ()) -> TrainConfig:
    """Return the configuration of a TOML file or preset, with ``KEY=VALUE`` applied.

    Examples
    --------
    >>> config = load_config("e2e_icl", ["model.k=12", "data.sources=torus", "steps=100"])
    >>> config.model.k, config.data.sources, config.steps
    (12, ('torus',), 100)
    """
    if name in PRESETS:
        values: dict[str, Any] = {"preset": name}
    elif Path(name).suffix == ".toml":
        if not Path(name).is_file():
            raise FileNotFoundError(
                f"{name} does not exist: give a TOML file, or one of {', '.join(PRESETS)}."
            )
        try:
            values = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{name} is no TOML that can be read: {error}.") from error
    else:
        check_choice("configuration", name, PRESETS, "a file that ends in .toml")
    for override in overrides:
        _set(values, override)
    config = config_from(values)
    # Not in config_from: stored configurations may hold options without effect.
    if isinstance(config.model, ModelConfig):
        check_effects(config.model, values.get("model", ()))
    check_data_effects(config.data, values.get("data", ()))
    if config.data.test_threshold != "":
        raise ValueError(
            f"data.test_threshold={config.data.test_threshold!r} and training exclude each "
            "other: no test episode is drawn. Leave data.test_threshold out; `icssl "
            "evaluate` takes it as --option."
        )
    return config


_NO_OPTIONS = {
    "sources": "name the source itself",
    "episodes": "each episode is a fresh one, and how many there are is said by --episodes",
}
_NO_SPLIT = {"split": "scores are of test episodes, and settings are chosen on others"}


def with_data_options(
    data: DataConfig, overrides: Iterable[str], has_split: bool = False
) -> DataConfig:
    """Return a source of episodes with ``FIELD=VALUE`` applied, as a person types it.

    ``has_split`` says whether the part of the source can be chosen: a score is always of
    the part for tests.

    Examples
    --------
    >>> with_data_options(DataConfig(("cone",)), ["half_angle=0.1", "s_min=0.1"]).s_min
    0.1
    """
    values: dict[str, Any] = {}
    for override in overrides:
        _set(values, override)
    refused = _NO_OPTIONS if has_split else _NO_OPTIONS | _NO_SPLIT
    for name, advice in refused.items():
        if name in values:
            raise ValueError(f"{name} cannot be an option here: {advice}.")
    config = _data_config(
        {**{f.name: getattr(data, f.name) for f in fields(data)}, **values}
    )
    # Also what an option of the command has set; values that are defaults are passed over.
    check_data_effects(config, [f.name for f in fields(config)])
    return config


def differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two configurations differ, as lines for a person."""
    lines = []
    for name in sorted({*saved, *wanted}):
        old, new = saved.get(name), wanted.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += [f"{name}.{line}" for line in differences(old, new)]
        elif old != new:
            lines.append(f"{name}: {old!r} in the checkpoint, {new!r} given")
    return lines


def _with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` over those of the preset that they name."""
    values = dict(values)
    name = values.pop("preset")
    check_choice("preset", name, PRESETS)
    merged: dict[str, Any] = {**PRESETS[name], **values}
    for table in ("model", "data"):
        if isinstance(values.get(table, {}), Mapping):
            merged[table] = {**PRESETS[name].get(table, {}), **values.get(table, {})}
    return merged


def _set(values: dict[str, Any], override: str) -> None:
    """Apply one ``KEY=VALUE`` to nested values, in place."""
    path, equals, text = override.partition("=")
    if not equals:
        raise ValueError(f"an override is KEY=VALUE, such as model.k=12, got {override!r}.")
    *parents, name = path.strip().split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ValueError(f"{override!r}: {parent!r} has no fields.")
    values[name] = _value(text.strip())


def _value(text: str) -> Any:
    """Return a TOML value; a list needs no brackets and a word no quotes."""
    for candidate in (text, f"[{text}]"):
        try:
            return tomllib.loads(f"value = {candidate}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
    return [word.strip() for word in text.split(",")] if "," in text else text


def _data_config(values: Mapping[str, Any]) -> DataConfig:
    for name in values:
        check_choice("data field", name, [f.name for f in fields(DataConfig)])
    values = dict(values)
    for name in ("sources", "factors"):
        if name in values:
            values[name] = _as_tuple(values[name])
    check_kinds(DataConfig, values, "data.")
    return DataConfig(**values)


def _model_config(values: Mapping[str, Any]) -> AnyConfig:
    kind = values.get("kind", "icssl")
    if kind in KINDS:
        check_kinds(KINDS[kind][0], values, "model.")
    return config_from_dict(values)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
