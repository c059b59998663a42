"""The eigenmap of a graph: the leading eigenfunctions of a random walk on it.

The walk steps from a row to its neighbours with probabilities D^-1 W. Its eigenfunctions
are those of the symmetric D^-1/2 W D^-1/2, divided by the root of the stationary
distribution. :mod:`icssl.classifier.eigensolvers` computes them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.classifier.eigensolvers import (
    batched_eigenvectors,
    iterated_eigenvectors,
    leading_eigenvectors,
)
from icssl.classifier.graphs import (
    FEW_SOLVED_ROWS,
    SOLVED_ROWS,
    WeightedGraph,
    inverse_sqrt,
    walk_probabilities,
)

EIGENFUNCTIONS = 48
"""Eigenfunctions of every graph that the released model uses."""

PASSES = 24  # over the rows of one view: distances, degrees, the filter, and the values
SPARE_COLUMNS = 16  # columns beyond those wanted, which help the last of them converge
_FADING = 0.05  # share of what lies above the last eigenvalue, where functions fade out
_LEAST_VALUE = 0.2  # eigenvalues are taken to be so large, where they are divided by
_TINY = 1e-12


class Limits(NamedTuple):
    """How near to one an eigenvalue of a walk can be told from one.

    Parameters
    ----------
    resolution : float
        Distance from one that rounding, or an iteration that has not converged, blurs.
    slowest : float
        Distance from one below which a walk is taken to forget no more slowly.
    """

    resolution: float
    slowest: float


# The weights were trained with this slowest walk; long shapes of many rows have slower
# ones, in which its relaxation would not be one.
_SOLVED, _NOT_SOLVED = Limits(1e-7, 1e-4), Limits(1e-5, 1e-4)
_SOLVED_LONG = Limits(1e-7, 1e-6)


@dataclass(frozen=True)
class Eigenmap:
    """The leading eigenfunctions of the random walk on a context's graph.

    Parameters
    ----------
    values : Tensor of shape (b, k)
        Eigenvalues of D^-1 W, which fall from one.
    functions : Tensor of shape (b, n, k)
        Eigenfunctions at the rows of the context, of mean zero and mean square one under
        the stationary distribution. The first, which is constant, is zero here.
    shares : Tensor of shape (b, k)
        How much each eigenfunction counts. The last ones fade out towards the first that is
        left out: equal eigenvalues then count equally, and nothing depends on the basis of
        their eigenspace, which every library chooses for itself.
    limits : Limits
        How near to one an eigenvalue can be told from one.
    """

    values: Tensor
    functions: Tensor
    shares: Tensor
    limits: Limits

    @classmethod
    def of_graph(
        cls, graph: WeightedGraph, start: Callable[[], Float[Tensor, "b n s"]], k: int
    ) -> "Eigenmap":
        """Compute the eigenmap exactly where rows are few, else by iteration from a start.

        Parameters
        ----------
        graph : WeightedGraph
            The graph on which a walk steps.
        start : callable
            Makes the columns that an iteration starts from; not called where rows are few.
        k : int
            How many eigenfunctions to compute, the constant one among them.
        """
        degrees = graph.regularised_degrees
        k = min(k, degrees.shape[1])
        total = degrees.sum(-1, keepdim=True)
        stationary = degrees / torch.where(total > 0, total, torch.inf)
        # The constant function is known and has eigenvalue one. Taken out of the graph
        # beforehand, it cannot mix with others whose eigenvalue is nearly one, as those of
        # clusters that hardly touch are. One function more than wanted comes out: its
        # eigenvalue is where the last wanted ones fade out.
        constant = stationary.sqrt()[..., None]
        solve = _solve_matrix if _is_small(graph) else _iterate
        values, vectors, limits = solve(graph, constant, start, k)
        values, vectors = (
            torch.cat([torch.ones_like(part[..., :1]), part.clamp(max=1)], dim=-1)
            for part in (values.clamp(min=0), vectors)
        )
        functions = vectors * inverse_sqrt(stationary)[..., None]
        mean = (stationary[..., None] * functions).sum(1, keepdim=True)
        # A row without a neighbour has no part in any of them.
        functions = (functions - mean) * (graph.degrees > 0)[..., None]
        # The constant function says nothing of any row. It stays as zeros, so that column i
        # of the functions still belongs to eigenvalue i: the c-th value is that of c parts.
        functions[..., 0] = 0.0
        return cls(values[:, :k], functions[..., :k], _shares(values), limits)

    def extend(self, w: Float[Tensor, "b r n"]) -> Float[Tensor, "b r k"]:
        """Return the eigenfunctions at new rows, from their weights to the context."""
        return self.undo_step(walk_probabilities(w) @ self.functions)

    def undo_step(self, means: Float[Tensor, "b r k"]) -> Float[Tensor, "b r k"]:
        """Return functions at rows, from their means over the rows' neighbours.

        A mean over neighbours is one step of the walk, which multiplies an eigenfunction by
        its eigenvalue. It is undone by a division.
        """
        # Small eigenvalues are those of noise, and dividing by them would blow it up.
        return means / self.values.clamp(min=_LEAST_VALUE).to(means)[:, None]

    def diffusion_features(
        self, functions: Float[Tensor, "b r k"], time: float | Tensor
    ) -> Float[Tensor, "b r k"]:
        """Return features of rows whose inner products tell how a walk joins two rows.

        One plus the inner product of two rows is how likely a walk of ``time`` steps leads
        from one to the other, relative to any two rows. Either row takes half of the steps,
        so that each is multiplied by the root of the eigenvalue's power.
        """
        return functions * (self.shares * self.values**time).sqrt().to(functions)[:, None]

    def relaxation(self, parts: int) -> Float[Tensor, "b 1"]:
        """Return the steps after which a walk remembers no more than so many parts."""
        last = self.values.shape[-1] - 1
        value = self.values[:, min(parts, last)].clamp(1e-3, 1 - self.limits.slowest)
        return -1 / value.log()[:, None]


def _is_small(graph: WeightedGraph) -> bool:
    """Return whether a graph is solved as a matrix."""
    n = graph.degrees.shape[1]
    return n <= graph.solved_rows and uses_lapack(n, graph.degrees.device)


def _solve_matrix(
    graph: WeightedGraph, constant: Tensor, start: Callable[[], Tensor], k: int
) -> tuple[Tensor, Tensor, Limits]:
    """Return leading eigenvalues and eigenvectors of a graph's matrix, and their limits."""
    matrix = graph.matrix().baddbmm_(constant, constant.mT, alpha=-1)
    if matrix.is_cuda and len(matrix) > 1:  # a batch of a pretraining
        values, vectors = batched_eigenvectors(matrix, start(), k)
    else:
        values, vectors = leading_eigenvectors(matrix, k)
    return values, vectors, _SOLVED if values.dtype == torch.float64 else _NOT_SOLVED


def _iterate(
    graph: WeightedGraph, constant: Tensor, start: Callable[[], Tensor], k: int
) -> tuple[Tensor, Tensor, Limits]:
    """Return what :func:`_solve_matrix` returns, of a graph whose matrix is not formed."""
    values, vectors, are_solved = iterated_eigenvectors(graph, constant, start(), k)
    return values, vectors, _SOLVED_LONG if are_solved else _NOT_SOLVED


def uses_lapack(n: int, device: torch.device | str) -> bool:
    """Return whether a graph of ``n`` rows is solved exactly, by LAPACK."""
    on_cpu = torch.device(device).type == "cpu"
    return n <= (SOLVED_ROWS if on_cpu else FEW_SOLVED_ROWS)


def _shares(values: Float[Tensor, "b s"]) -> Float[Tensor, "b k"]:
    """Return how much all eigenfunctions but the last count: they fade towards it."""
    last = values[:, -1:]
    width = (_FADING * (1 - last)).clamp(min=_TINY)
    return ((values[:, :-1] - last) / width).clamp(max=1)


def waves(rows: Float[Tensor, "b n p"], k: int) -> Float[Tensor, "b n s"]:
    """Return sines of random projections of rows, from which an iteration starts.

    The projections are fixed, a row's waves depend on that row alone, and axes have an
    order and a direction of their own: the start is the same in whatever order rows and
    columns come and whatever sign a column has. It is computed in float64: sines of two or
    three columns nearly depend on each other, and rounding must not choose among them.
    """
    count = min(rows.shape[1], k + SPARE_COLUMNS)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(rows.shape[-1], count, generator=generator)
    phases = math.tau * torch.rand(count, generator=generator)
    axes = _own_axes(rows.double())
    return torch.sin(3 * axes @ directions.to(axes) + phases.to(axes))


def _own_axes(rows: Float[Tensor, "b n p"]) -> Float[Tensor, "b n p"]:
    """Return coordinates in an order and with signs that these alone decide.

    Moments with the squared lengths of rows tell axes apart, even those of ranks, all of
    which have the same symmetric distribution.
    """
    lengths = rows.square().sum(-1, keepdim=True)
    order = (rows.square() * lengths).mean(1).argsort(dim=-1, stable=True)
    rows = rows.gather(2, order[:, None].expand_as(rows))
    return torch.where((rows * lengths).mean(1, keepdim=True) < 0, -rows, rows)
