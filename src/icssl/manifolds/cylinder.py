"""The right circular cylinder of unit radius."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl.errors import check_positive
from icssl.manifolds.base import angle_between, uniform


@dataclass(frozen=True)
class Cylinder:
    """Angle theta in (0, 2 pi) and height z in [-half_height, half_height].

    The paper gives no height; [-1, 1] is the default.
    """

    half_height: float = 1.0

    name: ClassVar[str] = "cylinder"
    chart_dimension: ClassVar[int] = 2
    ambient_dimension: ClassVar[int] = 3
    threshold: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_positive("half_height", self.half_height)

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape 2"]:
        """Angle and height; the chart is isometric, so both measures agree."""
        a, b = uniform(*shape, 2, generator=generator, dtype=dtype).unbind(-1)
        return torch.stack([2 * torch.pi * a, self.half_height * (2 * b - 1)], dim=-1)

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """(cos theta, sin theta, z)."""
        theta, z = u.unbind(-1)
        return torch.stack([theta.cos(), theta.sin(), z], dim=-1)

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """ds^2 = dtheta^2 + dz^2."""
        return torch.diag_embed(torch.ones_like(u))

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """The paper's formula with the angle taken the short way round."""
        turn = angle_between(u[..., 0], v[..., 0])
        return torch.hypot(turn, u[..., 1] - v[..., 1])

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Distance from the surface, beyond its rims too."""
        beyond = (x[..., 2].abs() - self.half_height).clamp(min=0)
        return torch.hypot(x[..., :2].norm(dim=-1) - 1, beyond)
