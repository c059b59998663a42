"""A fitted context: what it predicts, why, and what to label next.

Rows are predicted in pieces that fit into memory.
"""

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
        Logits of every class, without any prior.
    reach : Tensor of shape (b, r)
        How likely a walk of some steps leads from each row to a labelled one.
    likeness : Tensor of shape (b, r)
        How alike each row is to the labelled row that is most like it, in the kernels that
        predict it. Estimators have it as ``reach_``.
    parts : Tensor of shape (b, r, m, c), optional
        What every labelled row contributes; their sum is the logits.
    """

    logits: Float[Tensor, "b r c"]
    reach: Float[Tensor, "b r"]
    likeness: Float[Tensor, "b r"]
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
        logits, reach, likeness = self.logits[..., classes], self.reach, self.likeness
        if rows is not None:
            logits, reach, likeness = logits[:, rows], reach[:, rows], likeness[:, rows]
            parts = None if parts is None else parts[:, rows]
        return Prediction(logits, reach, likeness, parts)


@dataclass(frozen=True)
class FittedContext:
    """A fitted batch of contexts, which predicts their rows and new rows.

    Parameters
    ----------
    centred : CentredKernels
        The kernels between any rows and the labelled rows.
    mixture : Tensor of shape (b, h, e)
        Weight of each kernel in every head.
    weights : Tensor of shape (b, h)
        Weight of every head.
    coefficients : Tensor of shape (b, h, m, c)
        Coefficients of the labelled rows, with the weights of heads in them.
    sharpness, slope : Tensor of shape (b, 1)
        Logarithm of the factor of the logits, and what reach adds to it.
    shares : Tensor of shape (b, c)
        Estimated shares of the classes.
    """

    centred: CentredKernels
    mixture: Tensor
    weights: Tensor
    coefficients: Tensor
    sharpness: Tensor
    slope: Tensor
    shares: Tensor

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
        factor = (self.sharpness + self.slope * values.reach).exp()
        mixed = self.centred.mix(values, self.mixture) * factor[:, None, :, None]
        logits = torch.einsum("bhrm,bhmc->brc", mixed, self.coefficients)
        contributions = None
        if parts:
            contributions = torch.einsum("bhrm,bhmc->brmc", mixed, self.coefficients)
        weights = torch.einsum("bh,bhe->be", self.weights, self.mixture)
        likeness = values.likeness(weights, self.kernels.valid)
        return Prediction(logits, values.reach, likeness, contributions)

    def log_probabilities(self, prediction: Prediction) -> Float[Tensor, "b r c"]:
        """Return the logarithms of probabilities with the estimated shares of classes."""
        return (prediction.logits + self.shares.log()[:, None]).log_softmax(-1)


def concatenate_predictions(pieces: Sequence[Prediction]) -> Prediction:
    """Return one prediction of rows that were predicted in pieces, in order."""
    if len(pieces) == 1:
        return pieces[0]
    parts = [piece.parts for piece in pieces if piece.parts is not None]
    return Prediction(
        torch.cat([piece.logits for piece in pieces], dim=1),
        torch.cat([piece.reach for piece in pieces], dim=1),
        torch.cat([piece.likeness for piece in pieces], dim=1),
        torch.cat(parts, dim=1) if parts else None,
    )
