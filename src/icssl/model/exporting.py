"""Where a model is being traced for ONNX, which has fewer operators than torch.

``exporting()`` guards every branch that exists for this reason: each gives the numbers of
the usual one, up to rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

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
