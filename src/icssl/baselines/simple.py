"""Methods with little or nothing to choose."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.baselines.base import (
    SCALINGS,
    Grid,
    Tunable,
    class_shares,
    label_matrix,
    scaled,
)
from icssl.baselines.bayes import bayes_ceiling
from icssl.baselines.graphs import squared_distances
from icssl.episode import Episode


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
        Of the ball that is class 1, see :func:`icssl.baselines.bayes.bayes_ceiling`.
    """

    radius: float | None = None

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Class probabilities of every point."""
        return bayes_ceiling(episode, self.radius)
