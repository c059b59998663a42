"""The unit sphere."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl.manifolds.base import uniform


@dataclass(frozen=True)
class Sphere:
    """S^2 with polar angle theta in (0, pi) and azimuth phi in (0, 2 pi)."""

    name: ClassVar[str] = "sphere"
    chart_dimension: ClassVar[int] = 2
    ambient_dimension: ClassVar[int] = 3
    threshold: ClassVar[float] = torch.pi / 3

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape 2"]:
        """Angles; by area, cos(theta) is uniform, so that the poles are not crowded."""
        a, b = uniform(*shape, 2, generator=generator, dtype=dtype).unbind(-1)
        theta = torch.pi * a if measure == "chart" else torch.acos(1 - 2 * a)
        return torch.stack([theta, 2 * torch.pi * b], dim=-1)

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """(sin theta cos phi, sin theta sin phi, cos theta)."""
        theta, phi = u.unbind(-1)
        ring = theta.sin()
        return torch.stack([ring * phi.cos(), ring * phi.sin(), theta.cos()], dim=-1)

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """ds^2 = dtheta^2 + sin^2(theta) dphi^2."""
        theta = u[..., 0]
        return torch.diag_embed(
            torch.stack([torch.ones_like(theta), theta.sin().square()], -1)
        )

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """Great-circle length; atan2 stays accurate where arccos does not."""
        p, q = torch.broadcast_tensors(self.embed(u), self.embed(v))
        across = torch.linalg.cross(p, q).norm(dim=-1)
        return torch.atan2(across, (p * q).sum(dim=-1))

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """How far the length of x is from one."""
        return (x.norm(dim=-1) - 1).abs()
