"""Stages 1 and 2 on one view: a graph at the context's own scale, and its eigenmap.

Where distances concentrate, a row's neighbours are all about as far as any other row.
Squared distances are therefore measured by their contrast: from the nearest neighbour to
the twelfth is one unit.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.linalg import LinAlgError, eigh
from torch import Tensor

BANDWIDTH_NEIGHBOURS = 12
SHARPNESS = 4.0  # of the graph: how fast weights fall, in units of contrast
PASSES = 24  # over the rows of one view: scale, degrees, the filter, and the values
MOST_WEIGHTS = 2**24  # between rows that are held at once: all of 4,096 rows
MOST_KERNEL_VALUES = 2**26  # of all kernels between rows and labelled ones, at once
ROUNDS = 3  # of the Chebyshev filter
SOLVED_ROWS = 2**12  # up to which eigenvectors are exact, by LAPACK
FEW_SOLVED_ROWS = 2**10  # the same where iterating is cheaper: on a GPU, of sparse graphs
_DEGREE = 7  # of the filter, with a pass a degree
_DAMPED = 0.4  # eigenvalues below are filtered out
SPARE_COLUMNS = 8  # columns beyond those wanted, which help the last of them converge
_FLAT = 1e-3  # least contrast, as a share of the twelfth distance, and of that itself
_LOOSE = 1e-12  # of the mean degree: rows with less weight than that are on their own
_FADING = 0.05  # of what lies above the last eigenvalue: where eigenfunctions fade out
_WIDTH = 64  # columns of a matrix that are multiplied at once
_TINY = 1e-12


@dataclass(frozen=True)
class NeighbourDistances:
    """Squared distances of rows to their nearest and twelfth nearest of the context."""

    near: Float[Tensor, "b r"]
    far: Float[Tensor, "b r"]

    @property
    def contrast(self) -> Float[Tensor, "b r"]:
        """From one to the other."""
        return (self.far - self.near).clamp(min=_FLAT * self.far)

    def at(self, indices: Int[Tensor, "b i"]) -> "NeighbourDistances":
        """Of some of the rows."""
        return NeighbourDistances(self.near.gather(1, indices), self.far.gather(1, indices))


def squared_distances(
    a: Float[Tensor, "b r p"], c: Float[Tensor, "b n p"]
) -> Float[Tensor, "b r n"]:
    """By the product of matrices, and never negative."""
    sizes = a.square().sum(-1)[:, :, None] + c.square().sum(-1)[:, None]
    return (sizes - 2 * a @ c.mT).clamp(min=0)


def neighbour_distances(
    rows: Float[Tensor, "b r p"], context: Float[Tensor, "b n p"], *, skip_self: bool
) -> NeighbourDistances:
    """Return distances of rows to a context; ``skip_self`` where they are its own rows."""
    count = min(BANDWIDTH_NEIGHBOURS + skip_self, context.shape[1])
    # Written in place: small results between large passing ones would tear up the memory.
    nearest = rows.new_empty(*rows.shape[:2], count)
    for part in blocks(rows.shape[1], at_once(context)):
        distances = squared_distances(rows[:, part], context)
        nearest[:, part] = distances.topk(count, dim=-1, largest=False).values
    return distances_from_nearest(
        nearest[..., int(skip_self) :]
    )  # the first of its own is itself


def distances_from_nearest(nearest: Float[Tensor, "b r q"]) -> NeighbourDistances:
    """Of squared distances to the nearest, in order."""
    far = nearest[..., :BANDWIDTH_NEIGHBOURS][..., -1]
    # Rows have length one in the mean.
    return NeighbourDistances(nearest[..., 0], far.clamp(min=_FLAT))


def weights(
    rows: Float[Tensor, "b r p"],
    scale: NeighbourDistances,
    context: Float[Tensor, "b n p"],
    context_scale: NeighbourDistances,
) -> Float[Tensor, "b r n"]:
    """RBF weights of rows to a context, of squared distances in units of contrast."""
    start = (scale.near[:, :, None] + context_scale.near[:, None]) / 2
    unit = (scale.contrast[:, :, None] * context_scale.contrast[:, None]).sqrt()
    return rbf_weights(squared_distances(rows, context), start, unit)


def rbf_weights(distances: Tensor, start: Tensor, unit: Tensor) -> Tensor:
    """How far weights have rbf_weights at squared distances, from a start and in a unit."""
    return (-SHARPNESS * ((distances - start) / unit).clamp(min=-1)).exp()


class WeightedGraph:
    """Symmetric weights W between rows, normalised: D^-1/2 W D^-1/2, to multiply with.

    A graph knows how to multiply with W; its degrees, held a little, are D. It also knows
    up to how many rows it is solved, and how many rounds of the filter it is worth.
    """

    degrees: Float[Tensor, "b n"]
    rounds: int = ROUNDS
    solved_rows: int = SOLVED_ROWS

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """W itself times columns."""
        raise NotImplementedError

    def __matmul__(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        root = inverse_sqrt(self.regularised_degrees)[..., None]
        return root * self.times(root * x)

    @property
    def regularised_degrees(self) -> Float[Tensor, "b n"]:
        """Degrees with a little more for every row, which loose rows are held by.

        A row that has next to no weight would otherwise be placed by rounding alone.
        """
        return self.degrees + _LOOSE * self.degrees.mean(-1, keepdim=True)

    def matrix(self) -> Float[Tensor, "b n n"]:
        """Return D^-1/2 W D^-1/2 itself, some columns at a time."""
        b, n = self.degrees.shape
        unit = torch.eye(n, dtype=self.degrees.dtype, device=self.degrees.device)
        parts = [self @ unit[:, part].expand(b, -1, -1) for part in blocks(n, _WIDTH)]
        return torch.cat(parts, dim=-1)

    def _degrees(self, rows: Float[Tensor, "b n p"]) -> Float[Tensor, "b n"]:
        ones = rows.new_ones(len(rows), rows.shape[1], 1)
        return self.times(ones)[..., 0]


class DenseGraph(WeightedGraph):
    """The weights of rows by their distances, held or made anew in every pass.

    Parameters
    ----------
    rows : Tensor of shape (b, n, p)
    scale : NeighbourDistances
        Of the rows among themselves.
    block : int, optional
        Rows whose weights are made at once; by default as many as :data:`MOST_WEIGHTS`
        allows.
    hold : bool, optional
        Whether the weights of all rows are kept; by default if they are one block.
    """

    def __init__(
        self,
        rows: Float[Tensor, "b n p"],
        scale: NeighbourDistances,
        block: int | None = None,
        *,
        hold: bool | None = None,
    ) -> None:
        self.rows, self.scale = rows, scale
        self.block = block or at_once(rows)
        self._dense: Tensor | None = None
        if rows.shape[1] <= self.block if hold is None else hold:
            self._dense = self.dense()
        self.degrees = self._degrees(rows)

    def dense(self) -> Float[Tensor, "b n n"]:
        """The weights W themselves."""
        if self._dense is not None:
            return self._dense
        b, n, _ = self.rows.shape
        if n <= self.block:
            return self._weights(slice(None))
        w = self.rows.new_empty(b, n, n)
        for part in blocks(n, self.block):
            w[:, part] = self._weights(part)
        return w

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """In blocks where the weights are not held."""
        if self._dense is not None:
            return self._dense @ x
        found = torch.empty_like(x)
        for part in blocks(self.rows.shape[1], self.block):
            found[:, part] = self._weights(part) @ x
        return found

    def _weights(self, part: slice) -> Tensor:
        scale = NeighbourDistances(self.scale.near[:, part], self.scale.far[:, part])
        w = weights(self.rows[:, part], scale, self.rows, self.scale)
        w.diagonal(part.start or 0, dim1=-2, dim2=-1).zero_()  # no row is its own neighbour
        return w


def inverse_sqrt(degrees: Tensor) -> Tensor:
    """Return 1 / sqrt of degrees, and 0 for a row without a neighbour."""
    return torch.where(degrees > 0, degrees, torch.inf).rsqrt()


class PrecomputedGraph(WeightedGraph):
    """Weights that were given as a matrix."""

    def __init__(self, w: Float[Tensor, "b n n"]) -> None:
        self._w = w
        self.degrees = w.sum(-1)

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """By the matrix."""
        return self._w @ x


@dataclass(frozen=True)
class Eigenmap:
    """The leading eigenfunctions of the random walk on a context's graph.

    Parameters
    ----------
    values : Tensor of shape (b, k)
        Eigenvalues of D^-1 W, falling from one.
    functions : Tensor of shape (b, n, k)
        Of mean zero under the stationary distribution, the others of mean square one:
        the first, which is constant, is taken out.
    shares : Tensor of shape (b, k)
        How much of each eigenfunction counts. The last fade out towards the first one that
        is left out: equal eigenvalues then count equally, and nothing depends on the basis
        of their eigenspace, which every library chooses for itself.
    """

    values: Tensor
    functions: Tensor
    shares: Tensor

    @classmethod
    def of_graph(
        cls, graph: WeightedGraph, start: Callable[[], Float[Tensor, "b n s"]], k: int
    ) -> "Eigenmap":
        """Compute it exactly where rows are few, else by iteration from a start.

        The constant function is known: it is taken out of the graph before the others are
        looked for, and stands first with the value one and zeros for a function.
        """
        degrees = graph.regularised_degrees
        k = min(k, degrees.shape[1])
        total = degrees.sum(-1, keepdim=True)
        share = degrees / torch.where(total > 0, total, torch.inf)
        constant = share.sqrt()[..., None]
        n = share.shape[1]
        if n <= graph.solved_rows and is_solved(n, share.device):
            matrix = graph.matrix() - constant * constant.mT
            values, vectors = leading_eigenvectors(matrix, k)
        else:
            values, vectors = filtered_eigenvectors(graph, constant, start(), k)
        values, vectors = (
            torch.cat([torch.ones_like(part[..., :1]), part.clamp(max=1)], dim=-1)
            for part in (values.clamp(min=0), vectors)
        )
        functions = vectors * inverse_sqrt(share)[..., None]
        mean = (share[..., None] * functions).sum(1, keepdim=True)
        # A row without a neighbour has no part in any of them.
        functions = (functions - mean) * (graph.degrees > 0)[..., None]
        functions[..., 0] = 0.0
        return cls(values[:, :k], functions[..., :k], _shares(values))

    def extend(self, w: Float[Tensor, "b r n"]) -> Float[Tensor, "b r k"]:
        """At new rows, from their weights to the context: a mean over neighbours."""
        return self.undo_step(walk(w) @ self.functions)

    def undo_step(self, means: Float[Tensor, "b r k"]) -> Float[Tensor, "b r k"]:
        """Functions at rows, from their means over the rows' neighbours."""
        # Small eigenvalues are those of noise, and would blow it up.
        return means / self.values.clamp(min=_DAMPED / 2)[:, None]

    def diffusion_features(
        self, functions: Float[Tensor, "b r k"], time: float | Tensor
    ) -> Float[Tensor, "b r k"]:
        """Features: one plus an inner product is how likely a walk joins two rows.

        Relative to any two rows, after so many steps.
        """
        return functions * (self.shares * self.values**time).sqrt()[:, None]

    def relaxation(self, parts: int) -> Float[Tensor, "b 1"]:
        """Steps until a walk forgets more than so many parts of the graph."""
        last = self.values.shape[-1] - 1
        value = self.values[:, min(parts, last)].clamp(1e-3, 1 - 1e-4)
        return -1 / value.log()[:, None]


def is_solved(n: int, device: torch.device | str) -> bool:
    """Return whether so many rows have their eigenvectors exactly, by LAPACK."""
    on_cpu = torch.device(device).type == "cpu"
    return n <= (SOLVED_ROWS if on_cpu else FEW_SOLVED_ROWS)


def _shares(values: Float[Tensor, "b s"]) -> Float[Tensor, "b k"]:
    """Return how much all eigenfunctions but the last count: they fade towards it."""
    last = values[:, -1:]
    width = (_FADING * (1 - last)).clamp(min=_TINY)
    return ((values[:, :-1] - last) / width).clamp(max=1)


def leading_eigenvectors(
    matrix: Float[Tensor, "b n n"], count: int
) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b n q"]]:
    """Return the largest eigenvalues, falling, and their eigenvectors, by LAPACK.

    In float64 and on the CPU wherever the matrix is, so that devices agree.
    """
    symmetric = ((matrix + matrix.mT) / 2).double().cpu().numpy()
    solved = [_solve(one, count) for one in symmetric]
    values, vectors = (
        torch.from_numpy(np.stack(part)) for part in zip(*solved, strict=True)
    )
    return values.to(matrix), vectors.to(matrix)


def _solve(matrix: Float[ndarray, "n n"], count: int) -> tuple[ndarray, ndarray]:
    n = len(matrix)
    wanted = [max(0, n - count), n - 1]
    try:  # three times as fast as all of them
        values, vectors = eigh(matrix, subset_by_index=wanted, check_finite=False)
        complete = len(values) == min(count, n)
    except LinAlgError:
        complete = False
    # It gives up, or loses some, on graphs whose eigenvalues repeat many times.
    if not complete:
        values, vectors = eigh(matrix, driver="evd", check_finite=False)
    return values[: -count - 1 : -1].copy(), vectors[:, : -count - 1 : -1].copy()


def filtered_eigenvectors(
    graph: WeightedGraph,
    constant: Float[Tensor, "b n 1"],
    start: Float[Tensor, "b n s"],
    count: int,
) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b n q"]]:
    """Return the same by subspace iteration: every pass over the graph is linear attention.

    A Chebyshev filter damps small eigenvalues. Of many rows, all wanted eigenvalues are
    near one: what a round finds decides what the next one damps, all below the least of it.
    """

    def multiply(x: Tensor) -> Tensor:
        return graph @ x - constant * (constant.mT @ x)

    x, passed = start, multiply(start)
    damped = start.new_full((len(start), 1, 1), _DAMPED)
    for _ in range(graph.rounds):
        x = torch.linalg.qr(_filtered(multiply, x, passed, damped)).Q
        passed = multiply(x)
        small = x.mT @ passed
        values, turn = torch.linalg.eigh((small + small.mT) / 2)
        damped = values[:, :1, None].clamp(min=_DAMPED, max=1)
    values, turn = (part.flip(-1)[..., :count] for part in (values, turn))
    return values, x @ turn


def walk(w: Float[Tensor, "*b r n"]) -> Float[Tensor, "*b r n"]:
    """Weights that sum to one over the neighbours, or to nothing where there are none."""
    return w / w.sum(-1, keepdim=True).clamp(min=_TINY)


def waves(rows: Float[Tensor, "b n p"], k: int) -> Float[Tensor, "b n s"]:
    """Where the iteration for k eigenfunctions starts: waves over the rows' coordinates.

    Sines of fixed random projections: the same in whatever order the rows are.
    """
    count = min(rows.shape[1], k + SPARE_COLUMNS)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(rows.shape[-1], count, generator=generator)
    phases = math.tau * torch.rand(count, generator=generator)
    return torch.sin(3 * rows @ directions.to(rows) + phases.to(rows))


def _filtered(
    multiply: Callable[[Tensor], Tensor], x: Tensor, passed: Tensor, damped: Tensor
) -> Tensor:
    """A Chebyshev polynomial that is small between -1 and the damped, and large above.

    ``passed`` is the graph times x, which is known already.
    """
    middle, half = (damped - 1) / 2, (damped + 1) / 2
    before, now = x, (passed - middle * x) / half
    for _ in range(_DEGREE - 1):
        mapped = (multiply(now) - middle * now) / half
        before, now = now, 2 * mapped - before
    return now


def at_once(context: Float[Tensor, "b n p"]) -> int:
    """How many rows have their weights to a context held at once."""
    b, n, _ = context.shape
    return max(1, MOST_WEIGHTS // (b * n))


def blocks(count: int, size: int) -> Iterator[slice]:
    """All of so many rows, a number of them at a time."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
