"""The graph of very many rows on a GPU, by two Triton kernels: no weight leaves the chip.

The logarithm of a weight is bilinear (:mod:`icssl.classifier.graph_exact`): a tile is a
product of matrices, in three parts that together have float32's digits. Weights and what
they multiply are in two parts of float16 again, the same in both directions, so that the
graph stays symmetric and its degrees are its own. The twin is
:class:`icssl.classifier.graphs.DenseGraph`.
"""

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from icssl.classifier.graph_exact import bilinear
from icssl.classifier.graphs import (
    BANDWIDTH_NEIGHBOURS,
    SHARPNESS,
    NeighbourDistances,
    WeightedGraph,
    distances_from_nearest,
)

# One program computes products for so many rows, the readers, with so many others at a time
# and so many columns of x: tiles that fit the chip's memory.
_READERS, _OTHERS, _COLUMNS = 128, 64, 64
_WARPS, _STAGES = 4, 3
_ADDED = 2**12  # others whose sum the tensor cores make, before it is added in float32
# Weights are at most e^4 and float16 ends at 65,504: raised by so many powers of two, the
# largest is 56,000, and small ones keep as many digits as there are.
_RAISED = 10.0
_GROUP = 32  # rows of which each row knows the nearest alone
_LIGHT = 32  # numbers of a row, up to which a processor has room for several groups
_FOUND = 2**28  # nearest of a group that are held at once
_BASE_TWO = math.log2(math.e)


class TritonGraph(WeightedGraph):
    """The weights of rows by their distances, computed anew in every pass."""

    def __init__(self, rows: Float[Tensor, "b n p"], distances: NeighbourDistances) -> None:
        query, key = bilinear(rows, distances)
        query = _BASE_TWO * query  # the chip has a power of two, and none of e
        # Both of one size, so that neither leaves the range of float16.
        even = (query.abs().max() / key.abs().max()).sqrt()
        self._parts = (*_halves(_pad_tiles(query / even)), *_halves(_pad_tiles(key * even)))
        self.degrees = self._degrees(rows)

    def times(self, x: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Multiply W with columns, 64 of them at once."""
        return torch.cat(
            [self._times_some(part) for part in x.split(_COLUMNS, dim=-1)], dim=-1
        )

    def _times_some(self, x: Tensor) -> Tensor:
        b, n, k = x.shape
        rows, width = self._parts[0].shape[1:]
        # Columns whose largest number is one fit float16; the result is multiplied back.
        largest = x.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        columns = _COLUMNS
        value = pad(x / largest, (0, columns - k, 0, rows - n))
        result = x.new_empty(b, rows, columns)
        _times_kernel[(rows // _READERS, b)](
            *self._parts,
            *_halves(value),
            result,
            rows,
            SHARPNESS * _BASE_TWO,
            _RAISED,
            width,
            columns,
            _READERS,
            _OTHERS,
            _ADDED,
            num_warps=_WARPS,
            num_stages=_STAGES,
        )
        return result[:, :n, :k] * (largest / 2**_RAISED)


def distances_on_gpu(
    rows: Float[Tensor, "b n p"], neighbours: int = BANDWIDTH_NEIGHBOURS
) -> NeighbourDistances:
    """Return how far the neighbours of rows are, without holding all distances.

    Rows are put into groups by chance, and each row finds the nearest of every group. The
    nearest of all is exact; so is the twelfth, unless two of the twelve are in one group.
    """
    b, n, _ = rows.shape
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(n, generator=generator).to(rows.device)
    mixed = rows[:, order]
    size = mixed.square().sum(-1, keepdim=True)
    ones = torch.ones_like(size)
    # The product of a query and a key is |x|^2 + |z|^2 - 2 x.z, a squared distance.
    query = _pad_tiles(torch.cat([-2 * mixed, size, ones], dim=-1))
    key = _pad_tiles(torch.cat([mixed, ones, size], dim=-1))
    total, width = query.shape[1:]
    groups = total // _GROUP
    count = min(neighbours, groups)
    together = 4 if width <= _LIGHT else 1
    nearest = rows.new_empty(b, n, count)
    step = max(1, _FOUND // (b * groups) // _READERS) * _READERS
    for start in range(0, n, step):
        stop = min(start + step, total)
        by_group = rows.new_empty(b, stop - start, groups)
        grid = ((stop - start) // _READERS, b)
        _nearest_kernel[grid](
            query, key, by_group, start, n, total, groups, width, _READERS, _GROUP,
            together, num_warps=4,
        )  # fmt: skip
        part = order[start:stop]
        least = by_group[:, : len(part)].topk(count, dim=-1, largest=False).values
        nearest[:, part] = least.clamp(min=0).sort(dim=-1).values
    return distances_from_nearest(nearest)


def _halves(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return two float16 tensors, whose sum has the first 22 binary digits."""
    first = rows.half()
    return first, (rows - first).half()


def _pad_tiles(rows: Tensor) -> Tensor:
    """Add columns and rows of zeros, up to the sizes that the kernels take."""
    width = max(16, triton.next_power_of_2(rows.shape[-1]))
    more = -rows.shape[1] % _READERS
    return pad(rows, (0, width - rows.shape[-1], 0, more)).contiguous()


@triton.jit
def _tile_times(
    query,
    query_rest,
    key,
    key_rest,
    first,
    second,
    total,
    start,
    first_reader,
    limit,
    raised,
    width: tl.constexpr,
    columns: tl.constexpr,
    readers: tl.constexpr,
    others: tl.constexpr,
    skip_self: tl.constexpr,
):
    """Add to the total what some of the others contribute to all readers."""
    # Keys are loaded transposed, (width, others): a tile of scores is one product.
    j = start + tl.arange(0, others)
    wide, lanes = tl.arange(0, width), tl.arange(0, columns)
    key_offsets = j[None, :] * width + wide[:, None]
    keys = tl.load(key + key_offsets)
    # Numbers are two float16 each: (a + a')(b + b') without a'b', which float32 would lose.
    score = tl.dot(query, tl.load(key_rest + key_offsets))
    score = tl.dot(query_rest, keys, score)
    score = tl.dot(query, keys, score)
    weight = tl.exp2(tl.minimum(score, limit) + raised)
    if skip_self:  # no row is its own neighbour
        i = first_reader + tl.arange(0, readers)
        weight = tl.where(i[:, None] == j[None, :], 0.0, weight)
    rough = weight.to(tl.float16)
    rest = (weight - rough).to(tl.float16)
    what = j[:, None] * columns + lanes[None, :]
    held = tl.load(first + what)
    total = tl.dot(rough, held, total)
    total = tl.dot(rest, held, total)
    return tl.dot(rough, tl.load(second + what), total)


@triton.jit
def _times_kernel(
    query,
    query_rest,
    key,
    key_rest,
    first,
    second,
    result,
    rows,
    limit,
    raised,
    width: tl.constexpr,
    columns: tl.constexpr,
    readers: tl.constexpr,
    others: tl.constexpr,
    added: tl.constexpr,
):
    """Sum over the readers' own rows, without themselves, then over all before and after.

    Tensor cores cut digits off whenever they add: long sums are made of short ones.
    """
    b = tl.program_id(1).to(tl.int64)  # of 64 bits: offsets of many rows exceed 32
    first_reader = tl.program_id(0) * readers
    i = first_reader + tl.arange(0, readers)
    wide, lanes = tl.arange(0, width), tl.arange(0, columns)
    key += b * rows * width
    key_rest += b * rows * width
    first += b * rows * columns
    second += b * rows * columns
    place = (b * rows + i)[:, None] * width + wide[None, :]
    queries, queries_rest = tl.load(query + place), tl.load(query_rest + place)
    total = tl.zeros((readers, columns), tl.float32)
    for start in range(first_reader, first_reader + readers, others):
        total = _tile_times(
            queries, queries_rest, key, key_rest, first, second, total, start,
            first_reader, limit, raised, width, columns, readers, others, True,
        )  # fmt: skip
    for begin in range(0, first_reader, added):
        part = tl.zeros((readers, columns), tl.float32)
        for start in range(begin, tl.minimum(begin + added, first_reader), others):
            part = _tile_times(
                queries, queries_rest, key, key_rest, first, second, part, start,
                first_reader, limit, raised, width, columns, readers, others, False,
            )  # fmt: skip
        total += part
    for begin in range(first_reader + readers, rows, added):
        part = tl.zeros((readers, columns), tl.float32)
        for start in range(begin, tl.minimum(begin + added, rows), others):
            part = _tile_times(
                queries, queries_rest, key, key_rest, first, second, part, start,
                first_reader, limit, raised, width, columns, readers, others, False,
            )  # fmt: skip
        total += part
    tl.store(result + (b * rows + i)[:, None] * columns + lanes[None, :], total)


@triton.jit
def _nearest_kernel(
    query,
    key,
    least_by_group,
    start,
    n,
    rows,
    groups,
    width: tl.constexpr,
    tile: tl.constexpr,
    group: tl.constexpr,
    together: tl.constexpr,
):
    """Store squared distances to the nearest of every group, so many groups at once."""
    b = tl.program_id(1).to(tl.int64)
    places = tl.program_id(0) * tile + tl.arange(0, tile)
    i = start + places
    wide = tl.arange(0, width)
    query += b * rows * width
    key += b * rows * width
    # Results of this call are numbered from zero, and readers from `start`.
    least_by_group += (b * tl.num_programs(0) * tile + places) * groups
    queries = tl.load(query + i[:, None] * width + wide[None, :])
    for g in range(0, groups, together):
        j = g * group + tl.arange(0, group * together)
        others = tl.load(key + j[None, :] * width + wide[:, None])
        apart = tl.dot(queries, others, input_precision="tf32x3")
        # Neither the row itself nor the padding may be nearest.
        apart = tl.where((i[:, None] == j[None, :]) | (j >= n)[None, :], 3e38, apart)
        least = tl.min(tl.reshape(apart, (tile, together, group)), axis=2)
        tl.store(least_by_group[:, None] + g + tl.arange(0, together)[None, :], least)
