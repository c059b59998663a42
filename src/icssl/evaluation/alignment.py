"""How alike two representations of the same points are, by their nearest neighbours.

The measures of "The Platonic Representation Hypothesis" (Huh et al., 2024). Neighbours
are ranked by cosine similarity, as there: the inner product of features of unit length.
A point is no neighbour of itself; of neighbours equally near, the first in the order of
the points comes first. Unlike its published runs, features are not clamped at a quantile
before, which would make the measures depend on the axes of the representation.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from icssl.errors import check_at_least

NEIGHBOURS = 10  # the default of the measures' authors


def mutual_knn(
    a: Float[Tensor, "*b n p"], b: Float[Tensor, "*b n q"], k: int = NEIGHBOURS
) -> Float[Tensor, "*b"]:
    """Share of a point's k nearest in ``a`` that are among its k nearest in ``b``.

    The mean over points: 1 for identical representations, k / (n - 1) by chance.
    """
    both = _is_neighbour(a, k) & _is_neighbour(b, k)
    return both.sum(dim=-1).to(a.dtype).mean(dim=-1) / k


def cycle_knn(
    a: Float[Tensor, "*b n p"], b: Float[Tensor, "*b n q"], k: int = NEIGHBOURS
) -> Float[Tensor, "*b"]:
    """Share of points that a walk of two steps can return to.

    From point i to one of its k nearest in ``b``, then to one of that point's k nearest
    in ``a``: i counts if any of the k * k ways ends at i. Not symmetric in ``a`` and
    ``b``. By chance it is about ``1 - (1 - k / (n - 1))^k``, large already for k = 10 and
    n = 100, and even identical representations may have less than 1.
    """
    returns = _is_neighbour(b, k) & _is_neighbour(a, k).mT
    return returns.any(dim=-1).to(a.dtype).mean(dim=-1)


def lcs_knn(
    a: Float[Tensor, "*b n p"], b: Float[Tensor, "*b n q"], k: int = NEIGHBOURS
) -> Float[Tensor, "*b"]:
    """Longest common subsequence of the two ordered lists of k nearest, divided by k.

    The mean over points. The authors' code gives the length itself; as a share it is 1
    for identical representations and at most :func:`mutual_knn`.
    """
    list_a, list_b = _nearest(a, k), _nearest(b, k)
    # longest[j]: of the list of a so far and the first j of the list of b.
    longest = list_b.new_zeros(*list_b.shape[:-1], k + 1)
    for i in range(k):
        extended = longest[..., :-1] + (list_a[..., i : i + 1] == list_b)
        best = torch.maximum(longest[..., 1:], extended).cummax(dim=-1).values
        longest = torch.cat([longest[..., :1], best], dim=-1)
    return longest[..., -1].to(a.dtype).mean(dim=-1) / k


ALIGNMENTS: dict[str, Callable[..., Tensor]] = {
    "mutual_knn": mutual_knn,
    "cycle_knn": cycle_knn,
    "lcs_knn": lcs_knn,
}


def _nearest(x: Tensor, k: int) -> Int[Tensor, "*b n k"]:
    """The k nearest neighbours of every point, nearest first."""
    n = x.shape[-2]
    check_at_least("k", k, 1)
    if k >= n:
        raise ValueError(f"k neighbours need k < n, got k = {k}, n = {n}.")
    # Cosines of near points differ in digits that float32 does not have.
    unit = normalize(x.double(), dim=-1)
    similarity = unit @ unit.mT
    similarity.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
    return similarity.argsort(dim=-1, descending=True, stable=True)[..., :k]


def _is_neighbour(x: Tensor, k: int) -> Bool[Tensor, "*b n n"]:
    """Whether point j, in columns, is among the k nearest of point i."""
    nearest = _nearest(x, k)
    nobody = torch.zeros(*x.shape[:-1], x.shape[-2], dtype=torch.bool, device=x.device)
    return nobody.scatter(-1, nearest, True)
