"""Search for the nearest rows of a context: by comparing all rows, or by an index.

The index of faiss puts rows into cells around means, which docs/scale.md explains: equal
tables give equal cells, and each row is looked up by itself.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icssl.classifier.graphs import blocks

BRUTE_FORCE_ROWS = 2**14
"""Contexts of more rows have an index, where it is installed."""

MOST_BRUTE_FORCE_ROWS = 100_000
"""Contexts of more rows need an index: comparing all rows would take minutes per view."""

_DISTANCES_AT_ONCE = 2**20  # small enough for the caches, large enough for threads
_GROUP = 8  # distances of which the least is looked at first
_QUERIED_ROWS = 2**17  # rows that an index is asked for at once, some of every cell
_CELLS, _CELL_ROWS = 4.0, 64  # cells: 4 times the root of the rows, of 64 rows at least
_SAMPLED_ROWS, _MEAN_ROUNDS = 64, 10  # rows per cell that its mean is fitted to, and rounds
_PROBED = 32  # cells that a row is looked for in


class Nearest(NamedTuple):
    """The nearest rows of a context for each row, and squared distances, which rise."""

    indices: Int[Tensor, "r q"]
    distances: Float[Tensor, "r q"]


@dataclass(frozen=True, eq=False)
class BruteForceSearch:
    """Search for nearest rows by comparing with every row of a context."""

    context: Float[Tensor, "n p"]

    def __call__(self, rows: Float[Tensor, "r p"], count: int) -> Nearest:
        """Return the nearest ``count`` of each row."""
        nearest, sizes = _empty_nearest(rows, count), rows.square().sum(-1, keepdim=True)
        # A row's own size does not change which are nearest: it is added to those. The
        # sizes of the context are one more coordinate of the product.
        rows = torch.cat([rows, torch.ones_like(sizes)], dim=-1)
        context_sizes = self.context.square().sum(-1)
        columns = torch.cat([-2 * self.context.mT, context_sizes[None]]).contiguous()
        size = max(1, _DISTANCES_AT_ONCE // len(self.context))
        # One buffer for all pieces: new memory would cost as much as the product.
        buffer = rows.new_empty(min(size, len(rows)), len(self.context))
        for part in blocks(len(rows), size):
            relative = torch.mm(rows[part], columns, out=buffer[: part.stop - part.start])
            values, nearest.indices[part] = smallest(relative, count)
            nearest.distances[part] = (values + sizes[part]).clamp(min=0)
        return nearest


def smallest(
    values: Float[Tensor, "r n"], count: int
) -> tuple[Float[Tensor, "r q"], Int[Tensor, "r q"]]:
    """Return the least ``count`` values of every row, rising, and where they are.

    It is ``topk``, three times as fast on a CPU for many values. The least are in those
    groups whose least values are least: as many groups as values are enough.
    """
    width = values.shape[1] // _GROUP
    if width < 2 * count or values.is_cuda:
        found = values.topk(count, dim=-1, largest=False)
        return found.values, found.indices
    grouped = values[:, : _GROUP * width].view(-1, _GROUP, width)
    groups = smallest(grouped.amin(dim=1), count)[1]
    starts = width * torch.arange(_GROUP)[:, None]
    inside = (groups[:, None] + starts).flatten(1)
    rest = torch.arange(_GROUP * width, values.shape[1]).expand(len(values), -1)
    candidates = torch.cat([inside, rest], dim=-1)
    found = values.gather(1, candidates).topk(count, dim=-1, largest=False)
    return found.values, candidates.gather(1, found.indices)


@dataclass(frozen=True, eq=False)
class IndexSearch:
    """Search for nearest rows by an index in cells, which misses few: see docs/scale.md."""

    context: Float[Tensor, "n p"]

    @cached_property
    def index(self) -> Any:
        """The index of faiss, made when it is first needed."""
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())  # of this thread alone
        n, p = self.context.shape
        cells = max(1, int(min(_CELLS * n**0.5, n / _CELL_ROWS)))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(p), p, cells, faiss.METRIC_L2)
        index.cp.min_points_per_centroid = 1  # or it would warn of few rows per cell
        index.cp.max_points_per_centroid, index.cp.niter = _SAMPLED_ROWS, _MEAN_ROUNDS
        rows = self.context.float().contiguous().numpy()
        index.train(rows)
        index.add(rows)
        index.nprobe = _PROBED
        return index

    def __call__(self, rows: Float[Tensor, "r p"], count: int) -> Nearest:
        """Return the nearest ``count`` of each row, among those in the cells near it."""
        import faiss

        nearest, index = _empty_nearest(rows, count), self.index
        faiss.omp_set_num_threads(torch.get_num_threads())  # of this thread alone
        for part in blocks(len(rows), _QUERIED_ROWS):
            queries = rows[part].float().numpy()
            # Rows of one cell after each other: cells they look into stay in the caches.
            order = index.quantizer.search(queries, 1)[1][:, 0].argsort(kind="stable")
            places = torch.from_numpy(order + part.start)
            distances, indices = index.search(queries[order], count)
            nearest.indices[places] = torch.from_numpy(indices).to(nearest.indices.dtype)
            nearest.distances[places] = torch.from_numpy(distances).to(rows.dtype)
        # In cells with too few rows, -1 stands for a neighbour that was not found.
        missed = (nearest.indices < 0).any(dim=-1).nonzero()[:, 0]
        if len(missed):
            again = BruteForceSearch(self.context)(rows[missed], count)
            nearest.distances[missed] = again.distances
            nearest.indices[missed] = again.indices
        return nearest


Search = BruteForceSearch | IndexSearch


def make_search(context: Float[Tensor, "n p"]) -> Search:
    """Return the search that suits the rows, the device, and what is installed."""
    many = len(context) > BRUTE_FORCE_ROWS
    if many and context.device.type == "cpu" and has_index():
        return IndexSearch(context)
    return BruteForceSearch(context)


def has_index() -> bool:
    """Return whether faiss, the package of the index, is installed."""
    return find_spec("faiss") is not None


def all_neighbours(search: Search, count: int) -> Nearest:
    """Return the nearest ``count`` others of every row of a context."""
    n = len(search.context)
    nearest = _empty_nearest(search.context, count)
    for part in blocks(n, _QUERIED_ROWS):
        candidates = search(search.context[part], count + 1)
        rows = torch.arange(part.start, part.stop, device=candidates.indices.device)
        is_self = candidates.indices == rows[:, None]
        # A row hidden behind equal ones is not among its candidates: the last makes way, so
        # that exactly one of them is dropped for every row.
        is_self[:, -1] |= ~is_self.any(dim=-1)
        for target, source in zip(nearest, candidates, strict=True):
            target[part] = source[~is_self].view(len(rows), count)
    return nearest


def _empty_nearest(rows: Tensor, count: int) -> Nearest:
    shape = (len(rows), count)
    # 32 bits: half of the memory that indices of torch and faiss take.
    indices = torch.empty(shape, dtype=torch.int32, device=rows.device)
    return Nearest(indices, rows.new_empty(shape))
