"""Preparation of the points before a model sees them: centring, scaling, rotation."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.model.attention import square_safe, squared_distances
from icssl.model.stage import exporting

SCALES = ("none", "neighbour", "coordinate")
_NEIGHBOUR = 6  # as in the paper's ground-truth graph
_DISTANCES_AT_ONCE = 2**23  # 32 MB in float32


def prepare(
    x: Float[Tensor, "b n d"], centre: bool = True, scale: str = "neighbour"
) -> Float[Tensor, "b n d"]:
    """Centre and scale each context by itself.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
    centre : bool
        Subtract the mean of the context. Attention whose keys and queries have different
        factors depends on where the cloud lies.
    scale : {"none", "neighbour", "coordinate"}
        ``"neighbour"`` divides by the median distance to the sixth neighbour, after
        which no answer depends on the unit of the coordinates. ``"coordinate"`` divides
        each coordinate by its own spread before that, for tables whose columns have
        different units and for products of manifolds; answers then depend on the axes.
    """
    (x,) = square_safe(x)
    if centre:
        x = x - x.mean(dim=-2, keepdim=True)
    if scale == "coordinate":
        x = _scale_by_deviation(x)
    return x if scale == "none" else scale_by_neighbours(x)


def _scale_by_deviation(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """Return ``x`` with each coordinate in units of its deviation; constants as zeros."""
    largest = x.detach().abs().amax(dim=-2, keepdim=True)
    unit = x / largest.where(largest > 0, 1)  # squares of very small numbers underflow
    centred = unit - unit.mean(dim=-2, keepdim=True)
    spread = centred.square().mean(dim=-2, keepdim=True).sqrt()
    # What is left of a constant after centring is rounding, not spread.
    varies = spread > 100 * torch.finfo(x.dtype).eps
    return torch.where(varies, unit / spread.where(varies, 1), 0)


def in_few_coordinates(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n m"]:
    """Return points with the same inner products in m = min(n, d) coordinates.

    What depends on inner products and distances alone, as attention does, is the same,
    and several times as fast on a CPU for pictures of a thousand pixels. The axes are new
    and depend on the order of the points. On a GPU, where products are cheap and a
    factorisation may not fit into a CUDA graph, the points come back as they are.
    """
    if exporting():
        return x  # ONNX has no factorisations
    if x.shape[-1] <= x.shape[-2] or x.is_cuda:
        return x
    # Rows of a Cholesky factor C of the Gram matrix X X^T = C C^T have its inner products.
    gram = x.double() @ x.double().mT
    # A Gram matrix of dependent points is singular; this moves no distance visibly.
    size = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1) + torch.finfo(gram.dtype).tiny
    ridge = 1e-12 * size[..., None, None] * torch.eye(x.shape[-2], device=x.device)
    return torch.linalg.cholesky(gram + ridge).to(x.dtype)


def in_range(x: Float[Tensor, "b n d"], dtype: torch.dtype) -> Float[Tensor, "b n d"]:
    """Return ``x`` in another dtype, shrunk where that one has no numbers so large."""
    if x.dtype == dtype:
        return x
    largest = x.abs().amax(dim=(-2, -1), keepdim=True)
    return (x * (torch.finfo(dtype).max / 4 / largest).clamp(max=1)).to(dtype)


def scale_by_neighbours(
    x: Float[Tensor, "b n d"], *, distances_at_once: int = _DISTANCES_AT_ONCE
) -> Float[Tensor, "b n d"]:
    """Return ``x`` in units of the median distance to the sixth neighbour.

    With fewer points the last neighbour counts. Where most points have that many
    duplicates, the unit is the largest coordinate; a single repeated point comes back as it
    is. At most ``distances_at_once`` distances are held in memory.
    """
    # To unit size first: squares of very small numbers underflow.
    size = (
        (x - x.mean(dim=-2, keepdim=True)).detach().abs().amax(dim=(-2, -1), keepdim=True)
    )
    unit = x / size.where(size > 0, 1)
    # The point itself comes first. Unlike min, this may depend on n after an export.
    neighbour = torch.sym_min(_NEIGHBOUR, x.shape[-2] - 1) + 1
    points = in_few_coordinates(unit.detach())
    distances = [
        squared_distances(rows, points)
        .topk(neighbour, dim=-1, largest=False)
        .values[..., -1]
        for rows in _split_rows(points, distances_at_once)
    ]
    # Sorted, since torch's median is not deterministic on a GPU.
    ordered = torch.cat(distances, dim=-1).sort(dim=-1).values
    median = ordered[..., (x.shape[-2] - 1) // 2].sqrt()[:, None, None]
    return unit / median.where(median > 0, 1)


def _split_rows(points: Float[Tensor, "b n d"], distances_at_once: int) -> Sequence[Tensor]:
    """Split rows into pieces with so many distances to all points."""
    if exporting():
        return (points,)  # the number of pieces would depend on n
    rows = max(1, distances_at_once // (len(points) * points.shape[-2]))
    return points.split(rows, dim=-2)
