"""Attention as functions of tensors: RBF, softmax and linear, dense and matrix-free.

Tokens are rows. The attention matrix ``P (..., q, k)`` says how much query point j
reads of key point i; ``attention`` is ``P @ value`` and ``attention_transposed`` is
``P.T @ value``. Each runs in one of two backends that must agree:

``"dense"``
    forms ``P`` from exact distances; for small n and for training.
``"matrix_free"``
    never holds ``P``, so memory is O(n): the two softmax-like kernels go through
    ``scaled_dot_product_attention``, linear attention through associativity. RBF attention
    of many points with few coordinates goes through a Triton kernel of ours on a GPU in
    float32.

Axis names of this package: b = episodes, h = heads, n = points, q = query points,
k = key points here and eigenmap features elsewhere, d = coordinates, v = value columns.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

from icssl._util.errors import check_choice
from icssl._util.hardware import has_triton
from icssl.episodes.ground_truth import squared_distances as cdist_squared
from icssl.model.stage import ATTENTION_BACKENDS, exporting, size_like

# Bounds of the Triton kernel: it adds two columns to the coordinates and one to the values,
# and a tile is 32 columns wide. With fewer points it takes longer to start than to run.
_NARROW_COORDINATES = 30
_NARROW_COLUMNS = 31
_MANY_POINTS = 2048

_FEW_COORDINATES = 32  # up to here, a loop over coordinates beats cdist on a GPU


def attention_matrix(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
) -> Float[Tensor, "*batch q k"]:
    r"""Return the attention matrix itself, finite for any finite query and key.

    Parameters
    ----------
    kernel : {"rbf", "softmax", "linear"}
        ``"rbf"``: :math:`P_{ji} = \mathrm{softmax}_i(-\|v_j - u_i\|^2)`, the paper's
        eq. (attention_rbf) in rows, so that every row sums to one. ``"softmax"``:
        :math:`\mathrm{softmax}_i(v_j \cdot u_i)`. ``"linear"``: :math:`v_j \cdot u_i`.
    query, key : Tensor
        The points v that read and the points u that are read.
    """
    check_choice("kernel", kernel, _SCORES)
    scores = _SCORES[kernel](*square_safe(query, key))
    return scores if kernel == "linear" else scores.softmax(dim=-1)


def attention(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
    value: Float[Tensor, "*#batch k v"],
    *,
    backend: str = "dense",
) -> Float[Tensor, "*batch q v"]:
    """Return ``P @ value``: what each query point reads. See :func:`attention_matrix`.

    Finite for any finite query and key and values up to a million. No fused kernel takes
    float64 on a GPU: there, torch forms the matrix after all.
    """
    check_choice("backend", backend, ATTENTION_BACKENDS)
    if backend == "dense":
        return attention_matrix(kernel, query, key) @ value
    if kernel == "linear":
        query, key = square_safe(query, key)
        return query @ (key.mT @ value)  # (Q K^T) V = Q (K^T V): no n x n product
    if kernel == "rbf" and is_narrow(query, key, value):
        from icssl.model.triton_narrow import narrow_attention

        return _with_one_batch_axis(narrow_attention, *square_safe(query, key), value)
    bilinear_query, bilinear_key = bilinear(kernel, query, key)
    return _sdpa(bilinear_query, bilinear_key, value)


def attention_transposed(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
    value: Float[Tensor, "*#batch q v"],
    *,
    backend: str = "dense",
) -> Float[Tensor, "*batch k v"]:
    """Return ``P.T @ value``: what all queries together hand to each key point.

    See :func:`attention_matrix`.
    """
    check_choice("backend", backend, ATTENTION_BACKENDS)
    if backend == "dense":
        return attention_matrix(kernel, query, key).mT @ value
    if kernel == "linear":
        query, key = square_safe(query, key)
        return key @ (query.mT @ value)
    if kernel == "rbf" and is_narrow(query, key, value):
        from icssl.model.triton_narrow import narrow_attention_transposed

        inputs = (*square_safe(query, key), value)
        return _with_one_batch_axis(narrow_attention_transposed, *inputs)
    bilinear_query, bilinear_key = bilinear(kernel, query, key)
    value = value.expand(*bilinear_query.shape[:-2], *value.shape[-2:])
    return _TransposedSDPA.apply(bilinear_query, bilinear_key, value)


def squared_distances(
    a: Float[Tensor, "*batch q d"], b: Float[Tensor, "*batch k d"]
) -> Float[Tensor, "*batch q k"]:
    """Return squared distances by differences: accurate for close points far from zero.

    They can be differentiated any number of times, also where points coincide.
    """
    if not exporting():
        return _SquaredDistances.apply(a, b)
    if a.shape[-1] > _FEW_COORDINATES:  # ONNX has no cdist
        return _distances_by_products(a.double(), b.double()).to(a.dtype)
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(dim=-1)


def is_narrow(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel of :mod:`icssl.model.triton_narrow` takes them and is faster."""
    narrow = query.shape[-1] <= _NARROW_COORDINATES and value.shape[-1] <= _NARROW_COLUMNS
    many = min(query.shape[-2], key.shape[-2]) >= _MANY_POINTS
    usual = query.is_cuda and query.dtype == torch.float32
    return usual and narrow and many and has_triton()


def square_safe(*points: Float[Tensor, "*batch _ d"]) -> tuple[Tensor, ...]:
    """Return ``points``, all shrunk alike where sums of their products would overflow.

    In float32 that begins at coordinates of 1e13 for a million points of a thousand
    coordinates, and later for fewer: smaller inputs come back as they are. Results for such
    huge inputs are finite; what is small beside the largest point is lost.
    """
    most = max(p.shape[-2] for p in points)
    products = size_like(points[0].shape[-1] * most, points[0])
    # 2**20 leaves room for values of up to a million in the product that follows.
    limit = (torch.finfo(points[0].dtype).max / (2**20 * products)) ** 0.5
    sizes = [p.detach().abs().amax(dim=(-2, -1), keepdim=True) for p in points]
    largest = torch.stack(sizes).amax(dim=0)
    shrink = (limit / largest).clamp(max=1)  # an all-zero input gives inf, clamped to one
    return tuple(p * shrink for p in points)


def bilinear(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
) -> tuple[Float[Tensor, "*batch q e"], Float[Tensor, "*batch k e"]]:
    """Return queries and keys whose dot products are the scores, up to row constants.

    For RBF, ``-|v_j - u_i|^2 = 2 v_j . u_i - |u_i|^2 - |v_j|^2`` and the softmax over i
    cancels the last term. A column of ones in the queries brings in what depends on the
    key alone: minus its squared norm.
    """
    check_choice("kernel", kernel, _SCORES)
    query, key = square_safe(query, key)
    bias = torch.zeros_like(key[..., :1])
    if kernel == "rbf":
        # A common shift changes no distance; from the middle the terms cancel least. The
        # median and not the mean, which one far point drags away from all the others.
        centre = _median(key.detach())
        query, key = 2 * (query - centre), key - centre
        bias = -key.square().sum(dim=-1, keepdim=True)
    ones = torch.ones_like(query[..., :1])
    return torch.cat([query, ones], dim=-1), torch.cat([key, bias], dim=-1)


class _SquaredDistances(torch.autograd.Function):
    """cdist squared, with a backward pass of two products.

    Autograd's own would divide by distances, which are zero between duplicates, or hold a
    (q, k, d) buffer of differences.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        if a.is_cuda and a.shape[-1] <= _FEW_COORDINATES:
            # There cdist takes a hundred times as long as reading and writing the result.
            squared = (a[..., :1] - b[..., :1].mT).square()
            for c in range(1, a.shape[-1]):
                difference = a[..., c : c + 1] - b[..., c : c + 1].mT
                squared = squared + difference.square()
            return squared
        if a.is_cuda and a.dtype == torch.float32:
            return _distances_by_products(a.double(), b.double()).to(a.dtype)
        return cdist_squared(a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        # A common shift changes no distance and keeps the products below small.
        middle = b.mean(dim=-2, keepdim=True)
        a, b = a - middle, b - middle
        # d|a_j - b_i|^2 / da_j = 2 (a_j - b_i), summed over i with the weights of grad.
        grad_a = 2 * (grad.sum(-1, keepdim=True) * a - grad @ b)
        grad_b = 2 * (grad.sum(-2).unsqueeze(-1) * b - grad.mT @ a)
        return grad_a, grad_b


class _TransposedSDPA(torch.autograd.Function):
    """P^T G as the vector-Jacobian product of attention with respect to its values.

    Attention is linear in its values, so torch's backward pass of ``P V`` is ``P^T G``, at
    any V. Its own gradient needs no second derivative of the fused kernel: since
    ``<W, P^T G> = <P W, G>``, it is that of plain attention with values ``W``.
    """

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with torch.enable_grad():
            # Any values will do, since the product is linear in them; zeros need no data.
            unread = value.new_zeros(*key.shape[:-1], value.shape[-1], requires_grad=True)
            read = _sdpa(query.detach(), key.detach(), unread)
            (result,) = torch.autograd.grad(read, unread, value)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = ctx.saved_tensors
        with torch.enable_grad():
            query, key = query.detach().requires_grad_(), key.detach().requires_grad_()
            read = _sdpa(query, key, grad)
            grad_query, grad_key = torch.autograd.grad(read, (query, key), value)
        return grad_query, grad_key, read.detach()


def _median(points: Tensor) -> Tensor:
    """Return the median over the points of every coordinate, as one point."""
    if exporting():  # ONNX can only sort
        n = points.shape[-2]
        return points.sort(dim=-2).values[..., (n - 1) // 2, :].unsqueeze(-2)
    return points.median(dim=-2, keepdim=True).values


def _distances_by_products(a: Tensor, b: Tensor) -> Tensor:
    """Return squared distances as |a|^2 + |b|^2 - 2 a.b.

    Small distances are differences of large numbers here, so inputs should be in more
    digits than the points have.
    """
    sizes = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return (sizes - 2 * a @ b.mT).clamp(min=0)


def _with_one_batch_axis(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Apply a function of tensors with one batch axis to tensors with any number."""
    batch = inputs[0].shape[:-2]
    result = function(
        *(t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in inputs)
    )
    return result.reshape(*batch, *result.shape[-2:])


def _rbf_scores(query: Tensor, key: Tensor) -> Tensor:
    return -squared_distances(query, key)


def _dot_scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT


_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rbf": _rbf_scores,
    "softmax": _dot_scores,
    "linear": _dot_scores,
}


def _sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return softmax(query key^T) value, by torch's fused attention kernels.

    They want four axes and one width, a multiple of eight, for all three; otherwise torch
    silently falls back to the n x n matrix. Zero columns change no score.
    """
    # The next multiple of eight.
    width = -(-max(query.shape[-1], value.shape[-1]) // 8) * 8
    batch = query.shape[:-2]

    def in_fused_shape(t: Tensor) -> Tensor:
        wide = pad(t, (0, width - t.shape[-1])).expand(*batch, t.shape[-2], width)
        return wide.reshape(-1, 1, t.shape[-2], width)

    read = scaled_dot_product_attention(
        in_fused_shape(query), in_fused_shape(key), in_fused_shape(value), scale=1.0
    )
    return read.reshape(*batch, query.shape[-2], width)[..., : value.shape[-1]]
