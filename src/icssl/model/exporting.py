"""Where a model is being traced for ONNX, which has fewer operators than torch.

``exporting()`` guards every branch that exists for this reason: each gives the numbers of
the usual one, up to rounding.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from icssl._util.errors import DamagedFileError

DIGEST = "icssl-digest"

_state = {"exporting": False}


def exporting() -> bool:
    """Whether ONNX will compute what is computed now.

    Not ``torch.compiler.is_exporting``, which is also true where ``torch.export`` is called
    for another reason.
    """
    return _state["exporting"]


def size_like(size: int, like: Tensor) -> Tensor | int:
    """A size of a tensor, to take roots of: alone, ONNX would round them to float32."""
    return torch.scalar_tensor(size, dtype=like.dtype) if exporting() else size


@contextmanager
def while_exporting() -> Iterator[None]:
    """Make :func:`exporting` true."""
    _state["exporting"] = True
    try:
        yield
    finally:
        _state["exporting"] = False


def stamped(content: bytes) -> bytes:
    """Return an ONNX file with a digest of all of it, as the last of its properties.

    Protocol buffers that follow each other are read as one: what is appended is an entry of
    the model's metadata.
    """
    from onnx import ModelProto

    entry = ModelProto()
    entry.metadata_props.add(key=DIGEST, value=hashlib.sha256(content).hexdigest())
    return content + entry.SerializeToString()


def check_onnx(path: Path | str) -> None:
    """Raise ``DamagedFileError`` for a file that is not as ``to_onnx`` wrote it."""
    content = Path(path).read_bytes()
    if stamped(content[: -len(stamped(b""))]) != content:
        raise DamagedFileError(
            f"{path} is damaged, or no ONNX file of icssl (it does not end with the digest "
            "of what it holds): take a whole copy of it, or make it anew with icssl export."
        )
