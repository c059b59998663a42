"""Does the model compute what the lemmas say: angles to the true eigenvectors."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.episode import Episode
from icssl.errors import check_at_least
from icssl.model.transformer import ICSSLTransformer


@dataclass(frozen=True, eq=False)
class EigenmapAngles:
    """Largest principal angles, in radians, after every step (s of them) of stage 2.

    Parameters
    ----------
    steps : tuple of str
        Names of the steps in :meth:`ICSSLTransformer.trace`, in order.
    to_operator : Tensor of shape (s, b)
        To the bottom eigenvectors of R R^T, the model's own operator (Lemma 2).
    to_truth : Tensor of shape (s, b), optional
        To the ground truth in ``episode.features``, where there is one.
    """

    steps: tuple[str, ...]
    to_operator: Float[Tensor, "s b"]
    to_truth: Float[Tensor, "s b"] | None = None


def principal_angles(
    a: Float[Tensor, "*b n k"], b: Float[Tensor, "*b n k"]
) -> Float[Tensor, "*b k"]:
    """Angles between the spans of two sets of k independent columns, largest first."""
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
    """How far the features of stage 2 are from eigenvectors, step by step.

    Computed in float64 from what the model computed in its own precision.

    Parameters
    ----------
    model : ICSSLTransformer
        With an eigenmap stage.
    episode : Episode
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


def _check_columns(k: int, what: str, given: int) -> None:
    if given < k:
        raise ValueError(f"k = {k} needs as many {what}, got {given}.")
