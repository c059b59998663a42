"""Attention to nearest neighbours alone: all other weights of the graph are left out.

A weight falls to e^-4 within the twelve nearest rows, so that little is lost. A pass costs
rows times neighbours, and nothing is held that has a number for every two rows.

Equal rows are one node of the graph, with a count: of many equal rows, which neighbours
each one keeps would be chance. Nothing is lost by it, since an eigenfunction of the graph
of all rows has one value for equal rows wherever its eigenvalue is positive.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from icssl.classifier.graphs import (
    BANDWIDTH_NEIGHBOURS,
    FEW_SOLVED_ROWS,
    ROUNDS,
    NeighbourDistances,
    WeightedGraph,
    blocks,
    distances_from_nearest,
    rbf_weights,
)

SPARSE_NEIGHBOURS = 32
"""Neighbours of a row that it keeps weights to: see the table in docs/scale.md."""

_AT_ONCE = 2**14  # rows whose weights are made


BRUTE_FORCE_ROWS = 10_000
"""Contexts of more rows have an index, where it is installed."""

MOST_BRUTE_FORCE_ROWS = 100_000
"""Rows beyond which not all are compared with all: minutes a view."""

_DISTANCES_AT_ONCE = (
    2**22
)  # distances: small enough for the caches, large enough for threads
_ASKED = 2**17  # rows that an index is asked for at once, some of every cell
_CELLS, _CELL_ROWS = 4.0, 64  # times the root of the rows, of so many at least
_SAMPLED, _ROUNDS = 64, 10  # rows a cell that its mean is found from, and how often
_PROBED = 32  # cells that a row looks into


class Nearest(NamedTuple):
    """Of rows: their nearest rows of a context, and squared distances, which rise."""

    indices: Int[Tensor, "r q"]
    distances: Float[Tensor, "r q"]


@dataclass(frozen=True, eq=False)
class BruteForceSearch:
    """By comparing with every row of a context."""

    context: Float[Tensor, "n p"]

    def __call__(self, rows: Float[Tensor, "r p"], count: int) -> Nearest:
        """The nearest ``count`` of each row."""
        found, own = _room(rows, count), rows.square().sum(-1, keepdim=True)
        sizes, turned = self.context.square().sum(-1), self.context.mT.contiguous()
        for part in blocks(len(rows), max(1, _DISTANCES_AT_ONCE // len(self.context))):
            # A row's own size does not change which are nearest: it is added to those.
            apart = torch.addmm(sizes, rows[part], turned, alpha=-2)
            values, found.indices[part] = apart.topk(count, dim=-1, largest=False)
            found.distances[part] = (values + own[part]).clamp(min=0)
        return found


@dataclass(frozen=True, eq=False)
class IndexSearch:
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
            again = BruteForceSearch(self.context)(rows[missed], count)
            found.distances[missed], found.indices[missed] = again.distances, again.indices
        return found


Search = BruteForceSearch | IndexSearch


def make_search(context: Float[Tensor, "n p"]) -> Search:
    """The way that suits the number of rows, the device, and what is installed."""
    many = len(context) > BRUTE_FORCE_ROWS
    if many and context.device.type == "cpu" and has_index():
        return IndexSearch(context)
    return BruteForceSearch(context)


def has_index() -> bool:
    """Whether the package of the index is installed."""
    return find_spec("faiss") is not None


def all_neighbours(search: Search, count: int) -> Nearest:
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


class Nodes(NamedTuple):
    """Different rows of a context.

    Parameters
    ----------
    first : Tensor of shape (u,)
        A row of every node.
    of_row : Tensor of shape (n,)
        The node of every row.
    counts : Tensor of shape (u,)
        How many rows every node has.
    """

    first: Int[Tensor, " u"]
    of_row: Int[Tensor, " n"]
    counts: Int[Tensor, " u"]

    @classmethod
    def of_rows(cls, rows: Float[Tensor, "n p"]) -> "Nodes":
        """Find equal rows; the order of the nodes does not depend on the order of rows."""
        _, of_row, counts = rows.unique(dim=0, return_inverse=True, return_counts=True)
        first = torch.empty_like(counts)
        first[of_row] = torch.arange(len(rows), device=rows.device)
        return cls(first, of_row, counts)


def node_distances(
    found: Nearest, counts: Int[Tensor, " u"], own: Int[Tensor, " r"] | None = None
) -> NeighbourDistances:
    """Return the scale of rows from their nearest nodes, where each stands for many rows.

    Parameters
    ----------
    found : Nearest
        Nodes of the context, and squared distances to them.
    counts : Tensor of shape (u,)
        Rows of the context that every node stands for.
    own : Tensor of shape (r,), optional
        How many rows are equal to each row, itself included, where it is of the context.
    """
    some = slice(BANDWIDTH_NEIGHBOURS)  # as many nodes are as many rows at least
    seen = counts[found.indices[:, some].long()].cumsum(-1)
    distances = found.distances[:, some]
    if own is not None:
        at_zero = (own - 1)[:, None]
        seen = torch.cat([at_zero, seen + at_zero], dim=-1)
        distances = pad(distances, (1, 0))
    near, far = (
        _distance_to(count, seen, distances) for count in (1, BANDWIDTH_NEIGHBOURS)
    )
    return distances_from_nearest(torch.stack([near, far], dim=-1)[None])


def _distance_to(count: int, seen: Tensor, distances: Tensor) -> Float[Tensor, " r"]:
    """Return the distance within which so many rows are; the last, of fewer rows."""
    place = (seen < count).sum(-1, keepdim=True).clamp(max=distances.shape[1] - 1)
    return distances.gather(1, place)[:, 0]


def nearest_weights(
    found: Nearest, scale: NeighbourDistances, context_scale: NeighbourDistances
) -> Float[Tensor, "r q"]:
    """Weights of rows to their nearest of a context: those of ``weights`` that are kept."""
    near, contrast = (part[0] for part in (scale.near, scale.contrast))
    others = found.indices.long()
    start = (near[:, None] + context_scale.near[0][others]) / 2
    unit = (contrast[:, None] * context_scale.contrast[0][others]).sqrt()
    return rbf_weights(found.distances, start, unit)


class SparseGraph(WeightedGraph):
    """One context's weights as a sparse matrix, symmetric.

    Parameters
    ----------
    w : sparse matrix of shape (n, n)
        Rows of it may know columns that do not know them: the larger weight counts. No row
        is its own neighbour, whatever it says.
    like : Tensor
        Of the type and on the device of what it is multiplied with.
    counts : Tensor of shape (n,), optional
        Rows that each row stands for, which are neighbours of each other with weight one.
    """

    solved_rows = FEW_SOLVED_ROWS  # a matrix of all rows is what it is to do without

    def __init__(
        self, w: sparse.csr_matrix, like: Tensor, counts: Int[Tensor, " n"] | None = None
    ) -> None:
        w = w.maximum(w.T.tocsr())
        own = w.diagonal()
        w = w - sparse.diags(own, format="csr") if own.any() else w
        if counts is not None and (counts > 1).any():
            many = counts.cpu().numpy().astype(w.dtype)
            times = sparse.diags(many, format="csr")
            w = (times @ w @ times + sparse.diags(many * (many - 1))).tocsr()
        # Neighbours beside each other in memory: a pass is three times as fast then.
        order = reverse_cuthill_mckee(w, symmetric_mode=True).copy()  # from a reversed view
        w = w[order]
        w = w[:, order]
        w.sort_indices()
        self.rounds = ROUNDS + 1  # a pass costs little here
        device = like.device
        self._order = torch.from_numpy(order).long().to(device)
        self._starts, self._others = (
            torch.from_numpy(part).to(device) for part in (w.indptr, w.indices)
        )
        self._w = torch.from_numpy(w.data).to(like)
        self.degrees = self._degrees(like.new_empty(1, len(order), 0))

    @classmethod
    def of_neighbours(
        cls,
        found: Nearest,
        scale: NeighbourDistances,
        counts: Int[Tensor, " n"] | None = None,
    ) -> "SparseGraph":
        """Of the nearest neighbours of all rows of a context, without themselves."""
        n, count = found.indices.shape
        w = torch.empty_like(found.distances)
        for part in blocks(n, _AT_ONCE):
            own = NeighbourDistances(scale.near[:, part], scale.far[:, part])
            some = Nearest(found.indices[part], found.distances[part])
            w[part] = nearest_weights(some, own, scale)
        ends = count * torch.arange(n + 1)
        parts = (w.flatten(), found.indices.flatten(), ends)
        listed = sparse.csr_matrix(
            tuple(part.cpu().numpy() for part in parts), shape=(n, n)
        )
        listed.sort_indices()
        return cls(listed, w, counts)

    def times(self, x: Float[Tensor, "1 n k"]) -> Float[Tensor, "1 n k"]:
        """Every row reads its neighbours."""
        read = embedding_bag(
            self._others,
            x[0, self._order],
            self._starts,
            mode="sum",
            per_sample_weights=self._w,
            include_last_offset=True,
        )
        found = torch.empty_like(read)
        found[self._order] = read
        return found[None]


def sum_over_nearest(
    w: Float[Tensor, "r q"], found: Nearest, functions: Float[Tensor, "n k"]
) -> Float[Tensor, "r k"]:
    """What rows read of the functions of their nearest."""
    indices = found.indices.to(torch.int64)
    return embedding_bag(indices, functions, mode="sum", per_sample_weights=w)
