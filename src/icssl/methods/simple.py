"""Methods with little to choose, and the Bayes ceiling: the best that the labels allow."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_at_least, check_choice, check_positive
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import squared_distances
from icssl.episodes.labels import ball_labels, lowest, share_count
from icssl.methods.base import (
    SCALINGS,
    Grid,
    Tunable,
    class_shares,
    label_matrix,
    scale_points,
)

_COVARIANCES = ("full", "diagonal", "spherical")


def bayes_ceiling(
    episode: Episode, radius: float | None = None, share: float = 0.5
) -> Float[Tensor, "b n 2"]:
    """Return class probabilities from the labels, the true distances and the label rule.

    Class 1 is a ball around a point of the context, each as likely to be its centre. So
    the posterior is uniform over the points whose ball agrees with every label, and the
    probability of a class is the share of these balls that say so. No method can be
    better in the mean.

    Parameters
    ----------
    episode : Episode
        With two classes and ``distances``.
    radius : float, optional
        Radius of the ball; by default, a share of the points lies inside.
    share : float
        That share.
    """
    if episode.distances is None or episode.n_classes != 2:
        instead = (
            "no distances" if episode.distances is None else f"c = {episode.n_classes}"
        )
        raise ValueError(
            f"the Bayes ceiling needs two classes and episode.distances, got {instead}: "
            "draw with ManifoldSpec(distances=True)."
        )
    centred = episode.distances  # (b, candidate centre, n)
    if radius is None:
        inside = lowest(centred, share_count(share, centred.shape[-1]))
    else:
        inside = ball_labels(centred, radius)
    agrees = (inside == episode.y[:, None]) | ~episode.labelled[:, None]
    possible = agrees.all(dim=-1).to(episode.x.dtype)  # (b, candidate centre)
    # Rounding of distances can exclude the true centre; then nothing is known.
    none = possible.sum(dim=1, keepdim=True) == 0
    posterior = torch.where(none, 1.0, possible)
    posterior = posterior / posterior.sum(dim=1, keepdim=True)
    # A sum of shares may exceed one by rounding.
    second = (posterior[:, None] @ inside.to(posterior.dtype))[:, 0].clamp(max=1)
    return torch.stack([1 - second, second], dim=-1)


@dataclass(frozen=True)
class Majority(Tunable):
    """The share of each class among the labelled points, for every point."""

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
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
        """Return class probabilities of every point."""
        x = scale_points(episode.x, self.scaling)
        squared = squared_distances(x, x)
        nearest = squared.masked_fill(~episode.labelled[:, None], torch.inf).argmin(dim=-1)
        labels = label_matrix(episode).to(episode.x.dtype)
        return labels.gather(1, nearest[..., None].expand_as(labels))


@dataclass(frozen=True)
class BayesCeiling(Tunable):
    """The best guess by someone who knows the manifold and the rule of the labels.

    Parameters
    ----------
    radius : float, optional
        Radius of the ball that is class 1, see :func:`icssl.methods.simple.bayes_ceiling`.
    """

    radius: float | None = None

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        return bayes_ceiling(episode, self.radius)


@dataclass(frozen=True)
class BayesCeilingOfShare(BayesCeiling):
    """The same guess where class 1 is a ball with another share of the points than half.

    Parameters
    ----------
    share : float
        That share.
    """

    share: float = 0.5

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        return bayes_ceiling(episode, share=self.share)


@dataclass(frozen=True)
class GaussianMixture(Tunable):
    """Semi-supervised expectation maximisation, one Gaussian for each class.

    Labelled points belong to their class throughout; the first Gaussians are fitted to
    them alone.

    Parameters
    ----------
    covariance : {"full", "diagonal", "spherical"}
    ridge : float
        Added to the variances, in units of the mean variance of a coordinate.
    unlabelled_weight : float
        How much an unlabelled point counts against a labelled one (Nigam et al., 2000).
    scaling : {"isotropic", "coordinate"}
    steps : int
        Iterations; 0 ignores the unlabelled points.
    """

    covariance: str = "full"
    ridge: float = 0.1
    unlabelled_weight: float = 1.0
    scaling: str = "isotropic"
    steps: int = 30

    grids: ClassVar[tuple[Grid, ...]] = (
        {
            "scaling": SCALINGS,
            "covariance": ["full", "diagonal"],
            "ridge": [0.05, 0.2],
            "unlabelled_weight": [0.01, 0.1, 1.0],
        },
        {
            "covariance": ["spherical"],
            "ridge": [0.05, 0.5],
            "unlabelled_weight": [0.01, 0.1, 1.0],
        },
    )

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, _COVARIANCES)
        check_positive("ridge", self.ridge)
        check_positive("unlabelled_weight", self.unlabelled_weight)
        check_at_least("steps", self.steps, 0)

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        x, labels = scale_points(episode.x, self.scaling), label_matrix(episode)
        ridge = self.ridge / x.shape[-1]  # where a point has mean squared length one
        if self.covariance == "full" and x.shape[-1] > x.shape[1]:
            # Across the span of the points every class has the same variance.
            x = torch.linalg.qr(x.mT).R.mT
        unlabelled = self.unlabelled_weight * (~episode.labelled[..., None]).double()
        p = _posterior(x, labels, self.covariance, ridge)
        for _ in range(self.steps):
            p = _posterior(x, labels + unlabelled * p, self.covariance, ridge)
        return p.to(episode.x.dtype)


def _posterior(
    x: Float[Tensor, "b n d"], parts: Float[Tensor, "b n c"], covariance: str, ridge: float
) -> Float[Tensor, "b n c"]:
    """Fit each class to the parts of the points that belong to it, and share them anew."""
    mass = parts.sum(dim=1)  # (b, c), zero for a class that was never shown
    parts = parts / mass.clamp(min=torch.finfo(mass.dtype).tiny)[:, None]
    mean = parts.mT @ x
    offset = x[:, None] - mean[:, :, None]  # (b, c, n, d)
    if covariance == "full":
        log_density = _full(offset, parts, ridge)
    else:
        log_density = _diagonal(offset, parts, ridge, covariance == "spherical")
    # The logarithm of no mass is -inf: a class that was never shown stays out.
    return (mass.log()[:, :, None] + log_density).softmax(dim=1).mT


def _full(offset: Tensor, parts: Tensor, ridge: float) -> Tensor:
    """Return the log-density up to a constant (b, c, n), with a covariance per class."""
    scatter = offset.mT @ (parts.mT[..., None] * offset)
    eye = torch.eye(offset.shape[-1], dtype=offset.dtype, device=offset.device)
    root = torch.linalg.cholesky(scatter + ridge * eye)
    length = torch.linalg.solve_triangular(root, offset.mT, upper=False).square().sum(2)
    return -length / 2 - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None]


def _diagonal(offset: Tensor, parts: Tensor, ridge: float, spherical: bool) -> Tensor:
    """Return the same without correlations, and with one variance if spherical."""
    squared = offset.square()
    variance = (parts.mT[..., None] * squared).sum(dim=2, keepdim=True) + ridge
    if spherical:
        variance = variance.mean(dim=-1, keepdim=True).expand_as(variance)
    return -(squared / variance + variance.log()).sum(dim=-1) / 2
