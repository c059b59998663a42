"""Synthetic tables of strands: smooth curves, spirals, helices, linked rings and knots.

A point has a place t in [0, 1] along its strand. Classes are the strands, or the arcs of
one strand.

Axis names: b = tables, n = rows, d = columns, c = classes.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icssl.classifier.pretraining.draws import (
    Draws,
    TablePlan,
    orthonormal_map,
    pick,
    scale_together,
)
from icssl.classifier.pretraining.functions_of_columns import Points
from icssl.classifier.pretraining.table_classes import draw_classes, stripes

_TURN = 2 * math.pi
_WINDINGS = ((1, 2), (1, 3), (1, 4), (2, 1), (2, 3), (3, 1), (3, 2), (2, 5), (3, 4))


def draw_strands(draws: Draws, plan: TablePlan) -> Points:
    """Draw strands that wind around each other, one per class, or one in arcs."""
    t = draws.uniform(plan.b, plan.n) ** draws.between(0.7, 1.2)
    draw = draws.choice((_spirals, _curves) if plan.d == 2 else _STRANDS)
    if draws.chance(0.2):
        y = stripes(t, plan.shares, draws.whole(1, 2))
        x = draw(draws, t, torch.zeros_like(y), 1, plan.d)
    else:
        y = draw_classes(draws, plan)
        x = draw(draws, t, y, plan.c, plan.d)
    return place_in_columns(draws, x, plan.d), y


def place_in_columns(
    draws: Draws, x: Float[Tensor, "b n q"], d: int
) -> Float[Tensor, "b n d"]:
    """Rotate a shape into some of the columns; the others get small noise only."""
    b, n, q = x.shape
    used = min(d, max(q, d - draws.whole(1, d) + 1)) if draws.chance(0.5) else d
    noise = draws.log_between(0.004, 0.06)
    # All of the noise together is as large in many columns as in few.
    noise = noise * min(1.0, (q / used) ** 0.5)
    x = scale_together(x) * q**0.5 + noise * draws.normal(b, n, q)
    x = x @ orthonormal_map(draws, b, q, used)
    x = x + noise * draws.normal(b, n, used)
    useless = draws.log_between(0.01, 0.2) * q**0.5 * d**-0.5
    return torch.cat([x, useless * draws.normal(b, n, d - used)], dim=-1)


def _curves(draws: Draws, t: Tensor, which: Tensor, count: int, d: int) -> Tensor:
    """Draw closed or open curves from a few random waves each."""
    q = min(d, 2 if draws.chance(0.2) else draws.whole(3, 4))
    waves = draws.whole(1, 4)
    order = torch.arange(1, waves + 1, device=t.device)
    # An open curve is half of a turn of the slowest wave.
    turn = _TURN if draws.chance(0.6) else math.pi
    angle = turn * order * t[..., None]
    basis = torch.cat([angle.cos(), angle.sin()], dim=-1)
    size = torch.cat([order, order]) ** -draws.between(0.5, 1.5)
    weights = size[:, None] * draws.normal(len(t), count, 2 * waves, q)
    centres = draws.between(0, 1.5) * draws.normal(len(t), count, q)
    return (basis[..., None, :] @ pick(weights, which))[..., 0, :] + pick(centres, which)


def _spirals(draws: Draws, t: Tensor, which: Tensor, count: int, d: int) -> Tensor:
    """Draw the arms of a spiral, flat or on a cone."""
    b = len(t)
    turns = draws.uniform(b, 1, low=0.4, high=max(0.6, min(2.2, 5 / count)))
    angle = _TURN * (turns * t + which / count)
    inner = draws.uniform(b, 1, low=0.02, high=0.4)
    radius = inner + (1 - inner) * t ** draws.between(0.7, 1.3)
    arms = [radius * angle.cos(), radius * angle.sin()]
    if d > 2 and draws.chance(0.3):
        arms.append(radius * draws.uniform(b, 1))
    return torch.stack(arms, dim=-1)


def _helices(draws: Draws, t: Tensor, which: Tensor, count: int, d: int) -> Tensor:
    """Draw helices around one axis."""
    b = len(t)
    angle = _TURN * (draws.uniform(b, 1, low=0.7, high=4) * t + which / count)
    radius = pick(draws.uniform(b, count, low=0.6, high=1.2), which)
    height = draws.log_uniform(b, 1, low=1.5, high=8) * t
    return torch.stack([radius * angle.cos(), radius * angle.sin(), height], dim=-1)


def _rings(draws: Draws, t: Tensor, which: Tensor, count: int, d: int) -> Tensor:
    """Draw a chain of linked rings."""
    return chain_points(t, which, draws.uniform(len(t), 1, low=1.0, high=1.6))


def chain_points(
    t: Float[Tensor, "b n"], which: Int[Tensor, "b n"], spacing: Float[Tensor, "b 1"]
) -> Float[Tensor, "b n 3"]:
    """Return points of a chain of rings of radius one, in turn flat and upright.

    Parameters
    ----------
    t : Tensor of shape (b, n)
        Place on the ring, from 0 to 1.
    which : Tensor of shape (b, n)
        Number of the ring.
    spacing : Tensor of shape (b, 1)
        Distance between the centres of neighbouring rings. Below two they are linked,
        and two neighbours come as close as two minus the spacing.
    """
    along, side = (_TURN * t).cos() + spacing * which, (_TURN * t).sin()
    is_flat = which % 2 == 0
    zero = torch.zeros_like(side)
    return torch.stack(
        [along, torch.where(is_flat, side, zero), torch.where(is_flat, zero, side)], dim=-1
    )


def _knots(draws: Draws, t: Tensor, which: Tensor, count: int, d: int) -> Tensor:
    """Draw parallel knots on a torus."""
    around, through = draws.choice(_WINDINGS)
    long = _TURN * around * t
    # A knot passes each place of the long way several times, evenly spaced: the copies
    # of the other classes lie between these passes.
    short = _TURN * (through * t + which / (count * around))
    minor = draws.uniform(len(t), 1, low=0.2, high=0.6)
    radius = 1 + minor * short.cos()
    return torch.stack(
        [radius * long.cos(), radius * long.sin(), minor * short.sin()], dim=-1
    )


_STRANDS: tuple[Callable[[Draws, Tensor, Tensor, int, int], Tensor], ...] = (
    _curves,
    _spirals,
    _helices,
    _rings,
    _knots,
)
