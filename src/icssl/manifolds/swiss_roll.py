"""The paper's Swiss roll: a spiral of two turns, r = t^2."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl.manifolds.base import uniform


@dataclass(frozen=True)
class SwissRoll:
    """A curve (t^2 cos 4 pi t, t^2 sin 4 pi t, 1) with t in [0, 1].

    The published classes are its two halves by the median of t, not a ball.
    """

    name: ClassVar[str] = "swiss_roll"
    chart_dimension: ClassVar[int] = 1
    ambient_dimension: ClassVar[int] = 3
    threshold: ClassVar[None] = None

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape 1"]:
        """The parameter t; by area, arc length is uniform."""
        a = uniform(*shape, 1, generator=generator, dtype=dtype)
        if measure == "chart":
            return a
        end = arc_length(torch.ones((), dtype=dtype, device=a.device))
        begin = arc_length(torch.zeros((), dtype=dtype, device=a.device))
        length = begin + a * (end - begin)
        # The inverse of arc_length.
        squared = ((6 * torch.pi**2 * length) ** (2 / 3) - 1) / (4 * torch.pi**2)
        return squared.clamp(min=0).sqrt()

    def embed(self, u: Float[Tensor, "*b 1"]) -> Float[Tensor, "*b 3"]:
        """The curve."""
        t = u[..., 0]
        radius, angle = t.square(), 4 * torch.pi * t
        return torch.stack(
            [radius * angle.cos(), radius * angle.sin(), torch.ones_like(t)], dim=-1
        )

    def metric(self, u: Float[Tensor, "*b 1"]) -> Float[Tensor, "*b 1 1"]:
        """ds = 2 t sqrt(1 + 4 pi^2 t^2) dt."""
        speed = 2 * u * (1 + (2 * torch.pi * u).square()).sqrt()
        return speed.square()[..., None]

    def distance(
        self, u: Float[Tensor, "*#b 1"], v: Float[Tensor, "*#b 1"]
    ) -> Float[Tensor, "*b"]:
        """Length of the curve between two points."""
        return (arc_length(u[..., 0]) - arc_length(v[..., 0])).abs()

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Distance from the curve's point at the same radius."""
        radius = x[..., :2].norm(dim=-1).clamp(max=1)
        return (x - self.embed(radius.sqrt()[..., None])).norm(dim=-1)


def arc_length(t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Arc length up to a constant: the integral of the line element."""
    return (1 + (2 * torch.pi * t).square()) ** 1.5 / (6 * torch.pi**2)
