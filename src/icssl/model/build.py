"""Models of both kinds: built from a configuration, saved to and loaded from files.

Files are safetensors with the configuration in their header.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from icssl._util.config_fields import stated_values
from icssl._util.errors import check_choice
from icssl._util.files import (
    FileKind,
    check_finite,
    making_sense,
    read_tensors,
    write_described,
)
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

AnyConfig = ModelConfig | BaselineConfig
AnyModel = ICSSLTransformer | BaselineTransformer

KINDS: dict[str, tuple[type[AnyConfig], type[AnyModel]]] = {
    "icssl": (ModelConfig, ICSSLTransformer),
    "transformer": (BaselineConfig, BaselineTransformer),
}


def _kind_of(config: AnyConfig) -> str:
    """Return the name of a configuration's kind."""
    return next(kind for kind, (cls, _) in KINDS.items() if isinstance(config, cls))


def build_model(config: AnyConfig) -> AnyModel:
    """Return a model with fresh weights, drawn from torch's global generator."""
    if isinstance(config, ModelConfig):
        return ICSSLTransformer(config)
    return BaselineTransformer(config)


def config_to_dict(config: AnyConfig, *, complete: bool = False) -> dict[str, Any]:
    """Return ``{"kind": ..., every field: ...}``.

    Unless ``complete``, fields that came later are left out at their defaults: see
    :mod:`icssl._util.config_fields`.
    """
    values = asdict(config) if complete else stated_values(config)
    return {"kind": _kind_of(config), **values}


def config_from_dict(values: Mapping[str, Any]) -> AnyConfig:
    """Return the configuration of a dictionary; fields left out keep their defaults.

    It is the inverse of :func:`config_to_dict`. ``preset`` starts from a named
    configuration instead of the defaults.
    """
    values = dict(values)
    kind = values.pop("kind", "icssl")
    check_choice("model kind", kind, KINDS)
    cls = KINDS[kind][0]
    names = [field.name for field in fields(cls)]
    if cls is ModelConfig:
        names.append("preset")
    for name in values:
        check_choice("model field", name, names)
    if "preset" in values:
        return ModelConfig.preset(values.pop("preset"), **values)
    return cls(**values)


KIND = FileKind("icssl-model", "icssl train")


def save_model(model: AnyModel, path: Path | str, **about: Any) -> None:
    """Write weights and configuration to one file, and the latter to a JSON beside it.

    The file is written whole or not at all. ``about`` is kept with the configuration:
    steps, seed, version. A model whose parts are not those of its configuration is refused,
    since it could not be loaded again.
    """
    from icssl import __version__

    path = Path(path)
    _check_parts(model, path)

    header = {"model": config_to_dict(model.config), "version": __version__, **about}
    write_described(path, model.state_dict(), KIND, header)


def _check_parts(model: AnyModel, path: Path) -> None:
    """Raise ``ValueError`` for a model that its configuration does not describe."""
    with torch.random.fork_rng(devices=[]):  # these weights are never used
        described = build_model(model.config)
    for name, part in described.named_children():
        found = type(getattr(model, name))
        if found is not type(part):
            raise ValueError(
                f"{path} would not load again: {name} is a {found.__name__}, and the "
                f"configuration says {type(part).__name__}. Build a head of your own with "
                "ModelConfig(head='module:Class')."
            )
    shapes = {name: tensor.shape for name, tensor in described.state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in model.state_dict().items()}:
        raise ValueError(
            f"{path} would not load again: the weights of the model are not those that its "
            "configuration describes."
        )


def load_model(path: Path | str, device: str = "cpu") -> AnyModel:
    """Return the model of a file that :func:`save_model` wrote, ready to predict.

    Of a folder that training wrote, it is its only model. A file may name a head or kernel
    ``module:Class``; that module is then imported, which runs it.
    """
    path = _single_file(Path(path))
    tensors, header = read_tensors(path, KIND)
    with making_sense(path, KIND):
        check_finite(tensors)
        model = build_model(config_from_dict(header["model"]))
        model.to(next(iter(tensors.values())).dtype)
        model.load_state_dict(tensors)
    return model.to(device).eval()


def _single_file(path: Path) -> Path:
    """Return a file, or the only model of a folder."""
    if not path.is_dir():
        return path
    models = sorted(path.glob("model*.safetensors"))
    if len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise ValueError(
            f"{path} is a folder with {len(models)} models ({names}): give the file of one."
        )
    if not models:
        raise ValueError(
            f"{path} is no icssl-model file but a folder without model.safetensors: give "
            "the file of a model, or a folder that icssl train wrote."
        )
    return models[0]
