"""What the stages share: how often layers are applied, and how they are watched."""

from collections.abc import Callable
from numbers import Integral

from torch import Tensor

from icssl._util.errors import check_at_least

STAGE_BACKENDS = ("dense", "fused", "matrix_free")
"""How stages compute; ``"fused"`` is dense with the heads of stage 1 mixed as they form."""

Record = Callable[[str, Tensor], None]
"""Receives ``(name, tensor)`` of an intermediate; see ``ICSSLTransformer.trace``."""


def check_sizes(**sizes: int) -> None:
    """Every size of a stage is a whole number, at least one."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        check_at_least(name, int(value), 1)


def check_class_count(n_classes: int) -> None:
    """A whole number, at least two."""
    check_sizes(n_classes=n_classes)
    check_at_least("n_classes", n_classes, 2)


def application_order(layers: int, layer_loops: int, stage_loops: int) -> list[int]:
    """The layer applied at each step, looped as in the third remark on Lemma 2.

    >>> application_order(layers=2, layer_loops=2, stage_loops=2)
    [0, 0, 1, 1, 0, 0, 1, 1]
    """
    once = [layer for layer in range(layers) for _ in range(layer_loops)]
    return once * stage_loops
