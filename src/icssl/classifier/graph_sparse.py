"""The backend "sparse": each row keeps its weights to its nearest neighbours alone.

A weight falls to e^-4 within the twelve nearest rows, so that little is lost. A pass costs
rows times neighbours, and nothing is held that has a number for every two rows.
:mod:`icssl.classifier.neighbour_search` finds the neighbours.

Equal rows are one node of the graph, with a count: among many equal rows, it would be
chance which neighbours each one keeps. Nothing is lost by it, since an eigenfunction of the
graph of all rows has one value for equal rows wherever its eigenvalue is positive.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from icssl.classifier.graphs import (
    BANDWIDTH_NEIGHBOURS,
    FEW_SOLVED_ROWS,
    FILTER_PASSES,
    NeighbourDistances,
    WeightedGraph,
    blocks,
    distances_from_nearest,
    inverse_sqrt,
    rbf_weights,
    walk_probabilities,
)
from icssl.classifier.neighbour_search import Nearest, Search

MOST_REACH = 2**25
"""How far all rows of a thin graph reach together: about what its factors hold."""

MOST_SQUARES = 5e9
"""The same of squares: a bound of the time that making the factors takes."""

_WEIGHTED_ROWS = 2**14  # rows whose weights are computed at once


class Nodes(NamedTuple):
    """The different rows of a context, which are the nodes of its graph.

    Parameters
    ----------
    first : Tensor of shape (u,)
        One row of every node.
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
    nearest: Nearest,
    counts: Int[Tensor, " u"],
    equal_rows: Int[Tensor, " r"] | None = None,
    neighbours: int = BANDWIDTH_NEIGHBOURS,
) -> NeighbourDistances:
    """Return how far neighbours are, from the nearest nodes, each of which is many rows.

    Parameters
    ----------
    nearest : Nearest
        Nodes of the context near each row, and squared distances to them.
    counts : Tensor of shape (u,)
        How many rows of the context every node stands for.
    equal_rows : Tensor of shape (r,), optional
        How many rows are equal to each row, itself included, if it is one of the context.
    neighbours : int
        Which neighbour is the last that counts.
    """
    some = slice(neighbours)  # as many nodes are as many rows at least
    rows_within = counts[nearest.indices[:, some].long()].cumsum(-1)
    distances = nearest.distances[:, some]
    if equal_rows is not None:
        # A row's equals are neighbours at distance zero, which stand before all nodes.
        at_zero = (equal_rows - 1)[:, None]
        rows_within = torch.cat([at_zero, rows_within + at_zero], dim=-1)
        distances = pad(distances, (1, 0))
    near, far = (_distance_to(count, rows_within, distances) for count in (1, neighbours))
    return distances_from_nearest(torch.stack([near, far], dim=-1)[None])


def _distance_to(count: int, rows_within: Tensor, distances: Tensor) -> Float[Tensor, " r"]:
    """Return the distance within which so many rows are, or the last if there are fewer."""
    place = (rows_within < count).sum(-1, keepdim=True).clamp(max=distances.shape[1] - 1)
    return distances.gather(1, place)[:, 0]


def _nearest_weights(
    nearest: Nearest, distances: NeighbourDistances, context_distances: NeighbourDistances
) -> Float[Tensor, "r q"]:
    """Return the weights of rows to their nearest, as ``graph_weights`` has them."""
    near, contrast = (part[0] for part in (distances.near, distances.contrast))
    others = nearest.indices.long()
    offset = (near[:, None] + context_distances.near[0][others]) / 2
    bandwidth = (contrast[:, None] * context_distances.contrast[0][others]).sqrt()
    return rbf_weights(nearest.distances, offset, bandwidth)


class SparseGraph(WeightedGraph):
    """One context's weights as a sparse matrix, symmetric.

    Parameters
    ----------
    w : sparse matrix of shape (n, n)
        Weights, which need not be symmetric: the larger of the two directions counts. Its
        diagonal is ignored, since no row is its own neighbour.
    like : Tensor
        A tensor of the type and on the device of what the graph is multiplied with.
    counts : Tensor of shape (n,), optional
        How many equal rows each node stands for; these are neighbours with weight one.
    """

    solved_rows = FEW_SOLVED_ROWS  # a matrix of all rows is what it is to do without
    passes = FILTER_PASSES + 8  # a pass costs little here
    more_filters = 4

    def __init__(
        self, w: sparse.csr_matrix, like: Tensor, counts: Int[Tensor, " n"] | None = None
    ) -> None:
        w = w.maximum(w.T.tocsr())
        diagonal = w.diagonal()
        w = w - sparse.diags(diagonal, format="csr") if diagonal.any() else w
        if counts is not None and (counts > 1).any():
            # Eigenfunctions take one value per node: summed over the pairs of rows of two
            # nodes, weights are multiplied by both counts; a node of c equal rows has
            # c (c - 1) pairs within itself.
            many = counts.cpu().numpy().astype(w.dtype)
            times = sparse.diags(many, format="csr")
            w = (times @ w @ times + sparse.diags(many * (many - 1))).tocsr()
        # Neighbours beside each other in memory: a pass is three times as fast then.
        order = reverse_cuthill_mckee(w, symmetric_mode=True).copy()  # from a reversed view
        w = w[order]
        w = w[:, order]
        w.sort_indices()
        device = like.device
        self._order = torch.from_numpy(order).long().to(device)
        self._starts, self._others = (
            torch.from_numpy(part).to(device) for part in (w.indptr, w.indices)
        )
        self._back = torch.empty_like(self._order)
        self._back[self._order] = torch.arange(len(order), device=device)
        self._w = torch.from_numpy(w.data).to(like)
        ones = like.new_ones(1, len(order), 1)
        self.degrees = self.restore(self.times_arranged(ones))[..., 0]
        # The weights are held as D^-1/2 W D^-1/2, which is what a filter multiplies with.
        self._root = self.arrange(inverse_sqrt(self.regularised_degrees)[..., None])
        root = self._root[0, :, 0]
        self._w *= root[self._others.long()]
        self._w *= root.repeat_interleave(self._starts.diff())

    @classmethod
    def of_neighbours(
        cls,
        nearest: Nearest,
        distances: NeighbourDistances,
        counts: Int[Tensor, " n"] | None = None,
    ) -> "SparseGraph":
        """Return the graph of all rows of a context, from their nearest neighbours."""
        n, count = nearest.indices.shape
        w = torch.empty_like(nearest.distances)
        for part in blocks(n, _WEIGHTED_ROWS):
            near, far = distances.near[:, part], distances.far[:, part]
            some = Nearest(nearest.indices[part], nearest.distances[part])
            w[part] = _nearest_weights(some, NeighbourDistances(near, far), distances)
        ends = count * torch.arange(n + 1)
        # A copy: sorting them below must not change the neighbours that graphs share.
        parts = (w.flatten(), nearest.indices.flatten().clone(), ends)
        matrix = sparse.csr_matrix(
            tuple(part.cpu().numpy() for part in parts), shape=(n, n)
        )
        matrix.sort_indices()
        return cls(matrix, w, counts)

    def times(self, x: Float[Tensor, "1 n k"]) -> Float[Tensor, "1 n k"]:
        """Multiply W with columns: every row sums over its neighbours."""
        # A row without a neighbour has no weight, and a root of zero.
        root = torch.where(self._root > 0, 1 / self._root, 0.0)
        return self.restore(root * self.times_arranged(root * self.arrange(x)))

    def __matmul__(self, x: Float[Tensor, "1 n k"]) -> Float[Tensor, "1 n k"]:
        return self.restore(self.times_arranged(self.arrange(x)))

    def arrange(self, x: Float[Tensor, "1 n k"]) -> Float[Tensor, "1 n k"]:
        """Return columns with neighbours beside each other."""
        return x[:, self._order]

    def restore(self, x: Float[Tensor, "1 n k"]) -> Float[Tensor, "1 n k"]:
        """Return arranged columns in the order of the rows of the context."""
        return x[:, self._back]

    def thin_laplacian(self) -> sparse.csr_matrix | None:
        """Return I - D^-1/2 W D^-1/2 in float64, if rows know only rows beside them.

        Graphs of long thin shapes are so, and those of tables with many columns are not.
        """
        starts, others = (part.cpu().numpy() for part in (self._starts, self._others))
        n, rows = len(starts) - 1, np.flatnonzero(np.diff(starts))
        # The first column of a row is the farthest before it.
        reach = np.maximum(rows - others[starts[rows]], 0.0)
        if reach.sum() > MOST_REACH or np.square(reach).sum() > MOST_SQUARES:
            return None
        w = self._w.double().cpu().numpy()
        w = sparse.csr_matrix((w, others, starts), shape=(n, n))
        return (sparse.eye(n) - (w + w.T) / 2).tocsr()

    def times_arranged(self, x: Float[Tensor, "1 n k"]) -> Float[Tensor, "1 n k"]:
        """Multiply with arranged columns."""
        # An embedding bag is a product of a sparse matrix with threads over its rows.
        return embedding_bag(
            self._others,
            x[0],
            self._starts,
            mode="sum",
            per_sample_weights=self._w,
            include_last_offset=True,
        )[None]


@dataclass(frozen=True)
class NodeIndex:
    """The nodes of a context's graph, among which new rows find their nearest neighbours.

    Parameters
    ----------
    search : Search
        Finds the nodes nearest to a row.
    distances : NeighbourDistances
        How far the neighbours of each node are.
    counts : Tensor of shape (u,)
        How many rows each node stands for.
    n_neighbors : int
        How many nearest nodes a new row reads.
    neighbours : int
        Which neighbour is the last that counts in ``distances``.
    """

    search: Search
    distances: NeighbourDistances
    counts: Int[Tensor, " u"]
    n_neighbors: int
    neighbours: int = BANDWIDTH_NEIGHBOURS

    def mean_over_nearest(
        self, rows: Float[Tensor, "r p"], functions: Float[Tensor, "u k"]
    ) -> tuple[Float[Tensor, "r k"], NeighbourDistances]:
        """Return means of functions over the nearest rows, and how far these are."""
        nearest = self.search(rows, min(self.n_neighbors, len(self.counts)))
        distances = node_distances(nearest, self.counts, neighbours=self.neighbours)
        w = _nearest_weights(nearest, distances, self.distances)
        w = walk_probabilities(w * self.counts[nearest.indices.long()])
        indices = nearest.indices.to(torch.int64)
        return embedding_bag(
            indices, functions, mode="sum", per_sample_weights=w
        ), distances
