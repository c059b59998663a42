"""Methods with little to choose, and the Bayes ceiling: the best that the labels allow."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.episodes.episode import Episode
from icssl.episodes.labels import ball_labels, lower_half
from icssl.methods.base import (
    SCALINGS,
    Grid,
    Tunable,
    class_shares,
    label_matrix,
    scaled,
)
from icssl.methods.graphs import squared_distances


def bayes_ceiling(episode: Episode, radius: float | None = None) -> Float[Tensor, "b n 2"]:
    """Class probabilities given the labels, the true distances and the rule of the labels.

    Class 1 is a ball around a point of the context, each as likely to be its centre. So
    the posterior is uniform over the points whose ball agrees with every label, and the
    probability of a class is the share of these balls that say so. No method can be
    better in the mean.

    Parameters
    ----------
    episode : Episode
        With two classes and ``distances``.
    radius : float, optional
        Radius of the ball; by default, half of the points lie inside.
    """
    if episode.distances is None or episode.n_classes != 2:
        given = "no distances" if episode.distances is None else f"c = {episode.n_classes}"
        raise ValueError(
            f"the Bayes ceiling needs two classes and episode.distances, got {given}: "
            "draw with ManifoldSpec(distances=True)."
        )
    centred = episode.distances  # (b, candidate centre, n)
    inside = lower_half(centred) if radius is None else ball_labels(centred, radius)
    agrees = (inside == episode.y[:, None]) | ~episode.labelled[:, None]
    possible = agrees.all(dim=-1).to(episode.x.dtype)  # (b, candidate centre)
    # Rounding of distances can exclude the true centre; then nothing is known.
    none = possible.sum(dim=1, keepdim=True) == 0
    posterior = torch.where(none, 1.0, possible)
    posterior = posterior / posterior.sum(dim=1, keepdim=True)
    # A sum of shares may exceed one by rounding.
    one = (posterior[:, None] @ inside.to(posterior.dtype))[:, 0].clamp(max=1)
    return torch.stack([1 - one, one], dim=-1)


@dataclass(frozen=True)
class Majority(Tunable):
    """The share of each class among the labelled points, for every point."""

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Class probabilities of every point."""
        shares = class_shares(label_matrix(episode)).to(episode.x.dtype)
        return shares.expand(-1, episode.x.shape[1], -1)


@dataclass(frozen=True)
class NearestNeighbour(Tunable):
    """The class of the nearest labelled point, with probability one.

    Parameters
    ----------
    scaling : {"isotropic", "coordinate"}
    """

    scaling: str = "isotropic"

    grids: ClassVar[tuple[Grid, ...]] = ({"scaling": SCALINGS},)

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Class probabilities of every point."""
        squared = squared_distances(scaled(episode.x, self.scaling))
        nearest = squared.masked_fill(~episode.labelled[:, None], torch.inf).argmin(dim=-1)
        labels = label_matrix(episode).to(episode.x.dtype)
        return labels.gather(1, nearest[..., None].expand_as(labels))


@dataclass(frozen=True)
class BayesCeiling(Tunable):
    """The best guess by someone who knows the manifold and the rule of the labels.

    Parameters
    ----------
    radius : float, optional
        Of the ball that is class 1, see :func:`icssl.methods.simple.bayes_ceiling`.
    """

    radius: float | None = None

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Class probabilities of every point."""
        return bayes_ceiling(episode, self.radius)
