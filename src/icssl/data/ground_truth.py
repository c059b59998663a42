"""Ground-truth Laplacians and eigenvectors of nearest-neighbour graphs."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits
from torch import Tensor

from icssl.graph import symmetric_laplacian

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
