"""Every method by name: classical ones as they are, models trained on the data first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.baselines import BASELINES, TITLES, Method
from icssl.baselines.logistic import EigenvectorRegression
from icssl.baselines.simple import BayesCeiling
from icssl.data.sources import DataConfig
from icssl.episode import Episode
from icssl.errors import check_choice
from icssl.manifolds import manifold_named
from icssl.model.config import ModelConfig
from icssl.model.registry import AnyModel, config_from_dict, config_to_dict
from icssl.random import generator_for
from icssl.training.checkpoint import NAME as CHECKPOINT
from icssl.training.checkpoint import models_of_checkpoint
from icssl.training.config import TrainConfig, load_config
from icssl.training.loop import Progress, train
from icssl.weights import load_model

_AT_ONCE = 256  # episodes of a forward pass: memory is n^2 for each

TRAINED: dict[str, str] = {
    "e2e_icl": "Orig+E2E-ICL",
    "e2e_wide": "Orig+E2E-ICL, k = 12, 4 steps",
    "e2e_encoder": "Orig+E2E, encoder head",
    "e2e_blocks": "Orig+E2E, encoder head, by blocks",
    "eig_icl": "Eig+ICL",
    "orig_icl": "Orig+ICL",
    "transformer": "Transformer baseline",
    "lap_linear": "Ablation: linear Laplacian",
    "lap_pe_1layer": "Ablation: one layer a stage",
    "paper": "Orig+E2E-ICL, unscaled points",
}

METHODS: dict[str, str] = {**TRAINED, **TITLES}
"""Names of all methods, and how tables and figures write them."""


@dataclass(frozen=True, eq=False)
class ModelMethod:
    """A trained model as a method: probabilities are the softmax of its logits."""

    model: AnyModel

    @torch.no_grad()
    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Class probabilities of every point."""
        self.model.check_fits(episode)
        parts = [
            self.model(episode[i : i + _AT_ONCE]).softmax(dim=-1).to(episode.x.dtype)
            for i in range(0, len(episode), _AT_ONCE)
        ]
        return torch.cat(parts)

    def tuned(self, training: Episode) -> "ModelMethod":
        """Itself: its training is over."""
        return self


def check_request(names: Sequence[str], data: DataConfig, labels: Sequence[float]) -> None:
    """Raise ``ValueError`` for what cannot be evaluated, before anything is trained."""
    for name in names:
        if Path(name).suffix != ".safetensors" and not Path(name).is_dir():
            check_choice("method (or file that ends in .safetensors)", name, METHODS)
            if name not in TRAINED:
                needed_truth({name: _baseline(name, data)}, data)
    source = replace(data, split="test", episodes=0).build()
    for amount in labels:
        episode = source.draw(1, generator=generator_for(0, "check"), labels=amount)
        if bool(episode.labelled.all()):
            raise ValueError(f"{amount} labels leave no point to predict.")


def method_named(
    name: str,
    data: DataConfig,
    *,
    steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    report: Callable[[Progress], None] | None = None,
) -> Method:
    """The method of a name or of a file, ready to be tuned and to predict.

    Parameters
    ----------
    name : str
        One of :data:`METHODS`, a file that training wrote, or its folder. A trained method
        named without a file is trained here, on the source of the test episodes.
    data : DataConfig
        What test episodes are drawn from.
    steps : int, optional
        Of training; by default those of the preset.
    seed, device, report
        See :func:`icssl.training.loop.train`.
    """
    path = Path(name)
    if path.suffix == ".safetensors" or path.is_dir():
        return ModelMethod(_read_model(path).to(device).eval())
    check_choice("method (or file that ends in .safetensors)", name, METHODS)
    if name not in TRAINED:
        return _baseline(name, data)
    config = training_config(name, data, seed=seed, steps=steps)
    (model,) = train([config], device=device, report=report)
    return ModelMethod(model.to(device))


def _read_model(path: Path) -> AnyModel:
    """The model of a file, of a checkpoint or of a folder that training wrote."""
    if path.is_dir():
        several = sorted(path.glob("model-*.safetensors"))
        if several:
            names = ", ".join(str(p) for p in several)
            raise ValueError(f"{path} holds several models, give one of them: {names}.")
        path = path / "model.safetensors"
    if path.name != CHECKPOINT:
        return load_model(path)
    models = models_of_checkpoint(path)
    if len(models) > 1:
        raise ValueError(
            f"{path} holds {len(models)} models: give one model-*.safetensors."
        )
    return models[0]


def training_config(
    name: str, data: DataConfig, *, seed: int = 0, steps: int | None = None, **changes: Any
) -> TrainConfig:
    """How a trained method is trained for these data."""
    config = load_config(name)
    own = replace(data, split="train", eigenvectors=0, distances=False)
    own = replace(own, episodes=config.data.episodes)
    # A preset's budgets are those of 100 points.
    labels = tuple(m for m in config.labels if m < data.n) or (1,)
    config = replace(config, data=own, labels=labels, seed=seed)
    if name == "transformer":  # the one model that is tied to the number of coordinates
        sample = own.build().draw(1, generator=torch.Generator())
        values = {**config_to_dict(config.model), "d": sample.x.shape[-1]}
        config = replace(config, model=config_from_dict(values))
    return replace(config, steps=steps or config.steps, **changes)


def _baseline(name: str, data: DataConfig) -> Method:
    method = BASELINES[name]
    if not isinstance(method, BayesCeiling) or data.threshold == "median":
        return method
    if isinstance(data.threshold, str):
        return BayesCeiling(manifold_named(data.sources[0]).threshold)
    return BayesCeiling(data.threshold)


def needed_truth(methods: Mapping[str, Method], data: DataConfig) -> DataConfig:
    """The data with the ground truth that these methods read."""
    for method in methods.values():
        if isinstance(method, BayesCeiling):
            data = replace(data, distances=True)
            if "swiss_roll" in data.sources and isinstance(data.threshold, str):
                raise ValueError(
                    "the Bayes ceiling of the Swiss roll is 1: its classes are its two "
                    "halves, the same in every episode. Leave bayes_ceiling out."
                )
        elif isinstance(method, EigenvectorRegression):
            data = replace(data, eigenvectors=max(method.k, data.eigenvectors))
        elif isinstance(method, ModelMethod):
            config = method.model.config
            if isinstance(config, ModelConfig) and config.features == "eigenvectors":
                data = replace(data, eigenvectors=max(config.k, data.eigenvectors))
    return data
