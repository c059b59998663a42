r"""The graph matrices of Lemma 1, each as a function.

The affinity graph joins every two points with weight
:math:`A_{ij} = \exp(-\|x_i - x_j\|^2 / \sigma^2)`, the paper's
eq. (adjacency_appendix), with :math:`A_{ii} = 1`. The paper keeps points in columns
and normalises columns; here points are rows, so :func:`random_walk` and
:func:`right_normalised_laplacian` are the transposes of what it prints.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.errors import check_positive


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
