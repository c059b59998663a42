"""What every manifold is: a chart, a metric, a distance, a way to draw points.

Axis names of this package: m = chart coordinates, d = ambient coordinates. Points are
drawn and compared in chart coordinates ``u (..., m)`` and shown to a model as
``embed(u) (..., d)``.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

MEASURES = ("chart", "area")


@runtime_checkable
class Manifold(Protocol):
    """A surface in R^d with a chart and a closed-form geodesic distance."""

    @property
    def name(self) -> str:
        """What it is called in specs."""
        ...

    @property
    def chart_dimension(self) -> int:
        """m."""
        ...

    @property
    def ambient_dimension(self) -> int:
        """d."""
        ...

    @property
    def threshold(self) -> float | None:
        """Radius of the published class, or None where it is not a ball."""
        ...

    def draw(
        self, *shape: int, generator: Generator, measure: str, dtype: torch.dtype
    ) -> Float[Tensor, "*shape m"]:
        """Chart coordinates, uniform in the chart or by area."""
        ...

    def embed(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b d"]:
        """The chart: points in space."""
        ...

    def metric(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m m"]:
        """The line element: ``ds^2 = du^T metric du``."""
        ...

    def distance(
        self, u: Float[Tensor, "*#b m"], v: Float[Tensor, "*#b m"]
    ) -> Float[Tensor, "*b"]:
        """Geodesic distance."""
        ...

    def residual(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
        """How far a point lies off the surface; zero on it."""
        ...


def uniform(*shape: int, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Numbers in [0, 1), on the generator's device."""
    return torch.rand(*shape, generator=generator, device=generator.device, dtype=dtype)


def angle_between(a: Float[Tensor, "*#b"], b: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    """The difference of two angles the short way round, in [0, pi]."""
    difference = (a - b).abs().remainder(2 * torch.pi)
    return torch.minimum(difference, 2 * torch.pi - difference)
