"""What is done to the points before a model sees them."""

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.model.attention import square_safe

SCALES = ("none", "neighbour")
NEIGHBOUR = 6  # of the paper's ground-truth graph
_DISTANCES_AT_ONCE = 2**23


def prepare(
    x: Float[Tensor, "b n d"], centre: bool = True, scale: str = "neighbour"
) -> Float[Tensor, "b n d"]:
    """Centre and scale each context by itself.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
    centre : bool
        Subtract the mean of the context. Attention whose keys and queries are scaled
        differently depends on where the cloud lies.
    scale : {"none", "neighbour"}
        ``"neighbour"`` divides by the median distance to the sixth neighbour, after
        which no answer depends on the unit of the coordinates.
    """
    (x,) = square_safe(x)
    if centre:
        x = x - x.mean(dim=-2, keepdim=True)
    return neighbour_scaled(x) if scale == "neighbour" else x


def in_range(x: Float[Tensor, "b n d"], dtype: torch.dtype) -> Float[Tensor, "b n d"]:
    """``x`` in another dtype, shrunk where that one has no numbers so large."""
    if x.dtype == dtype:
        return x
    largest = x.abs().amax(dim=(-2, -1), keepdim=True)
    return (x * (torch.finfo(dtype).max / 4 / largest).clamp(max=1)).to(dtype)


def neighbour_scaled(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """``x`` in units of the median distance to the sixth neighbour (or to the last one).

    Where most points have that many duplicates, in units of the largest coordinate; a
    single repeated point comes back as it is. Never divides by zero.
    """
    # To unit size first: squares of very small numbers underflow.
    size = (
        (x - x.mean(dim=-2, keepdim=True)).detach().abs().amax(dim=(-2, -1), keepdim=True)
    )
    unit = x / size.where(size > 0, 1)
    neighbour = min(NEIGHBOUR, x.shape[-2] - 1) + 1  # the point itself comes first
    rows_at_once = max(1, _DISTANCES_AT_ONCE // (len(x) * x.shape[-2]))
    distances = [
        torch.cdist(rows, unit.detach(), compute_mode="donot_use_mm_for_euclid_dist")
        .topk(neighbour, dim=-1, largest=False)
        .values[..., -1]
        for rows in unit.detach().split(rows_at_once, dim=-2)
    ]
    median = torch.cat(distances, dim=-1).median(dim=-1).values[:, None, None]
    return unit / median.where(median > 0, 1)
