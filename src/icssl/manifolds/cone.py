"""The right circular cone."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl.manifolds.base import angle_between, uniform


@dataclass(frozen=True, eq=False)
class Cone:
    """Distance s in [0, 1] from the apex and angle theta in (0, 2 pi).

    Parameters
    ----------
    half_angle : float or Tensor
        Angle between axis and side, in (0, pi / 2). The paper does not say; pi / 6 is the
        default. A tensor broadcasts against the points: another cone for each episode.
    """

    half_angle: float | Tensor = torch.pi / 6

    name: ClassVar[str] = "cone"
    chart_dimension: ClassVar[int] = 2
    ambient_dimension: ClassVar[int] = 3
    threshold: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        if (
            not isinstance(self.half_angle, Tensor)
            and not 0 < self.half_angle < torch.pi / 2
        ):
            raise ValueError(f"half_angle must be in (0, pi / 2), got {self.half_angle}.")

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape 2"]:
        """Distance from the apex and angle; by area, s^2 is uniform."""
        a, b = uniform(*shape, 2, generator=generator, dtype=dtype).unbind(-1)
        return torch.stack(
            [a if measure == "chart" else a.sqrt(), 2 * torch.pi * b], dim=-1
        )

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """(s sin alpha cos theta, s sin alpha sin theta, s cos alpha)."""
        s, theta = u.unbind(-1)
        alpha = torch.as_tensor(self.half_angle, dtype=u.dtype, device=u.device)
        ring = s * alpha.sin()
        return torch.stack(
            [ring * theta.cos(), ring * theta.sin(), s * alpha.cos()], dim=-1
        )

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """ds^2 = ds^2 + s^2 sin^2(alpha) dtheta^2."""
        s = u[..., 0]
        around = (s * self._sine(u)).square()
        return torch.diag_embed(torch.stack([torch.ones_like(s), around], dim=-1))

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """A straight line on the unrolled sector, the angle taken the short way round.

        It spans at most pi sin(alpha) < pi, so the line never leaves the sector.
        """
        turn = self._sine(u) * angle_between(u[..., 1], v[..., 1])
        # |s - t e^{i turn}| from its legs: s^2 + t^2 - 2 s t cos cancels for close points.
        s, t = u[..., 0], v[..., 0]
        return torch.hypot(s - t, 2 * (s * t).sqrt() * (turn / 2).sin())

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Distance from the side, beyond the apex and the rim too."""
        alpha = torch.as_tensor(self.half_angle, dtype=x.dtype, device=x.device)
        ring, height = x[..., :2].norm(dim=-1), x[..., 2]
        along = ring * alpha.sin() + height * alpha.cos()
        nearest = along.clamp(0, 1)
        return torch.hypot(ring - nearest * alpha.sin(), height - nearest * alpha.cos())

    def _sine(self, like: Tensor) -> Tensor:
        return torch.as_tensor(self.half_angle, dtype=like.dtype, device=like.device).sin()
