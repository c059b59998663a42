"""Everything computed from contexts before any learned weight is used.

Kernels are made comparable, so that they can be mixed: centred over the rows of a context,
and divided by their mean trace over its labelled rows. The gate reads some of their values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from icssl.classifier.gate import (
    GateInputs,
    context_numbers,
    graph_numbers,
    head_members,
    kernel_features,
)
from icssl.classifier.geometry import Units
from icssl.classifier.graph_parts import clarity_of_parts
from icssl.classifier.graphs import DENSE, Backend, GraphSpec, WeightedGraph
from icssl.classifier.kernels import GRAPHS, ContextKernels, LabelKernels

_INTERCEPT = 1.0  # a constant kernel, which is what all rows have in common
_ROWS_READ, _LABELS_READ = 1024, 256  # rows of a context that the gate reads, at most
_UNKNOWN_COLUMNS = 10  # columns that a graph that was given is said to have
_TINY = 1e-6


@dataclass(frozen=True)
class CentredKernels:
    """Kernels that can be compared and mixed: centred over the context, of mean trace one.

    Parameters
    ----------
    kernels : ContextKernels
        The kernels as they are.
    context : LabelKernels, optional
        Their values for all rows of the contexts, where these fit the memory at once.
    centre : Tensor of shape (b, e, 1, m)
        Mean of every kernel over the rows of a context.
    trace : Tensor of shape (b, e, 1, 1)
        Mean of every centred kernel of a labelled row with itself.
    """

    kernels: ContextKernels
    context: LabelKernels | None
    centre: Tensor
    trace: Tensor

    def mix(
        self, values: LabelKernels, mixture: Float[Tensor, "b h e"]
    ) -> Float[Tensor, "b h r m"]:
        """Return weighted sums of the kernels, zero for rows far from the context."""
        # Centred after they are mixed, which is the same and moves fewer numbers.
        mixture = mixture / self.trace[:, None, :, 0, 0]
        mixed = torch.einsum("bhe,berm->bhrm", mixture, values.kernels)
        centre = torch.einsum("bhe,beom->bhom", mixture, self.centre)
        return (mixed - centre + _INTERCEPT) * values.contact[:, None, :, None]


@dataclass(frozen=True)
class LabelGram:
    """Centred kernels among the labelled rows.

    Parameters
    ----------
    kernels : CentredKernels
        What they are made with.
    whole : Tensor of shape (b, e, m, m), optional
        All of them, where they fit the memory at once.
    sample : Tensor of shape (b, e, s, s)
        Those of some labelled rows, which is what the gate reads.
    stride : int
        Every so many labelled rows, one is in the sample.
    """

    kernels: CentredKernels
    whole: Tensor | None
    sample: Tensor
    stride: int

    def mix(self, mixture: Float[Tensor, "b h e"]) -> Float[Tensor, "b h m m"]:
        """Return mixtures of the kernels among labelled rows."""
        pieces = [self.whole] if self.whole is not None else self._pieces()
        mixed = [torch.einsum("bhe,bemk->bhmk", mixture, piece) for piece in pieces]
        return torch.cat(mixed, dim=2) + _INTERCEPT

    def _pieces(self) -> Iterator[Tensor]:
        centre, trace = self.kernels.centre, self.kernels.trace
        for _, piece in _gram_pieces(self.kernels.kernels, centre):
            yield piece / trace


def _centre_kernels(
    kernels: ContextKernels, stride: int
) -> tuple[CentredKernels, LabelGram]:
    """Centre kernels, and return them with those among labelled rows.

    Parameters
    ----------
    kernels : ContextKernels
        The kernels of a batch of contexts.
    stride : int
        Every so many labelled rows, one is in the sample of the gram matrices.
    """
    valid, total, count = kernels.valid, torch.zeros(()), 0
    for _, values in kernels.in_pieces(kernels.context_rows()):
        total = total.to(values.kernels) + values.kernels.sum(2, keepdim=True)
        count += values.kernels.shape[2]
    context = values if values.kernels.shape[2] == count else None  # all came at once
    centre = total / count * valid[:, None, None]
    whole, sample, diagonal = None, [], torch.zeros(())
    for part, piece in _gram_pieces(kernels, centre):
        # The diagonal of all labelled rows goes through this piece from its first row on.
        diagonal = diagonal.to(piece) + piece.diagonal(part.start, dim1=2, dim2=3).sum(-1)
        sampled = torch.arange(part.start, part.stop) % stride == 0
        sample.append(piece[:, :, sampled.to(piece.device)][..., ::stride])
        whole = piece if piece.shape[2] == valid.shape[1] else None
    trace = (diagonal / valid.sum(1)[:, None]).clamp(min=_TINY)[..., None, None]
    centred = CentredKernels(kernels, context, centre, trace)
    whole = None if whole is None else whole / trace
    return centred, LabelGram(centred, whole, torch.cat(sample, dim=2) / trace, stride)


def _gram_pieces(
    kernels: ContextKernels, centre: Tensor
) -> Iterator[tuple[slice, Float[Tensor, "b e r m"]]]:
    """Yield centred kernels of labelled rows with each other, some rows at a time."""
    valid = kernels.valid
    for part, values in kernels.in_pieces(kernels.labelled_rows()):
        gram = values.kernels * valid[:, None, None] - centre
        yield part, gram * valid[:, None, part, None]


@dataclass(frozen=True)
class ContextFeatures:
    """Everything computed from a batch of contexts before any learned weight is used.

    Parameters
    ----------
    centred : CentredKernels
        The kernels with the labelled rows, which can be mixed.
    gram : LabelGram
        The kernels among the labelled rows.
    sample : LabelKernels
        Kernel values for some rows of the contexts, at most 1,024.
    unlabelled : Tensor of shape (b, rows of the sample)
        One for rows without a label, zero for the others.
    target : Tensor of shape (b, m, c)
        Classes of the labelled rows, one-hot.
    inputs : GateInputs
        What the gate reads.
    """

    centred: CentredKernels
    gram: LabelGram
    sample: LabelKernels
    unlabelled: Tensor
    target: Tensor
    inputs: GateInputs

    @property
    def kernels(self) -> ContextKernels:
        """The kernels before they are centred."""
        return self.centred.kernels


@torch.no_grad()
def features_of_tables(
    x: Float[Tensor, "b n d"],
    y: Int[Tensor, "b n"],
    labelled: Bool[Tensor, "b n"],
    n_classes: int,
    graphs: Sequence[GraphSpec],
    k: int,
    backend: Backend = DENSE,
    units: Units | None = None,
    draws: int = 1,
) -> ContextFeatures:
    """Compute views, graphs, kernels and gate inputs of a batch of tables."""
    units = units or Units.unknown(x)
    indices, _, target = _labelled_rows(y, labelled, n_classes, x.dtype)
    kernels = ContextKernels.of_tables(
        x, indices, target, k, graphs, backend, factors=units.factors, draws=draws
    )
    return _features(kernels, target, labelled, x.shape[-1], units)


@torch.no_grad()
def features_of_graphs(
    w: Float[Tensor, "b n n"] | WeightedGraph,
    y: Int[Tensor, "b n"],
    labelled: Bool[Tensor, "b n"],
    n_classes: int,
    k: int,
    spec: GraphSpec = GRAPHS[0],
) -> ContextFeatures:
    """Compute kernels and gate inputs of contexts given as weights between rows."""
    dtype = w.dtype if isinstance(w, Tensor) else w.degrees.dtype
    indices, valid, target = _labelled_rows(y, labelled, n_classes, dtype)
    kernels = ContextKernels.of_affinities(w, indices, n_classes, k, valid, spec)
    return _features(kernels, target, labelled, _UNKNOWN_COLUMNS, None)


def _features(
    kernels: ContextKernels,
    target: Tensor,
    labelled: Tensor,
    n_columns: int,
    units: Units | None,
) -> ContextFeatures:
    """Centre the kernels, and compute what the gate reads: from some rows, if many."""
    stride = -(-target.shape[1] // _LABELS_READ)
    centred, gram = _centre_kernels(kernels, stride)
    sample, rows_read = _sample_rows(centred)
    labels, valid = target[:, ::stride], kernels.valid[:, ::stride]
    # In place: new memory for so many kernels costs more than the arithmetic.
    values = sample.kernels[..., ::stride] * valid[:, None, None]
    values.sub_(centred.centre[..., ::stride]).div_(centred.trace)
    about_kernels = kernel_features(values, gram.sample, labels, valid)
    numbers = [graph_numbers(kernels), context_numbers(kernels, n_columns, target)]
    about_graphs, about_context = (part.to(about_kernels) for part in numbers)
    if units is None:
        units = Units.unknown(about_context[:, None])
    about_context = torch.cat([about_context, units.numbers.to(about_context)], dim=-1)
    has_kernels = head_members(kernels.kernels).any(dim=-1).to(about_context.device)
    always = torch.ones_like(units.offered[:, :1])
    offered = torch.cat([units.offered, always], dim=-1) & has_kernels
    # Of the kernels as they are: a factor of their own would blur what is nearly one.
    clear = clarity_of_parts(kernels, gram.sample * centred.trace, labels, valid)
    inputs = GateInputs(about_kernels, about_graphs, about_context, offered, clear)
    unlabelled = (~labelled.gather(1, rows_read)).to(about_context)
    return ContextFeatures(centred, gram, sample, unlabelled, target, inputs)


def _sample_rows(centred: CentredKernels) -> tuple[LabelKernels, Int[Tensor, "b s"]]:
    """Return kernel values for all rows of a context, or for some if many, and which."""
    placed = centred.kernels.context_rows()
    b, n, _ = placed[0].functions.shape
    count = min(n, _ROWS_READ)
    # Evenly from the first row to the last.
    indices = torch.arange(count, device=placed[0].functions.device)
    indices = (indices * (n - 1) // max(count - 1, 1)).expand(b, -1)
    if centred.context is not None and count == n:
        return centred.context, indices
    return centred.kernels.label_kernels([rows.at(indices) for rows in placed]), indices


def _labelled_rows(
    y: Tensor, labelled: Tensor, n_classes: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices of the labelled rows, which of these are valid, and one-hot classes.

    Contexts of a batch can have different numbers of labels. All have as many indices as
    the one with most; rows without a label fill up the others, and are not valid.
    """
    most = int(labelled.sum(1).max())
    order = labelled.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    indices = order[:, :most]
    valid = labelled.gather(1, indices)
    target = one_hot(y.gather(1, indices).clamp(min=0), n_classes)
    return indices, valid, target.to(dtype) * valid[..., None]
