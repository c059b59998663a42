"""Episodes drawn from manifolds: the paper's synthetic data."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from icssl._util.errors import check_at_least, check_choice
from icssl.episodes.labels import (
    PLACEMENTS,
    DrawnPoints,
    PointSource,
    ball_labels,
    label_count,
    lowest,
    nearest_centre_labels,
    share_count,
)
from icssl.episodes.manifolds import (
    MANIFOLDS,
    MEASURES,
    PRODUCT_FACTORS,
    Cone,
    Manifold,
    Product,
    manifold_named,
)
from icssl.episodes.manifolds.protocol import (
    ROTATIONS,
    random_rotations,
    random_scales,
    random_shifts,
)

THRESHOLDS = ("median", "published", "coordinate")
_FACTOR_DISTANCES = ("unscaled", "scaled")


def is_halved(source: str, threshold: str | float, roll_halves: bool) -> bool:
    """Whether the classes are the parts of a source by its first chart coordinate.

    Such classes are the same in every episode, up to the sample: no ball, no centre.
    """
    by_name = isinstance(threshold, str) or roll_halves
    return threshold == "coordinate" or (source == "swiss_roll" and by_name)


@dataclass(frozen=True)
class ManifoldSpec(PointSource):
    """Source of episodes whose points lie on a manifold.

    Parameters
    ----------
    source : str
        A manifold of ``icssl.episodes.manifolds.MANIFOLDS``, or ``"product"``.
    n : int
        Number of points in an episode.
    labels : int or float
        Number of labelled points, or their fraction.
    placement : {"random", "covering"}
        Choice of labelled points; ``"covering"`` labels every class at least once.
    threshold : {"median", "published", "coordinate"} or float
        Radius of the ball around a point of the context that is class 1. ``"median"``
        puts half of the points inside. The Swiss roll's classes are its two halves by t
        under both names, as published. ``"coordinate"`` divides every manifold so, by the
        median of its first chart coordinate: s of the cone, theta of the sphere.
    ball_share : float
        Share of the points that ``threshold="median"`` puts inside, and ``"coordinate"``
        below, in (0, 1).
    roll_halves : bool
        Divide the Swiss roll by t also where the threshold is a number, since the paper
        has no ball on it.
    n_classes : int
        With more than two, classes are the points nearest to each of as many centres.
    measure : {"chart", "area"}
        Whether points are uniform in the chart, or on the manifold.
    rotation : {"planar", "full", "none"}
        Random rotation about the third axis, in space, or none.
    scale : tuple of float
        Bounds of the isotropic scale factor.
    shift : float
        Largest planar translation of each coordinate.
    half_angle : float or "random"
        Half angle of the cone; ``"random"`` draws one in (0, pi / 2) for each episode.
    s_min : float
        Smallest distance of a point of the cone from the apex.
    factors : tuple of str
        Factors of the product, each scaled and rotated by itself and put in a random
        order. The default is the paper's five, also when more manifolds are registered.
    factor_distance : {"unscaled", "scaled"}
        Whether the product's distance is that of its factors before or after scaling.
    eigenvectors, neighbours : int
        Ground-truth eigenvectors to compute, 0 for none, and neighbours in their graph.
    distances : bool
        Keep the matrix of geodesic distances, which the Bayes ceiling needs.
    """

    source: str = "sphere"
    n: int = 100
    labels: float = 10
    placement: str = "random"
    threshold: str | float = "median"
    n_classes: int = 2
    measure: str = "chart"
    rotation: str = "planar"
    scale: tuple[float, float] = (0.02, 0.10)
    shift: float = 1.0
    half_angle: str | float = torch.pi / 6
    factors: tuple[str, ...] = PRODUCT_FACTORS
    factor_distance: str = "unscaled"
    eigenvectors: int = 0
    neighbours: int = 6
    distances: bool = False
    s_min: float = 0.0
    ball_share: float = 0.5
    roll_halves: bool = False

    def __post_init__(self) -> None:
        check_choice("source", self.source, [*MANIFOLDS, "product"])
        check_choice("placement", self.placement, PLACEMENTS)
        check_choice("measure", self.measure, MEASURES)
        check_choice("rotation", self.rotation, ROTATIONS)
        check_choice("factor_distance", self.factor_distance, _FACTOR_DISTANCES)
        for factor in self.factors:
            check_choice("factor", factor, MANIFOLDS)
        check_at_least("n", self.n, 2)
        check_at_least("n_classes", self.n_classes, 2)
        if self.n < self.n_classes:
            raise ValueError(f"n = {self.n} points cannot have {self.n_classes} classes.")
        label_count(self.labels, self.n)
        self._check_rule()
        if not (len(self.scale) == 2 and 0 < self.scale[0] <= self.scale[1]):
            raise ValueError(
                f"scale must be (low, high), 0 < low <= high, got {self.scale}."
            )
        if isinstance(self.half_angle, str):
            check_choice("half_angle", self.half_angle, ["random"])
            Cone(s_min=self.s_min)
        else:
            Cone(self.half_angle, self.s_min)

    def _check_rule(self) -> None:
        """Raise ``ValueError`` for a rule of the classes that this source cannot have."""
        rule = self.threshold
        if isinstance(rule, str):
            check_choice("threshold", rule, THRESHOLDS)
        elif not rule > 0:
            raise ValueError(f"threshold must be a positive radius, got {rule}.")
        if self.source == "product" and rule == "coordinate":
            raise ValueError(
                "threshold='coordinate' and source='product' exclude each other: a product "
                "has no first coordinate. Use 'median' or a radius."
            )
        if rule == "published" and self.source != "swiss_roll":
            kind = None if self.source == "product" else MANIFOLDS[self.source]
            if kind is None or kind.threshold is None:
                raise ValueError(
                    f"threshold='published' and source={self.source!r} exclude each other: "
                    "the paper gives no radius for it. Use 'median' or a radius."
                )
        self._check_share()

    def _check_share(self) -> None:
        """Raise ``ValueError`` for a share of the classes that the rule does not leave."""
        rule, share = self.threshold, self.ball_share
        if not (0 < share < 1 and 0 < share_count(share, self.n) < self.n):
            raise ValueError(
                f"ball_share must be in (0, 1) and leave points of n = {self.n} to both "
                f"classes, got {share}."
            )
        if share != 0.5 and rule not in ("median", "coordinate"):
            raise ValueError(
                f"ball_share={share} and threshold={rule!r} exclude each other: a radius "
                "decides the share. Use threshold='median'."
            )
        if self.n_classes > 2 and (share != 0.5 or rule != "median"):
            name = "ball_share" if share != 0.5 else "threshold"
            raise ValueError(
                f"{name}={getattr(self, name)!r} and n_classes={self.n_classes} exclude "
                "each other: more than two classes are those of the nearest centres. Leave "
                f"{name} out."
            )

    @property
    def d(self) -> int:
        """Number of coordinates of a point."""
        return 3 * len(self.factors) if self.source == "product" else 3

    def draw_points(
        self, b: int, *, generator: Generator, dtype: torch.dtype
    ) -> DrawnPoints:
        """Draw points on ``b`` manifolds, move them in space and give them classes."""
        manifold = _manifold(self, b, generator, dtype)
        u = manifold.draw(b, self.n, generator=generator, measure=self.measure, dtype=dtype)
        x, scales = _place(self, manifold, u, generator, dtype)
        y = _classes(self, manifold, u, scales, generator)
        distances = None
        if self.distances:
            distances = _distance(self, manifold, u[:, :, None], u[:, None], scales)
        return DrawnPoints(x, y, self.n_classes, distances)


def _manifold(
    spec: ManifoldSpec, b: int, generator: Generator, dtype: torch.dtype
) -> Manifold:
    """Return the manifold of a spec, with a random cone per episode where it asks so."""
    half_angle: float | Tensor
    if isinstance(spec.half_angle, str):
        share = torch.rand(b, 1, generator=generator, device=generator.device, dtype=dtype)
        # Away from the needle and the disc, whose charts degenerate.
        half_angle = torch.pi / 2 * (0.02 + 0.96 * share)
    else:
        half_angle = spec.half_angle

    def build(name: str) -> Manifold:
        return Cone(half_angle, spec.s_min) if name == "cone" else manifold_named(name)

    if spec.source == "product":
        return Product([build(name) for name in spec.factors])
    return build(spec.source)


def _place(
    spec: ManifoldSpec,
    manifold: Manifold,
    u: Float[Tensor, "b n m"],
    generator: Generator,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b factors"]]:
    """Return points in space, each factor scaled, turned and moved, and the scales."""
    b, n = u.shape[:2]
    factors = manifold.embed(u).unflatten(-1, (-1, 3)).transpose(1, 2)  # (b, factors, n, 3)
    shape = factors.shape[:2]
    drawn: dict[str, Any] = {"generator": generator, "dtype": dtype}
    scales = random_scales(*shape, low=spec.scale[0], high=spec.scale[1], **drawn)
    turned = factors @ random_rotations(*shape, kind=spec.rotation, **drawn)
    moved = scales[..., None, None] * turned
    moved = moved + random_shifts(*shape, size=spec.shift, **drawn)[..., None, :]
    if shape[1] > 1:
        order = torch.rand(*shape, generator=generator, device=u.device).argsort(dim=1)
        moved = moved.gather(1, order[..., None, None].expand_as(moved))
    return moved.transpose(1, 2).reshape(b, n, -1), scales


def _distance(
    spec: ManifoldSpec, manifold: Manifold, u: Tensor, v: Tensor, scales: Tensor
) -> Tensor:
    """Return the geodesic distance, of a product by the spec's reading of it."""
    if isinstance(manifold, Product) and spec.factor_distance == "scaled":
        return manifold.distance(u, v, scales[:, None, None])
    return manifold.distance(u, v)


def _classes(
    spec: ManifoldSpec,
    manifold: Manifold,
    u: Float[Tensor, "b n m"],
    scales: Tensor,
    generator: Generator,
) -> Int[Tensor, "b n"]:
    """Return the class of every point: a ball around one of them, or the nearest centre."""
    b, n, m = u.shape
    inside = share_count(spec.ball_share, n)
    if spec.n_classes == 2 and is_halved(spec.source, spec.threshold, spec.roll_halves):
        return lowest(u[..., 0], inside)
    count = 1 if spec.n_classes == 2 else spec.n_classes
    scores = torch.rand(b, n, generator=generator, device=u.device)
    index = scores.topk(count, dim=1).indices  # different points of the context
    centres = u.gather(1, index[..., None].expand(-1, -1, m))
    distance = _distance(spec, manifold, centres[:, :, None], u[:, None], scales)
    if spec.n_classes > 2:
        return nearest_centre_labels(distance)
    if spec.threshold == "median":
        return lowest(distance[:, 0], inside)
    radius = manifold.threshold if spec.threshold == "published" else float(spec.threshold)
    assert radius is not None  # the spec has refused a manifold without one
    return ball_labels(distance[:, 0], radius)
