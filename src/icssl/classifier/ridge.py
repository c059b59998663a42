"""The head of the regressor: kernel ridge regression in a mixture of kernels.

Kernels are weighed by how well each predicts targets that are left out, in closed form and
for several strengths of the penalty. Nothing in it is trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.classifier.context_features import CentredKernels, ContextFeatures
from icssl.classifier.fitted import Prediction, concatenate_predictions
from icssl.classifier.graphs import blocks
from icssl.classifier.kernels import DIFFUSED, ContextKernels, Kernel, LabelKernels
from icssl.classifier.view_graph import PlacedRows

PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Strengths of the penalty that are compared, where a kernel has mean trace one."""

_SHARPNESS = 0.5  # factor of the log-likelihoods by which kernels are weighed
# From this contact on a row is predicted in full. It is that of a row more than six times
# as far from its neighbours as usual: rows at the edge of a table have less contact than
# others, and often the most extreme targets.
_ENOUGH_CONTACT = 1e-9
_TINY = 1e-12


class RidgeSystem(NamedTuple):
    """Kernel ridge regressions with a free constant, for every penalty at once.

    Parameters
    ----------
    values : Tensor of shape (e, m)
        Eigenvalues of every kernel, centred over the labelled rows and weighted.
    vectors : Tensor of shape (e, m, m)
        Their eigenvectors.
    weight : Tensor of shape (m,)
        Weights of the labelled rows, of mean one.
    """

    values: Tensor
    vectors: Tensor
    weight: Tensor

    @classmethod
    def of_kernels(
        cls, gram: Float[Tensor, "e m m"], weight: Float[Tensor, " m"]
    ) -> "RidgeSystem":
        """Decompose kernels among the labelled rows.

        With a free constant the coefficients sum to zero, and a kernel may be centred by
        any weights: by these the constant is an eigenvector.
        """
        kernel = _centre(gram, weight)
        root = weight.sqrt()
        values, vectors = torch.linalg.eigh(root[:, None] * kernel * root)
        return cls(values.clamp(min=0), vectors, weight)

    def coefficients(
        self, target: Float[Tensor, " m"], penalties: Float[Tensor, " p"]
    ) -> Float[Tensor, "e p m"]:
        """Return the coefficients of the labelled rows; they sum to zero."""
        root = self.weight.sqrt()
        centred = target - (self.weight * target).sum() / self.weight.sum()
        parts = self.vectors.mT @ (root * centred)
        solved = parts[:, None] / (self.values[:, None] + penalties[:, None])
        return root * torch.einsum("emk,epk->epm", self.vectors, solved)

    def residuals(
        self, target: Float[Tensor, " m"], penalties: Float[Tensor, " p"]
    ) -> Float[Tensor, "e p m"]:
        """Return the residual of every labelled row, predicted without its target.

        It is a_i / P_ii, where a = P y are the coefficients: no regression is repeated.
        """
        shrunk = 1 / (self.values[:, None] + penalties[:, None])
        diagonal = torch.einsum("emk,epk->epm", self.vectors.square(), shrunk)
        constant = self.weight / self.weight.sum() / penalties[:, None]
        of_rows = self.weight * (diagonal - constant)
        return self.coefficients(target, penalties) / of_rows.clamp(min=_TINY)


def _centre(gram: Tensor, weight: Tensor) -> Tensor:
    """Return kernels, symmetric, whose weighted mean over any row or column is zero."""
    share = weight / weight.sum()
    kernel = (gram + gram.mT) / 2
    rows = kernel @ share
    mean = (rows @ share)[..., None, None]
    return kernel - rows[..., None] - rows[..., None, :] + mean


def solve_ridge(
    gram: Float[Tensor, "m m"],
    target: Float[Tensor, " m"],
    weight: Float[Tensor, " m"],
    penalty: float,
) -> tuple[Float[Tensor, " m"], float]:
    """Return the coefficients and the constant of one regression, without eigenvectors."""
    share = weight / weight.sum()
    matrix = _centre(gram, weight) + torch.diag(penalty / weight)
    centred = (target - (share * target).sum())[:, None]
    factor = torch.linalg.cholesky(matrix)
    coefficients = torch.cholesky_solve(centred, factor)[:, 0]
    return coefficients, float((share * (target - gram @ coefficients)).sum())


def log_likelihoods(
    system: RidgeSystem, target: Float[Tensor, " m"], penalties: Float[Tensor, " p"]
) -> Float[Tensor, "e p"]:
    """Return the log-likelihood of targets left out, with the variance that fits best."""
    weight = system.weight
    error = (weight * system.residuals(target, penalties).square()).sum(-1) / weight.sum()
    variance = (weight * (target - (weight * target).sum() / weight.sum()).square()).sum()
    unit = (variance / weight.sum()).clamp(min=_TINY)
    return -len(target) / 2 * (error / unit).clamp(min=_TINY).log()


def weigh_kernels(
    kernels: Sequence[Kernel], scores: Float[Tensor, "e p"]
) -> Float[Tensor, " e"]:
    """Return weights of kernels, whose sum is one, from log-likelihoods by penalty.

    Kernels of one graph and one kind are much alike. They share the weight of their group,
    so that many of them do not outvote a linear kernel, which is alone in its group.
    """
    groups = [(kernel.graph, _kind(kernel)) for kernel in kernels]
    sizes = torch.tensor([groups.count(group) for group in groups]).to(scores)
    return (_SHARPNESS * scores.logsumexp(-1) - sizes.log()).softmax(-1)


def _kind(kernel: Kernel) -> str:
    if kernel.form == "linear":
        return "linear"
    return "diffusion" if kernel.form in DIFFUSED else "coordinates"


@dataclass(frozen=True)
class FittedRidge:
    """A fitted context with numeric targets, which predicts its rows and new rows.

    Parameters
    ----------
    centred : CentredKernels
        The kernels between any rows and the labelled rows.
    mixture : Tensor of shape (1, e)
        Weight of each kernel.
    coefficients : Tensor of shape (1, m, 1)
        Coefficients of the labelled rows, whose sum is zero.
    constant : float
        What is added where a row has contact with the context.
    mean : float
        The mean target, which rows far from the context get.
    penalty : float
        The strength of the penalty that was chosen.
    """

    centred: CentredKernels
    mixture: Tensor
    coefficients: Tensor
    constant: float
    mean: float
    penalty: float

    @property
    def kernels(self) -> ContextKernels:
        """The kernels before they are centred."""
        return self.centred.kernels

    def predict_context(self, *, parts: bool = False) -> Prediction:
        """Predict the rows of the context."""
        if self.centred.context is not None:
            return self._predict_kernels(self.centred.context)
        return self._predict(self.kernels.context_rows())

    def predict_new(self, x: Float[Tensor, "1 r d"], *, parts: bool = False) -> Prediction:
        """Predict new rows, each by itself."""
        pieces = [
            self._predict(self.kernels.place(x[:, part]))
            for part in blocks(x.shape[1], self.kernels.rows_at_once)
        ]
        return concatenate_predictions(pieces)

    def _predict(self, placed: Sequence[PlacedRows]) -> Prediction:
        pieces = self.kernels.in_pieces(placed)
        return concatenate_predictions(
            [self._predict_kernels(values) for _, values in pieces]
        )

    def _predict_kernels(self, values: LabelKernels) -> Prediction:
        everywhere = values._replace(contact=torch.ones_like(values.contact))
        mixed = self.centred.mix(everywhere, self.mixture[:, None])[:, 0]
        contact = (values.contact / _ENOUGH_CONTACT).clamp(max=1)[..., None]
        base = (1 - contact) * self.mean + contact * self.constant
        likeness = values.likeness(self.mixture, self.kernels.valid)
        logits = contact * (mixed @ self.coefficients) + base
        return Prediction(logits, values.reach, likeness)


@torch.no_grad()
def fit_ridge(
    features: ContextFeatures,
    target: Float[Tensor, " m"],
    weight: Float[Tensor, " m"],
) -> FittedRidge:
    """Weigh the kernels of one context, choose a penalty, and fit the targets.

    Of more than 256 targets, an even sample decides the weights and the penalty.

    Parameters
    ----------
    features : ContextFeatures
        What was computed from the context.
    target, weight : Tensor
        Targets of the labelled rows and their weights, of mean one.
    """
    stride = features.gram.stride
    sample, penalties = features.gram.sample[0].to(target), torch.tensor(PENALTIES)
    some = (target[::stride], penalties.to(target))
    system = RidgeSystem.of_kernels(sample, weight[::stride])
    mixture = weigh_kernels(features.kernels.kernels, log_likelihoods(system, *some))
    mixed = torch.einsum("e,emk->mk", mixture, sample)[None]
    system = RidgeSystem.of_kernels(mixed, weight[::stride])
    penalty = PENALTIES[int(log_likelihoods(system, *some)[0].argmax())]
    mixture = mixture[None].to(features.target)
    gram = features.gram.mix(mixture[:, None])[0, 0].to(target)
    coefficients, constant = solve_ridge(gram, target, weight, penalty)
    return FittedRidge(
        features.centred,
        mixture,
        coefficients[None, :, None].to(features.target),
        constant,
        float((weight * target).sum() / weight.sum()),
        penalty,
    )
