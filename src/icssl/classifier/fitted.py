"""A fitted context: what it predicts, why, and what to label next.

Rows are predicted in pieces that fit into memory.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from icssl.classifier.graphs import MOST_KERNEL_VALUES, blocks
from icssl.classifier.kernels import ContextKernels, LabelKernels, PlacedRows

_TINY = 1e-12


class Explanation(NamedTuple):
    """Why rows are what they are: ``parts.sum(axis=1) + base`` are their logits.

    Parameters
    ----------
    parts : ndarray of shape (rows, labelled rows, classes)
        What each labelled row contributes, in the order of the table.
    base : ndarray of shape (rows, classes)
        What they have without any: the logarithm of ``class_prior_``, and what keeps
        classes from having too many rows.
    """

    parts: Float[ndarray, "rows labelled classes"]
    base: Float[ndarray, "rows classes"]


def worth_labelling(
    probabilities: Float[ndarray, "n c"],
    reach: Float[ndarray, " n"],
    points: Float[ndarray, "n k"],
    count: int,
) -> list[int]:
    """Rows in doubt, each new one also by its distance from those before."""
    p = np.sort(probabilities, axis=1)
    doubt = 1 - (p[:, -1] - p[:, -2]) * reach
    chosen = [int(doubt.argmax())]
    apart = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < count:
        value = doubt * apart / max(apart.max(), _TINY)
        value[chosen] = -1.0
        chosen.append(int(value.argmax()))
        apart = np.minimum(apart, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen


INTERCEPT = 1.0  # what all rows have in common, as a kernel


class Prediction(NamedTuple):
    """Of rows: logits, how much labelled evidence reached them, and whose it was.

    ``parts`` are the contributions of every labelled row to every logit, whose sum over
    labelled rows, with the ``bias``, is the logit.
    """

    logits: Float[Tensor, "b r c"]
    bias: Float[Tensor, "b r c"]
    reach: Float[Tensor, "b r"]
    parts: Float[Tensor, "b r m c"] | None = None

    def reorder(
        self,
        classes: Int[ndarray, " c"],
        labelled: Int[ndarray, " m"],
        rows: Int[ndarray, " r"] | None = None,
    ) -> "Prediction":
        """Return the same with classes, labelled rows and perhaps rows in another order."""
        parts = self.parts
        if parts is not None:
            parts = parts[:, :, labelled][..., classes]
        logits, bias, reach = self.logits[..., classes], self.bias[..., classes], self.reach
        if rows is not None:
            logits, bias, reach = logits[:, rows], bias[:, rows], reach[:, rows]
            parts = None if parts is None else parts[:, rows]
        return Prediction(logits, bias, reach, parts)


@dataclass(frozen=True)
class FittedContext:
    """A context that was read: what predicts its own rows and new ones.

    Parameters
    ----------
    kernels : ContextKernels
    context_values : LabelKernels, optional
        Of the context's own rows, where they fit the memory.
    centre, length : Tensor of shape (b, e, 1, m) and (b, e, 1, 1)
        What makes kernels comparable.
    mixture : Tensor of shape (b, e)
        Weight of each kernel.
    coefficients : Tensor of shape (b, m, c)
        Of the labelled rows, from the descent.
    bias : Tensor of shape (b, 1, c)
        Of the classes, so that none has too many rows.
    labels_per_class : Tensor of shape (b,)
        Labels a class.
    calibration : Tensor of shape (4,)
        How the logarithm of the temperature depends on one, on the logarithms of labels a
        class and of classes, and on reach.
    """

    kernels: ContextKernels
    context_values: LabelKernels | None
    centre: Tensor
    length: Tensor
    mixture: Tensor
    coefficients: Tensor
    bias: Tensor
    labels_per_class: Tensor
    calibration: Tensor

    def predict_context(self, *, parts: bool = False) -> Prediction:
        """Of the context's own rows."""
        if self.context_values is not None:
            return self.predict_kernels(self.context_values, parts=parts)
        return self._predict(self.kernels.own(), parts)

    def predict_new(self, x: Float[Tensor, "b r d"], *, parts: bool = False) -> Prediction:
        """Of new rows, each by itself."""
        pieces = [
            self._predict(self.kernels.place(x[:, part]), parts)
            for part in blocks(x.shape[1], self.kernels.view_graphs[0].at_once)
        ]
        return concatenate_predictions(pieces)

    def _predict(self, placed: Sequence[PlacedRows], parts: bool) -> Prediction:
        pieces = kernel_pieces(self.kernels, placed)
        return concatenate_predictions(
            [self.predict_kernels(columns, parts=parts) for columns in pieces]
        )

    def predict_kernels(self, columns: LabelKernels, *, parts: bool = False) -> Prediction:
        """Of rows whose kernels with the labelled rows are known."""
        temperature = self._temperature(columns.reach)[..., None]
        mixed = self.similarity(columns) / temperature
        each = mixed[..., None] * self.coefficients[:, None] if parts else None
        # Where nothing is known of a row, it is not for the bias to fit_features.
        bias = columns.contact[..., None] / temperature * self.bias
        return Prediction(mixed @ self.coefficients + bias, bias, columns.reach, each)

    def _temperature(self, reach: Tensor) -> Float[Tensor, "b r"]:
        c = self.coefficients.shape[-1]
        return log_temperature(self.calibration, self.labels_per_class, c, reach).exp()

    def similarity(self, columns: LabelKernels) -> Float[Tensor, "b r m"]:
        """The mixed kernel; a row far from everything is like nothing."""
        centred = (columns.kernels - self.centre) / self.length
        mixed = torch.einsum("be,berm->brm", self.mixture, centred) + INTERCEPT
        return mixed * columns.contact[..., None]


def log_temperature(
    calibration: Float[Tensor, " 4"],
    labels_per_class: Float[Tensor, " b"],
    n_classes: int,
    reach: Float[Tensor, "b r"],
) -> Float[Tensor, "b r"]:
    """Return the logarithm of the temperature that the logits of every row are divided by.

    Parameters
    ----------
    calibration : Tensor
        Weights of one, of the logarithms of labels per class and of classes, and of reach.
    labels_per_class : Tensor
        Labels per class.
    n_classes : int
        Number of classes.
    reach : Tensor
        Labelled evidence that reached each row.
    """
    constant, by_labels, by_classes, by_reach = calibration.to(reach)
    logarithm = constant + by_labels * labels_per_class.to(reach).log()
    logarithm = logarithm + by_classes * math.log(n_classes)
    return logarithm[:, None] + by_reach * reach


def concatenate_predictions(pieces: Sequence[Prediction]) -> Prediction:
    """Predictions of rows that were predicted apart, in order."""
    if len(pieces) == 1:
        return pieces[0]
    parts = [piece.parts for piece in pieces if piece.parts is not None]
    return Prediction(
        torch.cat([piece.logits for piece in pieces], dim=1),
        torch.cat([piece.bias for piece in pieces], dim=1),
        torch.cat([piece.reach for piece in pieces], dim=1),
        torch.cat(parts, dim=1) if parts else None,
    )


def kernel_pieces(
    kernels: ContextKernels, placed: Sequence[PlacedRows]
) -> Iterator[LabelKernels]:
    """LabelKernels of rows, as many at once as the memory holds."""
    b, n, _ = placed[0].functions.shape
    m = kernels.labelled[0].functions.shape[1]
    size = max(1, MOST_KERNEL_VALUES // (b * m * len(kernels.names)))
    for start in range(0, n, size):
        stop = min(start + size, n)
        if (start, stop) == (0, n):
            yield kernels.label_kernels(placed)
        else:
            indices = torch.arange(start, stop, device=placed[0].functions.device)
            yield kernels.label_kernels([one.at(indices.expand(b, -1)) for one in placed])
