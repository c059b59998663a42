"""Stage 2 as two Triton kernels: one program per episode runs all layers.

A layer is ``F <- normalise(F W + G F V)`` with ``G = R R^T``, a fixed ``V`` and
``W = keep + sum_h QK_h (F^T F) A_h``: products too small to fill a GPU one by one. The
backward kernel goes through the layers in reverse and leaves the gradient of ``G``,
``dG = sum_t dP_t F_t^T``, to one matrix product of torch. Float32 only; the twin is
:meth:`icssl.model.eigenmap.EigenmapTransformer.forward`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from icssl.model.operator import FirstDerivative, fold_models

_WIDE = 16  # columns that F is padded to, the least that Triton multiplies
_BLOCK = 16  # columns of G that are read at once
_WARPS = 4


def eigenmap_on_gpu(
    gram: Float[Tensor, "b n n"],
    start: Float[Tensor, "b n k"],
    keep: Float[Tensor, "l k k"],
    on_operator: Float[Tensor, "l k k"],
    query_key: Float[Tensor, "l h k k"],
    value: Float[Tensor, "l h k k"],
    *,
    steps: int,
    layer_loops: int,
    shortest: float,
) -> Float[Tensor, "b n k"]:
    """Return F after ``steps`` layers.

    Each layer is applied ``layer_loops`` times in a row; after the last layer comes the
    first again. Columns shorter than ``shortest`` are not brought to length one.
    """
    k = start.shape[-1]
    missing = _WIDE - k

    def pad(t: Tensor, axes: int) -> Tensor:
        return torch.nn.functional.pad(t, (0, missing) * axes)

    weights = [pad(w, 2)[None] for w in (keep, on_operator, query_key, value)]
    tensors = (gram, pad(start, 1), *weights)
    final = _Recursion.apply(*tensors, steps, layer_loops, shortest)[0]
    return final[..., :k]


class _Recursion(torch.autograd.Function):
    """The recursion over layers; weights have an axis of models, one unless under vmap."""

    @staticmethod
    def forward(
        gram: Tensor,
        start: Tensor,
        keep: Tensor,
        on_operator: Tensor,
        query_key: Tensor,
        value: Tensor,
        steps: int,
        layer_loops: int,
        shortest: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        b, n = gram.shape[:2]
        weights = [w.contiguous() for w in (keep, on_operator, query_key, value)]
        # F before every step and after the last: the backward pass reads them, and so does
        # the product with G, whose threads need rows of F that others computed.
        history = gram.new_empty(b, n, steps + 1, _WIDE)
        lengths = gram.new_empty(b, steps, _WIDE)
        _forward_kernel[(b,)](
            gram.contiguous(),
            start.contiguous(),
            *weights,
            history,
            lengths,
            n,
            b // len(keep),
            steps,
            layer_loops,
            shortest,
            layers=keep.shape[1],
            heads=value.shape[2],
            points=_points(n),
            wide=_WIDE,
            block=_BLOCK,
            num_warps=_WARPS,
        )
        return history[:, :, steps].clone(), history, lengths

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        gram, _, *weights, steps, layer_loops, shortest = inputs
        _, history, lengths = output
        ctx.mark_non_differentiable(history, lengths)
        ctx.numbers = (steps, layer_loops, shortest)
        ctx.save_for_backward(gram, *weights, history, lengths)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        grads = _RecursionBackward.apply(*ctx.saved_tensors, grad, *ctx.numbers)
        return *grads, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        outputs = _Recursion.apply(*fold_models(info.batch_size, in_dims, inputs))
        return tuple(t.unflatten(0, (info.batch_size, -1)) for t in outputs), (0, 0, 0)


class _RecursionBackward(FirstDerivative):
    """The gradient of the recursion.

    A function of its own, so that under vmap it is folded like the forward pass.
    """

    @staticmethod
    def forward(
        gram: Tensor,
        keep: Tensor,
        on_operator: Tensor,
        query_key: Tensor,
        value: Tensor,
        history: Tensor,
        lengths: Tensor,
        grad: Tensor,
        steps: int,
        layer_loops: int,
        shortest: float,
    ) -> tuple[Tensor, ...]:
        b, n = gram.shape[:2]
        models = len(keep)
        weights = [w.contiguous() for w in (keep, on_operator, query_key, value)]
        of_power = gram.new_empty(b, n, steps, _WIDE)
        of_start = gram.new_empty(b, n, _WIDE)
        of_weights = [w.new_zeros(b, *w.shape[1:]) for w in weights]
        _backward_kernel[(b,)](
            gram.contiguous(),
            *weights,
            history,
            lengths,
            grad.contiguous(),
            of_power,
            of_start,
            *of_weights,
            n,
            b // models,
            steps,
            layer_loops,
            shortest,
            layers=keep.shape[1],
            heads=value.shape[2],
            points=_points(n),
            wide=_WIDE,
            block=_BLOCK,
            num_warps=_WARPS,
        )
        # dG = sum_t dP_t F_t^T, with all steps side by side in the columns.
        before = history[:, :, :steps].flatten(2)
        of_gram = of_power.flatten(2) @ before.mT
        summed = [w.unflatten(0, (models, -1)).sum(dim=1) for w in of_weights]
        return of_gram, of_start, *summed

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        outputs = _RecursionBackward.apply(*fold_models(info.batch_size, in_dims, inputs))
        return tuple(t.unflatten(0, (info.batch_size, -1)) for t in outputs), (0,) * 6


def _points(n: int) -> int:
    """Return the number of rows of a program: Triton wants powers of two."""
    return max(16, triton.next_power_of_2(n))


@triton.jit
def _product(a, b):
    """Multiply in full float32; TF32 would lose the small eigenvalues."""
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _at_least(length, shortest):
    """Return lengths to divide by, in float32 even if ``shortest`` comes as float64."""
    return tl.maximum(length, tl.cast(shortest, tl.float32))


@triton.jit
def _apply_gram(gram, columns, stride, n, j, c, points: tl.constexpr, block: tl.constexpr):
    """Return G times the columns at ``columns``, whose rows are ``stride`` apart."""
    result = tl.zeros((points, c.shape[0]), tl.float32)
    for first in range(0, n, block):
        i = first + tl.arange(0, block)
        inside = (j[:, None] < n) & (i[None, :] < n)  # padding reads as zero
        part = tl.load(gram + j[:, None] * n + i[None, :], mask=inside, other=0.0)
        at = columns + i[:, None] * stride + c[None, :]
        result += _product(part, tl.load(at, mask=i[:, None] < n, other=0.0))
    return result


@triton.jit
def _mixing(
    keep, query_key, value, of_f, square, layer, heads: tl.constexpr, wide: tl.constexpr
):
    """Return W = keep + sum_h QK_h (F^T F) A_h of a layer."""
    result = tl.load(keep + layer * wide * wide + square)
    for h in range(heads):
        at = (layer * heads + h) * wide * wide + square
        left = _product(tl.load(query_key + at), of_f)
        result += _product(left, tl.load(value + at))
    return result


@triton.jit
def _forward_kernel(
    gram,
    start,
    keep,
    on_operator,
    query_key,
    value,
    history,
    lengths,
    n,
    per_model,
    steps,
    layer_loops,
    shortest,
    layers: tl.constexpr,
    heads: tl.constexpr,
    points: tl.constexpr,
    wide: tl.constexpr,
    block: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    model = b // per_model
    j, c = tl.arange(0, points), tl.arange(0, wide)
    square = c[:, None] * wide + c[None, :]
    inside = j[:, None] < n
    # Move every pointer to this episode, and weights to its model.
    gram += b * n * n
    keep += model * layers * wide * wide
    on_operator += model * layers * wide * wide
    query_key += model * layers * heads * wide * wide
    value += model * layers * heads * wide * wide
    stride = (steps + 1) * wide
    history += b * n * stride
    f = tl.load(start + (b * n + j[:, None]) * wide + c[None, :], mask=inside, other=0.0)
    tl.store(history + j[:, None] * stride + c[None, :], f, mask=inside)
    for t in range(steps):
        tl.debug_barrier()  # other threads of this program read what was stored
        layer = (t // layer_loops) % layers  # the order of application_order
        power = _apply_gram(gram, history + t * wide, stride, n, j, c, points, block)
        mixing = _mixing(
            keep, query_key, value, _product(tl.trans(f), f), square, layer, heads, wide
        )
        on = tl.load(on_operator + layer * wide * wide + square)
        z = _product(f, mixing) + _product(power, on)
        length = tl.sqrt(tl.sum(z * z, axis=0))
        f = z / _at_least(length, shortest)[None, :]
        at = history + j[:, None] * stride + (t + 1) * wide + c[None, :]
        tl.store(at, f, mask=inside)
        tl.store(lengths + (b * steps + t) * wide + c, length)


@triton.jit
def _add(at, change):
    """Add in memory. No atomics: only the program of this episode writes there."""
    tl.store(at, tl.load(at) + change)


# Names of the form of_x are gradients of the loss with respect to x. G F and W of a layer
# are computed again: to store them would take as much memory as the history of F.
@triton.jit
def _backward_kernel(
    gram,
    keep,
    on_operator,
    query_key,
    value,
    history,
    lengths,
    grad,
    of_power,
    of_start,
    of_keep,
    of_on,
    of_query_key,
    of_value,
    n,
    per_model,
    steps,
    layer_loops,
    shortest,
    layers: tl.constexpr,
    heads: tl.constexpr,
    points: tl.constexpr,
    wide: tl.constexpr,
    block: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    model = b // per_model
    j, c = tl.arange(0, points), tl.arange(0, wide)
    square = c[:, None] * wide + c[None, :]
    inside = j[:, None] < n
    one_layer = layers * wide * wide
    gram += b * n * n
    keep += model * one_layer
    on_operator += model * one_layer
    query_key += model * heads * one_layer
    value += model * heads * one_layer
    of_keep += b * one_layer
    of_on += b * one_layer
    of_query_key += b * heads * one_layer
    of_value += b * heads * one_layer
    stride = (steps + 1) * wide
    history += b * n * stride
    of_power += b * n * steps * wide
    place = (b * n + j[:, None]) * wide + c[None, :]
    of_f = tl.load(grad + place, mask=inside, other=0.0)
    for back in range(steps):
        t = steps - 1 - back
        layer = (t // layer_loops) % layers
        at = history + j[:, None] * stride + t * wide + c[None, :]
        f = tl.load(at, mask=inside, other=0.0)
        after = tl.load(at + wide, mask=inside, other=0.0)
        length = tl.load(lengths + (b * steps + t) * wide + c)
        # Through z / |z|: the part along z has no effect, unless |z| was cut off below.
        along = tl.where(length > shortest, tl.sum(of_f * after, axis=0), 0.0)
        of_z = (of_f - after * along[None, :]) / _at_least(length, shortest)[None, :]
        power = _apply_gram(gram, history + t * wide, stride, n, j, c, points, block)
        inner = _product(tl.trans(f), f)
        mixing = _mixing(keep, query_key, value, inner, square, layer, heads, wide)
        on = tl.load(on_operator + layer * wide * wide + square)
        of_mixing = _product(tl.trans(f), of_z)
        _add(of_keep + layer * wide * wide + square, of_mixing)
        _add(of_on + layer * wide * wide + square, _product(tl.trans(power), of_z))
        of_inner = tl.zeros((wide, wide), tl.float32)
        for h in range(heads):
            head = (layer * heads + h) * wide * wide + square
            left, right = tl.load(query_key + head), tl.load(value + head)
            pulled = _product(of_mixing, tl.trans(right))
            _add(of_query_key + head, _product(pulled, inner))
            _add(of_value + head, _product(_product(inner, tl.trans(left)), of_mixing))
            of_inner += _product(tl.trans(left), pulled)
        of_p = _product(of_z, tl.trans(on))
        power_at = of_power + j[:, None] * (steps * wide) + t * wide + c[None, :]
        tl.store(power_at, of_p, mask=inside)
        tl.debug_barrier()  # _apply_gram below reads what other threads stored
        of_f = _product(of_z, tl.trans(mixing))
        of_f += _product(f, of_inner + tl.trans(of_inner))
        # G is symmetric, so this is also its transpose.
        of_f += _apply_gram(gram, of_power + t * wide, steps * wide, n, j, c, points, block)
    tl.store(of_start + place, of_f, mask=inside)
