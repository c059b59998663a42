"""RBF walks of several heads, mixed as they are formed: the form that trains fastest.

Stage 1 needs no single walk, only mixtures of them: ``sum_h a'_h P_h`` for R and
``sum_h a_h P_h`` for the points. All heads share one distance matrix, and both sums over
heads are one product each; on a GPU, Triton kernels do both. The dense backend, head by
head, is the twin it must match.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.model.attention import has_triton, squared_distances

_MOST_POINTS = 512  # of the kernels: a row of the walk is held in registers


def mixed_walks(
    x: Float[Tensor, "b n d"],
    query_scale: Float[Tensor, " h"],
    key_scale: Float[Tensor, " h"],
    mix: Float[Tensor, "o h"],
) -> Float[Tensor, "b o n n"]:
    r"""``sum_h mix_oh P_h`` for each o, with :math:`P_h` the RBF walk of head h.

    With query :math:`c x_j` and key :math:`b x_i`, the score is
    :math:`-|c x_j - b x_i|^2 = -cb |x_j - x_i|^2 + b (c - b) |x_i|^2` up to a constant of
    the row, which the softmax cancels.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
    query_scale, key_scale : Tensor of shape (h,)
        c and b.
    mix : Tensor of shape (o, h)
    """
    sharpness = query_scale * key_scale
    tilt = key_scale * (query_scale - key_scale)
    if has_kernels(x):
        from icssl.model.triton_walks import mixed_walks_on_gpu

        return mixed_walks_on_gpu(x, sharpness, tilt, mix)
    squared_norm = x.square().sum(dim=-1)
    return _mixed(squared_distances(x, x), squared_norm, sharpness, tilt, mix)


def mixed_walks_of_products(
    products: Float[Tensor, "b n n"],
    query_scale: Float[Tensor, " h"],
    key_scale: Float[Tensor, " h"],
    mix: Float[Tensor, "o h"],
) -> Float[Tensor, "b o n n"]:
    """The same from the points' inner products, however many coordinates they have.

    Where these are more than the points, distances are of the size of the points
    themselves, and lose nothing by being differences of products.
    """
    norm = products.diagonal(dim1=-2, dim2=-1)
    apart = (norm[..., :, None] + norm[..., None, :] - 2 * products).clamp(min=0)
    sharpness = query_scale * key_scale
    tilt = key_scale * (query_scale - key_scale)
    return _mixed(apart, norm, sharpness, tilt, mix)


def _mixed(
    distances: Tensor, squared_norm: Tensor, sharpness: Tensor, tilt: Tensor, mix: Tensor
) -> Tensor:
    basis = torch.stack([distances, squared_norm[:, None].expand_as(distances)], dim=1)
    scores = _sum_over(torch.stack([-sharpness, tilt], dim=1), basis)
    return _sum_over(mix, scores.softmax(dim=-1))


def has_kernels(x: Tensor, most_points: int = _MOST_POINTS) -> bool:
    """Whether Triton kernels can take these points: they come with torch for GPUs."""
    few = x.shape[-2] <= most_points
    return x.is_cuda and few and has_triton()


class FirstDerivative(torch.autograd.Function):
    """A backward pass written out, which has no derivative of its own."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Refuse."""
        raise NotImplementedError(
            "the fused backend has no second derivatives on a GPU: use backend='dense'."
        )


def fold_models(size: int, in_dims: tuple[Any, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """Inputs of a ``vmap`` with the axis of models made part of their first axis.

    So that a kernel that takes any number of episodes takes those of many models.
    """
    folded: list[Any] = []
    for dim, value in zip(in_dims, inputs, strict=True):
        if isinstance(value, Tensor):
            spread = (
                value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
            )
            folded.append(spread.flatten(0, 1))
        else:
            folded.append(value)
    return folded


def _sum_over(weights: Tensor, matrices: Tensor) -> Tensor:
    """``sum_j weights_ij matrices_j``, (b, i, n, n)."""
    flat = matrices.flatten(2)
    product = weights.expand(len(flat), *weights.shape) @ flat
    return product.unflatten(2, matrices.shape[2:])
