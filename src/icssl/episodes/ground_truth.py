r"""Ground truth of an episode: graph matrices, and eigenvectors of their Laplacians.

The affinity graph joins every two points with weight
:math:`A_{ij} = \exp(-\|x_i - x_j\|^2 / \sigma^2)`, the paper's
eq. (adjacency_appendix), with :math:`A_{ii} = 1`. The paper keeps points in columns
and normalises columns; here points are rows, so :func:`random_walk` and
:func:`right_normalised_laplacian` are the transposes of what it prints.
"""

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits
from torch import Tensor

from icssl._util.errors import check_positive

_ALPHA = 10.0  # the paper's RBF kernel width


def squared_distances(
    a: Float[Tensor, "*#b q d"], b: Float[Tensor, "*#b k d"]
) -> Float[Tensor, "*b q k"]:
    """Return squared Euclidean distances, exact also between near points."""
    # cdist's matmul shortcut loses the small distances that decide a graph.
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()


def identity_like(matrix: Float[Tensor, "*b n n"]) -> Float[Tensor, "n n"]:
    """Return the identity with the size, dtype and device of a square matrix."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def affinity(x: Float[Tensor, "*b n d"], sigma: float) -> Float[Tensor, "*b n n"]:
    r"""Return RBF affinities :math:`A` of bandwidth :math:`\sigma`; the diagonal is one."""
    check_positive("sigma", sigma)
    return (-squared_distances(x / sigma, x / sigma)).exp()


def random_walk(affinity: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """Return D^-1 A, whose rows sum to one: what RBF attention computes."""
    return affinity / affinity.sum(dim=-1, keepdim=True)


def symmetric_laplacian(affinity: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """Return the symmetric normalised Laplacian I - D^-1/2 A D^-1/2."""
    root = affinity.sum(dim=-1).rsqrt()
    return identity_like(affinity) - root[..., :, None] * affinity * root[..., None, :]


def right_normalised_laplacian(
    affinity: Float[Tensor, "*b n n"],
) -> Float[Tensor, "*b n n"]:
    """Return I - D^-1 A, the transpose of the paper's I - A D^-1, as Lemma 1 constructs."""
    return identity_like(affinity) - random_walk(affinity)


def neighbour_affinity(
    x: Float[Tensor, "b n d"], neighbours: int = 6, alpha: float = _ALPHA
) -> Float[Tensor, "b n n"]:
    """Return weights exp(-alpha d^2) between each point and its nearest neighbours.

    The graph is made symmetric by the maximum. A point is no neighbour of itself.
    """
    n = x.shape[1]
    if not 1 <= neighbours < n:
        raise ValueError(f"neighbours must be from 1 to n - 1 = {n - 1}, got {neighbours}.")
    squared = squared_distances(x, x)
    squared.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    nearest = squared.topk(neighbours, dim=2, largest=False)
    # Far apart, weights underflow; the smallest number keeps such points in the graph.
    weights = (-alpha * nearest.values).exp().clamp(min=torch.finfo(x.dtype).tiny)
    graph = torch.zeros_like(squared).scatter(2, nearest.indices, weights)
    return torch.maximum(graph, graph.mT)


def ground_truth(
    x: Float[Tensor, "b n d"], k: int = 4, neighbours: int = 6, alpha: float = _ALPHA
) -> tuple[Float[Tensor, "b n n"], Float[Tensor, "b n k"]]:
    """Return the normalised Laplacian and its bottom k eigenvectors.

    Eigenvectors are computed on the CPU, where many small problems are faster than on a
    GPU, and returned on the device of ``x``. Each has unit length; its sign, and its
    direction within a repeated eigenvalue, mean nothing.
    """
    if k > x.shape[1]:
        raise ValueError(f"k eigenvectors need k <= n, got k = {k}, n = {x.shape[1]}.")
    laplacian = symmetric_laplacian(neighbour_affinity(x, neighbours, alpha))
    # LAPACK for the wanted eigenvectors only, on one thread: two of them spend most of
    # their time waiting for each other on matrices this small.
    with threadpool_limits(1):
        bottom = [
            eigh(matrix, subset_by_index=(0, k - 1), overwrite_a=True, check_finite=False)[
                1
            ]
            for matrix in laplacian.cpu().numpy().copy()
        ]
    return laplacian, torch.from_numpy(np.stack(bottom)).to(x.device)
