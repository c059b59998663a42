"""Models by the kind of their configuration, and configurations as plain values."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from icssl.errors import check_choice
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

AnyConfig = ModelConfig | BaselineConfig
AnyModel = ICSSLTransformer | BaselineTransformer

KINDS: dict[str, tuple[type[AnyConfig], type[AnyModel]]] = {
    "icssl": (ModelConfig, ICSSLTransformer),
    "transformer": (BaselineConfig, BaselineTransformer),
}


def kind_of(config: AnyConfig) -> str:
    """The name of a configuration's kind."""
    return next(kind for kind, (cls, _) in KINDS.items() if isinstance(config, cls))


def build_model(config: AnyConfig) -> AnyModel:
    """A model with fresh weights, drawn from torch's global generator."""
    if isinstance(config, ModelConfig):
        return ICSSLTransformer(config)
    return BaselineTransformer(config)


def config_to_dict(config: AnyConfig) -> dict[str, Any]:
    """``{"kind": ..., every field: ...}``."""
    return {"kind": kind_of(config), **asdict(config)}


def config_from_dict(values: Mapping[str, Any]) -> AnyConfig:
    """The inverse of :func:`config_to_dict`; fields left out keep their defaults.

    ``preset`` starts from a named configuration instead.
    """
    values = dict(values)
    kind = values.pop("kind", "icssl")
    check_choice("model kind", kind, KINDS)
    cls = KINDS[kind][0]
    known = [field.name for field in fields(cls)]
    if cls is ModelConfig:
        known.append("preset")
    for name in values:
        check_choice("model field", name, known)
    if "preset" in values:
        return ModelConfig.preset(values.pop("preset"), **values)
    return cls(**values)
