"""Attention as functions of tensors: RBF, softmax and linear, dense and matrix-free.

Tokens are rows. The attention matrix ``P (..., q, k)`` says how much query point j
reads of key point i; ``attention`` is ``P @ value`` and ``attention_transposed`` is
``P.T @ value``. Each runs in one of two backends that must agree:

``"dense"``
    forms ``P``: exact distances, any mask, for small n and for training.
``"matrix_free"``
    never holds ``P``: the two softmax-like kernels go through
    ``scaled_dot_product_attention``, linear attention through associativity. Memory is
    O(n); the mask may then only depend on the key. RBF attention of many points with few
    coordinates, without a mask, goes through a kernel of ours on a GPU in float32.

Axis names of this package: b = episodes, h = heads, n = points, q = query points,
k = key points here and eigenmap features elsewhere, d = coordinates, v = value columns.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

from icssl._util.errors import check_choice
from icssl._util.hardware import has_triton
from icssl.model.stage import exporting, size_like

BACKENDS = ("dense", "matrix_free")
NARROW_COORDINATES = 30
NARROW_COLUMNS = 31
_FEW_COORDINATES = 32
_MANY_POINTS = 2048  # fewer take longer to start than to compute


def attention_matrix(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
    mask: Bool[Tensor, "*#batch #q k"] | None = None,
) -> Float[Tensor, "*batch q k"]:
    r"""The attention matrix itself, finite for any finite query and key.

    Parameters
    ----------
    kernel : {"rbf", "softmax", "linear"}
        ``"rbf"``: :math:`P_{ji} = \mathrm{softmax}_i(-\|v_j - u_i\|^2)`, the paper's
        eq. (attention_rbf) in rows, so that every row sums to one. ``"softmax"``:
        :math:`\mathrm{softmax}_i(v_j \cdot u_i)`. ``"linear"``: :math:`v_j \cdot u_i`.
    query, key : Tensor
        The points v that read and the points u that are read.
    mask : Tensor of bool, optional
        True where a query may read a key. One that may read none gets zeros.
    """
    check_choice("kernel", kernel, _SCORES)
    scores = _SCORES[kernel](*square_safe(query, key))
    if mask is None:
        return scores if kernel == "linear" else scores.softmax(dim=-1)
    if kernel != "linear":
        # Finite, so that a query with nothing to read gets zeros below and not NaN.
        unreadable = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask, unreadable).softmax(dim=-1)
    return scores * mask


def attention(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
    value: Float[Tensor, "*#batch k v"],
    mask: Bool[Tensor, "*#batch #q k"] | None = None,
    *,
    backend: str = "dense",
) -> Float[Tensor, "*batch q v"]:
    """``P @ value``: what each query point reads. See :func:`attention_matrix`.

    Finite for any finite query and key and values up to a million. No fused kernel takes
    float64 on a GPU: there, torch forms the matrix after all.
    """
    check_choice("backend", backend, BACKENDS)
    if backend == "dense":
        return attention_matrix(kernel, query, key, mask) @ value
    if kernel == "linear":
        query, key = square_safe(query, key)
        return query @ (_mask_rows(key, mask).mT @ value)
    if kernel == "rbf" and mask is None and is_narrow(query, key, value):
        from icssl.model.triton_narrow import narrow_attention

        return _folded(narrow_attention, *square_safe(query, key), value)
    bilinear_query, bilinear_key = bilinear(kernel, query, key, mask)
    read = _sdpa(bilinear_query, bilinear_key, value)
    return read if mask is None else read * mask.any(dim=-1, keepdim=True)


def attention_transposed(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
    value: Float[Tensor, "*#batch q v"],
    mask: Bool[Tensor, "*#batch #q k"] | None = None,
    *,
    backend: str = "dense",
) -> Float[Tensor, "*batch k v"]:
    """``P.T @ value``: what each key point is asked for. See :func:`attention_matrix`."""
    check_choice("backend", backend, BACKENDS)
    if backend == "dense":
        return attention_matrix(kernel, query, key, mask).mT @ value
    if kernel == "linear":
        query, key = square_safe(query, key)
        return _mask_rows(key, mask) @ (query.mT @ value)
    if kernel == "rbf" and mask is None and is_narrow(query, key, value):
        from icssl.model.triton_narrow import narrow_attention_transposed

        return _folded(narrow_attention_transposed, *square_safe(query, key), value)
    bilinear_query, bilinear_key = bilinear(kernel, query, key, mask)
    value = value.expand(*bilinear_query.shape[:-2], *value.shape[-2:])
    if mask is not None:
        value = value * mask.any(dim=-1, keepdim=True)
    return _TransposedSDPA.apply(bilinear_query, bilinear_key, value)


def squared_distances(
    a: Float[Tensor, "*batch q d"], b: Float[Tensor, "*batch k d"]
) -> Float[Tensor, "*batch q k"]:
    """Squared distances by differences, accurate also between close, far-off points."""
    if not exporting():
        return _SquaredDistances.apply(a, b)
    if a.shape[-1] > _FEW_COORDINATES:  # ONNX has no cdist
        return _by_products(a.double(), b.double()).to(a.dtype)
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(dim=-1)


def is_narrow(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel of :mod:`icssl.model.triton_narrow` takes them, and gains."""
    narrow = query.shape[-1] <= NARROW_COORDINATES and value.shape[-1] <= NARROW_COLUMNS
    many = min(query.shape[-2], key.shape[-2]) >= _MANY_POINTS
    usual = query.is_cuda and query.dtype == torch.float32
    return usual and narrow and many and has_triton()


def square_safe(*points: Float[Tensor, "*batch _ d"]) -> tuple[Tensor, ...]:
    """``points``, all shrunk alike where sums of their products would overflow.

    Only beyond 1e13 in float32, for a million points of a thousand coordinates, and later
    for fewer: smaller inputs come back as they are. Answers at such scales are finite;
    what is small beside the largest point is lost.
    """
    most = max(p.shape[-2] for p in points)
    products = size_like(points[0].shape[-1] * most, points[0])
    limit = (torch.finfo(points[0].dtype).max / (2**20 * products)) ** 0.5
    sizes = [p.detach().abs().amax(dim=(-2, -1), keepdim=True) for p in points]
    largest = torch.stack(sizes).amax(dim=0)
    shrink = (limit / largest).clamp(max=1)  # an all-zero input gives inf, clamped to one
    return tuple(p * shrink for p in points)


def bilinear(
    kernel: str,
    query: Float[Tensor, "*batch q d"],
    key: Float[Tensor, "*batch k d"],
    mask: Bool[Tensor, "*#batch #q k"] | None = None,
) -> tuple[Float[Tensor, "*batch q e"], Float[Tensor, "*batch k e"]]:
    """Queries and keys whose dot products are the kernel's scores, up to row constants.

    For RBF, ``-|v_j - u_i|^2 = 2 v_j . u_i - |u_i|^2 - |v_j|^2`` and the softmax over i
    cancels the last term. A column of ones carries what depends on the key alone: its
    squared norm, and whether it may be read.
    """
    check_choice("kernel", kernel, _SCORES)
    query, key = square_safe(query, key)
    bias = torch.zeros_like(key[..., :1])
    if kernel == "rbf":
        # A common shift changes no distance; from the middle the terms cancel least. The
        # median, for one far point drags the mean away from all the others.
        seen = key.detach()
        if mask is not None:
            seen = seen.masked_fill(~_key_mask(mask), torch.nan)
        centre = _nanmedian(seen).nan_to_num()
        query, key = 2 * (query - centre), key - centre
        bias = -key.square().sum(dim=-1, keepdim=True)
    if mask is not None:
        # Below every score, yet finite: a zero weight times it is zero going backward.
        unreadable = torch.finfo(bias.dtype).min / 2
        bias = bias.masked_fill(~_key_mask(mask), unreadable)
    ones = torch.ones_like(query[..., :1])
    return torch.cat([query, ones], dim=-1), torch.cat([key, bias], dim=-1)


class _SquaredDistances(torch.autograd.Function):
    """cdist squared. Its backward is two products: no square root, no (q, k, d) buffer."""

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
            return _by_products(a.double(), b.double()).to(a.dtype)
        # cdist's matmul shortcut loses the small distances that decide the graph.
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        # A common shift changes no distance and keeps the products below small.
        middle = b.mean(dim=-2, keepdim=True)
        a, b = a - middle, b - middle
        grad_a = 2 * (grad.sum(-1, keepdim=True) * a - grad @ b)
        grad_b = 2 * (grad.sum(-2).unsqueeze(-1) * b - grad.mT @ a)
        return grad_a, grad_b


class _TransposedSDPA(torch.autograd.Function):
    """P^T G as the vector-Jacobian product of attention with respect to its values.

    Its own gradient needs no second derivative of the fused kernel: since
    ``<W, P^T G> = <P W, G>``, it is that of plain attention with values ``W``.
    """

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with torch.enable_grad():
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


def _nanmedian(points: Tensor) -> Tensor:
    """Of every coordinate, over the points."""
    if exporting():  # ONNX can only sort; what is exported has no mask
        n = points.shape[-2]
        return points.sort(dim=-2).values[..., (n - 1) // 2, :].unsqueeze(-2)
    return points.nanmedian(dim=-2, keepdim=True).values


def _by_products(a: Tensor, b: Tensor) -> Tensor:
    """In more digits than the points have, for small distances are differences here."""
    sizes = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return (sizes - 2 * a @ b.mT).clamp(min=0)


def _folded(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Of tensors with any axes of batches, by a function of those with one."""
    batch = inputs[0].shape[:-2]
    found = function(
        *(t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in inputs)
    )
    return found.reshape(*batch, *found.shape[-2:])


def _rbf_scores(query: Tensor, key: Tensor) -> Tensor:
    return -squared_distances(query, key)


def _dot_scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT


_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rbf": _rbf_scores,
    "softmax": _dot_scores,
    "linear": _dot_scores,
}


def _key_mask(mask: Tensor) -> Tensor:
    """``mask`` as a column over keys; a mask that differs between queries is refused."""
    if mask.shape[-2] != 1:
        raise ValueError(
            "the matrix_free backend takes a mask over keys, of shape (..., 1, k), got "
            f"{tuple(mask.shape)}: use backend='dense' for one that differs by query."
        )
    return mask.mT


def _mask_rows(key: Tensor, mask: Tensor | None) -> Tensor:
    return key if mask is None else key * _key_mask(mask)


def _sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(query key^T) value, in the shape that the fused kernels accept.

    They want four axes and one width, a multiple of eight, for all three; otherwise torch
    silently falls back to the n x n matrix. Zero columns change no score.
    """
    width = -(-max(query.shape[-1], value.shape[-1]) // 8) * 8
    batch = query.shape[:-2]

    def fused(t: Tensor) -> Tensor:
        wide = pad(t, (0, width - t.shape[-1])).expand(*batch, t.shape[-2], width)
        return wide.reshape(-1, 1, t.shape[-2], width)

    read = scaled_dot_product_attention(fused(query), fused(key), fused(value), scale=1.0)
    return read.reshape(*batch, query.shape[-2], width)[..., : value.shape[-1]]
