"""Solvers for the leading eigenvectors of a graph's symmetric, normalised weights.

One small matrix is solved by LAPACK, a batch of small ones on a GPU by
:func:`batched_eigenvectors`, and a graph whose matrix is never formed by
:func:`iterated_eigenvectors`. The last two filter a subspace by Chebyshev polynomials. A
filter cannot tell eigenvalues that are all nearly one, as those of long thin shapes are;
sparse graphs of such shapes are solved with instead.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse
from scipy.linalg import LinAlgError, eigh, qr
from scipy.sparse.linalg import splu
from torch import Tensor

from icssl._util.lapack import largest_eigenpairs
from icssl._util.threads import allowed_threads, map_in_threads, one_thread
from icssl.classifier.graphs import WeightedGraph

_DOUBLE_ROWS = 512  # matrices of more rows are solved in float32 first
_LEAST_REFINED = 0.1  # eigenvalues whose eigenvectors are refined after float32
_WHOLE_ROWS = 1  # matrices of so many times the wanted columns are decomposed as a whole
_BATCHED_ROUNDS = 3  # rounds of the filter for a batch
_MOST_DAMPED = 1 - 1e-4  # or the filter would have nothing to grow
_TOLERANCE = 2e-5  # change of the eigenvalues in a round after which they have converged
_MOST_DEGREE = 24  # where eigenvalues are all near one, and columns hardly grow
_MOST_AMPLIFIED = 1e4  # growth of a column in one round, from which float32 recovers
_SLOW = 1e-3  # distance from one of eigenvalues that a filter may not tell apart
_BLURRED = 0.1  # share of a distance from one that a residual must not exceed
_SHIFT = 1e-7  # about what rounding of float32 weights does to eigenvalues
_ROUNDING = 1e-6  # more than it does to the sum of a row
_SOLVED_ROUNDS, _SOLVED_TOLERANCE = 12, 2e-3  # rounds of solving, at most, and when to stop
_TINY = 1e-12


def leading_eigenvectors(
    matrix: Float[Tensor, "b n n"], count: int
) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b n q"]]:
    """Return the largest eigenvalues, falling, and their eigenvectors, by LAPACK.

    It runs on the CPU and in float64 wherever the matrix is, so that devices agree; many
    rows are solved in float32, and the result is refined in float64.
    """
    solve = _solve if matrix.shape[1] <= _DOUBLE_ROWS else _solve_and_refine
    solutions = [solve(context, count) for context in matrix.double().cpu().numpy()]
    values, vectors = (
        torch.from_numpy(np.stack(part)) for part in zip(*solutions, strict=True)
    )
    return values.to(matrix), vectors.to(matrix)


def _solve(matrix: Float[ndarray, "n n"], count: int) -> tuple[ndarray, ndarray]:
    """Return the largest eigenvalues, falling, and their eigenvectors."""
    count = min(count, len(matrix))
    try:  # three times as fast as all of them
        values, vectors = largest_eigenpairs(matrix.copy(), count)
        complete = len(values) == count
    except LinAlgError:
        complete = False
    # It gives up, or loses some, on graphs whose eigenvalues repeat many times.
    if not complete:
        values, vectors = eigh(matrix, driver="evd", check_finite=False)
    return values[: -count - 1 : -1].copy(), vectors[:, : -count - 1 : -1].copy()


def _solve_and_refine(matrix: Float[ndarray, "n n"], count: int) -> tuple[ndarray, ndarray]:
    """Return what :func:`_solve` returns, in half of the time.

    In float32 a row of small degree has few digits in an eigenvector, and an eigenvalue
    next to one has few below one. A multiplication with the matrix gives each row back the
    digits of its own weights, and Rayleigh quotients in float64 those of the eigenvalues.
    """
    single = matrix.astype(np.float32)
    values, vectors = _solve(single, count)
    # Eigenvectors of eigenvalues near zero would vanish in a multiplication.
    large = values > _LEAST_REFINED
    vectors[:, large] = single @ vectors[:, large] / values[large]
    basis = qr(vectors.astype(np.float64), mode="economic", check_finite=False)[0]
    values, rotation = np.linalg.eigh(basis.T @ (matrix @ basis))
    return values[::-1].copy(), basis @ rotation[:, ::-1]


def batched_eigenvectors(
    matrix: Float[Tensor, "b n n"], start: Float[Tensor, "b n s"], count: int
) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b n q"]]:
    """Return the largest eigenvalues and eigenvectors of many symmetric matrices at once.

    Every step is a batched product, so that a GPU solves hundreds of matrices together.
    Eigenvalues that are not positive are not told apart: no one counts them.

    Parameters
    ----------
    matrix : Tensor
        The matrices, whose eigenvalues are from -1 to 1.
    start : Tensor
        Columns that the iteration starts from, some more than are wanted.
    count : int
        How many eigenvectors to return.
    """
    if matrix.shape[1] <= _WHOLE_ROWS * start.shape[-1]:
        values, vectors = decompose_each(matrix)
        return values.flip(-1)[:, :count], vectors.flip(-1)[..., :count]

    def multiply(x: Tensor) -> Tensor:
        return matrix @ x

    x = _orthonormalise(_orthonormalise(start))
    product = multiply(x)
    damped = matrix.new_zeros(len(matrix), 1, 1)
    for _ in range(_BATCHED_ROUNDS):
        x = _chebyshev(multiply, x, product, damped, _safe_degree(damped))
        x = _orthonormalise(x)
        product = multiply(x)
        # About the least eigenvalue that the columns stand for, without solving for it.
        quotients = (x * product).sum(1)
        damped = quotients.amin(-1)[:, None, None].clamp(0, _MOST_DAMPED)
    values, rotation = decompose_each(_gram(x, product))
    values, rotation = (part.flip(-1)[..., :count] for part in (values, rotation))
    return values.to(x.dtype), x @ rotation.to(x.dtype)


class IteratedEigenvectors(NamedTuple):
    """Leading eigenvalues, falling, and eigenvectors, and whether they were solved for.

    Those that were have float64 eigenvalues, which tell even long thin shapes apart.
    """

    values: Float[Tensor, "b q"]
    vectors: Float[Tensor, "b n q"]
    are_solved: bool


def iterated_eigenvectors(
    graph: WeightedGraph,
    constant: Float[Tensor, "b n 1"],
    start: Float[Tensor, "b n s"],
    count: int,
) -> IteratedEigenvectors:
    """Return leading eigenvalues and eigenvectors of a graph whose matrix is not formed.

    Every pass over the graph is linear attention. Where its first eigenvalues are nearly
    one and the graph is thin, they are found by solving with it.

    Parameters
    ----------
    graph : WeightedGraph
        The graph, which is multiplied with columns.
    constant : Tensor
        Its first eigenvector, which is left out.
    start : Tensor
        Columns that the iteration starts from, some more than are wanted.
    count : int
        How many eigenvectors to return.
    """
    constant = graph.arrange(constant)
    start = _orthonormalise(_orthonormalise(start)).to(constant)

    def project(x: Tensor) -> Tensor:
        return x - constant * (constant.mT @ x)

    multiply, columns = graph.times_arranged, graph.arrange(start)
    values, vectors = _filter_subspace(multiply, columns, count, graph.passes, project)
    laplacian = None
    for _ in range(graph.more_filters):
        if not _is_blurred(multiply, values, vectors, count):
            break
        laplacian = graph.thin_laplacian()
        if laplacian is not None:
            values, vectors = _solve_with(laplacian, constant, vectors, count)
            break
        values, vectors = _filter_subspace(multiply, vectors, count, graph.passes, project)
    vectors = graph.restore(vectors[..., :count])
    return IteratedEigenvectors(values[:, :count], vectors, laplacian is not None)


def _is_blurred(
    multiply: Callable[[Tensor], Tensor],
    values: Float[Tensor, "b s"],
    vectors: Float[Tensor, "b n s"],
    count: int,
) -> bool:
    """Return whether columns of eigenvalues near one may still be mixed with others.

    A column mixes with those of another eigenvalue by its residual over the difference of
    the two. Diffusion treats eigenvalues alike whose distances from one are within a
    factor of two, so only those beyond count.
    """
    distances = (1 - values[:, :count].double()).clamp(min=0)
    slow = int((distances < _SLOW).sum(-1).max())
    if not slow:
        return False
    some, factors = vectors[..., :slow], values[:, None, :slow]
    residuals = (multiply(some) - factors * some).double().norm(dim=1)
    beyond = torch.searchsorted(distances, 2 * distances[:, :slow] + _SHIFT)
    next_ones = distances.gather(1, beyond.clamp(max=distances.shape[1] - 1))
    return bool((residuals > _BLURRED * next_ones).any())


def _solve_with(
    laplacian: sparse.csr_matrix,
    constant: Float[Tensor, "1 n 1"],
    columns: Float[Tensor, "1 n s"],
    count: int,
) -> tuple[Float[Tensor, "1 s"], Float[Tensor, "1 n s"]]:
    """Return leading eigenvalues and eigenvectors of I - laplacian by inverse iteration.

    An eigenvalue at distance g from one grows as 1 / g in every round, where a polynomial
    of a few degrees leaves all that are nearly one alike.

    Parameters
    ----------
    laplacian : csr_matrix
        I - D^-1/2 W D^-1/2, whose factors are sparse.
    constant : Tensor
        Its first eigenvector, which is left out.
    columns : Tensor
        Columns to start from, some more than are wanted.
    count : int
        How many eigenvectors are wanted.
    """
    known, x = (part[0].double().cpu().numpy() for part in (constant, columns))
    known = known / np.linalg.norm(known)
    # Rounding of the weights leaves distances below zero. With a diagonal that takes the
    # constant to zero exactly, the matrix is semidefinite again.
    excess = np.divide(laplacian @ known, known, out=0 * known, where=known > 0)
    excess = excess[:, 0].clip(-_ROUNDING, _ROUNDING)
    laplacian = laplacian - sparse.diags(excess, format="csr")
    shifted = (laplacian + _SHIFT * sparse.eye(len(known))).tocsc()
    options = {"SymmetricMode": True}
    factors = splu(shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    x = x - known @ (known.T @ x)
    before = np.full(x.shape[1], np.inf)
    for _ in range(_SOLVED_ROUNDS):
        with one_thread():  # its blocks are tiny, and threads would only wait
            x = factors.solve(x)
        x = qr(x - known @ (known.T @ x), mode="economic", check_finite=False)[0]
        # Distances from one by themselves: as differences they would have few digits.
        distances, rotation = np.linalg.eigh(x.T @ (laplacian @ x))
        x = x @ rotation
        change = np.abs(distances - before) / (distances.clip(min=0) + _SHIFT)
        if change[:count].max() < _SOLVED_TOLERANCE:
            break
        before = distances
    values, vectors = (torch.from_numpy(part)[None] for part in (1 - distances, x))
    return values.to(columns.device), vectors.to(columns)


def _filter_subspace(
    multiply: Callable[[Tensor], Tensor],
    start: Float[Tensor, "b n s"],
    count: int,
    passes: int,
    project: Callable[[Tensor], Tensor] = lambda x: x,
) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b n q"]]:
    """Return eigenvalues, falling, and eigenvectors by a filtered subspace iteration.

    A Chebyshev filter damps small eigenvalues, in rounds. The least that a round finds is
    where the next round begins to damp.

    Parameters
    ----------
    multiply : callable
        Multiplies the matrix with columns.
    start : Tensor
        Columns to start from.
    count : int
        How many eigenvectors have to converge; as many as columns are returned.
    passes : int
        Products with the matrix, at most; fewer where eigenvalues have converged.
    project : callable
        Takes known eigenvectors out of columns, which grow back by rounding in a round.
    """
    x = _orthonormalise(project(start))
    product, passes = multiply(x), passes - 1
    values = torch.linalg.eigvalsh(_gram(x, product))
    while passes > 0:
        # The least Ritz value is never above the eigenvalue it stands for.
        damped = values[:, :1, None].clamp(0, 1 - _TOLERANCE).to(x.dtype)
        degree = min(_safe_degree(damped), passes)
        x = _orthonormalise(project(_chebyshev(multiply, x, product, damped, degree)))
        product, before, passes = multiply(x), values, passes - degree
        values = torch.linalg.eigvalsh(_gram(x, product))
        if (values - before)[:, -count:].abs().max() < _TOLERANCE:
            break
    values, rotation = torch.linalg.eigh(_gram(x, product))
    values, rotation = values.flip(-1), rotation.flip(-1)
    return values.to(x.dtype), x @ rotation.to(x.dtype)


def decompose_each(matrices: Float[Tensor, "b s s"]) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, rising, and eigenvectors of many small symmetric matrices.

    A GPU solves such matrices one after the other. The cores of the machine solve them at
    once, and faster, though matrices have to travel.
    """
    if not matrices.is_cuda:
        return torch.linalg.eigh(matrices)
    parts = matrices.double().cpu().tensor_split(min(allowed_threads(), len(matrices)))
    solved = map_in_threads(torch.linalg.eigh, parts)
    values, vectors = (torch.cat(part) for part in zip(*solved, strict=True))
    return values.to(matrices), vectors.to(matrices)


def _gram(a: Float[Tensor, "b n s"], c: Float[Tensor, "b n s"]) -> Float[Tensor, "b s s"]:
    """Return the products of all columns, symmetric and summed in float64."""
    a64 = a.double()
    products = a64.mT @ (a64 if c is a else c.double())
    return (products + products.mT) / 2


def _orthonormalise(x: Float[Tensor, "b n s"]) -> Float[Tensor, "b n s"]:
    """Return an orthonormal basis of columns, by Cholesky: GPUs have no batched QR.

    The Gram matrix squares the condition of the columns; in float64 that does no harm.
    """
    gram = _gram(x, x)
    length = gram.diagonal(dim1=-2, dim2=-1).clamp(min=_TINY**2).rsqrt()
    gram = gram * length[:, None] * length[..., None]
    # Columns that depend on each other get a direction of rounding, not a failure.
    gram.diagonal(dim1=-2, dim2=-1).add_(_TINY)
    root = torch.linalg.cholesky_ex(gram).L
    unit = torch.eye(x.shape[-1], dtype=gram.dtype, device=x.device).expand_as(gram)
    inverse = torch.linalg.solve_triangular(root, unit, upper=False)
    return (x.double() @ (length[..., None] * inverse.mT)).to(x.dtype)


def _safe_degree(damped: Float[Tensor, "b 1 1"]) -> int:
    """Return a degree of the filter with which columns stay independent in float32.

    A Chebyshev polynomial of degree m multiplies an eigenvalue of one by about
    exp(m * growth) / 2.
    """
    growth = float(((3 - damped) / (1 + damped)).acosh().min())
    degree = math.log(2 * _MOST_AMPLIFIED) / max(growth, _TINY)
    return int(min(max(degree, 2), _MOST_DEGREE))


def _chebyshev(
    multiply: Callable[[Tensor], Tensor],
    x: Tensor,
    product: Tensor,
    damped: Tensor,
    degree: int,
) -> Tensor:
    """Apply a polynomial that is small from -1 to ``damped`` and grows fast above.

    ``product`` is the graph times x, which the caller has already.
    """
    # Chebyshev polynomials stay within one on [-1, 1]: what to damp is mapped there.
    middle, half = (damped - 1) / 2, (damped + 1) / 2
    before, now = x, (product - middle * x) / half
    for _ in range(degree - 1):
        # In place: columns of many rows do not fit the caches.
        after = multiply(now).mul_(2 / half).addcmul_(now, -2 * middle / half)
        before, now = now, after.sub_(before)
    return now
