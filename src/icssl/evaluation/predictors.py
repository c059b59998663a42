"""Every method by name: classical ones as they are, models trained on the data first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_choice
from icssl._util.random import generator_for
from icssl.episodes.data_config import DataConfig, is_manifold
from icssl.episodes.episode import Episode
from icssl.episodes.feature_tables import FeatureSpec
from icssl.episodes.manifolds import MANIFOLDS, manifold_named
from icssl.episodes.synthetic import is_halved
from icssl.evaluation.references import is_reference, method_at
from icssl.evaluation.scoring import Methods, each_of
from icssl.methods import BASELINES, TRAINED, Method
from icssl.methods.registry import RegistryView
from icssl.methods.simple import BayesCeiling, BayesCeilingOfShare
from icssl.model.baseline import BaselineConfig
from icssl.model.build import AnyModel, config_from_dict, config_to_dict, load_model
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer
from icssl.training.checkpoint import NAME as CHECKPOINT
from icssl.training.checkpoint import models_of_checkpoint, training_of
from icssl.training.config import TrainConfig, load_config
from icssl.training.loop import Progress, train

# Episodes of a forward pass: what fits the cache of a CPU, or what keeps a GPU busy.
_AT_ONCE = {"cpu": 64, "cuda": 512}

METHODS: RegistryView[str] = RegistryView(
    lambda entry: entry.is_trained or "evaluate" in entry.where, lambda entry: entry.title
)
"""Titles of all methods that ``icssl evaluate`` knows, by name."""


@dataclass(frozen=True, eq=False)
class ModelMethod:
    """A trained model as a method: probabilities are the softmax of its logits."""

    model: AnyModel

    @torch.no_grad()
    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        self.model.check_fits(episode)
        options = {"backend": "fused"} if isinstance(self.model, ICSSLTransformer) else {}
        at_once = _AT_ONCE[episode.x.device.type]
        parts = [
            self.model(episode[i : i + at_once], **options)
            for i in range(0, len(episode), at_once)
        ]
        return torch.cat(parts).softmax(dim=-1).to(episode.x.dtype)

    def tune(self, training: Episode) -> "ModelMethod":
        """Return itself: its training is over."""
        return self


def check_request(names: Sequence[str], data: DataConfig, labels: Sequence[float]) -> None:
    """Raise ``ValueError`` for what cannot be evaluated, before anything is trained."""
    for name in names:
        if not _files_of(name) and not is_reference(name):
            _check_name(name)
    for split in ("train", "test"):
        source = replace(data, split=split, episodes=0).build()
        for amount in labels:
            source.draw(1, generator=generator_for(0, "check"), labels=amount)
    ready = {name: BASELINES[name] for name in names if name in BASELINES}
    ready |= {name: method_at(name) for name in names if is_reference(name)}
    needed_truth(ready, data)


def check_steps(names: Sequence[str], steps: int | None) -> None:
    """Raise ``ValueError`` for steps of training where nothing is trained."""
    if steps is not None and not any(n in TRAINED and not _files_of(n) for n in names):
        raise ValueError(
            f"--steps {steps} and {', '.join(names)} exclude each other: nothing is "
            "trained here. Leave --steps out, or name a method that is trained first (see "
            "icssl evaluate --list)."
        )


def _check_name(name: str) -> None:
    """Raise for what is neither a method nor a file; a path is named as one."""
    if Path(name).name != name:
        raise ValueError(
            f"{name} does not exist: give a folder that icssl train wrote, a file that "
            "ends in .safetensors, the name of a method (see icssl evaluate --list), or "
            "module:Class."
        )
    others = "a file that ends in .safetensors, or module:Class"
    check_choice("method", name, METHODS, others)


def _files_of(name: str) -> list[Path]:
    """Return the file of this name, or the models of a folder; none for a method."""
    path = Path(name)
    if path.is_dir():
        models = sorted(path.glob("model*.safetensors"))
        if not models:
            raise ValueError(
                f"{path} holds no model.safetensors: give a file of a model, or a folder "
                "that icssl train wrote."
            )
        return models
    if path.suffix == ".safetensors" and not path.exists():
        raise ValueError(f"{path} does not exist.")
    return [path] if path.suffix == ".safetensors" else []


def cautions(name: str, data: DataConfig) -> list[str]:
    """Return warnings about a file: training cut short, or on the test's classes.

    Empty for the name of a method.
    """
    lines = []
    table = isinstance(replace(data, split="test", episodes=0).build(), FeatureSpec)
    for record in map(training_of, _files_of(name)):
        if record is None:
            continue
        step, training = record
        if step < training.steps:
            lines.append(f"{name} was trained for {step} of {training.steps} steps.")
        seen = training.data.train_classes
        same = data.sources[0] in training.data.sources
        apart = not data.share_classes
        if table and same and apart and seen > data.train_classes:
            lines.append(
                f"{name} was trained on {seen} classes, the test begins after the first "
                f"{data.train_classes}: give --train-classes {seen}."
            )
    return list(dict.fromkeys(lines))


def predictors_named(
    name: str,
    data: DataConfig,
    *,
    steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    report: Callable[[Progress], None] | None = None,
) -> list[Method]:
    """Return the method of a name or of a file, ready to be tuned and to predict.

    There are several where training wrote several models, one per seed.

    Parameters
    ----------
    name : str
        A name of :data:`METHODS`, a file that training wrote, its folder, or
        ``module:Class`` (see :func:`icssl.evaluation.references.method_at`). A trained
        method named without a file is trained here, on the source of the test episodes.
    data : DataConfig
        Source of the test episodes.
    steps : int, optional
        Training steps; by default those of the preset.
    seed, device, report
        See :func:`icssl.training.loop.train`.
    """
    paths = _files_of(name)
    if not paths and is_reference(name):
        return [method_at(name)]
    if paths:
        models = [model for path in paths for model in _models_of(path)]
    else:
        _check_name(name)
        if name not in TRAINED:
            return [_baseline(name, data)]
        config = training_config(name, data, seed=seed, steps=steps)
        models = train([config], device=device, report=report)
    return [ModelMethod(model.to(device).eval()) for model in models]


def _models_of(path: Path) -> list[AnyModel]:
    return models_of_checkpoint(path) if path.name == CHECKPOINT else [load_model(path)]


def training_config(
    name: str, data: DataConfig, *, seed: int = 0, steps: int | None = None, **changes: Any
) -> TrainConfig:
    """Return how a trained method is trained for these data."""
    config = load_config(name)
    source = replace(data, split="train", eigenvectors=0, distances=False)
    source = replace(source, episodes=config.data.episodes, test_threshold="")
    # A preset's budgets are those of 100 points.
    labels = tuple(m for m in config.labels if m < data.n) or (1,)
    config = replace(config, data=source, labels=labels, seed=seed)
    if isinstance(config.model, BaselineConfig):  # tied to the number of coordinates
        sample = source.build().draw(1, generator=torch.Generator())
        values = {**config_to_dict(config.model), "d": sample.x.shape[-1]}
        config = replace(config, model=config_from_dict(values))
    return replace(config, steps=steps or config.steps, **changes)


def _baseline(name: str, data: DataConfig) -> Method:
    method = BASELINES[name]
    if not isinstance(method, BayesCeiling):
        return method
    rule, share = replace(data, split="test").class_rule, data.ball_share
    if rule == "median":
        return BayesCeilingOfShare(share=share) if share != 0.5 else method
    if isinstance(rule, str):
        return BayesCeiling(manifold_named(data.sources[0]).threshold)
    return BayesCeiling(rule)


def needed_truth(methods: Methods, data: DataConfig) -> DataConfig:
    """Return the data with the ground truth that these methods read."""
    for method in chain.from_iterable(map(each_of, methods.values())):
        if isinstance(method, BayesCeiling):
            _check_ceiling(data)
            data = replace(data, distances=True)
        elif needed := getattr(method, "eigenvectors", 0):  # methods of other people too
            data = replace(data, eigenvectors=max(needed, data.eigenvectors))
        elif isinstance(method, ModelMethod):
            config = method.model.config
            if isinstance(config, ModelConfig) and config.features == "eigenvectors":
                data = replace(data, eigenvectors=max(config.k, data.eigenvectors))
    return data


def check_fit(methods: Methods, data: DataConfig, labels: float) -> None:
    """Raise ``ValueError`` for a model that cannot take the test episodes."""
    source = replace(data, split="test", episodes=0).build()
    episode = source.draw(1, generator=generator_for(0, "check"), labels=labels)
    for method in chain.from_iterable(map(each_of, methods.values())):
        if isinstance(method, ModelMethod):
            method.model.check_fits(episode)


def _check_ceiling(data: DataConfig) -> None:
    for source in data.sources:
        if not is_manifold(source):
            raise ValueError(
                "bayes_ceiling needs true distances, which only "
                f"{', '.join(MANIFOLDS)} and product have, got {source!r}: leave it out."
            )
        rule = replace(data, split="test").class_rule
        if is_halved(source, rule, data.roll_halves):
            raise ValueError(
                f"the Bayes ceiling of {source!r} with threshold={rule!r} is 1: its "
                "classes are parts by one coordinate, the same in every episode. Leave "
                "bayes_ceiling out."
            )
