"""Graphs between the rows of a context: weights by distance, and products with them.

With many columns all distances are nearly equal: a row's twelfth neighbour is hardly
further away than its first. Squared distances are therefore measured in units of contrast:
the difference between the squared distances to the nearest and to the twelfth neighbour.
How a graph is held is its backend: all weights (here), none of them
(:mod:`icssl.classifier.graph_exact`), or those to the nearest neighbours
(:mod:`icssl.classifier.graph_sparse`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy import sparse
from torch import Tensor

BANDWIDTH_NEIGHBOURS = 12
"""Neighbours of a row within which its weights fall to e^-4, by default."""

FEW_NEIGHBOURS = 6
"""The same in the sharper graphs, which follow long thin shapes."""

SPARSE_NEIGHBOURS = 32
"""Neighbours of a row that the sparse backend keeps: see the table in docs/scale.md."""

SHARPNESS = 4.0  # how fast weights fall: the exponent at one unit of contrast
MOST_WEIGHTS = 2**24  # weights between rows that are computed at once: all of 4,096 rows
FILTER_PASSES = 22  # products with a graph whose eigenvectors are iterated, at most
SOLVED_ROWS = 2**12  # most rows whose eigenvectors are exact, by LAPACK
FEW_SOLVED_ROWS = 2**10  # the same where iterating is cheaper: on a GPU, of sparse graphs
ONE_THREAD_ROWS = 50_000  # most rows whose products use one thread each, on a CPU
_LEAST_CONTRAST = 1e-3  # as a share of the last neighbour's distance, and of a row's length
_DEGREE_FLOOR = 1e-12  # share of the mean degree that is added to every degree
_IDENTITY_COLUMNS = 64  # columns of a matrix that are multiplied at once
_TINY = 1e-12


@dataclass(frozen=True)
class GraphSpec:
    """Declaration of one graph of the rows, and of the kernels that are made with it.

    Parameters
    ----------
    view : str
        The view whose distances make the weights, one of ``VIEWS``.
    neighbours : int
        How many neighbours are within one unit of contrast: the graph's bandwidth.
    forms : tuple of str
        The kernels to make, by names that :mod:`icssl.classifier.kernels` knows.
    geometry : {"each", "common"}
        Whether every column has its own scale, or columns of one unit have a common one.
    """

    view: str
    neighbours: int
    forms: tuple[str, ...]
    geometry: str = "each"


@dataclass(frozen=True)
class Backend:
    """How the graph of a context is held.

    Parameters
    ----------
    name : {"dense", "exact", "sparse"}
        "dense" holds all weights; "exact" holds none, though all take part; "sparse" holds
        those of each row to its nearest neighbours.
    n_neighbors : int
        Neighbours that each row keeps with "sparse".
    """

    name: str = "dense"
    n_neighbors: int = SPARSE_NEIGHBOURS


DENSE = Backend("dense")


@dataclass(frozen=True)
class NeighbourDistances:
    """Squared distances of rows to their nearest and to their last counted neighbour."""

    near: Float[Tensor, "b r"]
    far: Float[Tensor, "b r"]

    @property
    def contrast(self) -> Float[Tensor, "b r"]:
        """The difference between the two: the unit in which a row measures distances."""
        return (self.far - self.near).clamp(min=_LEAST_CONTRAST * self.far)

    def at(self, indices: Int[Tensor, "b i"]) -> "NeighbourDistances":
        """Return the distances of the rows with these indices."""
        return NeighbourDistances(self.near.gather(1, indices), self.far.gather(1, indices))


def squared_distances(
    a: Float[Tensor, "b r p"], c: Float[Tensor, "b n p"]
) -> Float[Tensor, "b r n"]:
    """Return squared distances of all pairs of rows, by one product of matrices."""
    sizes = a.square().sum(-1)[:, :, None] + c.square().sum(-1)[:, None]
    # Rounding must not make them negative.
    return sizes.baddbmm_(a, c.mT, alpha=-2).clamp_(min=0)


def neighbour_distances(
    rows: Float[Tensor, "b r p"],
    context: Float[Tensor, "b n p"],
    *,
    skip_self: bool,
    neighbours: int = BANDWIDTH_NEIGHBOURS,
) -> NeighbourDistances:
    """Return how far the neighbours of rows are in a context.

    Parameters
    ----------
    rows, context : Tensor
        Coordinates of the rows, and of those among which neighbours are looked for.
    skip_self : bool
        Whether ``rows`` are the context's own rows, none of which is its own neighbour.
    neighbours : int
        Which neighbour is the last that counts.
    """
    count = min(neighbours + skip_self, context.shape[1])
    # Written in place: small results between large passing ones would tear up the memory.
    nearest = rows.new_empty(*rows.shape[:2], count)
    for part in blocks(rows.shape[1], rows_at_once(context)):
        distances = squared_distances(rows[:, part], context)
        nearest[:, part] = distances.topk(count, dim=-1, largest=False).values
    return distances_from_nearest(nearest[..., int(skip_self) :])  # a row's first is itself


def distances_from_nearest(nearest: Float[Tensor, "b r q"]) -> NeighbourDistances:
    """Return the first and the last of squared distances that rise."""
    # Rows have length one in the mean, so that the least distance needs no unit.
    return NeighbourDistances(nearest[..., 0], nearest[..., -1].clamp(min=_LEAST_CONTRAST))


@dataclass(frozen=True)
class PairDistances:
    """Squared distances between all rows of contexts, which graphs of one view share.

    Parameters
    ----------
    squared : Tensor of shape (b, n, n)
        Squared distances of all pairs of rows.
    nearest : Tensor of shape (b, n, q)
        The least of them for every row, rising; a row's first is the row itself.
    """

    squared: Float[Tensor, "b n n"]
    nearest: Float[Tensor, "b n q"]

    @classmethod
    def of_rows(cls, rows: Float[Tensor, "b n p"], neighbours: int) -> "PairDistances":
        """Compute all distances, and the nearest of them up to so many neighbours."""
        squared = squared_distances(rows, rows)
        count = min(neighbours + 1, rows.shape[1])
        return cls(squared, squared.topk(count, dim=-1, largest=False).values)

    def to_neighbours(self, neighbours: int) -> NeighbourDistances:
        """Return how far neighbours are, as :func:`neighbour_distances` does."""
        return distances_from_nearest(self.nearest[..., 1 : neighbours + 1])


def graph_weights(
    rows: Float[Tensor, "b r p"],
    distances: NeighbourDistances,
    context: Float[Tensor, "b n p"],
    context_distances: NeighbourDistances,
) -> Float[Tensor, "b r n"]:
    """Return the weights of rows to all rows of a context."""
    w = squared_distances(rows, context)
    return _weights_from(w, distances, context_distances, out=w)


def _weights_from(
    sq_dist: Float[Tensor, "b r n"],
    distances: NeighbourDistances,
    context_distances: NeighbourDistances,
    out: Tensor,
) -> Float[Tensor, "b r n"]:
    """Write the weights that :func:`rbf_weights` gives, without matrices in between."""
    w = torch.sub(sq_dist, distances.near[:, :, None] / 2, out=out)
    w.sub_(context_distances.near[:, None] / 2)
    w.mul_(distances.contrast.rsqrt()[:, :, None])
    w.mul_(context_distances.contrast.rsqrt()[:, None])
    return w.clamp_(min=-1).mul_(-SHARPNESS).exp_()


def rbf_weights(sq_dist: Tensor, offset: Tensor, bandwidth: Tensor) -> Tensor:
    """Return exp(-4 (sq_dist - offset) / bandwidth), which is at most e^4."""
    return (-SHARPNESS * ((sq_dist - offset) / bandwidth).clamp(min=-1)).exp()


class WeightedGraph:
    """Symmetric weights W between rows, which can be multiplied with columns.

    ``graph @ x`` is the product with the normalised weights D^-1/2 W D^-1/2, where D are
    the degrees. A subclass says how W is multiplied with, and how its eigenmap is computed:
    up to ``solved_rows`` by LAPACK, beyond by a filter of at most so many ``passes``, and
    by at most so many ``more_filters`` where that leaves eigenvalues near one blurred.
    """

    degrees: Float[Tensor, "b n"]
    passes: int = FILTER_PASSES
    more_filters: int = 0  # where all weights take part, a pass costs too much
    solved_rows: int = SOLVED_ROWS

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Multiply the weights W themselves with columns."""
        raise NotImplementedError

    def __matmul__(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        root = inverse_sqrt(self.regularised_degrees)[..., None]
        return root * self.times(root * x)

    def thin_laplacian(self) -> sparse.csr_matrix | None:
        """Return I - D^-1/2 W D^-1/2, rows arranged, if it is thin enough to be solved."""
        return None

    def arrange(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Return columns with their rows in the order that the fastest product wants."""
        return x

    def restore(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Return arranged columns in the order of the rows of the context."""
        return x

    def times_arranged(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Multiply D^-1/2 W D^-1/2 with columns that are arranged, as the result is."""
        return self @ x

    @property
    def regularised_degrees(self) -> Float[Tensor, "b n"]:
        """Degrees with a little added to each.

        Without it, a row that has next to no weight would be placed by rounding alone.
        """
        return self.degrees + _DEGREE_FLOOR * self.degrees.mean(-1, keepdim=True)

    def matrix(self) -> Float[Tensor, "b n n"]:
        """Return D^-1/2 W D^-1/2 as a matrix, computed some columns at a time."""
        b, n = self.degrees.shape
        unit = torch.eye(n, dtype=self.degrees.dtype, device=self.degrees.device)
        parts = [
            self @ unit[:, part].expand(b, -1, -1) for part in blocks(n, _IDENTITY_COLUMNS)
        ]
        return torch.cat(parts, dim=-1)

    def _degrees(self, rows: Float[Tensor, "b n p"]) -> Float[Tensor, "b n"]:
        ones = rows.new_ones(len(rows), rows.shape[1], 1)
        return self.times(ones)[..., 0]


class DenseGraph(WeightedGraph):
    """All weights of rows by their distances, held or computed anew in every product.

    Parameters
    ----------
    rows : Tensor of shape (b, n, p)
        Coordinates of the rows.
    distances : NeighbourDistances
        How far each row's neighbours are among these rows.
    block : int, optional
        Rows whose weights are computed at once; by default as many as :data:`MOST_WEIGHTS`
        allows.
    hold : bool, optional
        Whether the weights of all rows are held; by default if they are one block.
    squared : Tensor of shape (b, n, n), optional
        Squared distances of all pairs of rows, where these are known.
    """

    def __init__(
        self,
        rows: Float[Tensor, "b n p"],
        distances: NeighbourDistances,
        block: int | None = None,
        *,
        hold: bool | None = None,
        squared: Float[Tensor, "b n n"] | None = None,
    ) -> None:
        self.rows, self.distances = rows, distances
        self.block = block or rows_at_once(rows)
        self._dense: Tensor | None = None
        if squared is not None:
            w = _weights_from(squared, distances, distances, out=torch.empty_like(squared))
            w.diagonal(dim1=-2, dim2=-1).zero_()
            self._dense = w
        elif rows.shape[1] <= self.block if hold is None else hold:
            self._dense = self.dense()
        self.degrees = self._degrees(rows)

    def dense(self) -> Float[Tensor, "b n n"]:
        """Return the weights W as a matrix."""
        if self._dense is not None:
            return self._dense
        b, n, _ = self.rows.shape
        if n <= self.block:
            return self._weights(slice(None))
        w = self.rows.new_empty(b, n, n)
        for part in blocks(n, self.block):
            w[:, part] = self._weights(part)
        return w

    def matrix(self) -> Float[Tensor, "b n n"]:
        """Return D^-1/2 W D^-1/2 as a matrix, from the weights where they are held."""
        if self._dense is None:
            return super().matrix()
        root = inverse_sqrt(self.regularised_degrees)
        return (self._dense * root[..., None]).mul_(root[:, None])

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Multiply W with columns, in blocks of rows where the weights are not held."""
        if self._dense is not None:
            return self._dense @ x
        product = torch.empty_like(x)
        for part in blocks(self.rows.shape[1], self.block):
            product[:, part] = self._weights(part) @ x
        return product

    def _weights(self, part: slice) -> Tensor:
        near, far = self.distances.near[:, part], self.distances.far[:, part]
        some = NeighbourDistances(near, far)
        w = graph_weights(self.rows[:, part], some, self.rows, self.distances)
        w.diagonal(part.start or 0, dim1=-2, dim2=-1).zero_()  # no row is its own neighbour
        return w


class PrecomputedGraph(WeightedGraph):
    """Weights that a user gave as a matrix."""

    def __init__(self, w: Float[Tensor, "b n n"]) -> None:
        self._w = w
        self.degrees = w.sum(-1)

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Multiply the matrix with columns."""
        return self._w @ x


def inverse_sqrt(degrees: Tensor) -> Tensor:
    """Return 1 / sqrt of degrees, and 0 for a row without a neighbour."""
    return torch.where(degrees > 0, degrees, torch.inf).rsqrt()


def walk_probabilities(w: Float[Tensor, "*b r n"]) -> Float[Tensor, "*b r n"]:
    """Return weights that sum to one over the neighbours, or to zero where none has any."""
    return w / w.sum(-1, keepdim=True).clamp(min=_TINY)


def rows_at_once(context: Float[Tensor, "b n p"]) -> int:
    """Return of how many rows all weights to a context are computed at once."""
    b, n, _ = context.shape
    return max(1, MOST_WEIGHTS // (b * n))


def blocks(count: int, size: int) -> Iterator[slice]:
    """Yield slices that cover ``count`` rows, at most ``size`` in each."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
