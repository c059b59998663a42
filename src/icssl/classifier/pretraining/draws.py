"""The random source of synthetic tables, and the random maps that they are made with.

Axis names: b = tables, n = rows, d = columns, c = classes, q = latent variables.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl._util.random import generator_for

_TINY = 1e-6
_T = TypeVar("_T")


class TablePlan(NamedTuple):
    """All that is decided about a batch of tables before their cells are drawn.

    Parameters
    ----------
    b, n, d, c : int
        Numbers of tables, rows, columns and classes.
    shares : Tensor of shape (b, c)
        Share of the rows that each class should have.
    one_unit : bool
        Whether columns with a larger spread shall tell more about the classes.
    """

    b: int
    n: int
    d: int
    c: int
    shares: Tensor
    one_unit: bool


class Draws:
    """A source of random numbers: single ones on the CPU, tensors on the device."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        # Reading a single number from a GPU would wait for all work before it. Single
        # numbers have a stream of their own, or they would repeat the first tensors.
        self.single = generator_for(generator.initial_seed() % 2**31, "tasks")

    def between(self, low: float, high: float) -> float:
        """Return a uniform number."""
        return low + (high - low) * float(torch.rand((), generator=self.single))

    def log_between(self, low: float, high: float) -> float:
        """Return a number whose logarithm is uniform."""
        return math.exp(self.between(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number, log-uniform, ends included."""
        return min(high, int(self.log_between(low, high + 1)))

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.between(0, 1) < probability

    def choice(self, options: tuple[_T, ...]) -> _T:
        """Return one of the options."""
        return options[int(torch.randint(len(options), (), generator=self.single))]

    def order(self, count: int) -> Tensor:
        """Return the numbers below ``count`` in a random order, on the device."""
        order = torch.randperm(count, generator=self.single)
        return order.to(self.generator.device, non_blocking=True)

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers."""
        device = self.generator.device
        return torch.randn(*shape, generator=self.generator, device=device)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return uniform numbers."""
        device = self.generator.device
        return low + (high - low) * torch.rand(
            *shape, generator=self.generator, device=device
        )

    def log_uniform(self, *shape: int, low: float, high: float) -> Tensor:
        """Return numbers whose logarithms are uniform."""
        return self.uniform(*shape, low=math.log(low), high=math.log(high)).exp()

    def below(self, limit: int, *shape: int) -> Tensor:
        """Return whole numbers below ``limit``."""
        device = self.generator.device
        return torch.randint(limit, shape, generator=self.generator, device=device)


def standardise(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """Return columns of mean zero and deviation one; a constant column becomes zeros."""
    centred = x - x.mean(dim=-2, keepdim=True)
    return centred / centred.square().mean(dim=-2, keepdim=True).sqrt().clamp(min=_TINY)


def scale_together(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """Return centred columns over one number per table: their mean square becomes one."""
    centred = x - x.mean(dim=-2, keepdim=True)
    size = centred.square().mean(dim=(-2, -1), keepdim=True).sqrt()
    return centred / size.clamp(min=_TINY)


def pick(table: Tensor, which: Tensor) -> Tensor:
    """Return ``table[i, which[i, j]]`` for all i and j: the entries of each row's class."""
    rows = torch.arange(len(table), device=table.device)[:, None]
    return table[rows, which]


_ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.tanh,
    torch.relu,
    torch.sin,
    torch.abs,
    torch.sign,
    lambda x: x,
    lambda x: (-x.square()).exp(),
)


def apply_network(
    draws: Draws, x: Float[Tensor, "b n q"], out: int, *, depth: int, width: int
) -> Float[Tensor, "b n out"]:
    """Apply a random network per table: random weights, one activation per layer."""
    for _ in range(depth):
        x = apply_linear(draws, x, width, draws.between(0.7, 2.5))
        x = x + 0.5 * draws.normal(len(x), 1, width)
        x = draws.choice(_ACTIVATIONS)(x)
    return apply_linear(draws, x, out)


def apply_linear(
    draws: Draws, x: Float[Tensor, "b n q"], out: int, gain: float = 1.0
) -> Float[Tensor, "b n out"]:
    """Apply a random linear map per table, whose output is about as large as its input."""
    weights = draws.normal(len(x), x.shape[-1], out)
    return gain * x.shape[-1] ** -0.5 * (x @ weights)


def orthonormal_map(draws: Draws, b: int, q: int, d: int) -> Float[Tensor, "b q d"]:
    """Draw a map per table that keeps distances; to fewer columns, a projection."""
    basis = torch.linalg.qr(draws.normal(b, max(q, d), min(q, d))).Q
    return basis.mT if d >= q else basis
