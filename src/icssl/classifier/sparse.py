"""Attention to nearest neighbours alone: all other weights of the graph are left out.

A weight falls to e^-4 within the twelve nearest rows, so that little is lost. A pass costs
rows times neighbours, and nothing is held that has a number for every two rows.

Equal rows are one node of the graph, with a count: of many equal rows, which neighbours
each one keeps would be chance. Nothing is lost by it, since an eigenfunction of the graph
of all rows has one value for equal rows wherever its eigenvalue is positive.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from icssl.classifier.graphs import (
    FEW_SOLVED_ROWS,
    NEIGHBOURS,
    ROUNDS,
    Scale,
    WeightedGraph,
    blocks,
    fallen,
    scale_from,
)
from icssl.classifier.search import Nearest

KEPT = 32
"""Neighbours of a row that it keeps weights to: see the table in docs/scale.md."""

_AT_ONCE = 2**14  # rows whose weights are made


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


def scale_of_nodes(
    found: Nearest, counts: Int[Tensor, " u"], own: Int[Tensor, " r"] | None = None
) -> Scale:
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
    some = slice(NEIGHBOURS)  # as many nodes are as many rows at least
    seen = counts[found.indices[:, some].long()].cumsum(-1)
    distances = found.distances[:, some]
    if own is not None:
        at_zero = (own - 1)[:, None]
        seen = torch.cat([at_zero, seen + at_zero], dim=-1)
        distances = pad(distances, (1, 0))
    near, far = (_distance_to(count, seen, distances) for count in (1, NEIGHBOURS))
    return scale_from(torch.stack([near, far], dim=-1)[None])


def _distance_to(count: int, seen: Tensor, distances: Tensor) -> Float[Tensor, " r"]:
    """Return the distance within which so many rows are; the last, of fewer rows."""
    place = (seen < count).sum(-1, keepdim=True).clamp(max=distances.shape[1] - 1)
    return distances.gather(1, place)[:, 0]


def listed_weights(
    found: Nearest, scale: Scale, context_scale: Scale
) -> Float[Tensor, "r q"]:
    """Weights of rows to their nearest of a context: those of ``weights`` that are kept."""
    near, contrast = (part[0] for part in (scale.near, scale.contrast))
    others = found.indices.long()
    start = (near[:, None] + context_scale.near[0][others]) / 2
    unit = (contrast[:, None] * context_scale.contrast[0][others]).sqrt()
    return fallen(found.distances, start, unit)


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
        cls, found: Nearest, scale: Scale, counts: Int[Tensor, " n"] | None = None
    ) -> "SparseGraph":
        """Of the nearest neighbours of all rows of a context, without themselves."""
        n, count = found.indices.shape
        w = torch.empty_like(found.distances)
        for part in blocks(n, _AT_ONCE):
            own = Scale(scale.near[:, part], scale.far[:, part])
            some = Nearest(found.indices[part], found.distances[part])
            w[part] = listed_weights(some, own, scale)
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


def read_neighbours(
    w: Float[Tensor, "r q"], found: Nearest, functions: Float[Tensor, "n k"]
) -> Float[Tensor, "r k"]:
    """What rows read of the functions of their nearest."""
    indices = found.indices.to(torch.int64)
    return embedding_bag(indices, functions, mode="sum", per_sample_weights=w)
