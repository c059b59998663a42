"""RBF attention of points with few coordinates, on a GPU: one Triton kernel, in float32.

Fused attention in torch is made for wide heads; its float32 form, with six coordinates and
eight value columns, does not use the tensor cores. Here a tile of scores is one product of
narrow matrices and what is read is another. Each product is made of three that have fewer
digits, since tensor cores have no full float32.

Attention, its transpose and both gradients are one computation: ``readers`` sum what
``others`` hold, weighted by ``exp(-|x - y|^2)`` with a level of each side subtracted in the
exponent. They differ only in who reads and in the levels. The twin is
:mod:`icssl.model.attention` without these kernels.
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

_READERS, _OTHERS, _WARPS, _STAGES = 64, 64, 4, 3  # rows and columns of a tile; launch
_MOST_ADDED = 2**14  # others that tensor cores may sum up before digits are lost
_RAISED = 14.0  # exponent of two that weights are raised by, within float16
_LARGEST_HALF = 3e4  # below the largest number of float16
_LEAST_SUM = 1e-5  # sum of weights that float16 still resolves
_NOBODY = -1e30  # the exponent where there is no point to read
_BASE_TWO = math.log2(math.e)


def narrow_attention(
    query: Float[Tensor, "b q d"],
    key: Float[Tensor, "b k d"],
    value: Float[Tensor, "b k v"],
) -> Float[Tensor, "b q v"]:
    """Return ``P @ value``, with P the RBF attention matrix."""
    return _Attention.apply(query, key, value)[0]


def narrow_attention_transposed(
    query: Float[Tensor, "b q d"],
    key: Float[Tensor, "b k d"],
    value: Float[Tensor, "b q v"],
) -> Float[Tensor, "b k v"]:
    """Return ``P.T @ value``, with P the RBF attention matrix."""
    return _Transposed.apply(query, key, value)[0]


class _Attention(torch.autograd.Function):
    """P @ value. Its second output, the level of every query, is for the backward pass."""

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
        grad_value = _transposed_product(query, key, grad, level)
        return (*_pulls(query, key, value, grad, read, level), grad_value)


class _Transposed(torch.autograd.Function):
    """P.T @ value, with the gradients of attention to values W: <W, P^T G> = <P W, G>."""

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        level = _attend(query, key, key[..., :0])[1]
        return _transposed_product(query, key, value, level), level

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
    """Return what queries read, and the logarithm (base two) of their sums of weights."""
    v = value.shape[-1]
    ones = value.new_ones(*value.shape[:-1], 1)  # the last column sums the weights
    sums, highest = _read(_Side(query), _Side(key), torch.cat([value, ones], dim=-1))
    total = sums[..., v:]
    level = highest + total[..., 0].clamp(min=torch.finfo(total.dtype).tiny).log2()
    return torch.where(total > 0, sums[..., :v] / total, 0.0), level


def _transposed_product(query: Tensor, key: Tensor, value: Tensor, level: Tensor) -> Tensor:
    """Return P.T @ value, of queries whose weights sum to ``exp2(level)``."""
    return _read(_Side(key), _Side(query, level), value)[0]


def _pulls(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor, read: Tensor, level: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gradients of query and key, by ``P * (grad . value - grad . read)``."""
    drop = (grad * read).sum(-1)
    queries, keys = _Side(query, level, grad, drop), _Side(key, None, value)
    return _pull(queries, keys), _pull(keys, queries)


def _pull(readers: _Side, others: _Side) -> Tensor:
    """Return ``2 sum_y weight (y - x)`` of every reader x: the gradient of -|x - y|^2."""
    ones = torch.ones_like(others.points[..., :1])  # the last column sums the weights
    sums, _ = _read(readers, others, torch.cat([others.points, ones], dim=-1))
    return 2 * (sums[..., :-1] - readers.points * sums[..., -1:])


def _read(readers: _Side, others: _Side, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums of values with the weights of all pairs.

    Where no side has a level, weights are relative to ``exp2`` of the second result.
    """
    if readers.factor is None:
        fast = _read_fast(readers, others, value)
        if fast is not None:
            return fast
    return _read_carefully(readers, others, value)


def _read_fast(
    readers: _Side, others: _Side, value: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Read with pairs of float16 numbers; return None where their range does not do.

    A pair has almost the digits of float32, on faster tensor cores. Weights are at most
    one, so no maximum is computed. Where weights are to be divided by their sum, the last
    column of values, that sum tells whether all weights were too small for float16.
    """
    (b, r, _), (_, o, v) = readers.points.shape, value.shape
    x, y = _scoring(readers, others)
    if max(float(part.abs().max()) for part in (x, y)) > _LARGEST_HALF:
        return None
    level = x.new_zeros(b, 1) if others.level is None else others.level
    lowest = level.amin(dim=1).clamp(min=0)  # weights are at most exp2 of minus this
    x, y = _pad_to_tiles(x, r, _READERS), _pad_to_tiles(y, o, _OTHERS)
    # Padding gets weight zero through its score: the first column of readers is one.
    y[:, o:, 0] = -_LARGEST_HALF
    # Values of size one leave float16 the most room.
    largest = value.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    value = _pad_to_tiles(value / largest, o, _OTHERS)
    result = x.new_zeros(b, x.shape[1], value.shape[-1])
    # Tensor cores cut digits off whenever they add: long sums are made here, in pieces.
    pieces = zip(y.split(_MOST_ADDED, dim=1), value.split(_MOST_ADDED, dim=1), strict=True)
    for some, held in pieces:
        result += _sums_of(x, some.contiguous(), held.contiguous(), lowest + _RAISED)
    sums = result[:, :r, :v] * (largest * (-lowest - _RAISED).exp2()[:, None, None])
    softmax = readers.level is None and others.level is None
    if softmax and float(sums[..., -1].amin()) < _LEAST_SUM:
        return None
    return sums, torch.zeros_like(sums[..., 0])


def _sums_of(x: Tensor, y: Tensor, value: Tensor, raised: Tensor) -> Tensor:
    """Return sums of values times ``exp2`` of products of rows, raised by so much."""
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
    """Return two float16 tensors whose sum has the first 22 binary digits."""
    first = rows.half()
    return first, (rows - first).half()


def _read_carefully(readers: _Side, others: _Side, value: Tensor) -> tuple[Tensor, Tensor]:
    """Read in float32, with weights relative to the largest one of a reader."""
    (b, r, _), (_, o, v) = readers.points.shape, value.shape
    softmax = readers.level is None and others.level is None
    weighted = readers.factor is not None
    x, y = _scoring(readers, others)
    f, g = _factors(readers, others) if weighted else (x[..., :0], y[..., :0])
    x, f = (_pad_to_tiles(part, r, _READERS) for part in (x, f))
    y, g, value = (_pad_to_tiles(part, o, _OTHERS) for part in (y, g, value))
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
    """Return rows whose products are the exponents, to base two, of the weights.

    ``-|x - y|^2 = 2 x.y - |x|^2 - |y|^2``: each side has a column for its own constant and
    one of ones for the other's. Points are taken from their middle, where these terms
    cancel least.
    """
    middle = others.points.nanmedian(dim=1, keepdim=True).values
    x, y = (side.points - middle for side in (readers, others))
    of_readers, of_others = (
        -_BASE_TWO * points.square().sum(-1, keepdim=True)
        - (0.0 if side.level is None else side.level[..., None])
        for points, side in ((x, readers), (y, others))
    )
    x = torch.cat([torch.ones_like(of_readers), of_readers, 2 * _BASE_TWO * x], dim=-1)
    return x, torch.cat([of_others, torch.ones_like(of_others), y], dim=-1)


def _factors(readers: _Side, others: _Side) -> tuple[Tensor, Tensor]:
    """Return rows whose products are the factors of pairs, less what each side drops."""
    sides = []
    for side in (readers, others):
        assert side.factor is not None
        zero = torch.zeros_like(side.factor[..., :1])
        sides.append((side.factor, zero if side.drop is None else -side.drop[..., None]))
    (f, drop_f), (g, drop_g) = sides
    ones_f, ones_g = torch.ones_like(drop_f), torch.ones_like(drop_g)
    return torch.cat([ones_f, drop_f, f], dim=-1), torch.cat([drop_g, ones_g, g], dim=-1)


def _pad_to_tiles(rows: Tensor, count: int, multiple: int) -> Tensor:
    """Return rows padded with zeros to whole tiles: the kernels check no bounds."""
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
    # One program per tile of readers and episode; it passes over all others, tile by tile.
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * readers + tl.arange(0, readers)
    coordinates, lanes = tl.arange(0, wide), tl.arange(0, width)
    factors = tl.arange(0, pairs)
    y += b * columns * wide
    g += b * columns * pairs
    value += b * columns * width
    reader = tl.load(x + (b * rows + i)[:, None] * wide + coordinates[None, :])
    if weighted:
        reader_factor = tl.load(f + (b * rows + i)[:, None] * pairs + factors[None, :])
    highest = tl.full((readers,), -float("inf"), tl.float32)
    total = tl.zeros((readers, width), tl.float32)
    for start in range(0, columns, others):
        j = start + tl.arange(0, others)
        other = tl.load(y + j[None, :] * wide + coordinates[:, None])
        # Three products of TF32 parts have the digits of float32.
        score = tl.dot(reader, other, input_precision="tf32x3")
        if softmax:
            # A new maximum: what was summed so far is brought to it.
            higher = tl.maximum(highest, tl.max(score, axis=1))
            total *= tl.exp2(highest - higher)[:, None]
            highest = higher
            score -= highest[:, None]
        weight = tl.exp2(score)
        if weighted:
            other_factor = tl.load(g + j[None, :] * pairs + factors[:, None])
            weight *= tl.dot(reader_factor, other_factor, input_precision="tf32x3")
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
    reader, reader_rest = tl.load(x + place), tl.load(x_rest + place)
    total = tl.zeros((readers, width), tl.float32)
    for start in range(0, columns, others):
        j = start + tl.arange(0, others)
        other_place = j[None, :] * wide + coordinates[:, None]
        other = tl.load(y + other_place)
        # (a + a')(b + b') without a' b', which is below float32: small terms first.
        score = tl.dot(reader, tl.load(y_rest + other_place))
        score = tl.dot(reader_rest, other, score)
        score = tl.dot(reader, other, score)
        # Raised, so that small weights are not lost in float16 below.
        weight = tl.exp2(score + higher)
        rough = weight.to(tl.float16)
        rest = (weight - rough).to(tl.float16)
        value_place = j[:, None] * width + lanes[None, :]
        held = tl.load(value + value_place)
        total = tl.dot(rough, tl.load(value_rest + value_place), total)
        total = tl.dot(rest, held, total)
        total = tl.dot(rough, held, total)
    tl.store(result + (b * rows + i)[:, None] * width + lanes[None, :], total)
