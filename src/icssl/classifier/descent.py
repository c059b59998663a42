"""The head: gradient descent on the labels in the mixed kernel, and shares of classes."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_SHARE_ROUNDS = 10  # of expectation and maximisation
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


def descend_in_heads(
    kernels: Float[Tensor, "b h m m"],
    target: Float[Tensor, "b m c"],
    valid: Bool[Tensor, "b m"],
    steps: int,
    row_weight: Float[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h m c"]:
    """Return coefficients of labelled rows in several mixed kernels, all at once.

    The parameters are those of :func:`descend`.
    """
    heads = kernels.shape[1]
    target, valid = (part.repeat_interleave(heads, dim=0) for part in (target, valid))
    if row_weight is not None:
        row_weight = row_weight.repeat_interleave(heads, dim=0)
    coefficients = descend(kernels.flatten(0, 1), target, valid, steps, row_weight)
    return coefficients.unflatten(0, (-1, heads))


def guess_shares(
    counts: Float[Tensor, "b c"], trust: Float[Tensor, "b 1"]
) -> Float[Tensor, "b c"]:
    """Return what the counts of labels alone say of the shares of classes.

    Parameters
    ----------
    counts : Tensor
        Labels of every class.
    trust : Tensor
        How much they are trusted: zero gives equal shares, one those of the labels plus
        one each.
    """
    guess = trust * counts + 1
    return guess / guess.sum(-1, keepdim=True)


def estimate_shares(
    logits: Float[Tensor, "b r c"],
    unlabelled: Float[Tensor, "b r"],
    guess: Float[Tensor, "b c"],
    strength: Float[Tensor, "b 1"],
) -> Float[Tensor, "b c"]:
    """Return the shares of the classes, from a first guess and from all rows.

    It is the estimate of largest posterior probability under a Dirichlet prior around the
    guess, by expectation and maximisation. The prior keeps the shares from running away
    where a class is spread out.

    Parameters
    ----------
    logits : Tensor
        Logits of rows, without any prior of the classes.
    unlabelled : Tensor
        One for rows that count, zero for rows whose class is known.
    guess : Tensor
        Shares that are likely before any row is seen.
    strength : Tensor
        Weight of the guess, where all rows together weigh one.
    """
    weight = unlabelled / unlabelled.sum(-1, keepdim=True).clamp(min=1)
    shares = guess
    for _ in range(_SHARE_ROUNDS):
        probability = (logits + shares.clamp(min=_TINY).log()[:, None]).softmax(-1)
        predicted = (weight[:, None] @ probability)[:, 0]
        shares = (strength * guess + predicted) / (strength + predicted.sum(-1)[:, None])
    return shares
