"""Columns of synthetic tables as functions of latent variables.

Columns of one unit keep the spread that the latent variables give them, and have noise of
equal size, as pixels, spectra and embeddings do: there, scaling every column to deviation
one makes noise as large as the signal. Columns of different units have deviation one here,
and each its own amount of noise; units come later.

Axis names: b = tables, n = rows, d = columns, q = latent variables.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.classifier.pretraining.draws import (
    Draws,
    TablePlan,
    apply_linear,
    apply_network,
    orthonormal_map,
    scale_together,
    standardise,
)


def map_to_columns(
    draws: Draws, latent: Float[Tensor, "b n q"], plan: TablePlan
) -> Float[Tensor, "b n d"]:
    """Return noisy columns that are functions of the latent variables."""
    b, n, d = plan.b, plan.n, plan.d
    if plan.one_unit:
        return _columns_of_one_unit(draws, latent, d)
    if draws.chance(0.5):
        x = apply_linear(draws, latent, d)
    else:
        width = max(16, min(d, 64))
        x = apply_network(draws, latent, d, depth=draws.whole(1, 2), width=width)
    noise = draws.log_between(0.02, 0.5) * draws.log_uniform(b, 1, d, low=0.3, high=3)
    return standardise(standardise(x) + noise * draws.normal(b, n, d))


def draw_correlated_columns(draws: Draws, plan: TablePlan) -> Float[Tensor, "b n d"]:
    """Draw columns that share latent variables, some with heavy tails."""
    latent = draws.normal(plan.b, plan.n, draws.whole(2, 16))
    if draws.chance(0.3):
        latent = latent * draws.normal(plan.b, plan.n, 1).abs() ** draws.between(0, 1)
    return map_to_columns(draws, latent, plan)


def _columns_of_one_unit(draws: Draws, latent: Tensor, d: int) -> Tensor:
    b, n, q = latent.shape
    if draws.chance(0.5):
        latent = apply_network(draws, latent, max(q, 4), depth=1, width=32)
        q = latent.shape[-1]
    # The first latent variables have the largest variance, as principal components do.
    decay = draws.between(0, 1)
    rank = torch.arange(1, q + 1, device=latent.device)
    latent = scale_together(latent) * rank**-decay
    loadings = draws.choice(_LOADINGS)(draws, b, q, d)
    x = scale_together(latent @ loadings)
    x = x + draws.log_between(0.05, 0.8) * draws.normal(b, n, d)
    if draws.chance(0.25):  # most cells are zero and none is negative, as with ink on paper
        x = torch.relu(x - draws.between(-1, 0.2))
    return x


def _embedding(draws: Draws, b: int, q: int, d: int) -> Tensor:
    """Draw independent loadings; some columns are larger than others."""
    gains = (draws.between(0, 1) * draws.normal(b, 1, d)).exp()
    return gains * draws.normal(b, q, d)


def _rotation(draws: Draws, b: int, q: int, d: int) -> Tensor:
    """Draw a rotation into some of the columns; the others have noise only."""
    used = max(1, round(d * draws.between(0.55, 1)))
    loadings = orthonormal_map(draws, b, q, used)
    return torch.cat([loadings, loadings.new_zeros(b, q, d - used)], dim=-1)


def _spectrum(draws: Draws, b: int, q: int, d: int) -> Tensor:
    """Draw loadings that change smoothly from each column to the next."""
    place = torch.linspace(0, 1, d, device=draws.generator.device)
    centre, width = draws.uniform(b, q, 1), draws.log_uniform(b, q, 1, low=0.03, high=0.25)
    peaks = (-((place - centre) / width).square()).exp()
    return draws.normal(b, q, 1) * peaks + 0.15 * _waves(draws, b, q, place)


def _waves(draws: Draws, b: int, q: int, place: Tensor) -> Tensor:
    turns = draws.uniform(b, q, 1, low=0.3, high=2.5)
    return torch.sin(2 * math.pi * (turns * place + draws.uniform(b, q, 1)))


def _image(draws: Draws, b: int, q: int, d: int) -> Tensor:
    """Draw loadings as spots of a picture, whose border is nearly constant."""
    width = max(1, round(math.sqrt(d)))
    place = torch.arange(d, device=draws.generator.device)
    across = (place % width) / max(1, width - 1)
    down = (place // width) / max(1, (d - 1) // width)
    size = draws.log_uniform(b, q, 1, low=0.1, high=0.35)
    spots = [
        ((side - draws.uniform(b, q, 1, low=0.2, high=0.8)) / size).square()
        for side in (across, down)
    ]
    return draws.normal(b, q, 1) * (-(spots[0] + spots[1])).exp()


_LOADINGS: tuple[Callable[[Draws, int, int, int], Tensor], ...] = (
    _embedding,
    _rotation,
    _spectrum,
    _image,
)
