"""Models as files: safetensors, with what built them in the header."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from icssl.files import replacing
from icssl.model.registry import AnyModel, build_model, config_from_dict, config_to_dict

FORMAT = "icssl-model"


def save_model(model: AnyModel, path: Path, **about: Any) -> None:
    """Write weights and configuration to one file, and the latter to a JSON beside it.

    All or nothing. ``about`` is kept with the configuration: steps, seed, version.
    """
    from icssl import __version__

    header = {"model": config_to_dict(model.config), "version": __version__, **about}
    tensors = {
        name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()
    }
    write_tensors(path, tensors, FORMAT, header)


def load_model(path: Path | str, device: str = "cpu") -> AnyModel:
    """The model of a file that :func:`save_model` wrote, ready to predict."""
    tensors, header = read_tensors(Path(path), FORMAT)
    model = build_model(config_from_dict(header["model"]))
    model.to(next(iter(tensors.values())).dtype)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit its own configuration: {error}") from error
    return model.to(device).eval()


def write_tensors(
    path: Path, tensors: dict[str, Tensor], kind: str, header: dict[str, Any]
) -> None:
    """Tensors with a header, in one file that is whole or not there.

    The header stands once more in a JSON file beside it, for people: what is read back is
    the one in the file, so that the two cannot disagree.
    """
    # One key: safetensors keeps several in no fixed order, and equal states equal bytes.
    with replacing(path) as unfinished:
        try:
            save_file(tensors, unfinished, {kind: json.dumps(header)})
        except SafetensorError as error:  # a full disk, say
            raise OSError(f"{path} could not be written: {error}.") from error
    with replacing(path.with_suffix(".json")) as unfinished:
        unfinished.write_text(json.dumps(header, indent=2) + "\n")


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`write_tensors` wrote; another file, or a torn one, is refused by name."""
    if path.is_dir():
        raise ValueError(f"{path} is no {kind} file but a folder.")
    try:
        with safe_open(path, "pt") as file:
            header = (file.metadata() or {}).get(kind)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is no {kind} file, or a torn one: {error}.") from error
    if header is None:
        raise ValueError(f"{path} is no {kind} file: its header does not say so.")
    return tensors, json.loads(header)
