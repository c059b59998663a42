"""Whether a graph falls apart into as many parts as there are classes, as labels say.

A walk on a graph of c parts forgets where within its part it began long before it leaves
the part. The c first eigenvalues of its walk are then much nearer to one than the next.
This also holds for long thin shapes, such as the arms of a spiral, in which even the next
eigenvalue is nearly one: what counts is the ratio of the distances from one. That the parts
are the classes is for the labels to say.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icssl.classifier.border import Border
from icssl.classifier.kernels import DIFFUSED, ContextKernels

_PARTS_FORM = DIFFUSED[-1]  # after the longest diffusion, a kernel knows the parts alone
# Where a walk leaves a part so many times as slowly as it mixes within it, parts are clear;
# as a logarithm.
_GAP = Border(math.log(15.0), width=0.5)
# Labelled rows of one class have to be so much more similar than those of two, in a kernel
# that is nearly one within a part and at most zero between parts.
_APART = Border(0.5, width=0.1)


def clarity_of_parts(
    kernels: ContextKernels,
    gram: Float[Tensor, "b e m m"],
    target: Float[Tensor, "b m c"],
    valid: Bool[Tensor, "b m"],
) -> Float[Tensor, "b e"]:
    """Return how clearly each graph falls apart into the classes, from 0 to 1.

    It is zero for kernels that know more than the parts of their graph.

    Parameters
    ----------
    kernels : ContextKernels
        The kernels of a batch of contexts.
    gram : Tensor
        Their values among labelled rows; each column may be shifted.
    target, valid : Tensor
        Classes of the labelled rows, one-hot, and which of these rows exist.
    """
    knows_parts = torch.tensor([kernel.form == _PARTS_FORM for kernel in kernels.kernels])
    clear = _GAP.above(gaps_of_parts(kernels)).to(gram)
    clear = clear * _APART.above(separation_of_classes(gram, target, valid))
    return clear * knows_parts.to(clear)


def gaps_of_parts(kernels: ContextKernels) -> Float[Tensor, "b e"]:
    """Return how many times as slowly walks leave parts as they mix within, as a logarithm.

    The parts are as many as the classes.
    """
    by_graph = {}
    for part in kernels.parts:
        values, limits = part.graph.eigenmap.values, part.graph.eigenmap.limits
        last = values.shape[-1] - 1
        leaving, mixing = (
            1 - values[:, min(place, last)].double() + limits.resolution
            for place in (kernels.n_classes - 1, kernels.n_classes)
        )
        by_graph[part.graph.spec] = (mixing / leaving).log()
    return torch.stack([by_graph[kernel.graph] for kernel in kernels.kernels], dim=1)


def separation_of_classes(
    gram: Float[Tensor, "b e m m"],
    target: Float[Tensor, "b m c"],
    valid: Bool[Tensor, "b m"],
) -> Float[Tensor, "b e"]:
    """Return the least lead, over labelled rows, of their own class over all others.

    A row's lead is its least similarity to a row of its class less its largest to another.
    """
    same = (target @ target.mT > 0)[:, None]
    other = (valid[:, :, None] & valid[:, None])[:, None] & ~same
    least = gram.masked_fill(~same, torch.inf).amin(-2)
    largest = gram.masked_fill(~other, -torch.inf).amax(-2)
    return (least - largest).masked_fill(~valid[:, None], torch.inf).amin(-1)
