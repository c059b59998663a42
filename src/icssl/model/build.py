"""Models of both kinds: built from a configuration, saved to and loaded from files.

Files are safetensors with the configuration in their header.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

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


def config_to_dict(config: AnyConfig) -> dict[str, Any]:
    """Return ``{"kind": ..., every field: ...}``."""
    return {"kind": _kind_of(config), **asdict(config)}


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


def save_model(model: AnyModel, path: Path, **about: Any) -> None:
    """Write weights and configuration to one file, and the latter to a JSON beside it.

    The file is written whole or not at all. ``about`` is kept with the configuration:
    steps, seed, version.
    """
    from icssl import __version__

    header = {"model": config_to_dict(model.config), "version": __version__, **about}
    write_described(path, model.state_dict(), KIND, header)


def load_model(path: Path | str, device: str = "cpu") -> AnyModel:
    """Return the model of a file that :func:`save_model` wrote, ready to predict."""
    path = Path(path)
    tensors, header = read_tensors(path, KIND)
    with making_sense(path, KIND):
        check_finite(tensors)
        model = build_model(config_from_dict(header["model"]))
        model.to(next(iter(tensors.values())).dtype)
        model.load_state_dict(tensors)
    return model.to(device).eval()
