"""The head: gradient descent on the labels in the mixed kernel, and balance of classes."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_BALANCE_ROUNDS = 3
_TINY = 1e-6


def descend(
    kernel: Float[Tensor, "b m m"],
    target: Float[Tensor, "b m c"],
    valid: Bool[Tensor, "b m"],
    steps: int,
    row_weight: Float[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b m c"]:
    """Return coefficients of labelled rows after steps of descent on their cross-entropy.

    The descent has Nesterov's momentum and a penalty, so that its minimum is that of
    logistic regression in the kernel. Classes have equal weight, however many labels each
    has: class frequencies enter later, through the class prior. A row of weight two counts
    as two equal rows.

    Parameters
    ----------
    kernel : Tensor
        The mixed kernel among labelled rows.
    target : Tensor
        Their classes, one-hot; zeros for rows that do not exist.
    valid : Tensor
        Which labelled rows exist.
    steps : int
        How many steps to make.
    row_weight : Tensor, optional
        How much the label of each row counts; by default each counts one.
    """
    counts = valid.to(target.dtype) if row_weight is None else valid * row_weight
    counted = target * counts[..., None]
    labels_in_class = (target * counted.sum(1, keepdim=True)).sum(-1)
    labels_in_class = torch.where(valid, labels_in_class, 1)
    labels_per_class = counted.sum((1, 2))[:, None] / target.shape[-1]
    weight = (counts / labels_in_class * labels_per_class)[..., None]
    # In the space of functions the gradient at coefficients a is w (softmax(K a) - y) + a,
    # without the factor K. The softmax has slope 1/2 at most, and the penalty, which is the
    # a, has slope one: steps of one over the largest row sum of |K| w, halved, plus one,
    # never overshoot. That the penalty has slope one also gives the momentum.
    bound = (kernel * weight.mT).abs().sum(-1).amax(-1)[:, None, None] / 2 + 1
    momentum = (1 - bound.rsqrt()) / (1 + bound.rsqrt())
    coefficients = ahead = torch.zeros_like(target)
    for _ in range(steps):
        probability = (kernel @ ahead).softmax(-1) * valid[..., None]
        moved = ahead + (weight * (target - probability) - ahead) / bound
        coefficients, ahead = moved, moved + momentum * (moved - coefficients)
    return coefficients


def balance_classes(
    logits: Float[Tensor, "b r c"], strength: Float[Tensor, "b 1 1"]
) -> Float[Tensor, "b 1 c"]:
    """Return a bias that lowers classes predicted for more than an equal share of rows.

    Parameters
    ----------
    logits : Tensor
        Logits of rows of the contexts.
    strength : Tensor
        Which part of the excess is taken in every round.
    """
    bias = torch.zeros_like(logits[:, :1])
    for _ in range(_BALANCE_ROUNDS):
        share = (logits + bias).softmax(-1).mean(1, keepdim=True)
        excess = share.clamp(min=_TINY).log() + math.log(logits.shape[-1])
        bias = bias - strength * excess
    return bias
