"""Synthetic tables of surfaces: closed ones, bands, rolled and waved sheets.

Classes are spheres within each other, or regions or stripes of one surface.

Axis names: b = tables, n = rows, d = columns, c = classes.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.classifier.pretraining.draws import Draws, TablePlan, pick, standardise
from icssl.classifier.pretraining.functions_of_columns import Points
from icssl.classifier.pretraining.strands import place_in_columns
from icssl.classifier.pretraining.table_classes import draw_classes, regions, stripes

_TURN = 2 * math.pi


class _SurfacePoints(NamedTuple):
    """Points of a surface, and coordinates in which near points of the surface are near."""

    x: Float[Tensor, "b n q"]
    coordinates: Float[Tensor, "b n m"]


def draw_closed_surfaces(draws: Draws, plan: TablePlan) -> Points:
    """Draw spheres within each other, or a closed surface or band cut into classes."""
    if draws.chance(0.3):
        return _nested_spheres(draws, plan)
    # With three columns, a surface in 4-D would be seen as its shadow only.
    q = 3 if plan.d < 4 else draws.whole(3, 4)
    surface = draws.choice(_CLOSED)(draws, plan.b, plan.n, q)
    return place_in_columns(draws, surface.x, plan.d), _cut(draws, surface, plan)


def draw_sheets(draws: Draws, plan: TablePlan) -> Points:
    """Draw a rolled, bent or waved sheet, cut into stripes or patches."""
    sheet = draws.choice((_roll, _roll, _s_curve, _waved_sheet))(draws, plan.b, plan.n)
    return place_in_columns(draws, sheet.x, plan.d), _cut(draws, sheet, plan)


def _cut(draws: Draws, surface: _SurfacePoints, plan: TablePlan) -> Tensor:
    """Return classes: regions nearest to random points, or stripes of one coordinate."""
    if draws.chance(0.5):
        return regions(draws, surface.coordinates, plan)
    axis = int(draws.between(0, surface.coordinates.shape[-1]))
    bands = 1 if draws.chance(0.6) else draws.whole(2, 3)
    return stripes(surface.coordinates[..., axis], plan.shares, bands)


def _nested_spheres(draws: Draws, plan: TablePlan) -> Points:
    """Draw circles, spheres or spheres in 4-D within each other, one per class."""
    b, n, c = plan.b, plan.n, plan.c
    q = min(plan.d, draws.whole(2, 4))
    y = draw_classes(draws, plan)
    gaps = draws.log_between(0.25, 1.5) * draws.uniform(b, c, low=0.6, high=1.4)
    radius = 1 + pick(gaps.cumsum(dim=1), y)
    centres = 0.1 * gaps.amin(dim=1)[:, None, None] * draws.normal(b, c, q)
    x = radius[..., None] * _directions(draws, b, n, q) + pick(centres, y)
    return place_in_columns(draws, x, plan.d), y


def _directions(draws: Draws, b: int, n: int, q: int) -> Tensor:
    return torch.nn.functional.normalize(draws.normal(b, n, q), dim=-1)


def _ellipsoid(draws: Draws, b: int, n: int, q: int) -> _SurfacePoints:
    directions = _directions(draws, b, n, q)
    axes = draws.log_uniform(b, 1, q, low=0.6, high=1.6)
    return _SurfacePoints(axes * directions, directions)


def _ring_torus(draws: Draws, b: int, n: int, q: int) -> _SurfacePoints:
    u, v = _TURN * draws.uniform(b, n), _TURN * draws.uniform(b, n)
    minor = draws.uniform(b, 1, low=0.2, high=0.8)
    radius = 1 + minor * v.cos()
    x = torch.stack([radius * u.cos(), radius * u.sin(), minor * v.sin()], dim=-1)
    return _SurfacePoints(x, torus_functions(u, v, 1))


def _twisted_band(draws: Draws, b: int, n: int, q: int) -> _SurfacePoints:
    """Draw a band with any number of half twists: a ring, a Moebius band, and so on."""
    u = _TURN * draws.uniform(b, n)
    across = draws.uniform(b, 1, low=0.2, high=0.8) * draws.uniform(b, n, low=-1)
    half_twists = int(draws.between(0, 4))
    tilt = half_twists * u / 2 + _TURN * draws.uniform(b, 1)
    radius = 1 + across * tilt.cos()
    x = torch.stack([radius * u.cos(), radius * u.sin(), across * tilt.sin()], dim=-1)
    # A band is narrow: where a point is along it says which points are near.
    return _SurfacePoints(x, torch.stack([u.cos(), u.sin()], dim=-1))


def _random_immersion(draws: Draws, b: int, n: int, q: int) -> _SurfacePoints:
    """Draw a torus, Klein bottle or Moebius band, immersed by random smooth functions."""
    functions = draws.choice((torus_functions, klein_functions, moebius_functions))
    u, v = _TURN * draws.uniform(b, n), _TURN * draws.uniform(b, n)
    coordinates, waves = functions(u, v, 1), functions(u, v, 2)
    weights = draws.normal(b, coordinates.shape[-1], q)
    x = standardise(coordinates) @ weights
    ripples = draws.between(0, 0.3) * draws.normal(b, waves.shape[-1], q)
    return _SurfacePoints(x + standardise(waves) @ ripples, coordinates)


def torus_functions(u: Tensor, v: Tensor, order: int) -> Tensor:
    """Return functions that have a period of 2 pi in u and in v: a torus."""
    u, v = order * u, order * v
    return torch.stack([u.cos(), u.sin(), v.cos(), v.sin()], dim=-1)


def klein_functions(u: Tensor, v: Tensor, order: int) -> Tensor:
    """Return functions that are equal at (u + 2 pi, v) and (u, -v): a Klein bottle."""
    half, v_sin = (order - 0.5) * u, (order * v).sin()
    waves = [(order * u).cos(), (order * u).sin(), (order * v).cos()]
    return torch.stack([*waves, half.cos() * v_sin, half.sin() * v_sin], dim=-1)


def moebius_functions(u: Tensor, v: Tensor, order: int) -> Tensor:
    """Return functions of a Moebius band: as on a Klein bottle, but v has two ends."""
    half, across = (order - 0.5) * u, (v / math.pi - 1)
    waves = [(order * u).cos(), (order * u).sin()]
    return torch.stack([*waves, half.cos() * across, half.sin() * across], dim=-1)


_CLOSED: tuple[Callable[[Draws, int, int, int], _SurfacePoints], ...] = (
    _ellipsoid,
    _ring_torus,
    _twisted_band,
    _random_immersion,
    _random_immersion,
)


def _roll(draws: Draws, b: int, n: int) -> _SurfacePoints:
    """Draw a sheet that is rolled up, tighter or wider towards its end."""
    t, height = draws.uniform(b, n), draws.uniform(b, n)
    start = draws.uniform(b, 1, low=0.3, high=1)
    turns = draws.uniform(b, 1, low=0.8, high=2)
    angle = _TURN * (start + turns * t)
    radius = angle ** draws.between(0.8, 1.2)
    tall = radius.amax(dim=1, keepdim=True) * draws.log_uniform(b, 1, low=0.5, high=2.5)
    x = torch.stack([radius * angle.cos(), radius * angle.sin(), tall * height], dim=-1)
    length = radius.mean(dim=1, keepdim=True) * _TURN * turns
    return _SurfacePoints(x, torch.stack([length * t, tall * height], dim=-1))


def _s_curve(draws: Draws, b: int, n: int) -> _SurfacePoints:
    """Draw a sheet bent one way and then the other."""
    bend = draws.uniform(b, 1, low=0.8, high=1.8) * math.pi
    angle = bend * draws.uniform(b, n, low=-1)
    tall = draws.log_uniform(b, 1, low=0.7, high=3)
    height = tall * draws.uniform(b, n)
    x = torch.stack([angle.sin(), angle.sign() * (angle.cos() - 1), height], dim=-1)
    return _SurfacePoints(x, torch.stack([angle, height], dim=-1))


def _waved_sheet(draws: Draws, b: int, n: int) -> _SurfacePoints:
    """Draw a sheet with waves in one or both directions."""
    place = draws.uniform(b, n, 2, low=-1)
    angle = place * draws.uniform(b, 1, 2, low=0.0, high=2.5) * math.pi
    phase = _TURN * draws.uniform(b, 1, 2)
    lift = draws.between(0.2, 1) * (angle + phase).sin().sum(dim=-1, keepdim=True)
    return _SurfacePoints(torch.cat([place, lift], dim=-1), place)
