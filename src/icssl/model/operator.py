"""R, the output of stage 1, as a linear operator; and RBF walks with their heads fused.

Stage 1 multiplies ``R <- M R`` in every layer, with ``M = keep I + sum_h mix_h P_h`` and
``P_h`` the walk of one head. So ``R = M_L ... M_1 R_0``, and to apply it to a few columns
takes one attention pass per factor and no n x n matrix.

Stage 1 needs no single walk, only mixtures of them: ``sum_h a'_h P_h`` for R and
``sum_h a_h P_h`` for the points. All heads share one distance matrix, and both sums over
heads are one product each; on a GPU, Triton kernels do both. This fused form trains
fastest. The dense backend, head by head, is the twin it must match.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.hardware import has_triton
from icssl.episodes.ground_truth import identity_like
from icssl.model.attention import (
    attention,
    attention_matrix,
    attention_transposed,
    squared_distances,
)

_MOST_POINTS = 512  # that the kernels take: a row of the walk is held in registers


def mixed_walks(
    x: Float[Tensor, "b n d"],
    query_scale: Float[Tensor, " h"],
    key_scale: Float[Tensor, " h"],
    mix: Float[Tensor, "o h"],
) -> Float[Tensor, "b o n n"]:
    r"""Return ``sum_h mix_oh P_h`` for each o, with :math:`P_h` the RBF walk of head h.

    With query :math:`c x_j` and key :math:`b x_i`, the score is
    :math:`-|c x_j - b x_i|^2 = -cb |x_j - x_i|^2 + b (c - b) |x_i|^2` up to a constant of
    the row, which the softmax cancels.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
        Points.
    query_scale, key_scale : Tensor of shape (h,)
        Factors c of the queries and b of the keys, one per head.
    mix : Tensor of shape (o, h)
        Weights of the heads in each of the o mixtures.
    """
    # Two numbers per head are all that the score depends on. The tilt is zero where queries
    # and keys have one factor: then only distances matter, not where the cloud lies.
    sharpness = query_scale * key_scale
    tilt = key_scale * (query_scale - key_scale)
    if has_kernels(x):
        from icssl.model.triton_walks import mixed_walks_on_gpu

        return mixed_walks_on_gpu(x, sharpness, tilt, mix)
    distances, norm = squared_distances(x, x), x.square().sum(dim=-1)
    return _mix_walks(distances[:, None], norm[:, None], sharpness, tilt, mix)


def mixed_walks_of_products(
    products: Float[Tensor, "b n n"],
    query_scale: Float[Tensor, " h"],
    key_scale: Float[Tensor, " h"],
    mix: Float[Tensor, "o h"],
) -> Float[Tensor, "b o n n"]:
    """Return the same mixtures from inner products, however many coordinates there are.

    With more coordinates than points, distances are as large as the points themselves and
    lose no digits as differences of products.
    """
    distances, norm = distances_of_products(products)
    sharpness = query_scale * key_scale
    tilt = key_scale * (query_scale - key_scale)
    return _mix_walks(distances[:, None], norm[:, None], sharpness, tilt, mix)


def mixed_walks_reading_r(
    x: Float[Tensor, "b n d"],
    r: Float[Tensor, "b n n"],
    query_scales: Float[Tensor, "2 h"],
    key_scales: Float[Tensor, "2 h"],
    mix: Float[Tensor, "o h"],
    *,
    of_products: bool = False,
) -> Float[Tensor, "b o n n"]:
    """Return the mixtures of walks whose queries and keys hold the points and rows of R.

    Distances of the pairs (x, r) are sums of two distances, so all heads share one product
    R R^T and no head copies R.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
        Points, or with ``of_products`` their inner products.
    r : Tensor of shape (b, n, n)
        R, whose rows stand beside the points.
    query_scales, key_scales : Tensor of shape (2, h)
        Factors c, c' of the queries and b, b' of the keys: of the points, then of R.
    mix : Tensor of shape (o, h)
        Weights of the heads in each of the o mixtures.
    of_products : bool
        Whether ``x`` holds inner products.
    """
    if of_products:
        points, norm = distances_of_products(x)
    else:
        points, norm = squared_distances(x, x), x.square().sum(dim=-1)
    rows, norm_of_rows = distances_of_products(r @ r.mT)
    return _mix_walks(
        torch.stack([points, rows], dim=1),
        torch.stack([norm, norm_of_rows], dim=1),
        (query_scales * key_scales).mT,
        (key_scales * (query_scales - key_scales)).mT,
        mix,
    )


def distances_of_products(
    products: Float[Tensor, "b n n"],
) -> tuple[Float[Tensor, "b n n"], Float[Tensor, "b n"]]:
    """Return squared distances and squared norms of points from their inner products."""
    norm = products.diagonal(dim1=-2, dim2=-1)  # |x_i|^2
    distances = (norm[..., :, None] + norm[..., None, :] - 2 * products).clamp(min=0)
    return distances, norm


def _mix_walks(
    distances: Tensor, squared_norm: Tensor, sharpness: Tensor, tilt: Tensor, mix: Tensor
) -> Tensor:
    """Return mixtures of the walks of scores ``sum_t tilt_t |x_ti|^2 - sharpness_t d_t^2``.

    Distances have the shape (b, t, n, n), norms (b, t, n), and factors of the heads (h,) or
    (h, t), where t counts the parts that points consist of.
    """
    parts = distances.shape[1]
    sharpness, tilt = sharpness.reshape(-1, parts), tilt.reshape(-1, parts)
    # Scores of all heads are combinations of the same matrices: one product for all.
    scores = _sum_over(-sharpness, distances) + (tilt @ squared_norm)[:, :, None]
    return _sum_over(mix, scores.softmax(dim=-1))


def has_kernels(x: Tensor, most_points: int = _MOST_POINTS) -> bool:
    """Whether Triton kernels can take these points: on a GPU, with Triton, and few."""
    few = x.shape[-2] <= most_points
    return x.is_cuda and few and has_triton()


class FirstDerivative(torch.autograd.Function):
    """Base of a backward pass that is written out and cannot be differentiated again."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save nothing: there is no second backward pass."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Refuse second derivatives."""
        raise NotImplementedError(
            "the fused backend has no second derivatives on a GPU: use backend='dense'."
        )


def fold_models(size: int, in_dims: tuple[Any, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """Return inputs of a ``vmap`` with the axis of models joined to their first axis.

    A kernel that takes any number of episodes then takes those of many models.
    """
    folded: list[Any] = []
    for dim, value in zip(in_dims, inputs, strict=True):
        if isinstance(value, Tensor):
            # What all models share has no axis of models (dim is None): it is repeated.
            by_model = (
                value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
            )
            folded.append(by_model.flatten(0, 1))
        else:
            folded.append(value)
    return folded


def _sum_over(weights: Tensor, matrices: Tensor) -> Tensor:
    """Return ``sum_j weights_ij matrices_j``, of shape (b, i, n, n)."""
    # One product of (i, j) and (j, n * n) per episode; einsum would move axes first.
    flat = matrices.flatten(2)
    product = weights.expand(len(flat), *weights.shape) @ flat
    return product.unflatten(2, matrices.shape[2:])


@dataclass(frozen=True, eq=False)
class Walk:
    """The attention of one layer: ``P (b, h, n, n)``, formed or not.

    Parameters
    ----------
    kernel : str
        A kernel of :func:`icssl.model.attention.attention_matrix`.
    query, key : Tensor of shape (b, h, n, d)
        Points times the factors of each head.
    backend : {"dense", "matrix_free"}
        Under ``"dense"`` the matrix is formed once, when the walk is made.
    """

    kernel: str
    query: Float[Tensor, "b h n d"]
    key: Float[Tensor, "b h n d"]
    backend: str = "dense"
    matrix: Float[Tensor, "b h n n"] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # Both products of a layer, with the points and with R, use the same matrix.
        if self.backend == "dense":
            object.__setattr__(self, "matrix", self.dense())

    def dense(self) -> Float[Tensor, "b h n n"]:
        """Return P of every head."""
        if self.matrix is not None:
            return self.matrix
        return attention_matrix(self.kernel, self.query, self.key)

    def matmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b h n v"]:
        """Return P @ value, head by head."""
        if self.matrix is not None:
            return self.matrix @ value[:, None]
        return attention(
            self.kernel, self.query, self.key, value[:, None], backend=self.backend
        )

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b h n v"]:
        """Return P.T @ value, head by head."""
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
        """Return M @ value."""
        return self.keep * value + _mix(self.mix, self.walk.matmul(value))

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """Return M.T @ value."""
        return self.keep * value + _mix(self.mix, self.walk.rmatmul(value))

    def dense(self) -> Float[Tensor, "b n n"]:
        """Return M as a matrix."""
        mixed = _mix(self.mix, self.walk.dense())
        return mixed + self.keep * identity_like(mixed)


@dataclass(frozen=True, eq=False)
class MixedFactor:
    """The factor of a layer with its walks mixed already: ``M = keep I + mixed``."""

    keep: Float[Tensor, ""]
    mixed: Float[Tensor, "b n n"]

    def matmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """Return M @ value."""
        return self.keep * value + self.mixed @ value

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """Return M.T @ value."""
        return self.keep * value + self.mixed.mT @ value

    def dense(self) -> Float[Tensor, "b n n"]:
        """Return M as a matrix."""
        return self.mixed + self.keep * identity_like(self.mixed)


class LaplacianOperator:
    """R as a product of factors, applied without forming it.

    Parameters
    ----------
    factors : sequence of Factor or MixedFactor
        ``M_1, ..., M_L``, in the order of the layers.
    start : Tensor of shape (n, n), optional
        ``R_0``; the identity by default.
    matrix : Tensor of shape (b, n, n), optional
        R itself, where it was formed already. Products then use it and R R^T.
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
        self._gram_matrix: Tensor | None = None

    def matmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """Return R @ value."""
        if self.matrix is not None:
            return self.matrix @ value
        if self.start is not None:
            value = self.start @ value
        for factor in self.factors:
            value = factor.matmul(value)
        return value

    def rmatmul(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """Return R.T @ value: the transposed factors, last layer first."""
        if self.matrix is not None:
            return self.matrix.mT @ value
        for factor in reversed(self.factors):
            value = factor.rmatmul(value)
        return value if self.start is None else self.start.mT @ value

    def gram(self, value: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """Return R R^T @ value."""
        if self.matrix is not None:
            return self.gram_matrix() @ value
        return self.matmul(self.rmatmul(value))

    def gram_matrix(self) -> Float[Tensor, "b n n"]:
        """Return R R^T as a matrix."""
        # Stage 2 applies R R^T in every layer: one product instead of two each time.
        if self._gram_matrix is None:
            r = self.dense()
            self._gram_matrix = r @ r.mT
        return self._gram_matrix

    def skip_gain(self) -> Float[Tensor, ""] | float:
        """Return what R multiplies a vector by that every walk maps to zero.

        It is the product of all ``keep``. Differences between duplicates of a point are
        such vectors.
        """
        # A learned R_0 acts on such vectors too, in a way that is not known.
        gain: Tensor | float = 0.0 if not self.factors or self.start is not None else 1.0
        for factor in self.factors:
            gain = gain * factor.keep
        return gain

    def dense(self) -> Float[Tensor, "b n n"]:
        """Return R as a matrix."""
        if self.matrix is not None:
            return self.matrix
        # R_0 is the identity unless it is learned: the first factor needs no product.
        result = self.factors[0].dense()
        if self.start is not None:
            result = result @ self.start
        for factor in self.factors[1:]:
            result = factor.dense() @ result
        return result

    def form(self) -> "LaplacianOperator":
        """Return the same operator with R formed, for when it is applied many times."""
        return LaplacianOperator(self.factors, self.start, self.dense())


def _mix(weights: Tensor, heads: Tensor) -> Tensor:
    """Return sum_h weights_h heads_h, as one product that moves no axis."""
    return (weights @ heads.flatten(2)).unflatten(1, heads.shape[2:])
