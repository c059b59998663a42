"""Products of manifolds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl.manifolds.base import Manifold


@dataclass(frozen=True, eq=False)
class Product:
    """The product of an ordered tuple of manifolds, with the product metric.

    Chart and ambient coordinates of the factors stand side by side.
    """

    factors: Sequence[Manifold]

    def __post_init__(self) -> None:
        if not self.factors:
            raise ValueError("a product needs at least one factor, got none.")

    name: ClassVar[str] = "product"
    threshold: ClassVar[None] = None

    @property
    def chart_dimension(self) -> int:
        """Sum over the factors."""
        return sum(factor.chart_dimension for factor in self.factors)

    @property
    def ambient_dimension(self) -> int:
        """Sum over the factors."""
        return sum(factor.ambient_dimension for factor in self.factors)

    def split_chart(self, u: Float[Tensor, "*b m"]) -> tuple[Tensor, ...]:
        """Chart coordinates of each factor."""
        return u.split([factor.chart_dimension for factor in self.factors], dim=-1)

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape m"]:
        """Independent chart coordinates of every factor."""
        options: dict[str, Any] = {
            "generator": generator,
            "measure": measure,
            "dtype": dtype,
        }
        return torch.cat([f.draw(*shape, **options) for f in self.factors], dim=-1)

    def embed(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b d"]:
        """Points of every factor, side by side."""
        parts = zip(self.factors, self.split_chart(u), strict=True)
        return torch.cat([factor.embed(part) for factor, part in parts], dim=-1)

    def metric(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m m"]:
        """Block-diagonal: the metrics of the factors."""
        parts = zip(self.factors, self.split_chart(u), strict=True)
        blocks = [factor.metric(part) for factor, part in parts]
        result = u.new_zeros(*u.shape, u.shape[-1])
        begin = 0
        for block in blocks:
            end = begin + block.shape[-1]
            result[..., begin:end, begin:end] = block
            begin = end
        return result

    def distance(
        self,
        u: Float[Tensor, "*#b m"],
        v: Float[Tensor, "*#b m"],
        scales: Float[Tensor, "*#b factors"] | None = None,
    ) -> Float[Tensor, "*b"]:
        """Theorem 1: the root of the sum of squared distances of the factors.

        ``scales`` multiplies the distance of each factor, for factors that were scaled.
        """
        parts = zip(self.factors, self.split_chart(u), self.split_chart(v), strict=True)
        each = torch.stack([factor.distance(a, b) for factor, a, b in parts], dim=-1)
        return (each if scales is None else each * scales).norm(dim=-1)

    def residual(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
        """Distance from the product: of each factor, then by Pythagoras."""
        sizes = [factor.ambient_dimension for factor in self.factors]
        parts = zip(self.factors, x.split(sizes, dim=-1), strict=True)
        return torch.stack([f.residual(part) for f, part in parts], dim=-1).norm(dim=-1)
