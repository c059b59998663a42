"""Synthetic tables whose classes are distributions: each row has a class, then its cells.

Axis names: b = tables, n = rows, d = columns, c = classes, q = latent variables.
"""

import torch
from torch import Tensor

from icssl.classifier.pretraining.draws import (
    Draws,
    TablePlan,
    apply_linear,
    pick,
    standardise,
)
from icssl.classifier.pretraining.functions_of_columns import Points
from icssl.classifier.pretraining.latent_columns import map_to_columns
from icssl.classifier.pretraining.table_classes import draw_classes, regions


def draw_clusters(draws: Draws, plan: TablePlan) -> Points:
    """Draw classes of one to three Gaussian parts, which may overlap and be warped."""
    parts = 1 if draws.chance(0.6) else draws.whole(2, 3)
    y, latent = _gaussians(draws, plan, q=draws.whole(2, 12), parts=parts, room=1.0)
    return map_to_columns(draws, latent, plan), y


def draw_distant_clusters(draws: Draws, plan: TablePlan) -> Points:
    """Draw one Gaussian part per class, which seldom overlap."""
    y, latent = _gaussians(draws, plan, q=draws.whole(2, 12), parts=1, room=1.6)
    return map_to_columns(draws, latent, plan), y


def _gaussians(
    draws: Draws, plan: TablePlan, *, q: int, parts: int, room: float
) -> tuple[Tensor, Tensor]:
    b, n, count = plan.b, plan.n, plan.c * parts
    y = draw_classes(draws, plan)
    part = y * parts + draws.below(parts, b, n)
    # Volume grows with the power of the dimension: as much for each part as three have.
    room = room * max(1.0, count / 3) ** (1 / q)
    centres = room * draws.log_between(0.5, 4) * draws.normal(b, count, q)
    # Each part has its own covariance, shapes @ shapes.T, about as wide in any dimension.
    width = draws.between(0.3, 1.2) * q**-0.5
    shapes = width * draws.normal(b, count, q, q)
    if draws.chance(0.4):  # dense and spread-out parts
        shapes = shapes * draws.log_uniform(b, count, 1, 1, low=0.3, high=2)
    noise = draws.normal(b, n, q, 1)
    return y, pick(centres, part) + (pick(shapes, part) @ noise)[..., 0]


def draw_surface(draws: Draws, plan: TablePlan) -> Points:
    """Draw a curved surface; its classes are the regions nearest to random points."""
    u = draws.log_between(2, 8) * draws.uniform(plan.b, plan.n, draws.whole(1, 3))
    waves = torch.cat([u.sin(), u.cos(), 0.3 * u], dim=-1)
    return map_to_columns(draws, waves, plan), regions(draws, u, plan)


def draw_dense_and_spread(draws: Draws, plan: TablePlan) -> Points:
    """Draw skewed or heavy-tailed columns: one class is dense, another spread out.

    Classes have different variances around nearly the same mean, or low and high values
    of columns that are positive and skewed.
    """
    b, n, d, c = plan.b, plan.n, plan.d, plan.c
    y = draw_classes(draws, plan)
    shared = apply_linear(draws, draws.normal(b, n, draws.whole(2, 12)), d)
    mix = draws.between(0, 1)
    z = mix * shared + (1 - mix**2) ** 0.5 * draws.normal(b, n, d)
    # Not every column tells the classes apart.
    is_relevant = draws.uniform(b, 1, d) < draws.between(0.2, 1)
    few = (1 + is_relevant.sum(dim=-1, keepdim=True)) ** -0.5
    # More classes must be farther apart, or nothing could be learned.
    strength = is_relevant * few * draws.log_between(0.7, 6) * (c / 2) ** 0.5
    shift = pick(draws.normal(b, c, d), y)
    form = draws.choice(("widths", "widths", "log-normal", "log-normal", "heavy"))
    if form == "widths":
        width = pick(draws.log_uniform(b, c, 1, low=0.25, high=2.5), y)
        x = 0.3 * strength * shift + torch.where(is_relevant, width, 1.0) * z
    elif form == "log-normal":
        # All relevant columns of a class are high, or all are low, with some exceptions.
        direction = 1 - 2 * (draws.uniform(b, 1, d) < 0.2).to(z.dtype)
        level = pick(draws.normal(b, c, 1), y) * direction
        x = (draws.between(0.3, 1.3) * (z + strength * (0.8 * level + 0.4 * shift))).exp()
    else:
        tail = draws.normal(b, n, 3).square().mean(dim=-1, keepdim=True).sqrt()
        x = strength * shift + z / tail.clamp(min=0.1)
    x = x.clamp(-1e4, 1e4)
    if not plan.one_unit:
        return standardise(x), y
    return x + draws.log_between(0.01, 0.3) * draws.normal(b, n, d), y


def draw_counts(draws: Draws, plan: TablePlan) -> Points:
    """Draw counts with rates that depend on the class, as words of texts have."""
    b, n, d, c = plan.b, plan.n, plan.d, plan.c
    y = draw_classes(draws, plan)
    common = draws.between(0.2, 1.2) * draws.normal(b, 1, d)
    is_relevant = draws.uniform(b, c, d) < draws.between(0.1, 0.7)
    effects = draws.between(0.3, 1.5) * is_relevant * draws.normal(b, c, d)
    length = draws.between(0, 0.6) * draws.normal(b, n, 1)
    level = draws.log_between(0.2, 8)
    rates = level * (common + pick(effects, y) + length).exp()
    x = torch.poisson(rates.clamp(max=1e4), generator=draws.generator)
    form = draws.choice(("counts", "counts", "shares", "logarithms", "presence"))
    if form == "shares":
        x = x / x.sum(dim=-1, keepdim=True).clamp(min=1)
    elif form == "logarithms":
        x = x.log1p()
    elif form == "presence":
        x = (x > 0).to(x.dtype)
    return x if plan.one_unit else standardise(x), y
