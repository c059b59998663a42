"""RBF attention of points with few coordinates, on a GPU: one Triton kernel, in float32.

Fused attention in torch is made for wide heads; its float32 form, with six coordinates and
eight value columns, does not use the tensor cores. Here a tile of scores is one product of
narrow matrices and what is read another, each made of three that have part of the digits.

One kernel does all: ``readers`` sum what ``others`` hold, times
``exp(-|x - y|^2)`` less what each side subtracts from the exponent. Attention, its
transpose and both gradients differ only in who reads, and in what is subtracted. The twin
is :mod:`icssl.model.attention` without it.
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

_READERS, _OTHERS, _WARPS, _STAGES = 64, 64, 4, 3
_ADDED = 2**14  # others whose sum the tensor cores make
_RAISED = 14.0  # exponent of two that weights are raised by, within float16
_LARGEST_HALF = 3e4
_LEAST = 1e-5  # sum of weights that float16 still resolves
_NOBODY = -1e30  # the exponent where there is no point to read
_BASE_TWO = math.log2(math.e)


def narrow_attention(
    query: Float[Tensor, "b q d"],
    key: Float[Tensor, "b k d"],
    value: Float[Tensor, "b k v"],
) -> Float[Tensor, "b q v"]:
    """``P @ value``, with P the RBF attention matrix."""
    return _Attention.apply(query, key, value)[0]


def narrow_attention_transposed(
    query: Float[Tensor, "b q d"],
    key: Float[Tensor, "b k d"],
    value: Float[Tensor, "b q v"],
) -> Float[Tensor, "b k v"]:
    """``P.T @ value``."""
    return _Transposed.apply(query, key, value)[0]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return _attend(query, key, value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value, read, level = ctx.saved_tensors
        grad_value = _asked(query, key, grad, level)
        return (*_pulls(query, key, value, grad, read, level), grad_value)


class _Transposed(torch.autograd.Function):
    """Since <W, P^T G> = <P W, G>, its gradients are those of attention to values W."""

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        level = _attend(query, key, key[..., :0])[1]
        return _asked(query, key, value, level), level

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value, level = ctx.saved_tensors
        read, _ = _attend(query, key, grad)
        return (*_pulls(query, key, grad, value, read, level), read)


class _Side(NamedTuple):
    """Readers or others, and what they bring to the weight of a pair.

    A weight is ``exp2(-|x - y|^2 - level - level')``, times ``factor . factor' - drop -
    drop'`` where there are factors.
    """

    points: Tensor
    level: Tensor | None = None
    factor: Tensor | None = None
    drop: Tensor | None = None


def _attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """What queries read, and the logarithm of the sums of their weights."""
    v = value.shape[-1]
    ones = value.new_ones(*value.shape[:-1], 1)  # the last column sums the weights
    found, highest = _read(_Side(query), _Side(key), torch.cat([value, ones], dim=-1))
    total = found[..., v:]
    level = highest + total[..., 0].clamp(min=torch.finfo(total.dtype).tiny).log2()
    return torch.where(total > 0, found[..., :v] / total, 0.0), level


def _asked(query: Tensor, key: Tensor, value: Tensor, level: Tensor) -> Tensor:
    """What keys are asked for, by queries whose weights sum to ``exp2(level)``."""
    return _read(_Side(key), _Side(query, level), value)[0]


def _pulls(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor, read: Tensor, level: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of query and key, by ``P * (grad . value - grad . read)``."""
    drop = (grad * read).sum(-1)
    queries, keys = _Side(query, level, grad, drop), _Side(key, None, value)
    return _pull(queries, keys), _pull(keys, queries)


def _pull(readers: _Side, others: _Side) -> Tensor:
    """Two times the sum of weighted differences."""
    ones = torch.ones_like(others.points[..., :1])
    found, _ = _read(readers, others, torch.cat([others.points, ones], dim=-1))
    return 2 * (found[..., :-1] - readers.points * found[..., -1:])


def _read(readers: _Side, others: _Side, value: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of values with the weights of all pairs.

    Where no side has a level, weights are relative to ``exp2`` of what comes second.
    """
    if readers.factor is None:
        found = _read_fast(readers, others, value)
        if found is not None:
            return found
    return _read_carefully(readers, others, value)


def _read_fast(
    readers: _Side, others: _Side, value: Tensor
) -> tuple[Tensor, Tensor] | None:
    """In float16 twice over, which has float32's digits; None where it has not its range.

    Weights are at most one: no maximum is looked for. The last column of values, where
    weights are to be divided by their sum, tells whether all were too small for that.
    """
    (b, r, _), (_, o, v) = readers.points.shape, value.shape
    x, y = _scoring(readers, others)
    if max(float(part.abs().max()) for part in (x, y)) > _LARGEST_HALF:
        return None
    level = x.new_zeros(b, 1) if others.level is None else others.level
    lowest = level.amin(dim=1).clamp(min=0)  # weights are at most exp2 of minus this
    x, y = _filled(x, r, _READERS), _filled(y, o, _OTHERS)
    y[:, o:, 0] = -_LARGEST_HALF  # nobody: the first column of readers is one
    largest = value.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    value = _filled(value / largest, o, _OTHERS)
    result = x.new_zeros(b, x.shape[1], value.shape[-1])
    # Tensor cores cut digits off whenever they add: long sums are made here.
    for some, held in zip(y.split(_ADDED, dim=1), value.split(_ADDED, dim=1), strict=True):
        result += _sums_of(x, some.contiguous(), held.contiguous(), lowest + _RAISED)
    found = result[:, :r, :v] * (largest * (-lowest - _RAISED).exp2()[:, None, None])
    softmax = readers.level is None and others.level is None
    if softmax and float(found[..., -1].amin()) < _LEAST:
        return None
    return found, torch.zeros_like(found[..., 0])


def _sums_of(x: Tensor, y: Tensor, value: Tensor, raised: Tensor) -> Tensor:
    """Values times ``exp2`` of products of rows, raised by so much."""
    (b, rows, wide), (_, columns, width) = x.shape, value.shape
    result = x.new_empty(b, rows, width)
    _fast_kernel[(rows // _READERS, b)](
        *_halves(x),
        *_halves(y),
        *_halves(value),
        raised,
        result,
        rows,
        columns,
        wide,
        width,
        _READERS,
        _OTHERS,
        num_warps=_WARPS,
        num_stages=_STAGES,
    )
    return result


def _halves(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Two float16 tensors, whose sum has the first 22 digits."""
    first = rows.half()
    return first, (rows - first).half()


def _read_carefully(readers: _Side, others: _Side, value: Tensor) -> tuple[Tensor, Tensor]:
    """In float32, with weights relative to the largest of a reader."""
    (b, r, _), (_, o, v) = readers.points.shape, value.shape
    softmax = readers.level is None and others.level is None
    weighted = readers.factor is not None
    x, y = _scoring(readers, others)
    f, g = _factors(readers, others) if weighted else (x[..., :0], y[..., :0])
    x, f = (_filled(part, r, _READERS) for part in (x, f))
    y, g, value = (_filled(part, o, _OTHERS) for part in (y, g, value))
    rows, columns, width = x.shape[1], y.shape[1], value.shape[-1]
    y[:, o:, 0] = _NOBODY
    result, highest = value.new_empty(b, rows, width), value.new_empty(b, rows)
    _kernel[(rows // _READERS, b)](
        x,
        y,
        f,
        g,
        value,
        result,
        highest,
        rows,
        columns,
        x.shape[-1],
        f.shape[-1],
        width,
        softmax,
        weighted,
        _READERS,
        _OTHERS,
        num_warps=_WARPS,
        num_stages=_STAGES,
    )
    return result[:, :r, :v], highest[:, :r]


def _scoring(readers: _Side, others: _Side) -> tuple[Tensor, Tensor]:
    """Rows whose products are the exponents of two: of both sides, a constant each.

    From the middle of the points, where the terms cancel least.
    """
    middle = others.points.nanmedian(dim=1, keepdim=True).values
    x, y = (side.points - middle for side in (readers, others))
    own, theirs = (
        -_BASE_TWO * points.square().sum(-1, keepdim=True)
        - (0.0 if side.level is None else side.level[..., None])
        for points, side in ((x, readers), (y, others))
    )
    x = torch.cat([torch.ones_like(own), own, 2 * _BASE_TWO * x], dim=-1)
    return x, torch.cat([theirs, torch.ones_like(theirs), y], dim=-1)


def _factors(readers: _Side, others: _Side) -> tuple[Tensor, Tensor]:
    """Rows whose products are the factors of pairs, less what each side drops."""
    found = []
    for side in (readers, others):
        assert side.factor is not None
        none = torch.zeros_like(side.factor[..., :1])
        found.append((side.factor, none if side.drop is None else -side.drop[..., None]))
    (f, first), (g, second) = found
    one, other = torch.ones_like(first), torch.ones_like(second)
    return torch.cat([one, first, f], dim=-1), torch.cat([second, other, g], dim=-1)


def _filled(rows: Tensor, count: int, multiple: int) -> Tensor:
    """With zeros up to what the kernel takes: it asks for no bounds."""
    wide = max(16, triton.next_power_of_2(rows.shape[-1]))
    more = -count % multiple
    return pad(rows, (0, wide - rows.shape[-1], 0, more)).contiguous()


@triton.jit
def _kernel(
    x,
    y,
    f,
    g,
    value,
    result,
    level,
    rows,
    columns,
    wide: tl.constexpr,
    pairs: tl.constexpr,
    width: tl.constexpr,
    softmax: tl.constexpr,
    weighted: tl.constexpr,
    readers: tl.constexpr,
    others: tl.constexpr,
):
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * readers + tl.arange(0, readers)
    coordinates, lanes = tl.arange(0, wide), tl.arange(0, width)
    factors = tl.arange(0, pairs)
    y += b * columns * wide
    g += b * columns * pairs
    value += b * columns * width
    own = tl.load(x + (b * rows + i)[:, None] * wide + coordinates[None, :])
    if weighted:
        own_factor = tl.load(f + (b * rows + i)[:, None] * pairs + factors[None, :])
    highest = tl.full((readers,), -float("inf"), tl.float32)
    total = tl.zeros((readers, width), tl.float32)
    for start in range(0, columns, others):
        j = start + tl.arange(0, others)
        theirs = tl.load(y + j[None, :] * wide + coordinates[:, None])
        score = tl.dot(own, theirs, input_precision="tf32x3")
        if softmax:
            higher = tl.maximum(highest, tl.max(score, axis=1))
            total *= tl.exp2(highest - higher)[:, None]
            highest = higher
            score -= highest[:, None]
        weight = tl.exp2(score)
        if weighted:
            their_factor = tl.load(g + j[None, :] * pairs + factors[:, None])
            weight *= tl.dot(own_factor, their_factor, input_precision="tf32x3")
        held = tl.load(value + j[:, None] * width + lanes[None, :])
        total = tl.dot(weight, held, total, input_precision="tf32x3")
    where = (b * rows + i)[:, None] * width + lanes[None, :]
    tl.store(result + where, total)
    if softmax:
        tl.store(level + b * rows + i, highest)


@triton.jit
def _fast_kernel(
    x,
    x_rest,
    y,
    y_rest,
    value,
    value_rest,
    raised,
    result,
    rows,
    columns,
    wide: tl.constexpr,
    width: tl.constexpr,
    readers: tl.constexpr,
    others: tl.constexpr,
):
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * readers + tl.arange(0, readers)
    coordinates, lanes = tl.arange(0, wide), tl.arange(0, width)
    y += b * columns * wide
    y_rest += b * columns * wide
    value += b * columns * width
    value_rest += b * columns * width
    higher = tl.load(raised + b)
    place = (b * rows + i)[:, None] * wide + coordinates[None, :]
    own, own_rest = tl.load(x + place), tl.load(x_rest + place)
    total = tl.zeros((readers, width), tl.float32)
    for start in range(0, columns, others):
        j = start + tl.arange(0, others)
        there = j[None, :] * wide + coordinates[:, None]
        theirs = tl.load(y + there)
        score = tl.dot(own, tl.load(y_rest + there))
        score = tl.dot(own_rest, theirs, score)
        score = tl.dot(own, theirs, score)
        weight = tl.exp2(score + higher)
        rough = weight.to(tl.float16)
        rest = (weight - rough).to(tl.float16)
        what = j[:, None] * width + lanes[None, :]
        held = tl.load(value + what)
        total = tl.dot(rough, tl.load(value_rest + what), total)
        total = tl.dot(rest, held, total)
        total = tl.dot(rough, held, total)
    tl.store(result + (b * rows + i)[:, None] * width + lanes[None, :], total)
