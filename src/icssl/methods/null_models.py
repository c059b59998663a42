"""Null models: what is reached without learning anything, to set every score against.

:class:`LabelVote` sees no point, :class:`PositionVote` only where a point stands in its
context, and training-free heads are the first step of the paper's head, without weights.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_choice, check_positive
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import squared_distances
from icssl.methods.base import Grid, Tunable, label_matrix, scale_points
from icssl.methods.untuned import leading_eigenvectors

HEAD_FEATURES = ("points", "eigenvectors")
_GAMMAS = (0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 3.0, 6.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class LabelVote(Tunable):
    """The class that most labelled points have, for every point, with probability one.

    A tie goes to that of the tied classes whose labelled point comes first in the context.
    Contexts are drawn in random order, so this favours no class.
    """

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        labels = label_matrix(episode)
        counts = labels.sum(dim=1)
        tied = counts == counts.amax(dim=-1, keepdim=True)
        place = torch.arange(labels.shape[1], 0, -1, device=labels.device)
        earliest = (labels * place[:, None]).amax(dim=1)  # larger for an earlier point
        winner = torch.where(tied, earliest, -1.0).argmax(dim=-1)
        votes = torch.nn.functional.one_hot(winner, episode.n_classes)
        return votes[:, None].expand_as(labels).to(episode.x.dtype)


@dataclass(frozen=True)
class PositionVote(Tunable):
    """The class of the labelled point that stands nearest in the order of the context.

    It reads no coordinate: above the vote of the labels, the order gives classes away.
    """

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        labels = label_matrix(episode)
        place = torch.arange(labels.shape[1], device=labels.device, dtype=labels.dtype)
        apart = (place[:, None] - place).abs().expand(len(labels), -1, -1)
        away = apart.masked_fill(~episode.labelled[:, None], torch.inf)
        nearest = (away == away.amin(dim=-1, keepdim=True)).double()
        votes = nearest @ labels  # two points may be as near
        return (votes / votes.sum(dim=-1, keepdim=True)).to(episode.x.dtype)


@dataclass(frozen=True)
class _TrainingFreeHead(Tunable):
    """The first step of the paper's head: a class's score is the sum of its kernels.

    From f = 0 the expectation is the same for every point, so it cancels between classes,
    and so do step sizes and class embeddings that treat classes alike.
    """

    features: str = "points"
    k: int = 4

    def __post_init__(self) -> None:
        check_choice("features", self.features, HEAD_FEATURES)

    @property
    def eigenvectors(self) -> int:
        """Number of ground-truth eigenvectors that it reads."""
        return self.k if self.features == "eigenvectors" else 0

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        labels = label_matrix(episode)
        if self.features == "points":
            phi = scale_points(episode.x, "isotropic")
        else:
            phi = leading_eigenvectors(episode, self.k) * labels.shape[1] ** 0.5
        scores = self._kernel(phi) @ labels / labels.sum(dim=(1, 2), keepdim=True)
        unseen = labels.sum(dim=1, keepdim=True) == 0
        return scores.masked_fill(unseen, -torch.inf).softmax(dim=-1).to(episode.x.dtype)

    @abstractmethod
    def _kernel(self, phi: Float[Tensor, "b n k"]) -> Float[Tensor, "b n n"]:
        """Return the similarity of every two points."""


@dataclass(frozen=True)
class LinearHead(_TrainingFreeHead):
    """One descent step with the linear kernel and no weights: nothing is chosen at all.

    Parameters
    ----------
    features : {"points", "eigenvectors"}
        Centred and scaled points, or the first ground-truth eigenvectors.
    k : int
        Number of eigenvectors.
    """

    def _kernel(self, phi: Float[Tensor, "b n k"]) -> Float[Tensor, "b n n"]:
        return phi @ phi.mT


@dataclass(frozen=True)
class KernelHead(_TrainingFreeHead):
    """One descent step with the RBF kernel; its one number is chosen on training episodes.

    Parameters
    ----------
    features : {"points", "eigenvectors"}
        Centred and scaled points, or the first ground-truth eigenvectors.
    k : int
        Number of eigenvectors.
    gamma : float
        The kernel is exp(-gamma d^2), of points of mean squared length one or of
        eigenvectors of mean square one.
    """

    gamma: float = 1.0

    grids: ClassVar[tuple[Grid, ...]] = ({"gamma": _GAMMAS},)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("gamma", self.gamma)

    def _kernel(self, phi: Float[Tensor, "b n k"]) -> Float[Tensor, "b n n"]:
        return (-self.gamma * squared_distances(phi, phi)).exp()


@dataclass(frozen=True)
class BestHead(KernelHead):
    """The best training-free head by features, kernel and gamma, chosen in training.

    Parameters
    ----------
    features, k, gamma
        See :class:`KernelHead`.
    kernel : {"linear", "rbf"}
    """

    kernel: str = "linear"

    grids: ClassVar[tuple[Grid, ...]] = (
        {"features": HEAD_FEATURES, "kernel": ["linear"]},
        {"features": HEAD_FEATURES, "kernel": ["rbf"], "gamma": _GAMMAS},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kernel", self.kernel, ("linear", "rbf"))

    @property
    def eigenvectors(self) -> int:
        """Number of ground-truth eigenvectors that it tries."""
        return self.k

    def _kernel(self, phi: Float[Tensor, "b n k"]) -> Float[Tensor, "b n n"]:
        return super()._kernel(phi) if self.kernel == "rbf" else phi @ phi.mT
