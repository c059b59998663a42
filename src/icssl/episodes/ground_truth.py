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


def affinity(x: Float[Tensor, "*b n d"], sigma: float) -> Float[Tensor, "*b n n"]:
    r"""RBF affinities :math:`A` with bandwidth :math:`\sigma^2`; ones on the diagonal."""
    check_positive("sigma", sigma)
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    return (-(distances / sigma).square()).exp()


def degrees(affinity: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """The diagonal matrix D of row sums of ``affinity``."""
    return torch.diag_embed(affinity.sum(dim=-1))


def random_walk(affinity: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """D^-1 A: rows sum to one. What RBF attention computes."""
    return affinity / affinity.sum(dim=-1, keepdim=True)


def laplacian(affinity: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """The unnormalised Laplacian D - A."""
    return degrees(affinity) - affinity


def symmetric_laplacian(affinity: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """I - D^-1/2 A D^-1/2."""
    root = affinity.sum(dim=-1).rsqrt()
    return _identity_like(affinity) - root[..., :, None] * affinity * root[..., None, :]


def right_normalised_laplacian(
    affinity: Float[Tensor, "*b n n"],
) -> Float[Tensor, "*b n n"]:
    """I - D^-1 A, the transpose of the paper's I - A D^-1: what Lemma 1 constructs."""
    return _identity_like(affinity) - random_walk(affinity)


def _identity_like(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


ALPHA = 10.0  # the paper's RBF kernel width


def neighbour_affinity(
    x: Float[Tensor, "b n d"], neighbours: int = 6, alpha: float = ALPHA
) -> Float[Tensor, "b n n"]:
    """exp(-alpha d^2) between each point and its nearest, symmetrised by the maximum.

    A point is no neighbour of itself.
    """
    n = x.shape[1]
    if not 1 <= neighbours < n:
        raise ValueError(f"neighbours must be from 1 to n - 1 = {n - 1}, got {neighbours}.")
    squared = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    squared.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    nearest = squared.topk(neighbours, dim=2, largest=False)
    # Far apart, weights underflow; the smallest number keeps such points in the graph.
    weights = (-alpha * nearest.values).exp().clamp(min=torch.finfo(x.dtype).tiny)
    graph = torch.zeros_like(squared).scatter(2, nearest.indices, weights)
    return torch.maximum(graph, graph.mT)


def ground_truth(
    x: Float[Tensor, "b n d"], k: int = 4, neighbours: int = 6, alpha: float = ALPHA
) -> tuple[Float[Tensor, "b n n"], Float[Tensor, "b n k"]]:
    """Normalised Laplacian and its bottom k eigenvectors, on the device of ``x``.

    Eigenvectors are found on the CPU, where many small problems are faster than on a
    GPU. Each has unit length; its sign, and its direction within a repeated eigenvalue,
    mean nothing.
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
