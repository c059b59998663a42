"""R, the output of stage 1, as a linear operator.

Stage 1 multiplies ``R <- M R`` in every layer, with ``M = keep I + sum_h mix_h P_h`` and
``P_h`` the walk of one head. So ``R = M_L ... M_1 R_0``, and to apply it to a few columns
takes one attention pass a factor and no n x n matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.model.attention import attention, attention_matrix, attention_transposed


@dataclass(frozen=True, eq=False)
class Walk:
    """The attention of one layer: ``P (b, h, n, n)``, formed or not.

    Parameters
    ----------
    kernel : str
        A kernel of :func:`icssl.model.attention.attention_matrix`.
    query, key : Tensor of shape (b, h, n, d)
    backend : {"dense", "matrix_free"}
        Under ``"dense"`` the matrix is formed once, when the walk is made.
    """

    kernel: str
    query: Float[Tensor, "b h n d"]
    key: Float[Tensor, "b h n d"]
    backend: str = "dense"
    matrix: Float[Tensor, "b h n n"] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.backend == "dense":
            object.__setattr__(self, "matrix", self.dense())

    def dense(self) -> Float[Tensor, "b h n n"]:
        """P of every head."""
        if self.matrix is not None:
            return self.matrix
        return attention_matrix(self.kernel, self.query, self.key)

    def matmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b h n v"]:
        """P @ value, head by head."""
        if self.matrix is not None:
            return self.matrix @ value[:, None]
        return attention(
            self.kernel, self.query, self.key, value[:, None], backend=self.backend
        )

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b h n v"]:
        """P.T @ value, head by head."""
        if self.matrix is not None:
            return self.matrix.mT @ value[:, None]
        return attention_transposed(
            self.kernel, self.query, self.key, value[:, None], backend=self.backend
        )


@dataclass(frozen=True, eq=False)
class Factor:
    """``M = keep I + sum_h mix_h P_h``: what one layer of stage 1 multiplies R by."""

    keep: Float[Tensor, ""]
    mix: Float[Tensor, " h"]
    walk: Walk

    def matmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """M @ value."""
        return self.keep * value + _mix(self.mix, self.walk.matmul(value))

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """M.T @ value."""
        return self.keep * value + _mix(self.mix, self.walk.rmatmul(value))

    def dense(self) -> Float[Tensor, "b n n"]:
        """M as a matrix."""
        mixed = _mix(self.mix, self.walk.dense())
        return mixed + self.keep * _eye_like(mixed)


@dataclass(frozen=True, eq=False)
class MixedFactor:
    """The same with the walks of all heads mixed already: ``M = keep I + mixed``."""

    keep: Float[Tensor, ""]
    mixed: Float[Tensor, "b n n"]

    def matmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """M @ value."""
        return self.keep * value + self.mixed @ value

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """M.T @ value."""
        return self.keep * value + self.mixed.mT @ value

    def dense(self) -> Float[Tensor, "b n n"]:
        """M as a matrix."""
        return self.mixed + self.keep * _eye_like(self.mixed)


class LaplacianOperator:
    """R as a product of factors, applied without forming it.

    Parameters
    ----------
    factors : sequence of Factor or MixedFactor
        ``M_1, ..., M_L``, in the order of the layers.
    start : Tensor of shape (n, n), optional
        ``R_0``; the identity by default.
    matrix : Tensor of shape (b, n, n), optional
        R itself, where it is known already. Products then use it and R R^T.
    """

    def __init__(
        self,
        factors: Sequence[Factor | MixedFactor],
        start: Float[Tensor, "n n"] | None = None,
        matrix: Float[Tensor, "b n n"] | None = None,
    ) -> None:
        self.factors = tuple(factors)
        self.start = start
        self.matrix = matrix
        self._gram_matrix = None if matrix is None else matrix @ matrix.mT

    def matmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """R @ value."""
        if self.matrix is not None:
            return self.matrix @ value
        if self.start is not None:
            value = self.start @ value
        for factor in self.factors:
            value = factor.matmul(value)
        return value

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """R.T @ value: the transposed factors, last layer first."""
        if self.matrix is not None:
            return self.matrix.mT @ value
        for factor in reversed(self.factors):
            value = factor.rmatmul(value)
        return value if self.start is None else self.start.mT @ value

    def gram(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """R R^T @ value."""
        if self._gram_matrix is not None:
            return self._gram_matrix @ value
        return self.matmul(self.rmatmul(value))

    def gram_matrix(self) -> Float[Tensor, "b n n"]:
        """R R^T as a matrix."""
        if self._gram_matrix is not None:
            return self._gram_matrix
        r = self.dense()
        return r @ r.mT

    def skip_gain(self) -> Float[Tensor, ""] | float:
        """What R multiplies a vector by that no walk sees: the product of all ``keep``.

        Differences between duplicates of a point are such vectors.
        """
        gain: Tensor | float = 0.0 if not self.factors or self.start is not None else 1.0
        for factor in self.factors:
            gain = gain * factor.keep
        return gain

    def dense(self) -> Float[Tensor, "b n n"]:
        """R as a matrix."""
        if self.matrix is not None:
            return self.matrix
        result = self.factors[0].dense()
        if self.start is not None:
            result = result @ self.start
        for factor in self.factors[1:]:
            result = factor.dense() @ result
        return result

    def formed(self) -> "LaplacianOperator":
        """The same operator with R formed, for when it is applied many times."""
        return LaplacianOperator(self.factors, self.start, self.dense())


def _mix(weights: Tensor, heads: Tensor) -> Tensor:
    """sum_h weights_h heads_h, as one product that moves no axis."""
    return (weights @ heads.flatten(2)).unflatten(1, heads.shape[2:])


def _eye_like(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
