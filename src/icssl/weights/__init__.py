"""Models as files: safetensors, with what built them in the header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from icssl.files import (
    FileKind,
    check_finite,
    making_sense,
    read_tensors,
    replacing,
    write_tensors,
)
from icssl.model.registry import AnyModel, build_model, config_from_dict, config_to_dict

KIND = FileKind("icssl-model", "icssl train")


def save_model(model: AnyModel, path: Path, **about: Any) -> None:
    """Write weights and configuration to one file, and the latter to a JSON beside it.

    All or nothing. ``about`` is kept with the configuration: steps, seed, version.
    """
    from icssl import __version__

    header = {"model": config_to_dict(model.config), "version": __version__, **about}
    write_described(path, model.state_dict(), KIND, header)


def load_model(path: Path | str, device: str = "cpu") -> AnyModel:
    """The model of a file that :func:`save_model` wrote, ready to predict."""
    path = Path(path)
    tensors, header = read_tensors(path, KIND)
    with making_sense(path, KIND):
        check_finite(tensors)
        model = build_model(config_from_dict(header["model"]))
        model.to(next(iter(tensors.values())).dtype)
        model.load_state_dict(tensors)
    return model.to(device).eval()


def write_described(
    path: Path, tensors: Mapping[str, Tensor], kind: FileKind, header: Mapping[str, Any]
) -> None:
    """Tensors with a header, and the header once more in a JSON file beside, for people.

    What is read back is the one in the file, so that the two cannot disagree.
    """
    stamped = write_tensors(path, tensors, kind, header)
    with replacing(path.with_suffix(".json")) as unfinished:
        unfinished.write_text(json.dumps(stamped, indent=2) + "\n")
