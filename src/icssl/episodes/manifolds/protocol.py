"""The protocol of manifolds, and the random motions of points in space.

Axis names of this package: m = chart coordinates, d = ambient coordinates. Points are
drawn and compared in chart coordinates ``u (..., m)`` and shown to a model as
``embed(u) (..., d)``. A random motion per episode then rotates, shifts and scales them.
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
        """Name of the manifold in specs."""
        ...

    @property
    def chart_dimension(self) -> int:
        """Number of chart coordinates m."""
        ...

    @property
    def ambient_dimension(self) -> int:
        """Number of ambient coordinates d."""
        ...

    @property
    def threshold(self) -> float | None:
        """Radius of the published class, or None where it is not a ball."""
        ...

    def draw(
        self, *shape: int, generator: Generator, measure: str, dtype: torch.dtype
    ) -> Float[Tensor, "*shape m"]:
        """Draw chart coordinates, uniform in the chart or by area."""
        ...

    def embed(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b d"]:
        """Map chart coordinates to points in space."""
        ...

    def metric(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m m"]:
        """Return the metric tensor: ``ds^2 = du^T metric du``."""
        ...

    def distance(
        self, u: Float[Tensor, "*#b m"], v: Float[Tensor, "*#b m"]
    ) -> Float[Tensor, "*b"]:
        """Return the geodesic distance between points."""
        ...

    def residual(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
        """Return how far a point lies off the surface; zero on it."""
        ...


def uniform(*shape: int, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Draw numbers in [0, 1), on the generator's device."""
    return torch.rand(*shape, generator=generator, device=generator.device, dtype=dtype)


def angle_between(a: Float[Tensor, "*#b"], b: Float[Tensor, "*#b"]) -> Float[Tensor, "*b"]:
    """Return the difference of two angles the short way round, in [0, pi]."""
    difference = (a - b).abs().remainder(2 * torch.pi)
    return torch.minimum(difference, 2 * torch.pi - difference)


ROTATIONS = ("planar", "full", "none")


def random_scales(
    *shape: int, low: float, high: float, generator: Generator, dtype: torch.dtype
) -> Float[Tensor, "*shape"]:
    """Draw isotropic scale factors, uniform between ``low`` and ``high``."""
    return low + (high - low) * uniform(*shape, generator=generator, dtype=dtype)


def random_rotations(
    *shape: int, kind: str, generator: Generator, dtype: torch.dtype
) -> Float[Tensor, "*shape 3 3"]:
    """Draw rotations of R^3, to be applied as ``x @ rotation``.

    Parameters
    ----------
    kind : {"planar", "full", "none"}
        Rotation about the third axis (the paper's code), uniform on SO(3) (its text), or
        none.
    """
    if kind == "none":
        eye = torch.eye(3, dtype=dtype, device=generator.device)
        return eye.expand(*shape, 3, 3)
    if kind == "full":
        q = torch.randn(
            *shape, 4, generator=generator, dtype=dtype, device=generator.device
        )
        return _from_quaternion(q / q.norm(dim=-1, keepdim=True))
    angle = 2 * torch.pi * uniform(*shape, generator=generator, dtype=dtype)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = [cos, -sin, zero, sin, cos, zero, zero, zero, torch.ones_like(angle)]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def random_shifts(
    *shape: int, size: float, generator: Generator, dtype: torch.dtype
) -> Float[Tensor, "*shape 3"]:
    """Draw translations in the plane, each coordinate uniform in [-size, size]."""
    planar = size * (2 * uniform(*shape, 2, generator=generator, dtype=dtype) - 1)
    return torch.nn.functional.pad(planar, (0, 1))


def _from_quaternion(q: Float[Tensor, "*b 4"]) -> Float[Tensor, "*b 3 3"]:
    """Return the rotation of a unit quaternion; normal draws of it are uniform on SO(3)."""
    w, x, y, z = q.unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))
