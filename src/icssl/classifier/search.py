"""Nearest neighbours of rows: all rows compared, or the nearest cells of an index.

The index is faiss's, of cells about means; docs/scale.md says why. Equal tables give equal
cells, and each row is looked up by itself.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icssl.classifier.graphs import blocks

COMPARED_ROWS = 10_000
"""Contexts of more rows have an index, where it is installed."""

MOST_COMPARED = 100_000
"""Rows beyond which not all are compared with all: minutes a view."""

_AT_ONCE = 2**22  # distances: small enough for the caches, large enough for threads
_ASKED = 2**17  # rows that an index is asked for at once, some of every cell
_CELLS, _CELL_ROWS = 4.0, 64  # times the root of the rows, of so many at least
_SAMPLED, _ROUNDS = 64, 10  # rows a cell that its mean is found from, and how often
_PROBED = 32  # cells that a row looks into


class Nearest(NamedTuple):
    """Of rows: their nearest rows of a context, and squared distances, which rise."""

    indices: Int[Tensor, "r q"]
    distances: Float[Tensor, "r q"]


@dataclass(frozen=True, eq=False)
class Compared:
    """By comparing with every row of a context."""

    context: Float[Tensor, "n p"]

    def __call__(self, rows: Float[Tensor, "r p"], count: int) -> Nearest:
        """The nearest ``count`` of each row."""
        found, own = _room(rows, count), rows.square().sum(-1, keepdim=True)
        sizes, turned = self.context.square().sum(-1), self.context.mT.contiguous()
        for part in blocks(len(rows), max(1, _AT_ONCE // len(self.context))):
            # A row's own size does not change which are nearest: it is added to those.
            apart = torch.addmm(sizes, rows[part], turned, alpha=-2)
            values, found.indices[part] = apart.topk(count, dim=-1, largest=False)
            found.distances[part] = (values + own[part]).clamp(min=0)
        return found


@dataclass(frozen=True, eq=False)
class Indexed:
    """By an index in cells, which loses few: see docs/scale.md."""

    context: Float[Tensor, "n p"]

    @cached_property
    def index(self) -> Any:
        """Made when it is first needed."""
        import faiss

        n, p = self.context.shape
        cells = max(1, int(min(_CELLS * n**0.5, n / _CELL_ROWS)))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(p), p, cells, faiss.METRIC_L2)
        index.cp.min_points_per_centroid = 1  # it would warn of few rows a cell
        index.cp.max_points_per_centroid, index.cp.niter = _SAMPLED, _ROUNDS
        rows = self.context.float().contiguous().numpy()
        index.train(rows)
        index.add(rows)
        index.nprobe = _PROBED
        return index

    def __call__(self, rows: Float[Tensor, "r p"], count: int) -> Nearest:
        """The nearest ``count`` of each row, of those in the cells nearest to it."""
        found = _room(rows, count)
        for part in blocks(len(rows), _ASKED):
            asked = rows[part].float().numpy()
            # Rows of one cell after each other: what they look into stays in the caches.
            order = self.index.quantizer.search(asked, 1)[1][:, 0].argsort(kind="stable")
            places = torch.from_numpy(order + part.start)
            nearest = self.index.search(asked[order], count)
            for room, each in zip(found, reversed(nearest), strict=True):
                room[places] = torch.from_numpy(each).to(room.dtype)
        # Cells with too few rows: -1 stands for what was not found.
        missed = (found.indices < 0).any(dim=-1).nonzero()[:, 0]
        if len(missed):
            again = Compared(self.context)(rows[missed], count)
            found.distances[missed], found.indices[missed] = again.distances, again.indices
        return found


Search = Compared | Indexed


def search_in(context: Float[Tensor, "n p"]) -> Search:
    """The way that suits the number of rows, the device, and what is installed."""
    many = len(context) > COMPARED_ROWS
    if many and context.device.type == "cpu" and has_index():
        return Indexed(context)
    return Compared(context)


def has_index() -> bool:
    """Whether the package of the index is installed."""
    return find_spec("faiss") is not None


def neighbours_of_all(search: Search, count: int) -> Nearest:
    """The nearest ``count`` others of every row of a context."""
    n = len(search.context)
    found = _room(search.context, count)
    for part in blocks(n, _ASKED):
        near = search(search.context[part], count + 1)
        itself = torch.arange(part.start, part.stop, device=near.indices.device)
        own = near.indices == itself[:, None]
        own[:, -1] |= ~own.any(dim=-1)  # hidden behind equal rows: the last makes way
        for room, each in zip(found, near, strict=True):
            room[part] = each[~own].view(len(own), count)
    return found


def _room(rows: Tensor, count: int) -> Nearest:
    shape = (len(rows), count)
    # Half of the memory that indices of torch and faiss take.
    indices = torch.empty(shape, dtype=torch.int32, device=rows.device)
    return Nearest(indices, rows.new_empty(shape))
