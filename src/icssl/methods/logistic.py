"""Logistic regressions, by Newton steps for all episodes at once, and the RBF-SVC."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icssl._util.errors import check_positive
from icssl.episodes.episode import Episode
from icssl.methods.base import (
    SCALINGS,
    Grid,
    Scoring,
    Tunable,
    gaussian_kernel,
    label_matrix,
    scale_points,
)

_STEPS = 200  # far more than are ever taken
_TOLERANCE = 1e-8  # of a step, in logits; the next one would be of its square


@dataclass(frozen=True)
class LogisticRegression(Tunable):
    """l2-regularised logistic regression on the coordinates.

    Parameters
    ----------
    C : float
        Weight of the labelled points against the penalty, as in scikit-learn.
    scaling : {"isotropic", "coordinate"}
    """

    C: float = 1.0
    scaling: str = "isotropic"

    grids: ClassVar[tuple[Grid, ...]] = (
        {"scaling": SCALINGS, "C": [0.1, 1.0, 10.0, 100.0, 1e3, 1e4]},
    )

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        return _regress(self._features(episode), episode, self.C, intercept=True)

    def _features(self, episode: Episode) -> Tensor:
        return scale_points(episode.x, self.scaling)


@dataclass(frozen=True)
class EigenvectorRegression(LogisticRegression):
    """The same on the first k ground-truth eigenvectors: the paper's Eig+LR."""

    k: int = 4

    @property
    def eigenvectors(self) -> int:
        """Number of ground-truth eigenvectors that it reads."""
        return self.k

    def _features(self, episode: Episode) -> Tensor:
        columns = 0 if episode.features is None else episode.features.shape[-1]
        if episode.features is None or columns < self.k:
            raise ValueError(
                f"this regression needs {self.k} columns of episode.features, the "
                f"ground-truth eigenvectors, got {columns}: draw with "
                f"ManifoldSpec(eigenvectors={self.k})."
            )
        return scale_points(episode.features[..., : self.k], self.scaling)


@dataclass(frozen=True)
class KernelRegression(Tunable):
    """Kernel logistic regression: the paper's Orig+RBF-LR.

    The decision is a sum of Gaussians around *all* points of the context, labelled or
    not, with an l2 penalty on their weights and no intercept.

    Parameters
    ----------
    bandwidth : float
        Bandwidth h of exp(-d^2 / 2 h^2), in units of the root mean square distance from
        the mean.
    C : float
        Weight of the labelled points against the penalty, as in scikit-learn.
    scaling : {"isotropic", "coordinate"}
    """

    bandwidth: float = 0.5
    C: float = 1.0
    scaling: str = "isotropic"

    grids: ClassVar[tuple[Grid, ...]] = (
        {
            "scaling": SCALINGS,
            "bandwidth": [0.12, 0.25, 0.5, 1.0, 2.0],
            "C": [0.01, 1.0, 100.0],
        },
    )

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        kernel = gaussian_kernel(scale_points(episode.x, self.scaling), self.bandwidth)
        return _regress(kernel, episode, self.C, intercept=False)


@dataclass(frozen=True)
class SupportVectors(Scoring):
    """scikit-learn's ``SVC``, one episode after the other.

    Parameters
    ----------
    bandwidth : float
        Bandwidth h of exp(-d^2 / 2 h^2), in units of the root mean square distance from
        the mean.
    C : float
        Weight of the labelled points against the penalty.
    scaling : {"isotropic", "coordinate"}
    temperature : float
        Temperature of the softmax of the decision function. scikit-learn's own
        probabilities need more labels than an episode has.
    """

    bandwidth: float = 1.0
    C: float = 10.0
    scaling: str = "isotropic"
    temperature: float = 1.0

    grids: ClassVar[tuple[Grid, ...]] = (
        {
            "scaling": SCALINGS,
            "bandwidth": [0.5, 0.8, 1.4, 2.8],
            "C": [1.0, 10.0, 100.0, 1e3],
        },
    )

    def __post_init__(self) -> None:
        check_positive("C", self.C)

    def scores(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return the decision function, -inf for a class that no labelled point has."""
        from sklearn import config_context  # a second, that no other method needs

        kernel = gaussian_kernel(scale_points(episode.x, self.scaling), self.bandwidth)
        classes = label_matrix(episode).argmax(dim=-1)
        arrays = [t.cpu().numpy() for t in (kernel, classes, episode.labelled)]
        c = episode.n_classes
        # The episode was checked; of a fit this small, more checks would be half the time.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            scores = [self._decide(k, y, m, c) for k, y, m in zip(*arrays, strict=True)]
        return torch.from_numpy(np.stack(scores)).to(episode.x.device)

    def _decide(
        self, kernel: np.ndarray, classes: np.ndarray, labelled: np.ndarray, c: int
    ) -> np.ndarray:
        """Return the scores of one episode."""
        from sklearn.svm import SVC

        shown = np.unique(classes[labelled])
        scores = np.full((len(classes), c), -np.inf)
        scores[:, shown] = 0.0
        if len(shown) > 1:
            machine = SVC(C=self.C, kernel="precomputed", tol=1e-6)
            machine.fit(kernel[np.ix_(labelled, labelled)], classes[labelled])
            decision = machine.decision_function(kernel[:, labelled])
            two = decision.ndim == 1  # then positive for the second class
            scores[:, shown] = np.stack([-decision, decision], 1) / 2 if two else decision
        return scores


def _regress(features: Tensor, episode: Episode, C: float, *, intercept: bool) -> Tensor:
    labels = label_matrix(episode)
    p = logistic_regression(features, labels, episode.labelled, C, intercept=intercept)
    return p.to(episode.x.dtype)


def logistic_regression(
    features: Float[Tensor, "b n f"],
    labels: Float[Tensor, "b n c"],
    labelled: Bool[Tensor, "b n"],
    C: float,
    *,
    intercept: bool = True,
) -> Float[Tensor, "b n c"]:
    """Return class probabilities by scikit-learn's ``LogisticRegression(C=C)``.

    The objective is C times the cross-entropy plus half the squared weights, without the
    intercept. A class that no labelled point has gets probability zero, so with labels of
    one class only, this class gets probability one.

    Parameters
    ----------
    features : Tensor of shape (b, n, f)
        Features in float64.
    labels : Tensor of shape (b, n, c)
        Ones and zeros, see :func:`icssl.methods.base.label_matrix`.
    labelled : Tensor of bool, of shape (b, n)
    C : float
    intercept : bool
    """
    check_positive("C", C)
    present = labels.any(dim=1, keepdim=True)  # (b, 1, c)
    # Of two classes, scikit-learn penalises the difference of their weights.
    weight = C / (1 + (present.sum(dim=-1, keepdim=True) == 2).double())
    first = labelled.long().argsort(dim=1, descending=True)[:, : labelled.sum(dim=1).max()]
    rows = _rows(features, first) * labelled.gather(1, first)[..., None]
    if features.shape[-1] > rows.shape[1]:
        # Weights orthogonal to every labelled row are zero: leave these directions out.
        basis = torch.linalg.qr(rows.mT).Q
        features, rows = features @ basis, rows @ basis
    penalty = torch.ones_like(features[0, 0])
    if intercept:
        features, rows = (
            torch.nn.functional.pad(t, (0, 1), value=1.0) for t in (features, rows)
        )
        penalty = torch.nn.functional.pad(penalty, (0, 1))
    targets = _rows(labels, first)
    w = _newton(rows, targets, weight * targets.sum(dim=-1, keepdim=True), penalty, present)
    return (features @ w).masked_fill(~present, -torch.inf).softmax(dim=-1)


def _rows(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


def _newton(
    rows: Float[Tensor, "b m f"],
    targets: Float[Tensor, "b m c"],
    weight: Float[Tensor, "b m 1"],
    penalty: Float[Tensor, " f"],
    present: Bool[Tensor, "b 1 c"],
) -> Float[Tensor, "b f c"]:
    """Return weights of the features for each class, by damped Newton steps."""
    across = _contrasts(targets)
    ridge = _ridge(penalty, present, across)
    v = rows.new_zeros(len(rows), rows.shape[-1], across.shape[1])
    for _ in range(_STEPS):
        p = (rows @ v @ across.mT).masked_fill(~present, -torch.inf).softmax(dim=-1)
        gradient = penalty[:, None] * v + rows.mT @ (weight * (p - targets)) @ across
        spread = torch.diag_embed(p) - p[..., None] * p[..., None, :]
        curvature = weight[..., None] * (across.mT @ spread @ across)
        half = torch.einsum("bmj,bmkl->bmjkl", rows, curvature)
        hessian = ridge + torch.einsum("bmi,bmjkl->bikjl", rows, half)
        step = torch.linalg.solve(
            hessian.flatten(3).flatten(1, 2), gradient.flatten(1)
        ).view_as(v)
        size = _largest_change(rows @ step @ across.mT, weight > 0, present)
        # Along a line the third derivative is at most `size` times the second, so this
        # much of a step always descends; near the solution, it is the whole step.
        v = v - torch.where(size > 0, size.log1p() / size, 1.0) * step
        if size.max() < _TOLERANCE:
            break
    return v @ across.mT


def _contrasts(targets: Float[Tensor, "b m c"]) -> Float[Tensor, "c k"]:
    """Return an orthonormal basis of vectors that sum to zero over the classes."""
    c = targets.shape[-1]
    identity = torch.eye(c, dtype=targets.dtype, device=targets.device)
    return torch.linalg.qr(torch.cat([torch.ones_like(identity[:, :1]), identity], 1)).Q[
        :, 1:
    ]


def _ridge(
    penalty: Float[Tensor, " f"],
    present: Bool[Tensor, "b 1 c"],
    across: Float[Tensor, "c k"],
) -> Float[Tensor, "b f k f k"]:
    """Return the penalty's part of the Hessian.

    An intercept has no penalty, and the loss does not see that of an absent class, nor
    the mean of the others: here these are held at zero, where they start.
    """
    shown = present.to(across.dtype)
    held = torch.diag_embed(1 - shown[:, 0]) + shown.mT @ shown
    identity = torch.eye(across.shape[1], dtype=across.dtype, device=across.device)
    penalised = torch.einsum("ij,kl->ikjl", penalty.diag(), identity)
    free = torch.einsum("ij,bkl->bikjl", (1 - penalty).diag(), across.mT @ held @ across)
    return penalised + free


def _largest_change(
    moved: Float[Tensor, "b m c"],
    shown: Bool[Tensor, "b m 1"],
    present: Bool[Tensor, "b 1 c"],
) -> Float[Tensor, "b 1 1"]:
    """Return the largest change of a difference of two logits in a step."""
    highest = moved.masked_fill(~present, -torch.inf).amax(dim=-1, keepdim=True)
    lowest = moved.masked_fill(~present, torch.inf).amin(dim=-1, keepdim=True)
    return (highest - lowest).where(shown, 0.0).amax(dim=1, keepdim=True)
