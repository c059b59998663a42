"""Attention to nearest neighbours alone: all other weights of the graph are left out.

A weight falls to e^-4 within the twelve nearest rows, so that little is lost. A pass costs
rows times neighbours, and nothing is held that has a number for every two rows.
"""

import torch
from jaxtyping import Float
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor
from torch.nn.functional import embedding_bag

from icssl.context.neighbours import (
    MANY_ROWS,
    ROUNDS,
    Scale,
    WeightedGraph,
    blocks,
    fallen,
)
from icssl.context.search import Nearest

KEPT = 32
"""Neighbours of a row that it keeps weights to: see the table in docs/scale.md."""

_AT_ONCE = 2**14  # rows whose weights are made


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
    """

    def __init__(self, w: sparse.csr_matrix, like: Tensor) -> None:
        w = w.maximum(w.T.tocsr())
        own = w.diagonal()
        w = w - sparse.diags(own, format="csr") if own.any() else w
        # Neighbours beside each other in memory: a pass is three times as fast then.
        order = reverse_cuthill_mckee(w, symmetric_mode=True).copy()  # from a reversed view
        w = w[order]
        w = w[:, order]
        w.sort_indices()
        self.rounds = ROUNDS + (len(order) > MANY_ROWS)  # a pass costs little here
        device = like.device
        self._order = torch.from_numpy(order).long().to(device)
        self._starts, self._others = (
            torch.from_numpy(part).to(device) for part in (w.indptr, w.indices)
        )
        self._w = torch.from_numpy(w.data).to(like)
        self.degrees = self._degrees(like.new_empty(1, len(order), 0))

    @classmethod
    def of_neighbours(cls, found: Nearest, scale: Scale) -> "SparseGraph":
        """Of the nearest neighbours of all rows of a context, without themselves."""
        n, count = found.indices.shape
        w = torch.empty_like(found.distances)
        for part in blocks(n, _AT_ONCE):
            own = Scale(scale.near[:, part], scale.far[:, part])
            some = Nearest(found.indices[part], found.distances[part])
            w[part] = listed_weights(some, own, scale)
        ends = torch.arange(0, n * count + 1, count)
        parts = (w.flatten(), found.indices.flatten(), ends)
        listed = sparse.csr_matrix(
            tuple(part.cpu().numpy() for part in parts), shape=(n, n)
        )
        listed.sort_indices()
        return cls(listed, w)

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
