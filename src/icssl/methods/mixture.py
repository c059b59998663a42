"""A Gaussian for each class, fitted to labelled and unlabelled points."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_at_least, check_choice, check_positive
from icssl.episodes.episode import Episode
from icssl.methods.base import SCALINGS, Grid, Tunable, label_matrix, scaled

COVARIANCES = ("full", "diagonal", "spherical")


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
        check_choice("covariance", self.covariance, COVARIANCES)
        check_positive("ridge", self.ridge)
        check_positive("unlabelled_weight", self.unlabelled_weight)
        check_at_least("steps", self.steps, 0)

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Class probabilities of every point."""
        x, labels = scaled(episode.x, self.scaling), label_matrix(episode)
        ridge = self.ridge / x.shape[-1]  # where a point has mean squared length one
        if self.covariance == "full" and x.shape[-1] > x.shape[1]:
            # Across the span of the points every class has the same variance.
            x = torch.linalg.qr(x.mT).R.mT
        unlabelled = self.unlabelled_weight * (~episode.labelled[..., None]).double()
        found = _posterior(x, labels, self.covariance, ridge)
        for _ in range(self.steps):
            found = _posterior(x, labels + unlabelled * found, self.covariance, ridge)
        return found.to(episode.x.dtype)


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
    """Log-density up to a constant (b, c, n) under a covariance for each class."""
    scatter = offset.mT @ (parts.mT[..., None] * offset)
    eye = torch.eye(offset.shape[-1], dtype=offset.dtype, device=offset.device)
    root = torch.linalg.cholesky(scatter + ridge * eye)
    length = torch.linalg.solve_triangular(root, offset.mT, upper=False).square().sum(2)
    return -length / 2 - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None]


def _diagonal(offset: Tensor, parts: Tensor, ridge: float, spherical: bool) -> Tensor:
    """The same without correlations, and with one variance if spherical."""
    squared = offset.square()
    variance = (parts.mT[..., None] * squared).sum(dim=2, keepdim=True) + ridge
    if spherical:
        variance = variance.mean(dim=-1, keepdim=True).expand_as(variance)
    return -(squared / variance + variance.log()).sum(dim=-1) / 2
