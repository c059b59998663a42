"""The paper's regressions as printed: no setting is chosen, no coordinate is scaled."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_positive
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import squared_distances
from icssl.methods.base import Tunable, label_matrix
from icssl.methods.logistic import logistic_regression


@dataclass(frozen=True)
class UntunedRegression(Tunable):
    """l2-regularised logistic regression on the coordinates as they are, at one C.

    Parameters
    ----------
    C : float
        Weight of the labelled points against the penalty; 1 is scikit-learn's default.
    """

    C: float = 1.0

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        return self._fit(episode.x.double(), episode, intercept=True)

    def _fit(self, features: Tensor, episode: Episode, *, intercept: bool) -> Tensor:
        labels = label_matrix(episode)
        p = logistic_regression(
            features, labels, episode.labelled, self.C, intercept=intercept
        )
        return p.to(episode.x.dtype)


@dataclass(frozen=True)
class UntunedEigenvectorRegression(UntunedRegression):
    """The same on the first k ground-truth eigenvectors, each of length one."""

    k: int = 4

    @property
    def eigenvectors(self) -> int:
        """Number of ground-truth eigenvectors that it reads."""
        return self.k

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        return self._fit(leading_eigenvectors(episode, self.k), episode, intercept=True)


@dataclass(frozen=True)
class UntunedKernelRegression(UntunedRegression):
    """Kernel logistic regression on the coordinates as they are, at one gamma and C.

    The decision is a sum of exp(-gamma d^2) around *all* points of the context, with an
    l2 penalty on their weights and no intercept, as the paper writes it.

    Parameters
    ----------
    C : float
        Weight of the labelled points against the penalty.
    gamma : float or "scale"
        ``"scale"`` is scikit-learn's: one over the number of coordinates times the variance
        of all of them together. The paper prints no value.
    """

    gamma: str | float = 10.0

    def __post_init__(self) -> None:
        if isinstance(self.gamma, str):
            if self.gamma != "scale":
                raise ValueError(
                    f"gamma must be a positive number or 'scale', got {self.gamma!r}."
                )
        else:
            check_positive("gamma", self.gamma)

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        x = episode.x.double()
        kernel = (-self._gamma(x) * squared_distances(x, x)).exp()
        return self._fit(kernel, episode, intercept=False)

    def _gamma(self, x: Float[Tensor, "b n d"]) -> float | Tensor:
        if not isinstance(self.gamma, str):
            return self.gamma
        variance = x.flatten(1).var(dim=1, correction=0)[:, None, None]
        # Points in one place have no scale, and then scikit-learn takes one.
        return torch.where(variance > 0, 1 / (x.shape[-1] * variance), 1.0)


def leading_eigenvectors(episode: Episode, k: int) -> Float[Tensor, "b n k"]:
    """Return the first k ground-truth eigenvectors, in float64."""
    columns = 0 if episode.features is None else episode.features.shape[-1]
    if episode.features is None or columns < k:
        raise ValueError(
            f"this method needs {k} columns of episode.features, the ground-truth "
            f"eigenvectors, got {columns}: draw with ManifoldSpec(eigenvectors={k})."
        )
    return episode.features[..., :k].double()
