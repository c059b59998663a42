"""Mixed walks as two Triton kernels: on a GPU, no walk of a single head leaves the chip.

The forward kernel reads the points and writes the mixtures; the backward kernel forms every
walk again and writes one matrix, the gradient of the distances. The twin is
:func:`icssl.model.operator.mixed_walks` without them, and in the end the dense backend.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from icssl.model.operator import FirstDerivative, fold_models

_ELEMENTS = 512  # in a tile of some rows by all points: one warp holds it in registers
_WARPS = 1


def mixed_walks_on_gpu(
    x: Float[Tensor, "b n d"],
    sharpness: Float[Tensor, " h"],
    tilt: Float[Tensor, " h"],
    mix: Float[Tensor, "o h"],
) -> Float[Tensor, "b o n n"]:
    """Return ``sum_h mix_oh softmax_i(tilt_h |x_i|^2 - sharpness_h |x_j - x_i|^2)``.

    There may be at most two mixtures o.
    """

    # A view, not a copy: autograd adds up the gradients over episodes.
    def by_episode(weights: Tensor) -> Tensor:
        return weights.expand(len(x), *weights.shape)

    return _Walks.apply(x, by_episode(sharpness), by_episode(tilt), by_episode(mix))


class _Walks(torch.autograd.Function):
    """The mixtures, with weights per episode, so that many models are more episodes."""

    @staticmethod
    def forward(x: Tensor, sharpness: Tensor, tilt: Tensor, mix: Tensor) -> Tensor:
        inputs = [t.contiguous() for t in (x, sharpness, tilt, mix)]
        b, n, d = x.shape
        outputs, heads = mix.shape[1:]
        result = x.new_empty(b, outputs, n, n)
        wide, rows = _tile(n)
        # A softmax needs its whole row, so a program has all columns of some rows.
        grid = (b, triton.cdiv(n, rows))
        _forward_kernel[grid](
            *inputs, result, n, d, heads, outputs, wide, rows, num_warps=_WARPS
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        # A function of its own, so that under vmap it is folded like the forward pass.
        return _WalksBackward.apply(*ctx.saved_tensors, grad)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        folded = fold_models(info.batch_size, in_dims, inputs)
        return _Walks.apply(*folded).unflatten(0, (info.batch_size, -1)), 0


class _WalksBackward(FirstDerivative):
    """The gradients of points and weights, with every walk formed again."""

    @staticmethod
    def forward(
        x: Tensor, sharpness: Tensor, tilt: Tensor, mix: Tensor, grad: Tensor
    ) -> tuple[Tensor, ...]:
        inputs = [t.contiguous() for t in (x, sharpness, tilt, mix, grad)]
        b, n, d = x.shape
        outputs, heads = mix.shape[1:]
        grad_distance, grad_norm = x.new_empty(b, n, n), x.new_empty(b, n)
        padded = triton.next_power_of_2(heads)  # Triton's ranges are powers of two
        by_head = x.new_empty(b, 4, padded)  # sharpness, tilt and one or two mixtures
        wide, rows = _tile(n)
        # One program per episode: it adds up gradients of weights without atomics, so that
        # the result does not depend on the order of programs.
        _backward_kernel[(b,)](
            *inputs,
            grad_distance,
            grad_norm,
            by_head,
            n,
            d,
            heads,
            outputs,
            padded,
            wide,
            rows,
            num_warps=_WARPS,
        )
        by_head = by_head[:, :, :heads]
        grad_x = _through_distances(inputs[0], grad_distance, grad_norm)
        return grad_x, by_head[:, 0], by_head[:, 1], by_head[:, 2 : 2 + outputs]

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        folded = fold_models(info.batch_size, in_dims, inputs)
        grads = _WalksBackward.apply(*folded)
        return tuple(g.unflatten(0, (info.batch_size, -1)) for g in grads), (0,) * 4


def _through_distances(x: Tensor, grad: Tensor, grad_norm: Tensor) -> Tensor:
    """Return the gradient of the points, from those of squared distances and norms."""
    # A common shift changes no distance and keeps the products below small.
    centred = x - x.mean(dim=1, keepdim=True)
    sums = (grad.sum(dim=2) + grad.sum(dim=1))[..., None]
    pulled = grad @ centred + grad.mT @ centred
    return 2 * (sums * centred - pulled + grad_norm[..., None] * x)


def _tile(n: int) -> tuple[int, int]:
    """Return the columns of a tile, which are all points, and as many rows as fit."""
    wide = max(16, triton.next_power_of_2(n))
    return wide, max(1, _ELEMENTS // wide)


@triton.jit
def _squared_distances(points, i, j, n, d, real, rows_real, tile):
    """Add |x_j - x_i|^2 to a tile, by differences: close points keep their digits."""
    for c in range(d):
        x_i = tl.load(points + i * d + c, mask=real, other=0.0)
        x_j = tl.load(points + j * d + c, mask=rows_real, other=0.0)
        difference = x_j[:, None] - x_i[None, :]
        tile += difference * difference
    return tile


@triton.jit
def _softmax(score, real):
    """Return the softmax along the rows, over points that are no padding."""
    score = tl.where(real[None, :], score, -float("inf"))
    weight = tl.exp(score - tl.max(score, axis=1)[:, None])
    return weight / tl.sum(weight, axis=1)[:, None]


@triton.jit
def _forward_kernel(
    x,
    sharpness,
    tilt,
    mix,
    result,
    n,
    d,
    heads: tl.constexpr,
    outputs: tl.constexpr,
    wide: tl.constexpr,
    rows: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)  # offsets b * n * n can exceed 32 bits
    i = tl.arange(0, wide)
    j = tl.program_id(1) * rows + tl.arange(0, rows)
    real, rows_real = i < n, j < n
    kind = x.dtype.element_ty
    points = x + b * n * d
    norm = tl.zeros((wide,), kind)
    for c in range(d):
        x_i = tl.load(points + i * d + c, mask=real, other=0.0)
        norm += x_i * x_i
    distance = tl.zeros((rows, wide), kind)
    distance = _squared_distances(points, i, j, n, d, real, rows_real, distance)
    first = tl.zeros((rows, wide), kind)
    second = tl.zeros((rows, wide), kind)
    # Distances are computed once for all heads; the loop over these is unrolled.
    for h in tl.static_range(heads):
        sharp = tl.load(sharpness + b * heads + h)
        tilted = tl.load(tilt + b * heads + h)
        walk = _softmax(tilted * norm[None, :] - sharp * distance, real)
        first += tl.load(mix + b * outputs * heads + h) * walk
        if outputs == 2:
            second += tl.load(mix + (b * outputs + 1) * heads + h) * walk
    where = j[:, None] * n + i[None, :]
    inside = rows_real[:, None] & real[None, :]
    tl.store(result + b * outputs * n * n + where, first, mask=inside)
    if outputs == 2:
        tl.store(result + (b * outputs + 1) * n * n + where, second, mask=inside)


@triton.jit
def _backward_kernel(
    x,
    sharpness,
    tilt,
    mix,
    grad,
    grad_distance,
    grad_norm,
    by_head,
    n,
    d,
    heads: tl.constexpr,
    outputs: tl.constexpr,
    padded: tl.constexpr,
    wide: tl.constexpr,
    rows: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, wide)
    real = i < n
    kind = x.dtype.element_ty
    points = x + b * n * d
    norm = tl.zeros((wide,), kind)
    for c in range(d):
        x_i = tl.load(points + i * d + c, mask=real, other=0.0)
        norm += x_i * x_i
    of_norm = tl.zeros((wide,), kind)
    head = tl.arange(0, padded)
    of_sharpness = tl.zeros((padded,), kind)
    of_tilt = tl.zeros((padded,), kind)
    of_first = tl.zeros((padded,), kind)
    of_second = tl.zeros((padded,), kind)
    for start in range(0, n, rows):
        j = start + tl.arange(0, rows)
        rows_real = j < n
        inside = rows_real[:, None] & real[None, :]
        where = j[:, None] * n + i[None, :]
        distance = tl.zeros((rows, wide), kind)
        distance = _squared_distances(points, i, j, n, d, real, rows_real, distance)
        first = tl.load(grad + b * outputs * n * n + where, mask=inside, other=0.0)
        second = first
        if outputs == 2:
            second = tl.load(
                grad + (b * outputs + 1) * n * n + where, mask=inside, other=0.0
            )
        of_distance = tl.zeros((rows, wide), kind)
        for h in tl.static_range(heads):
            sharp = tl.load(sharpness + b * heads + h)
            tilted = tl.load(tilt + b * heads + h)
            walk = _softmax(tilted * norm[None, :] - sharp * distance, real)
            of_walk = tl.load(mix + b * outputs * heads + h) * first
            if outputs == 2:
                of_walk += tl.load(mix + (b * outputs + 1) * heads + h) * second
            # The derivative of a softmax: what a whole row shares has no effect.
            of_score = walk * (of_walk - tl.sum(walk * of_walk, axis=1)[:, None])
            of_score = tl.where(inside, of_score, 0.0)  # rows of padding have no gradient
            of_distance -= sharp * of_score
            by_key = tl.sum(of_score, axis=0)
            of_norm += tilted * by_key
            # Registers have no index: the sum of head h is added where head == h.
            this_head = head == h
            of_sharpness -= tl.where(this_head, tl.sum(of_score * distance), 0.0)
            of_tilt += tl.where(this_head, tl.sum(by_key * norm), 0.0)
            of_first += tl.where(this_head, tl.sum(walk * first), 0.0)
            if outputs == 2:
                of_second += tl.where(this_head, tl.sum(walk * second), 0.0)
        tl.store(grad_distance + b * n * n + where, of_distance, mask=inside)
    tl.store(grad_norm + b * n + i, of_norm, mask=real)
    place = by_head + b * 4 * padded + head
    tl.store(place, of_sharpness)
    tl.store(place + padded, of_tilt)
    tl.store(place + 2 * padded, of_first)
    tl.store(place + 3 * padded, of_second)
