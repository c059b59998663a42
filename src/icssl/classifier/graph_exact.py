"""Exact attention without the matrix: the weights of a graph are never held.

Among the rows of a context no two are nearer to each other than each one's nearest is. The
bound in :func:`icssl.classifier.graphs.rbf_weights` is then for rounding alone; without it
the logarithm of a weight is bilinear. With near distances a, contrasts s^2, and
g_i = |x_i|^2 - a_i / 2, it is 4 (2 x_i . x_j - g_i - g_j) / (s_i s_j).
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from icssl._util.hardware import has_triton
from icssl.classifier.graphs import (
    SHARPNESS,
    DenseGraph,
    NeighbourDistances,
    WeightedGraph,
    blocks,
    neighbour_distances,
)

# Of logarithms of weights, by rounding: beyond, the bound is needed, and with it blocks.
MOST_ERROR = 0.01
_BLOCK = 1024  # rows that read at once on a CPU
_BLOCK_GPU = 8192  # the same on a GPU, whose every processor takes 64 of them
_MANY_ROWS = 50_000  # beyond, all distances of a row are not looked through on a GPU
# Coordinates that the kernels of a GPU take, and what tiles of the most of them need of its
# memory for a block of threads, in bytes: the GPUs of servers have it.
_FEW_COORDINATES, _MOST_COORDINATES, _SHARED = 30, 126, 160 * 1024


def exact_graph(rows: Float[Tensor, "b n p"], scale: NeighbourDistances) -> WeightedGraph:
    """The one place where it is chosen how all weights are multiplied with, unheld.

    Whatever it gives has ``times(x)``, which is W x, and ``degrees``: kernels of our own on
    a GPU, else attention, or blocks of weights where rows are so near each other that
    either has too few digits.
    """
    largest = (rows.square().sum(-1) / scale.contrast).max()
    error = 2 * SHARPNESS * torch.finfo(rows.dtype).eps * float(largest)
    if error > MOST_ERROR:
        return DenseGraph(rows, scale, hold=False)
    if _has_kernels(rows):
        from icssl.classifier.graph_triton import TritonGraph

        return TritonGraph(rows, scale)
    return AttentionGraph(rows, scale)


def exact_distances(rows: Float[Tensor, "b n p"]) -> NeighbourDistances:
    """Of rows among themselves, however many they are."""
    if rows.shape[1] > _MANY_ROWS and _has_kernels(rows):
        from icssl.classifier.graph_triton import distances_on_gpu

        return distances_on_gpu(rows)
    return neighbour_distances(rows, rows, skip_self=True)


def _has_kernels(rows: Tensor) -> bool:
    usual = rows.is_cuda and rows.dtype == torch.float32
    return usual and has_triton() and rows.shape[-1] <= _most_coordinates(rows.device)


def _most_coordinates(device: torch.device) -> int:
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", 0)
    return _MOST_COORDINATES if shared >= _SHARED else _FEW_COORDINATES


def bilinear(
    rows: Float[Tensor, "b n p"], scale: NeighbourDistances
) -> tuple[Tensor, Tensor]:
    """Queries and keys whose products are the logarithms of the weights."""
    root = scale.contrast.sqrt()[..., None]
    size = rows.square().sum(-1, keepdim=True) - scale.near[..., None] / 2
    one = torch.ones_like(size)
    query = SHARPNESS * torch.cat([2 * rows, -size, -one], dim=-1) / root
    return query, torch.cat([rows, one, size], dim=-1) / root


class AttentionGraph(WeightedGraph):
    """The weights of rows by their distances, through ``scaled_dot_product_attention``.

    It is three times as fast on a CPU as a product in blocks of the same logarithms, 12
    times as fast as :class:`DenseGraph` in blocks. Two things have to be undone:

    - Attention divides by the sum of the weights. A key more, whose weight is one for every
      row and which alone has the last column, tells by what.
    - A row must not read itself; where distances concentrate it would read nothing else.
      Rows therefore read the keys before and after their block, and those of their
      block are multiplied with by hand.
    """

    def __init__(self, rows: Float[Tensor, "b n p"], scale: NeighbourDistances) -> None:
        self._query, self._key = bilinear(rows, scale)
        self._block = _BLOCK_GPU if rows.is_cuda else _BLOCK
        self.degrees = self._degrees(rows)

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """A block of rows at a time."""
        n, k = x.shape[1:]
        # The fused kernels want four axes and one width, a multiple of eight, for all.
        width = -(-max(k + 1, self._key.shape[-1]) // 8) * 8
        query = pad(self._query, (0, width - self._query.shape[-1]))[:, None]
        key, value = (
            pad(part, (0, width - part.shape[-1], 1, 1))[:, None] for part in (self._key, x)
        )
        value[:, :, [0, -1], -1] = 1.0  # the key more, at both ends
        found = torch.empty_like(x)
        for part in blocks(n, self._block):
            read = self._own_block(part) @ x[:, part]
            for others in (slice(0, part.start + 1), slice(part.stop + 1, n + 2)):
                mean = scaled_dot_product_attention(
                    query[:, :, part], key[:, :, others], value[:, :, others], scale=1.0
                )[:, 0]
                read += mean[..., :k] / mean[..., -1:]
            found[:, part] = read
        return found

    def _own_block(self, part: slice) -> Tensor:
        logarithms = self._query[:, part] @ self._key[:, part].mT
        w = logarithms.clamp(max=SHARPNESS).exp()
        w.diagonal(dim1=-2, dim2=-1).zero_()
        return w
