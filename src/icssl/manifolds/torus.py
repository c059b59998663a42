"""The flat torus, unrolled."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl.manifolds.base import angle_between, uniform


@dataclass(frozen=True)
class Torus:
    """Two angles in (0, 2 pi), shown as the square (theta, phi, 0).

    Its opposite sides are one line: a model that sees the square must find out.
    """

    name: ClassVar[str] = "torus"
    chart_dimension: ClassVar[int] = 2
    ambient_dimension: ClassVar[int] = 3
    threshold: ClassVar[float] = 0.5

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape 2"]:
        """Two angles; the chart is isometric, so both measures agree."""
        return 2 * torch.pi * uniform(*shape, 2, generator=generator, dtype=dtype)

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """(theta, phi, 0)."""
        return torch.nn.functional.pad(u, (0, 1))

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """ds^2 = dtheta^2 + dphi^2."""
        return torch.diag_embed(torch.ones_like(u))

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """Both angles the short way round."""
        first = angle_between(u[..., 0], v[..., 0])
        return torch.hypot(first, angle_between(u[..., 1], v[..., 1]))

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Distance from the square."""
        return (
            x - torch.nn.functional.pad(x[..., :2].clamp(0, 2 * torch.pi), (0, 1))
        ).norm(dim=-1)
