"""Files that are either whole or not there."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


def cache_folder() -> Path:
    """Where things are kept that can be made again; ``ICSSL_HOME`` moves it."""
    return Path(os.environ.get("ICSSL_HOME", Path.home() / ".cache" / "icssl"))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a temporary file beside ``path``; it takes its place when all went well.

    After an error, or a kill at any moment, ``path`` is as it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}{path.suffix}")
    unfinished.touch()
    mode = unfinished.stat().st_mode
    try:
        yield unfinished
        unfinished.chmod(mode)  # some writers let nobody else read what they wrote
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: dict[str, Tensor], kind: str, header: Any) -> None:
    """Tensors with a header of plain values, as safetensors; ``kind`` tells files apart."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One key: safetensors keeps several in no fixed order, and equal states equal bytes.
    with replacing(path) as unfinished:
        try:
            save_file(kept, unfinished, {kind: json.dumps(header)})
        except SafetensorError as error:  # a full disk, say
            raise OSError(f"{path} could not be written: {error}.") from error


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], Any]:
    """What :func:`write_tensors` wrote; another file, or a torn one, is refused by name."""
    if path.is_dir():
        raise ValueError(f"{path} is no {kind} file but a folder.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        with safe_open(path, "pt") as file:
            header = (file.metadata() or {}).get(kind)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is no {kind} file, or a torn one: {error}.") from error
    if header is None:
        raise ValueError(f"{path} is no {kind} file: its header does not say so.")
    try:
        return tensors, json.loads(header)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: its header is torn: {error}.") from error
