"""The weights inside the package, and context models as files."""

import hashlib
from dataclasses import asdict
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from torch import Tensor

from icssl.context.model import ContextConfig, ContextModel
from icssl.files import read_tensors
from icssl.weights import write_described

FORMAT = "icssl-context"
RELEASED = "tables.safetensors"


def save_context_model(model: ContextModel, path: Path, **about: Any) -> None:
    """Write weights and configuration to one file, and the latter to a JSON beside it."""
    from icssl import __version__

    tensors = model.state_dict()
    header = {"model": asdict(model.config), "version": __version__, **about}
    write_described(path, tensors, FORMAT, {**header, "digest": _digest(tensors)})


def load_context_model(path: Path) -> ContextModel:
    """The model of a file that :func:`save_context_model` wrote, ready to predict."""
    tensors, header = read_tensors(path, FORMAT)
    if header.get("digest") != _digest(tensors):
        raise ValueError(
            f"{path} was changed since it was written: its weights are not those of its "
            "header."
        )
    try:
        model = ContextModel(ContextConfig(**header["model"]))
        model.load_state_dict(tensors)
    except (RuntimeError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} was written by another version of icssl, or changed since: {error}"
        ) from error
    return model.eval().requires_grad_(False)


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@cache
def released_model() -> ContextModel:
    """The pretrained model for any table; see the model card beside the file."""
    with as_file(files("icssl.weights") / RELEASED) as path:
        return load_context_model(path)


@cache
def weights_id() -> str:
    """A hash of the released weights: results say which they come from."""
    content = (files("icssl.weights") / RELEASED).read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]
