"""Corrections of what the gate says, chosen on the development half of the real data.

Synthetic tables teach the gate a lot, but they are not real ones. Some things differ. In
tables of noisy measurements nothing is gained beyond a line, and what tells them is that
kernels disagree. Shapes that lie apart, however long and thin, are easier than any that
were trained on. Few labels tell more on real tables than on synthetic ones, so that the
gate is too cautious. Counts of a few labels drawn at random are mostly noise. And real
classes that overlap make estimated shares run away. The numbers here are few, and
docs/LOG.md says how they were chosen. They are not used while weights are trained.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.classifier.border import Border
from icssl.classifier.gate import FEATURES, HEADS, UNEVENNESS, GateInputs, GateOutput
from icssl.classifier.kernels import Kernel

_AGREEMENT, _HITS = FEATURES.index("agreement"), FEATURES.index("hits")
_MOST_LINEAR = 0.9  # weight of the linear head where nothing speaks against it
# Where kernels agree less than this, a table is noisy; unless diffusion agrees with the
# others by so much more than lines do, or is right by so much more on labels left out.
_NOISY = Border(0.22, width=0.03)
_SHAPED = Border(0.03, width=0.01)
_BETTER = Border(0.15, width=0.03)
# Where a graph clearly falls apart into the classes, its kernel that knows these parts
# weighs more, and heads weigh by what they have of such kernels.
_CLEAR = (
    100.0  # what is added to the weight of a kernel that knows clear parts, as a factor
)
_LEFT = 1e-3  # what heads without such kernels keep of their weight
# Logarithm of the factor of the logits: a constant, by the logarithm of labels per class,
# and by how far agreement is above its usual value.
_SHARPEN = (0.7, -0.4, 1.0)
_USUAL_AGREEMENT = 0.25
# Counts of labels are trusted where they differ by more than chance makes them: by their
# chi-squared per degree of freedom.
_CHANCE = Border(4.0, width=1.0)
# Shares move only as far as they differ by more than this from the first guess: a constant,
# and one for predictions that are not sure, which falls with the root of labels per class.
_LEVEL, _UNSURE = 0.1, 4.0
_TINY = 1e-6


def correct_gate(
    gate: GateOutput,
    inputs: GateInputs,
    kernels: Sequence[Kernel],
    labels_per_class: Float[Tensor, "b 1"],
) -> GateOutput:
    """Return what the gate says, corrected: lines, clear parts, sharpness, and the prior.

    The prior is that of the shares of classes.

    Parameters
    ----------
    gate : GateOutput
        What the gate says.
    inputs : GateInputs
        What it read.
    kernels : sequence of Kernel
        The kernels of the contexts.
    labels_per_class : Tensor
        The mean number of labels per class.
    """
    agreement = inputs.evidence[..., _AGREEMENT].mean(-1, keepdim=True)
    constant, by_labels, by_agreement = _SHARPEN
    sharpness = gate.sharpness + constant + by_labels * labels_per_class.log()
    sharpness = sharpness + by_agreement * (agreement - _USUAL_AGREEMENT)
    weights = _trust_lines(gate.weights, inputs, kernels, agreement)
    mixture, weights = _trust_clear_parts(gate.mixture, weights, inputs.clear)
    return gate._replace(
        mixture=mixture,
        weights=weights,
        sharpness=sharpness,
        strength=gate.strength / labels_per_class,
        trust=gate.trust * _uneven_beyond_chance(inputs.context),
    )


def _uneven_beyond_chance(context: Float[Tensor, "b s"]) -> Float[Tensor, "b 1"]:
    """Return one where the counts of labels differ more than drawing them explains."""
    return _CHANCE.above(context[:, UNEVENNESS, None].expm1())


def _trust_clear_parts(
    mixture: Float[Tensor, "b h e"],
    weights: Float[Tensor, "b h"],
    clear: Float[Tensor, "b e"],
) -> tuple[Float[Tensor, "b h e"], Float[Tensor, "b h"]]:
    """Return weights of kernels and of heads, more for graphs that fall apart into classes.

    Parameters
    ----------
    mixture, weights : Tensor
        Weights of kernels in every head, and of heads.
    clear : Tensor
        How clearly the graph of each kernel falls apart, zero for kernels that know more.
    """
    raised = mixture * (1 + _CLEAR * clear)[:, None]
    mixture = raised / raised.sum(-1, keepdim=True)
    by_parts = weights * (_LEFT + (mixture * clear[:, None]).sum(-1))
    by_parts = by_parts / by_parts.sum(-1, keepdim=True)
    clearest = clear.amax(-1, keepdim=True)
    return mixture, weights + clearest * (by_parts - weights)


def _trust_lines(
    weights: Float[Tensor, "b h"],
    inputs: GateInputs,
    kernels: Sequence[Kernel],
    agreement: Float[Tensor, "b 1"],
) -> Float[Tensor, "b h"]:
    """Return weights of heads, that of the linear one raised where tables are noisy."""
    lines = [kernel.form == "linear" for kernel in kernels]
    diffused = [kernel.form.startswith("relaxed") for kernel in kernels]
    if not any(lines):  # as where a graph was given
        return weights
    of_lines, of_diffused = inputs.evidence[:, lines], inputs.evidence[:, diffused]
    agrees_more = (of_diffused.mean(1) - of_lines.mean(1))[:, _AGREEMENT, None]
    hits_more = (of_diffused.amax(1) - of_lines.amax(1))[:, _HITS, None]
    noisy = torch.ones_like(agreement)
    for value, border in (
        (agreement, _NOISY),
        (agrees_more, _SHAPED),
        (hits_more, _BETTER),
    ):
        noisy = noisy * border.below(value)
    linear = HEADS.index("linear")
    is_linear = torch.zeros_like(weights)
    is_linear[:, linear] = 1.0
    share = torch.maximum(_MOST_LINEAR * noisy, weights[:, linear, None])
    share = share * inputs.offered[:, linear, None]
    others = weights * (1 - is_linear)
    # Where no other head is offered, the linear one keeps all.
    total = others.sum(-1, keepdim=True)
    others = others / total.clamp(min=_TINY)
    return torch.where(total > 0, (1 - share) * others + share * is_linear, weights)


def guard_shares(
    shares: Float[Tensor, "b c"],
    guess: Float[Tensor, "b c"],
    logits: Float[Tensor, "b r c"],
    unlabelled: Float[Tensor, "b r"],
    labels_per_class: Float[Tensor, "b 1"],
) -> Float[Tensor, "b c"]:
    """Return shares that differ from a first guess only where there is evidence for it.

    Parameters
    ----------
    shares, guess : Tensor
        The estimated shares, and what was known before rows were seen.
    logits, unlabelled : Tensor
        Logits of rows, and one for those that count.
    labels_per_class : Tensor
        The mean number of labels per class.
    """
    sure = logits.softmax(-1).amax(-1)
    total = unlabelled.sum(-1, keepdim=True).clamp(min=1)
    sure = (sure * unlabelled).sum(-1, keepdim=True) / total
    level = _LEVEL + _UNSURE * (1 - sure) * labels_per_class.rsqrt()
    moved = (shares.clamp(min=_TINY) / guess).log()
    moved = moved.sign() * (moved.abs() - level).clamp(min=0)
    return (guess.log() + moved).softmax(-1)
