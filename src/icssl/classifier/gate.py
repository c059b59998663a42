"""What the gate reads of a context: for every kernel, how well it would have done."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

FEATURES = (
    "score",  # log-probability of labelled rows, each left out, by class means
    "hits",  # share of them that are right, beyond chance
    "ridge",  # the same of kernel ridge regression, in closed form
    "ridge hits",
    "score where many",  # the first, times the logarithm of labels a class
    "spread",  # of the kernel over rows
    "agreement",  # with the mean prediction of all kernels
    "confidence",
    "balance",  # entropy of the mean prediction
)
_SHARP = 3.0  # of class scores, in units of their spread
_RIDGE = 0.3
_LEVEL = 0.01  # scores that differ by less are level
_TINY = 1e-6


def evidence(
    kernels: Float[Tensor, "b e n m"],
    among: Float[Tensor, "b e m m"],
    y: Float[Tensor, "b m c"],
    real: Bool[Tensor, "b m"],
) -> Float[Tensor, "b e f"]:
    """The features of every kernel, in the order of :data:`FEATURES`.

    Parameters
    ----------
    kernels, among : Tensor
        Between all rows and labelled ones, and among these.
    y : Tensor
        Classes of labelled rows, one-hot.
    real : Tensor
        Which of them are there: contexts of a batch are filled up to one number.
    """
    others = (y.sum(1, keepdim=True) - y).clamp(min=0)  # of each class, without oneself
    judged = ((others * y).sum(-1) > 0) & real  # with nobody else, nothing is learned
    score, hits = _left_out(_class_means(among, y, others, real), y, judged)
    ridge, ridge_hits = _left_out(_ridge(among, y, real), y, judged)
    many = (y.sum((1, 2)) / y.shape[-1]).clamp(min=_TINY).log().clamp(min=0)[:, None]
    predicted = _predicted(kernels, y)
    c = y.shape[-1]
    consensus = predicted.mean(dim=1, keepdim=True)
    agreement = (predicted * consensus).sum(-1).mean(-1) - 1 / c
    confidence = predicted.amax(-1).mean(-1) - 1 / c
    share = predicted.mean(dim=2)
    balance = -(share * share.clamp(min=_TINY).log()).sum(-1) / math.log(c)
    deviation = (kernels.std(2) * real[:, None]).sum(-1) / real.sum(1)[:, None]
    spread = deviation.clamp(min=_TINY).log()
    found = [score, hits, ridge, ridge_hits, score * many, spread]
    return torch.stack([*found, agreement, confidence, balance], dim=-1)


def _class_means(among: Tensor, y: Tensor, others: Tensor, real: Tensor) -> Tensor:
    """Mean similarity of each labelled row to the others of each class."""
    without = among - torch.diag_embed(among.diagonal(dim1=-2, dim2=-1))
    scores = without @ y[:, None] / others.clamp(min=1)[:, None]
    return _sharpened(scores, real)


def _ridge(among: Tensor, y: Tensor, real: Tensor) -> Tensor:
    """Predictions of kernel ridge regression for rows left out, without refitting.

    With H = K (K + r I)^-1, the residual of row i left out is that of the full fit
    divided by 1 - H_ii.
    """
    kernel = _centred((among + among.mT) / 2, real)
    inverse = torch.linalg.inv(kernel + _RIDGE * torch.eye(len(kernel[0, 0])).to(kernel))
    target = (y - 1 / y.shape[-1]) * real[..., None]
    residual = inverse @ target[:, None] / inverse.diagonal(dim1=-2, dim2=-1)[..., None]
    return _sharpened(target[:, None] - residual, real)


def _centred(kernel: Tensor, real: Tensor) -> Tensor:
    """Over the labelled rows, on both sides: nothing is below zero then."""
    share = real.to(kernel.dtype) / real.sum(1, keepdim=True).clamp(min=1)
    both = (real[:, None, :, None] & real[:, None, None]).to(kernel.dtype)
    rows = torch.einsum("beij,bj->bei", kernel, share)
    mean = torch.einsum("bei,bi->be", rows, share)[..., None, None]
    return (kernel - rows[..., None] - rows[:, :, None] + mean) * both


def _predicted(kernels: Tensor, y: Tensor) -> Tensor:
    means = kernels @ (y / y.sum(1, keepdim=True).clamp(min=1))[:, None]
    return _sharpened(means, torch.ones_like(means[:, 0, :, 0], dtype=torch.bool)).softmax(
        -1
    )


def _sharpened(scores: Tensor, real: Tensor) -> Tensor:
    """In units of their standard deviation over the rows that are there."""
    there = real[:, None, :, None].to(scores.dtype)
    count = there.sum((-1, -2), keepdim=True) * scores.shape[-1]
    mean = (there * scores).sum((-1, -2), keepdim=True) / count
    squares = (there * (scores - mean).square()).sum((-1, -2), keepdim=True)
    spread = (squares / (count - 1).clamp(min=1)).sqrt()
    return _SHARP * scores / spread.clamp(min=_TINY)


def _left_out(scores: Tensor, y: Tensor, judged: Tensor) -> tuple[Tensor, Tensor]:
    """Mean log-probability and hits of judged rows, both beyond chance."""
    c, count = y.shape[-1], judged.sum(-1).clamp(min=1)[:, None]
    log_probability = (scores.log_softmax(-1) * y[:, None]).sum(-1) + math.log(c)
    # Nearly the first class alone; classes that are level share it, in whatever order.
    first = (scores / _LEVEL).softmax(-1)
    right = (first * y[:, None]).sum(-1) - 1 / c
    judged = judged[:, None]
    return (
        torch.where(judged, log_probability, 0.0).sum(-1) / count,
        torch.where(judged, right, 0.0).sum(-1) / count,
    )
