"""The backend "exact": all weights of a graph take part, and none is held.

Among the rows of a context no two are nearer to each other than each one's nearest is. The
bound in :func:`icssl.classifier.graphs.rbf_weights` is then for rounding alone; without it
the logarithm of a weight is bilinear, as the scores of attention are. With distances a to
the nearest neighbour, contrasts s^2, and g_i = |x_i|^2 - a_i / 2, it is
4 (2 x_i . x_j - g_i - g_j) / (s_i s_j).
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from icssl._util.hardware import has_triton
from icssl.classifier.graphs import (
    BANDWIDTH_NEIGHBOURS,
    SHARPNESS,
    DenseGraph,
    NeighbourDistances,
    WeightedGraph,
    blocks,
    neighbour_distances,
)

# Rounding error of the logarithms of weights, beyond which the bound is needed: then the
# logarithm is not bilinear, and weights are computed in blocks.
_MOST_ERROR = 0.01
_BLOCK = 1024  # rows that attend at once on a CPU
_BLOCK_GPU = 8192  # the same on a GPU, whose every processor takes 64 of them
_MANY_ROWS = 50_000  # beyond, a GPU does not look through all distances of a row
# Coordinates that the Triton kernels take, and the memory in bytes that tiles of the most
# of them need for a block of threads, which the GPUs of servers have.
_FEW_COORDINATES, _MOST_COORDINATES, _SHARED_BYTES = 30, 126, 160 * 1024


def exact_graph(
    rows: Float[Tensor, "b n p"], distances: NeighbourDistances
) -> WeightedGraph:
    """Choose how all weights are multiplied with, and return that graph.

    It is a Triton kernel on a GPU and attention elsewhere. Where rows are so near each
    other that either has too few digits, weights are computed in blocks.
    """
    largest = (rows.square().sum(-1) / distances.contrast).max()
    error = 2 * SHARPNESS * torch.finfo(rows.dtype).eps * float(largest)
    if error > _MOST_ERROR:
        return DenseGraph(rows, distances, hold=False)
    if _suits_triton(rows):
        from icssl.classifier.graph_triton import TritonGraph

        return TritonGraph(rows, distances)
    return AttentionGraph(rows, distances)


def exact_distances(
    rows: Float[Tensor, "b n p"], neighbours: int = BANDWIDTH_NEIGHBOURS
) -> NeighbourDistances:
    """Return how far the neighbours of rows are among themselves, even for many rows."""
    if rows.shape[1] > _MANY_ROWS and _suits_triton(rows):
        from icssl.classifier.graph_triton import distances_on_gpu

        return distances_on_gpu(rows, neighbours)
    return neighbour_distances(rows, rows, skip_self=True, neighbours=neighbours)


def _suits_triton(rows: Tensor) -> bool:
    usual = rows.is_cuda and rows.dtype == torch.float32
    return usual and has_triton() and rows.shape[-1] <= _most_coordinates(rows.device)


def _most_coordinates(device: torch.device) -> int:
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", 0)
    return _MOST_COORDINATES if shared >= _SHARED_BYTES else _FEW_COORDINATES


def bilinear(
    rows: Float[Tensor, "b n p"], distances: NeighbourDistances
) -> tuple[Tensor, Tensor]:
    """Return queries and keys whose products are the logarithms of the weights."""
    root = distances.contrast.sqrt()[..., None]
    size = rows.square().sum(-1, keepdim=True) - distances.near[..., None] / 2  # g above
    ones = torch.ones_like(size)
    query = SHARPNESS * torch.cat([2 * rows, -size, -ones], dim=-1) / root
    return query, torch.cat([rows, ones, size], dim=-1) / root


class AttentionGraph(WeightedGraph):
    """The weights of rows by their distances, through ``scaled_dot_product_attention``.

    It is three times as fast on a CPU as a product in blocks of the same logarithms, 12
    times as fast as :class:`DenseGraph` in blocks. Two things have to be undone:

    - Attention divides by the sum of the weights. One key more, whose weight is one for
      every row and whose value alone has a one in the last column, tells by what.
    - A row must not read itself; where distances concentrate it would read nothing else.
      Rows therefore attend to the keys before and after their block, and weights within
      their block are computed one by one.
    """

    def __init__(self, rows: Float[Tensor, "b n p"], distances: NeighbourDistances) -> None:
        self._query, self._key = bilinear(rows, distances)
        self._block = _BLOCK_GPU if rows.is_cuda else _BLOCK
        self.degrees = self._degrees(rows)

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Multiply W with columns, one block of rows at a time."""
        n, k = x.shape[1:]
        # The fused kernels want four axes and one width, a multiple of eight, for all.
        width = -(-max(k + 1, self._key.shape[-1]) // 8) * 8
        query = pad(self._query, (0, width - self._query.shape[-1]))[:, None]
        key, value = (
            pad(part, (0, width - part.shape[-1], 1, 1))[:, None] for part in (self._key, x)
        )
        # Padding put a key of zeros, whose weight is one, at both ends: each slice of keys
        # below contains one of the two. Keys are therefore shifted by one against rows.
        value[:, :, [0, -1], -1] = 1.0
        product = torch.empty_like(x)
        for part in blocks(n, self._block):
            total = self._own_block(part) @ x[:, part]
            for others in (slice(0, part.start + 1), slice(part.stop + 1, n + 2)):
                mean = scaled_dot_product_attention(
                    query[:, :, part], key[:, :, others], value[:, :, others], scale=1.0
                )[:, 0]
                # The last column is one over the sum of weights.
                total += mean[..., :k] / mean[..., -1:]
            product[:, part] = total
        return product

    def _own_block(self, part: slice) -> Tensor:
        logarithms = self._query[:, part] @ self._key[:, part].mT
        w = logarithms.clamp(max=SHARPNESS).exp()
        w.diagonal(dim1=-2, dim2=-1).zero_()
        return w
