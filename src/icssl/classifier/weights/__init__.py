"""The weights inside the package, and context models as files."""

from dataclasses import asdict
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from icssl._util.files import (
    FileKind,
    check_finite,
    digest_of,
    making_sense,
    read_tensors,
    write_described,
)
from icssl.classifier.model import ContextConfig, ContextModel

KIND = FileKind("icssl-context", "icssl pretrain")
RELEASED = "tables.safetensors"


def save_context_model(model: ContextModel, path: Path, **about: Any) -> None:
    """Write weights and configuration to one file, and the latter to a JSON beside it."""
    from icssl import __version__

    tensors = model.state_dict()
    header = {"model": asdict(model.config), "version": __version__, **about}
    write_described(path, tensors, KIND, {**header, "id": digest_of(tensors)[:16]})


def load_context_model(path: Path) -> ContextModel:
    """Return the model in a file of :func:`save_context_model`, ready to predict."""
    tensors, header = read_tensors(path, KIND)
    with making_sense(path, KIND):
        check_finite(tensors)
        model = ContextModel(ContextConfig(**header["model"]))
        model.load_state_dict(tensors)
    return model.eval().requires_grad_(False)


@cache
def released_model() -> ContextModel:
    """Return the pretrained model for any table; docs/model-card.md describes it."""
    with as_file(files("icssl.classifier.weights") / RELEASED) as path:
        return load_context_model(path)


@cache
def weights_id() -> str:
    """Return the name of the released weights: results say which they come from.

    It stands in the header of the file, and stays the same when a header is written anew.
    """
    with as_file(files("icssl.classifier.weights") / RELEASED) as path:
        return read_tensors(path, KIND)[1]["id"]
