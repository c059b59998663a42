"""One invariant suite for every manifold, and distances against numerical ones."""

import itertools

import pytest
import torch
from torch.autograd.functional import jacobian as jacobian_of

from helpers import F64
from icssl.episodes.manifolds import (
    MANIFOLDS,
    Cone,
    Cylinder,
    Product,
    Sphere,
    SwissRoll,
    Torus,
)
from icssl.episodes.manifolds.protocol import random_rotations, random_scales, random_shifts

F64_DRAW = {"dtype": torch.float64}
SURFACES = {
    **{name: kind() for name, kind in MANIFOLDS.items()},
    "wide cone": Cone(1.3),
    "tall cylinder": Cylinder(2.0),
    "product": Product([Sphere(), Torus(), SwissRoll()]),
}
ALL = pytest.mark.parametrize("manifold", SURFACES.values(), ids=SURFACES.keys())
MEASURES = pytest.mark.parametrize("measure", ["chart", "area"])


@ALL
@MEASURES
def test_points_lie_on_the_manifold(generator, manifold, measure):
    u = manifold.draw(3, 200, generator=generator, measure=measure, **F64_DRAW)
    x = manifold.embed(u)
    assert u.shape == (3, 200, manifold.chart_dimension)
    assert x.shape == (3, 200, manifold.ambient_dimension)
    assert x.dtype == torch.float64
    assert manifold.residual(x).max() < 1e-12
    assert manifold.residual(x + 3).min() > 0.1


@ALL
@MEASURES
def test_draws_follow_the_generator(manifold, measure):
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return manifold.draw(2, 9, generator=generator, measure=measure)

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))
    assert draw(3).dtype == torch.float32


@ALL
def test_distance_is_a_distance(generator, manifold):
    u, v, w = manifold.draw(3, 300, generator=generator, measure="chart", **F64_DRAW)
    d_uv, d_vw, d_uw = (manifold.distance(a, b) for a, b in ((u, v), (v, w), (u, w)))
    assert manifold.distance(u, u).abs().max() < 1e-7
    torch.testing.assert_close(manifold.distance(v, u), d_uv, **F64)
    assert (d_uv > 0).all()
    assert (d_uw <= d_uv + d_vw + 1e-9).all()
    if not isinstance(manifold, (Torus, Product)):  # the torus is shown cut open
        chord = (manifold.embed(u) - manifold.embed(v)).norm(dim=-1)
        assert (chord <= d_uv + 1e-9).all()
    everything = manifold.distance(u[:, None], v[None])
    torch.testing.assert_close(everything.diagonal(), d_uv, **F64)


@ALL
def test_metric_is_that_of_the_chart(generator, manifold):
    """The pullback of the ambient metric along the embedding, by autograd."""
    u = manifold.draw(20, generator=generator, measure="chart", **F64_DRAW)
    jacobian = torch.stack([jacobian_of(manifold.embed, point) for point in u])
    torch.testing.assert_close(manifold.metric(u), jacobian.mT @ jacobian, **F64)


@ALL
def test_metric_is_that_of_the_distance(generator, manifold):
    """distance(u, u + h) ~ sqrt(h^T g h) for small h."""
    u = manifold.draw(50, generator=generator, measure="area", **F64_DRAW)
    h = 1e-6 * torch.randn(u.shape, generator=generator, **F64_DRAW)
    length = torch.einsum("bi,bij,bj->b", h, manifold.metric(u), h).sqrt()
    torch.testing.assert_close(manifold.distance(u, u + h), length, rtol=1e-3, atol=1e-12)


# Every registered manifold, and some variants.
CURVED = {
    **SURFACES,
    "cone": Cone(),
    "wide cone": Cone(1.2),
    "needle": Cone(0.1),
    "product": Product([Cylinder(), Sphere()]),  # Theorem 1
}


def angles_of(manifold):
    """Return the chart coordinates that fill a whole turn of 2 pi and then come back."""
    generator = torch.Generator().manual_seed(0)
    u = manifold.draw(200, generator=generator, measure="chart", **F64_DRAW)
    turns = 2 * torch.pi * torch.eye(u.shape[-1], dtype=u.dtype)
    comes_back = [manifold.distance(u, u + turn).abs().max() < 1e-6 for turn in turns]
    widths = u.amax(dim=0) - u.amin(dim=0)
    return [i for i, width in enumerate(widths) if comes_back[i] and width > 1.9 * torch.pi]


def is_flat(manifold, u):
    metric = manifold.metric(u)
    return (metric - metric[:1]).abs().max() < 1e-12


def test_angles_are_told_from_other_coordinates():
    found = {name: angles_of(manifold) for name, manifold in SURFACES.items()}
    assert found["sphere"] == found["cone"] == [1]
    assert found["cylinder"] == [0]
    assert found["torus"] == [0, 1]
    assert found["swiss_roll"] == []


@pytest.mark.parametrize("name", CURVED)
def test_geodesics_against_shortened_curves(generator, name):
    """Lengths of curves by the line element alone, shortened until they stop.

    Every registered manifold is tested: a distance that is no geodesic fails here.
    """
    manifold = CURVED[name]
    u, v = manifold.draw(2, 12, generator=generator, measure="area", **F64_DRAW)
    angles = angles_of(manifold)
    if not is_flat(manifold, u):
        # Curves that pass close by an apex or a pole need more pieces than there are: no
        # pairs from opposite sides.
        v[:, angles] = u[:, angles] + 1.2 * (v[:, angles] / torch.pi - 1)
    length = shortest_length(manifold, angles, u, v)
    torch.testing.assert_close(manifold.distance(u, v), length, rtol=1e-3, atol=1e-6)


def shortest_length(manifold, angles, u, v, pieces=64):
    """The shortest of the curves that wind round each angle -1, 0 or 1 times."""
    lengths = []
    for turn in itertools.product([-1.0, 0.0, 1.0], repeat=len(angles)):
        end = v.clone()
        end[:, angles] += 2 * torch.pi * torch.tensor(turn, dtype=torch.float64)
        lengths.append(shortened(manifold, u, end, pieces))
    return torch.stack(lengths).amin(dim=0)


def shortened(manifold, u, v, pieces):
    """Length of the curve of least energy between chart points, found by L-BFGS."""
    t = torch.linspace(0, 1, pieces + 1, dtype=torch.float64)[:, None, None]
    inner = (u + t * (v - u))[1:-1].clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [inner], max_iter=500, history_size=20, line_search_fn="strong_wolfe"
    )

    def squared_pieces():
        path = torch.cat([u[None], inner, v[None]])
        h, middle = path[1:] - path[:-1], (path[1:] + path[:-1]) / 2
        return torch.einsum("tbi,tbij,tbj->tb", h, manifold.metric(middle), h)

    def closure():
        optimiser.zero_grad()
        energy = pieces * squared_pieces().sum()
        energy.backward()
        return energy

    optimiser.step(closure)
    return squared_pieces().detach().clamp(min=0).sqrt().sum(dim=0)


def test_swiss_roll_distance_is_the_integral_of_its_line_element(generator):
    manifold = SwissRoll()
    u, v = manifold.draw(2, 30, generator=generator, measure="chart", **F64_DRAW)
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    curve = u + t[:, None, None] * (v - u)  # (steps, pairs, 1)
    speed = manifold.metric(curve)[..., 0, 0].sqrt()
    integral = torch.trapezoid(speed, curve[..., 0], dim=0).abs()
    torch.testing.assert_close(manifold.distance(u, v), integral, rtol=1e-6, atol=1e-9)


def test_angles_are_taken_the_short_way_round():
    """The paper prints the difference of angles as it is."""
    near = torch.tensor([[0.1, 0.0]]), torch.tensor([[2 * torch.pi - 0.1, 0.0]])
    for manifold in (Cylinder(), Torus()):
        torch.testing.assert_close(manifold.distance(*near), torch.tensor([0.2]))
    on_cone = torch.tensor([[1.0, 0.1]]), torch.tensor([[1.0, 2 * torch.pi - 0.1]])
    half_turn = torch.sin(torch.tensor(torch.pi / 6)) * 0.2 / 2
    torch.testing.assert_close(Cone().distance(*on_cone), 2 * half_turn.sin()[None])


@pytest.mark.parametrize(
    ("manifold", "density"),
    [
        (Sphere(), lambda u: torch.cos(u[..., 0])),  # uniform in cos(theta)
        (Cone(), lambda u: 2 * u[..., 0].square() - 1),  # uniform in s^2
    ],
)
def test_area_measure_is_uniform_in_area(generator, manifold, density):
    u = manifold.draw(100_000, generator=generator, measure="area", **F64_DRAW)
    value = density(u)
    assert value.mean().abs() < 0.01
    assert (value.var() - 1 / 3).abs() < 0.01


def test_a_cone_without_its_tip_keeps_its_distances(generator):
    cut, whole = Cone(0.1, s_min=0.1), Cone(0.1)
    for measure in ("chart", "area"):
        u = cut.draw(2, 50_000, generator=generator, measure=measure, **F64_DRAW)
        assert 0.1 <= u[..., 0].min() < 0.11
        assert torch.equal(cut.distance(u[0], u[1]), whole.distance(u[0], u[1]))
        uniform = u[..., 0] if measure == "chart" else u[..., 0].square()
        low = 0.1 if measure == "chart" else 0.01
        # The mean of 100,000 uniform numbers has a standard error below 0.001.
        assert uniform.mean().item() == pytest.approx((1 + low) / 2, abs=0.005)


def test_area_measure_of_the_swiss_roll_is_uniform_in_length(generator):
    roll = SwissRoll()
    u = roll.draw(100_000, generator=generator, measure="area", **F64_DRAW)
    start, end = torch.zeros(1, 1).double(), torch.ones(1, 1).double()
    share = roll.distance(start, u) / roll.distance(start, end)
    assert (share.mean() - 0.5).abs() < 0.005
    assert (share.var() - 1 / 12).abs() < 0.002


@pytest.mark.parametrize("kind", ["planar", "full", "none"])
def test_motions_are_rigid(generator, kind):
    rotation = random_rotations(50, kind=kind, generator=generator, **F64_DRAW)
    eye = torch.eye(3).double().expand(50, 3, 3)
    torch.testing.assert_close(rotation @ rotation.mT, eye, **F64)
    torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(50).double(), **F64)
    if kind != "full":
        torch.testing.assert_close(rotation[:, 2], eye[:, 2], **F64)
    else:  # the mean of uniform rotations is zero
        many = random_rotations(20_000, kind=kind, generator=generator, **F64_DRAW)
        assert many.mean(dim=0).abs().max() < 0.03


def test_scales_and_shifts_keep_their_bounds(generator):
    scales = random_scales(1000, low=0.02, high=0.1, generator=generator, **F64_DRAW)
    assert 0.02 <= scales.min() < 0.021
    assert 0.099 < scales.max() <= 0.1
    shifts = random_shifts(1000, size=1.0, generator=generator, **F64_DRAW)
    assert shifts.abs().max() <= 1
    assert (shifts[:, 2] == 0).all()


def test_bad_sizes():
    with pytest.raises(ValueError, match=r"half_angle must be in \(0, pi / 2\), got 2"):
        Cone(2.0)
    with pytest.raises(ValueError, match=r"s_min must be in \[0, 1\), got 1"):
        Cone(s_min=1.0)
    with pytest.raises(ValueError, match="half_height must be a positive"):
        Cylinder(0.0)
    with pytest.raises(ValueError, match="at least one factor"):
        Product([])
