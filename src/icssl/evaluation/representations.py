"""Measures of representations: whether a model computes what the lemmas say.

Representations are compared by angles to the true eigenvectors, and by their nearest
neighbours with the measures of "The Platonic Representation Hypothesis" (Huh et al., 2024).
Neighbours are ranked by cosine similarity, as in that paper: the inner product of features
of unit length. A point is no neighbour of itself; of neighbours equally near, the first in
the order of the points comes first. Unlike in its published runs, features are not clamped
at a quantile, which would make the measures depend on the axes of the representation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from icssl._util.errors import check_at_least
from icssl.episodes.episode import Episode
from icssl.model.transformer import ICSSLTransformer

_NEIGHBOURS = 10  # the default of the measures' authors


def mutual_knn(
    a: Float[Tensor, "*b n p"], b: Float[Tensor, "*b n q"], k: int = _NEIGHBOURS
) -> Float[Tensor, "*b"]:
    """Return the share of a point's k nearest in ``a`` that are so in ``b`` too.

    The mean over points: 1 for identical representations, k / (n - 1) by chance.
    """
    both = _is_neighbour(a, k) & _is_neighbour(b, k)
    return both.sum(dim=-1).to(a.dtype).mean(dim=-1) / k


def cycle_knn(
    a: Float[Tensor, "*b n p"], b: Float[Tensor, "*b n q"], k: int = _NEIGHBOURS
) -> Float[Tensor, "*b"]:
    """Return the share of points that a walk of two steps can return to.

    The walk goes from point i to one of its k nearest in ``b``, then to one of that point's
    k nearest in ``a``: i counts if any of the k * k ways ends at i. The measure is not
    symmetric in ``a`` and ``b``. By chance it is about ``1 - (1 - k / (n - 1))^k``, large
    already for k = 10 and n = 100, and even identical representations may have less than 1.
    """
    returns = _is_neighbour(b, k) & _is_neighbour(a, k).mT
    return returns.any(dim=-1).to(a.dtype).mean(dim=-1)


def cycle_share_knn(
    a: Float[Tensor, "*b n p"], b: Float[Tensor, "*b n q"], k: int = _NEIGHBOURS
) -> Float[Tensor, "*b"]:
    """Return the share of a point's k nearest in ``b`` that have it among theirs in ``a``.

    The mean over points; the other reading of a cycle. :func:`cycle_knn` asks whether a
    walk of two steps can return, this how likely its second step could: 1 only where all
    neighbours are mutual, k / (n - 1) by chance, which is below what the paper prints.
    """
    returns = _is_neighbour(b, k) & _is_neighbour(a, k).mT
    return returns.sum(dim=-1).to(a.dtype).mean(dim=-1) / k


def lcs_knn(
    a: Float[Tensor, "*b n p"], b: Float[Tensor, "*b n q"], k: int = _NEIGHBOURS
) -> Float[Tensor, "*b"]:
    """Return the longest common subsequence of both lists of k nearest, divided by k.

    The mean over points. The authors' code gives the length itself; as a share it is 1
    for identical representations and at most :func:`mutual_knn`.
    """
    list_a, list_b = _nearest(a, k), _nearest(b, k)
    # longest[j]: length for the part of a's list so far and the first j of b's list.
    longest = list_b.new_zeros(*list_b.shape[:-1], k + 1)
    for i in range(k):
        extended = longest[..., :-1] + (list_a[..., i : i + 1] == list_b)
        best = torch.maximum(longest[..., 1:], extended).cummax(dim=-1).values
        longest = torch.cat([longest[..., :1], best], dim=-1)
    return longest[..., -1].to(a.dtype).mean(dim=-1) / k


ALIGNMENTS: dict[str, Callable[..., Tensor]] = {
    "mutual_knn": mutual_knn,
    "cycle_knn": cycle_knn,
    "cycle_share_knn": cycle_share_knn,
    "lcs_knn": lcs_knn,
}


def _nearest(x: Tensor, k: int) -> Int[Tensor, "*b n k"]:
    """Return the k nearest neighbours of every point, nearest first."""
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
    """Return whether point j, in columns, is among the k nearest of point i, in rows."""
    nearest = _nearest(x, k)
    nobody = torch.zeros(*x.shape[:-1], x.shape[-2], dtype=torch.bool, device=x.device)
    return nobody.scatter(-1, nearest, True)


@dataclass(frozen=True, eq=False)
class EigenmapAngles:
    """Largest principal angles, in radians, after every step (s of them) of stage 2.

    Parameters
    ----------
    steps : tuple of str
        Names of the steps in :meth:`ICSSLTransformer.trace`, in order.
    to_operator : Tensor of shape (s, b)
        Angles to the bottom eigenvectors of R R^T, the model's own operator (Lemma 2).
    to_truth : Tensor of shape (s, b), optional
        Angles to the ground truth in ``episode.features``, where there is one.
    """

    steps: tuple[str, ...]
    to_operator: Float[Tensor, "s b"]
    to_truth: Float[Tensor, "s b"] | None = None


def principal_angles(
    a: Float[Tensor, "*b n k"], b: Float[Tensor, "*b n k"]
) -> Float[Tensor, "*b k"]:
    """Return the angles between two spans of k independent columns, largest first."""
    a, b = torch.linalg.qr(a).Q, torch.linalg.qr(b).Q
    within = b.mT @ a
    cosines = torch.linalg.svdvals(within).flip(-1)
    sines = torch.linalg.svdvals(a - b @ within)
    # acos loses half of the digits of a small angle, asin of a large one.
    return torch.atan2(sines, cosines)


@torch.no_grad()
def eigenmap_angles(
    model: ICSSLTransformer, episode: Episode, k: int | None = None
) -> EigenmapAngles:
    """Return how far the features of stage 2 are from eigenvectors, step by step.

    Angles are computed in float64 from what the model computed in its own precision.

    Parameters
    ----------
    model : ICSSLTransformer
        A model with an eigenmap stage.
    episode : Episode
        Episodes to trace it on.
    k : int, optional
        Compare the first k features with k eigenvectors; by default, all that the model
        has.
    """
    config = model.config
    if config.features != "eigenmap":
        raise ValueError(
            "eigenmap_angles needs a model with an eigenmap stage, got "
            f"features={config.features!r}."
        )
    k = config.k if k is None else k
    check_at_least("k", k, 1)
    _check_columns(k, "features of the model", config.k)
    if episode.features is not None:
        _check_columns(k, "columns of episode.features", episode.features.shape[-1])

    trace = model.trace(episode)
    steps = tuple(name for name in trace if name.startswith("eigenmap."))
    features = torch.stack([trace[name] for name in steps]).double()[..., :k]
    r = [value for name, value in trace.items() if name.endswith(".R")][-1].double()
    bottom = torch.linalg.eigh(r @ r.mT).eigenvectors[..., :k]

    def largest(reference: Tensor) -> Tensor:
        return principal_angles(features, reference.expand_as(features))[..., 0]

    truth = episode.features
    to_truth = None if truth is None else largest(truth[..., :k].double())
    return EigenmapAngles(steps, largest(bottom), to_truth)


def _check_columns(k: int, what: str, columns: int) -> None:
    if columns < k:
        raise ValueError(f"k = {k} needs as many {what}, got {columns}.")
