"""A fitted context: what it predicts, why, and what to label next.

Rows are predicted in pieces that fit into memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from icssl.classifier.context_features import CentredKernels
from icssl.classifier.graphs import blocks
from icssl.classifier.kernels import ContextKernels, LabelKernels
from icssl.classifier.view_graph import PlacedRows


class Prediction(NamedTuple):
    """Logits of rows, and where they come from.

    Parameters
    ----------
    logits : Tensor of shape (b, r, c)
        Logits of every class.
    bias : Tensor of shape (b, r, c)
        The part of the logits that balances the classes.
    reach : Tensor of shape (b, r)
        How much labelled evidence reached each row.
    parts : Tensor of shape (b, r, m, c), optional
        What every labelled row contributes; with the bias, their sum is the logits.
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
    """A fitted batch of contexts, which predicts their rows and new rows.

    Parameters
    ----------
    centred : CentredKernels
        The kernels between any rows and the labelled rows.
    mixture : Tensor of shape (b, e)
        Weight of each kernel.
    coefficients : Tensor of shape (b, m, c)
        Coefficients of the labelled rows, from the descent.
    bias : Tensor of shape (b, 1, c)
        What is added to each class, so that none has too many rows.
    labels_per_class : Tensor of shape (b,)
        The mean number of labels per class.
    calibration : Tensor of shape (4,)
        Coefficients of the log temperature: a constant, log labels per class, log number
        of classes, and reach.
    """

    centred: CentredKernels
    mixture: Tensor
    coefficients: Tensor
    bias: Tensor
    labels_per_class: Tensor
    calibration: Tensor

    @property
    def kernels(self) -> ContextKernels:
        """The kernels before they are centred."""
        return self.centred.kernels

    def predict_context(self, *, parts: bool = False) -> Prediction:
        """Predict the rows of the contexts."""
        if self.centred.context is not None:
            return self.predict_kernels(self.centred.context, parts=parts)
        return self._predict(self.kernels.context_rows(), parts)

    def predict_new(self, x: Float[Tensor, "b r d"], *, parts: bool = False) -> Prediction:
        """Predict new rows, each by itself."""
        pieces = [
            self._predict(self.kernels.place(x[:, part]), parts)
            for part in blocks(x.shape[1], self.kernels.rows_at_once)
        ]
        return concatenate_predictions(pieces)

    def _predict(self, placed: Sequence[PlacedRows], parts: bool) -> Prediction:
        pieces = self.kernels.in_pieces(placed)
        return concatenate_predictions(
            [self.predict_kernels(values, parts=parts) for _, values in pieces]
        )

    def predict_kernels(self, values: LabelKernels, *, parts: bool = False) -> Prediction:
        """Predict rows whose kernel values with the labelled rows are known."""
        c = self.coefficients.shape[-1]
        logarithm = log_temperature(
            self.calibration, self.labels_per_class, c, values.reach
        )
        temperature = logarithm.exp()[..., None]
        mixed = self.centred.mix(values, self.mixture) / temperature
        contributions = mixed[..., None] * self.coefficients[:, None] if parts else None
        # Where nothing is known of a row, it is not for the bias to decide.
        bias = values.contact[..., None] / temperature * self.bias
        logits = mixed @ self.coefficients + bias
        return Prediction(logits, bias, values.reach, contributions)


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
    """Return one prediction of rows that were predicted in pieces, in order."""
    if len(pieces) == 1:
        return pieces[0]
    parts = [piece.parts for piece in pieces if piece.parts is not None]
    return Prediction(
        torch.cat([piece.logits for piece in pieces], dim=1),
        torch.cat([piece.bias for piece in pieces], dim=1),
        torch.cat([piece.reach for piece in pieces], dim=1),
        torch.cat(parts, dim=1) if parts else None,
    )
