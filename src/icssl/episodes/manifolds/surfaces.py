"""The paper's manifolds: sphere, cylinder, torus, cone, Swiss roll and their products."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl._util.errors import check_positive
from icssl.episodes.manifolds.protocol import Manifold, angle_between, uniform


@dataclass(frozen=True)
class Sphere:
    """The sphere S^2 with polar angle theta in (0, pi) and azimuth phi in (0, 2 pi)."""

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
        """Draw angles; by area, cos(theta) is uniform, so that poles are not crowded."""
        a, b = uniform(*shape, 2, generator=generator, dtype=dtype).unbind(-1)
        theta = torch.pi * a if measure == "chart" else torch.acos(1 - 2 * a)
        return torch.stack([theta, 2 * torch.pi * b], dim=-1)

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """Return (sin theta cos phi, sin theta sin phi, cos theta)."""
        theta, phi = u.unbind(-1)
        ring = theta.sin()
        return torch.stack([ring * phi.cos(), ring * phi.sin(), theta.cos()], dim=-1)

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """Return the metric ds^2 = dtheta^2 + sin^2(theta) dphi^2."""
        theta = u[..., 0]
        return torch.diag_embed(
            torch.stack([torch.ones_like(theta), theta.sin().square()], -1)
        )

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """Return the great-circle length; atan2 stays accurate where arccos does not."""
        p, q = torch.broadcast_tensors(self.embed(u), self.embed(v))
        across = torch.linalg.cross(p, q).norm(dim=-1)
        return torch.atan2(across, (p * q).sum(dim=-1))

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Return how far the length of x is from one."""
        return (x.norm(dim=-1) - 1).abs()


@dataclass(frozen=True)
class Cylinder:
    """The cylinder with angle theta in (0, 2 pi) and height z up to half_height.

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
        """Draw angle and height; the chart is isometric, so both measures agree."""
        a, b = uniform(*shape, 2, generator=generator, dtype=dtype).unbind(-1)
        return torch.stack([2 * torch.pi * a, self.half_height * (2 * b - 1)], dim=-1)

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """Return (cos theta, sin theta, z)."""
        theta, z = u.unbind(-1)
        return torch.stack([theta.cos(), theta.sin(), z], dim=-1)

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """Return the metric ds^2 = dtheta^2 + dz^2."""
        return torch.diag_embed(torch.ones_like(u))

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """Return the paper's distance, with the angle taken the short way round."""
        turn = angle_between(u[..., 0], v[..., 0])
        return torch.hypot(turn, u[..., 1] - v[..., 1])

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Return the distance from the surface, beyond its rims too."""
        beyond = (x[..., 2].abs() - self.half_height).clamp(min=0)
        return torch.hypot(x[..., :2].norm(dim=-1) - 1, beyond)


@dataclass(frozen=True)
class Torus:
    """The flat torus: two angles in (0, 2 pi), shown as the square (theta, phi, 0).

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
        """Draw two angles; the chart is isometric, so both measures agree."""
        return 2 * torch.pi * uniform(*shape, 2, generator=generator, dtype=dtype)

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """Return (theta, phi, 0)."""
        return torch.nn.functional.pad(u, (0, 1))

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """Return the metric ds^2 = dtheta^2 + dphi^2."""
        return torch.diag_embed(torch.ones_like(u))

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """Return the distance with both angles taken the short way round."""
        first = angle_between(u[..., 0], v[..., 0])
        return torch.hypot(first, angle_between(u[..., 1], v[..., 1]))

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Return the distance from the square."""
        return (
            x - torch.nn.functional.pad(x[..., :2].clamp(0, 2 * torch.pi), (0, 1))
        ).norm(dim=-1)


@dataclass(frozen=True, eq=False)
class Cone:
    """The cone with distance s in [0, 1] from the apex and angle theta in (0, 2 pi).

    Parameters
    ----------
    half_angle : float or Tensor
        Angle between axis and side, in (0, pi / 2). The paper does not say; pi / 6 is the
        default. A tensor broadcasts against the points: another cone for each episode.
    s_min : float
        Smallest distance of a drawn point from the apex. The surface keeps its tip, over
        which distances are measured; only no point is drawn there.
    """

    half_angle: float | Tensor = torch.pi / 6
    s_min: float = 0.0

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
        if not 0 <= self.s_min < 1:
            raise ValueError(f"s_min must be in [0, 1), got {self.s_min}.")

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape 2"]:
        """Draw distance from the apex and angle; by area, s^2 is uniform."""
        a, b = uniform(*shape, 2, generator=generator, dtype=dtype).unbind(-1)
        if measure == "chart":
            s = self.s_min + (1 - self.s_min) * a
        else:
            s = (self.s_min**2 + (1 - self.s_min**2) * a).sqrt()
        return torch.stack([s, 2 * torch.pi * b], dim=-1)

    def embed(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 3"]:
        """Return (s sin alpha cos theta, s sin alpha sin theta, s cos alpha)."""
        s, theta = u.unbind(-1)
        alpha = torch.as_tensor(self.half_angle, dtype=u.dtype, device=u.device)
        ring = s * alpha.sin()
        return torch.stack(
            [ring * theta.cos(), ring * theta.sin(), s * alpha.cos()], dim=-1
        )

    def metric(self, u: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b 2 2"]:
        """Return the metric ds^2 + s^2 sin^2(alpha) dtheta^2."""
        s = u[..., 0]
        around = (s * self._sine(u)).square()
        return torch.diag_embed(torch.stack([torch.ones_like(s), around], dim=-1))

    def distance(
        self, u: Float[Tensor, "*#b 2"], v: Float[Tensor, "*#b 2"]
    ) -> Float[Tensor, "*b"]:
        """Return the length of a straight line on the unrolled sector.

        The angle, taken the short way round, spans at most pi sin(alpha) < pi, so the line
        never leaves the sector.
        """
        turn = self._sine(u) * angle_between(u[..., 1], v[..., 1])
        # |s - t e^{i turn}| from its legs: s^2 + t^2 - 2 s t cos cancels for close points.
        s, t = u[..., 0], v[..., 0]
        return torch.hypot(s - t, 2 * (s * t).sqrt() * (turn / 2).sin())

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Return the distance from the side, beyond the apex and the rim too."""
        alpha = torch.as_tensor(self.half_angle, dtype=x.dtype, device=x.device)
        ring, height = x[..., :2].norm(dim=-1), x[..., 2]
        along = ring * alpha.sin() + height * alpha.cos()
        nearest = along.clamp(0, 1)
        return torch.hypot(ring - nearest * alpha.sin(), height - nearest * alpha.cos())

    def _sine(self, like: Tensor) -> Tensor:
        return torch.as_tensor(self.half_angle, dtype=like.dtype, device=like.device).sin()


@dataclass(frozen=True)
class SwissRoll:
    """The Swiss roll: a curve (t^2 cos 4 pi t, t^2 sin 4 pi t, 1) with t in [0, 1].

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
        """Draw the parameter t; by area, arc length is uniform."""
        a = uniform(*shape, 1, generator=generator, dtype=dtype)
        if measure == "chart":
            return a
        end = _arc_length(torch.ones((), dtype=dtype, device=a.device))
        begin = _arc_length(torch.zeros((), dtype=dtype, device=a.device))
        length = begin + a * (end - begin)
        # The inverse of _arc_length.
        squared = ((6 * torch.pi**2 * length) ** (2 / 3) - 1) / (4 * torch.pi**2)
        return squared.clamp(min=0).sqrt()

    def embed(self, u: Float[Tensor, "*b 1"]) -> Float[Tensor, "*b 3"]:
        """Return points of the curve."""
        t = u[..., 0]
        radius, angle = t.square(), 4 * torch.pi * t
        return torch.stack(
            [radius * angle.cos(), radius * angle.sin(), torch.ones_like(t)], dim=-1
        )

    def metric(self, u: Float[Tensor, "*b 1"]) -> Float[Tensor, "*b 1 1"]:
        """Return the metric of ds = 2 t sqrt(1 + 4 pi^2 t^2) dt."""
        speed = 2 * u * (1 + (2 * torch.pi * u).square()).sqrt()
        return speed.square()[..., None]

    def distance(
        self, u: Float[Tensor, "*#b 1"], v: Float[Tensor, "*#b 1"]
    ) -> Float[Tensor, "*b"]:
        """Return the length of the curve between two points."""
        return (_arc_length(u[..., 0]) - _arc_length(v[..., 0])).abs()

    def residual(self, x: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b"]:
        """Return the distance from the curve's point at the same radius."""
        radius = x[..., :2].norm(dim=-1).clamp(max=1)
        return (x - self.embed(radius.sqrt()[..., None])).norm(dim=-1)


def _arc_length(t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Return arc length up to a constant: the integral of the line element."""
    return (1 + (2 * torch.pi * t).square()) ** 1.5 / (6 * torch.pi**2)


@dataclass(frozen=True, eq=False)
class Product:
    """The product of several manifolds, with the product metric.

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
        """Sum of the dimensions of the factors."""
        return sum(factor.chart_dimension for factor in self.factors)

    @property
    def ambient_dimension(self) -> int:
        """Sum of the dimensions of the factors."""
        return sum(factor.ambient_dimension for factor in self.factors)

    def split_chart(self, u: Float[Tensor, "*b m"]) -> tuple[Tensor, ...]:
        """Return the chart coordinates of each factor."""
        return u.split([factor.chart_dimension for factor in self.factors], dim=-1)

    def draw(
        self,
        *shape: int,
        generator: Generator,
        measure: str = "chart",
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "*shape m"]:
        """Draw independent chart coordinates of every factor."""
        options: dict[str, Any] = {
            "generator": generator,
            "measure": measure,
            "dtype": dtype,
        }
        return torch.cat([f.draw(*shape, **options) for f in self.factors], dim=-1)

    def embed(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b d"]:
        """Return points of every factor, side by side."""
        parts = zip(self.factors, self.split_chart(u), strict=True)
        return torch.cat([factor.embed(part) for factor, part in parts], dim=-1)

    def metric(self, u: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m m"]:
        """Return the block-diagonal matrix of the metrics of the factors."""
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
        """Return the root of the sum of squared distances of the factors (Theorem 1).

        ``scales`` multiplies the distance of each factor, for factors that were scaled.
        """
        parts = zip(self.factors, self.split_chart(u), self.split_chart(v), strict=True)
        by_factor = torch.stack([factor.distance(a, b) for factor, a, b in parts], dim=-1)
        return (by_factor if scales is None else by_factor * scales).norm(dim=-1)

    def residual(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
        """Return the distance from the product, by Pythagoras over the factors."""
        sizes = [factor.ambient_dimension for factor in self.factors]
        parts = zip(self.factors, x.split(sizes, dim=-1), strict=True)
        return torch.stack([f.residual(part) for f, part in parts], dim=-1).norm(dim=-1)
