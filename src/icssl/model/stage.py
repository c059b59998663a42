"""What all stages share: backends, checks of sizes, loops, and the export to ONNX.

``exporting()`` guards every branch that exists because ONNX has fewer operators than torch:
each gives the numbers of the usual one, up to rounding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral

import torch
from torch import Tensor

from icssl._util.errors import check_at_least

ATTENTION_BACKENDS = ("dense", "matrix_free")
"""How one attention is computed: its matrix is formed, or never held."""

STAGE_BACKENDS = (*ATTENTION_BACKENDS, "fused")
"""How stages compute; ``"fused"`` is dense with the heads of stage 1 mixed as they form."""

Record = Callable[[str, Tensor], None]
"""Receives ``(name, tensor)`` of an intermediate; see ``ICSSLTransformer.trace``."""


def check_sizes(**sizes: int) -> None:
    """Raise an error unless every size is a whole number, at least one."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        check_at_least(name, int(value), 1)


def check_class_count(n_classes: int) -> None:
    """Raise an error unless ``n_classes`` is a whole number, at least two."""
    check_sizes(n_classes=n_classes)
    check_at_least("n_classes", n_classes, 2)


def application_order(layers: int, layer_loops: int, stage_loops: int) -> list[int]:
    """Return the layer applied at each step, looped as in the third remark on Lemma 2.

    >>> application_order(layers=2, layer_loops=2, stage_loops=2)
    [0, 0, 1, 1, 0, 0, 1, 1]
    """
    once = [layer for layer in range(layers) for _ in range(layer_loops)]
    return once * stage_loops


_exporting = ContextVar("exporting", default=False)


def exporting() -> bool:
    """Whether ONNX will compute what is computed now.

    Not ``torch.compiler.is_exporting``, which is also true where ``torch.export`` is called
    for another reason.
    """
    return _exporting.get()


def size_like(size: int, like: Tensor) -> Tensor | int:
    """Return a size to take roots of; of a plain number, ONNX would round them."""
    return torch.scalar_tensor(size, dtype=like.dtype) if exporting() else size


@contextmanager
def while_exporting() -> Iterator[None]:
    """Make :func:`exporting` true inside the block."""
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)
