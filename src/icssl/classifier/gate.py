"""The gate: a small network that weighs heads and their kernels, and what it reads.

A head is a way to read a table: each column in its own scale, columns of one unit in a
common one, or linearly. The gate weighs kernels within every head, then the heads: in one
softmax over all kernels, many of the wrong geometry would outvote few of the right one. For
every kernel it reads how well that kernel predicts labelled rows that are left out, and
how its predictions for all rows look; for every context, its size, its graphs and the
spreads of its columns. It knows nothing of columns, classes or rows by name, and serves
tables of any shape.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from icssl.classifier.kernels import ContextKernels, GraphKernels, Kernel
from icssl.classifier.view_graph import ViewGraph
from icssl.tables.units import UNIT_NUMBERS

HEADS = ("each", "common", "linear")
"""Ways to read a table: two geometries, and all linear kernels."""

FEATURES = (
    "score",  # log-probability of labelled rows, each left out, by class means
    "hits",  # share of them that are right, beyond chance
    "ridge",  # log-probability by kernel ridge regression, in closed form
    "ridge hits",
    "score where many",  # the first, times the logarithm of labels per class
    "spread",  # standard deviation of the kernel over rows
    "agreement",  # with the mean prediction of all kernels
    "confidence",
    "balance",  # entropy of the mean prediction
)
UNEVENNESS = 5
"""Place, among the numbers about a context, of how unevenly labels fall on classes."""

_CONTEXT_NUMBERS, _GRAPH_NUMBERS = 6, 3  # numbers about a context, and about a graph
_HEAD_EMBEDDING = 4  # numbers that are learned about each head
_CONFIDENCE_WIDTH = 32  # of the hidden layers of what is said of heads, and of the context
_SHARPNESS = 3.0  # of class scores, in units of their spread
_RIDGE = 0.3
_LEVEL = 0.01  # scores that differ by less are level
_USUAL_CONTRAST = -1.0  # logarithm of the contrast, where there are no distances
_TINY = 1e-6


class GateInputs(NamedTuple):
    """What the gate reads of a batch of contexts.

    Parameters
    ----------
    evidence : Tensor of shape (b, e, f)
        Features of every kernel, in the order of :data:`FEATURES`.
    graphs : Tensor of shape (b, e, 3)
        Numbers about the graph that every kernel is made with.
    context : Tensor of shape (b, 12)
        Numbers about the context, and about the units of its columns.
    offered : Tensor of shape (b, h)
        Which heads the gate may use.
    clear : Tensor of shape (b, e)
        How clearly the graph of each kernel falls apart into the classes. The gate was not
        trained with it; only the corrections read it.
    """

    evidence: Tensor
    graphs: Tensor
    context: Tensor
    offered: Tensor
    clear: Tensor


class GateOutput(NamedTuple):
    """What the gate says of a batch of contexts.

    Parameters
    ----------
    mixture : Tensor of shape (b, h, e)
        Weights of the kernels in each head, whose sum is one.
    weights : Tensor of shape (b, h)
        Weights of the heads, whose sum is one.
    amplitude : Tensor of shape (b, h)
        Factor of the mixed kernel of each head.
    sharpness, slope : Tensor of shape (b, 1)
        Logarithm of the factor of the logits, and how much of it a row gains that labels
        reach.
    strength, trust : Tensor of shape (b, 1)
        How much the first guess of the class shares weighs against what is predicted, and
        how much the counts of labels are trusted for that guess.
    """

    mixture: Tensor
    weights: Tensor
    amplitude: Tensor
    sharpness: Tensor
    slope: Tensor
    strength: Tensor
    trust: Tensor


class Gate(nn.Module):
    """Small network that weighs kernels and heads, and says how sure to be.

    Parameters
    ----------
    n_kernels : int
        Kernels that there are, of which a context may have some.
    embedding : int
        Numbers that are learned about each kernel.
    width : int
        Width of the hidden layers that weigh kernels.
    """

    def __init__(self, n_kernels: int, embedding: int, width: int) -> None:
        super().__init__()
        self.names = nn.Parameter(0.3 * torch.randn(n_kernels, embedding))
        self.heads = nn.Parameter(0.3 * torch.randn(len(HEADS), _HEAD_EMBEDDING))
        about = _CONTEXT_NUMBERS + UNIT_NUMBERS
        evidence = len(FEATURES)
        self.weigh = _layers(embedding + evidence + _GRAPH_NUMBERS + about, width, 1)
        self.head = _layers(_HEAD_EMBEDDING + evidence + about, _CONFIDENCE_WIDTH, 2)
        self.confidence = _layers(evidence + about, _CONFIDENCE_WIDTH, 4)
        with torch.no_grad():
            for layers, start in (
                (self.head, [0.0, 1.5]),
                (self.confidence, [0.0, 0.0, 2.0, 0.0]),
            ):
                last = layers[-1]
                assert isinstance(last, nn.Linear)
                last.weight.mul_(0.1)
                last.bias.copy_(torch.tensor(start))

    def forward(
        self, inputs: GateInputs, places: Sequence[int], members: Bool[Tensor, "h e"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return kernel weights, head weights, logarithms of amplitudes, and the rest.

        Parameters
        ----------
        inputs : GateInputs
            What is read.
        places : sequence of int
            Which of all kernels those of the context are.
        members : Tensor
            Which kernels belong to each head.
        """
        b, e, _ = inputs.evidence.shape
        names = self.names[list(places)].expand(b, -1, -1)
        context = inputs.context[:, None].expand(-1, e, -1)
        read = torch.cat([names, inputs.evidence, inputs.graphs, context], dim=-1)
        scores = self.weigh(read)[:, None, :, 0]
        # A head without kernels is not offered; equal scores only keep it finite.
        lowest = torch.finfo(scores.dtype).min
        mixture = scores.masked_fill(~members, lowest).softmax(-1)
        evidence = mixture @ inputs.evidence
        heads = self.heads.expand(b, -1, -1)
        context = inputs.context[:, None].expand(-1, len(HEADS), -1)
        logit, amplitude = self.head(torch.cat([heads, evidence, context], -1)).unbind(-1)
        weights = logit.masked_fill(~inputs.offered, lowest).softmax(-1)
        mean = torch.einsum("bh,bhf->bf", weights, evidence)
        rest = self.confidence(torch.cat([mean, inputs.context], dim=-1))
        return mixture, weights, amplitude.clamp(-3, 5), rest.clamp(-4, 5)


def _layers(n_inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(n_inputs, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, outputs),
    )


def average_gates(
    gates: Iterable[nn.Module],
    inputs: GateInputs,
    places: Sequence[int],
    members: Bool[Tensor, "h e"],
) -> GateOutput:
    """Return what several gates say in the mean: weights, and logarithms of the others."""
    outputs = zip(*(gate(inputs, places, members) for gate in gates), strict=True)
    mixture, weights, amplitude, rest = (torch.stack(part).mean(dim=0) for part in outputs)
    sharpness, slope, strength, trust = rest.split(1, dim=-1)
    return GateOutput(
        mixture, weights, amplitude.exp(), sharpness, slope, strength.exp(), trust.sigmoid()
    )


def head_members(kernels: Sequence[Kernel]) -> Bool[Tensor, "h e"]:
    """Return which kernels belong to each head.

    Whitening undoes any scale of the columns, so that its kernels belong to both
    geometries.
    """
    rows = []
    for head in HEADS:
        if head == "linear":
            rows.append([kernel.form == "linear" for kernel in kernels])
        else:
            has_own = any(kernel.graph.geometry == head for kernel in kernels)
            rows.append(
                [
                    has_own and (k.graph.geometry == head or k.graph.view == "white")
                    for k in kernels
                ]
            )
    return torch.tensor(rows)


def kernel_features(
    kernels: Float[Tensor, "b e n m"],
    gram: Float[Tensor, "b e m m"],
    y: Float[Tensor, "b m c"],
    valid: Bool[Tensor, "b m"],
) -> Float[Tensor, "b e f"]:
    """Return the features of every kernel, in the order of :data:`FEATURES`.

    Parameters
    ----------
    kernels, gram : Tensor
        Kernels between rows and labelled rows, and among labelled rows.
    y : Tensor
        Classes of labelled rows, one-hot.
    valid : Tensor
        Which labelled rows exist: contexts of a batch are filled up to one number.
    """
    c = y.shape[-1]
    others = (y.sum(1, keepdim=True) - y).clamp(min=0)  # of each class, without the row
    judged = ((others * y).sum(-1) > 0) & valid  # alone in its class, nothing is learned
    score, hits = _judge(_class_means(gram, y, others, valid), y, judged)
    ridge, ridge_hits = _judge(_ridge(gram, y, valid), y, judged)
    many = (y.sum((1, 2)) / c).clamp(min=_TINY).log().clamp(min=0)[:, None]
    predicted = _predict(kernels, y)
    consensus = predicted.mean(dim=1, keepdim=True)
    agreement = (predicted * consensus).sum(-1).mean(-1) - 1 / c
    confidence = predicted.amax(-1).mean(-1) - 1 / c
    share = predicted.mean(dim=2)
    balance = -(share * share.clamp(min=_TINY).log()).sum(-1) / math.log(c)
    deviation = (_deviation(kernels) * valid[:, None]).sum(-1) / valid.sum(1)[:, None]
    spread = deviation.clamp(min=_TINY).log()
    of_labels = [score, hits, ridge, ridge_hits, score * many, spread]
    return torch.stack([*of_labels, agreement, confidence, balance], dim=-1)


def _deviation(kernels: Float[Tensor, "b e r m"]) -> Float[Tensor, "b e m"]:
    """Return the deviation over rows; ``std`` takes four times as long in this order."""
    centred = kernels - kernels.mean(2, keepdim=True)
    return (centred.square_().sum(2) / (kernels.shape[2] - 1)).sqrt()


def _class_means(gram: Tensor, y: Tensor, others: Tensor, valid: Tensor) -> Tensor:
    """Return the mean similarity of each labelled row to the others of each class."""
    without_self = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    scores = without_self @ y[:, None] / others.clamp(min=1)[:, None]
    return _sharpen(scores, valid)


def _ridge(gram: Tensor, y: Tensor, valid: Tensor) -> Tensor:
    """Return predictions of kernel ridge regression for rows left out, without refitting.

    With H = K (K + r I)^-1, the residual of row i left out is that of the full fit
    divided by 1 - H_ii.
    """
    kernel = _centre((gram + gram.mT) / 2, valid)
    inverse = torch.linalg.inv(kernel + _RIDGE * torch.eye(len(kernel[0, 0])).to(kernel))
    target = (y - 1 / y.shape[-1]) * valid[..., None]
    # Residuals are r (K + r I)^-1 y, and 1 - H_ii is r (K + r I)^-1_ii: the r cancels.
    residual = inverse @ target[:, None] / inverse.diagonal(dim1=-2, dim2=-1)[..., None]
    return _sharpen(target[:, None] - residual, valid)


def _centre(kernel: Tensor, valid: Tensor) -> Tensor:
    """Centre a kernel over the labelled rows, on both sides."""
    # On both sides, so that it stays positive semidefinite and a ridge makes it invertible.
    share = valid.to(kernel.dtype) / valid.sum(1, keepdim=True).clamp(min=1)
    both = (valid[:, None, :, None] & valid[:, None, None]).to(kernel.dtype)
    rows = torch.einsum("beij,bj->bei", kernel, share)
    mean = torch.einsum("bei,bi->be", rows, share)[..., None, None]
    return (kernel - rows[..., None] - rows[:, :, None] + mean) * both


def _predict(kernels: Tensor, y: Tensor) -> Tensor:
    """Return probabilities of all rows by the mean similarity to each class."""
    means = kernels @ (y / y.sum(1, keepdim=True).clamp(min=1))[:, None]
    every_row = torch.ones_like(means[:, 0, :, 0], dtype=torch.bool)
    return _sharpen(means, every_row).softmax(-1)


def _sharpen(scores: Tensor, valid: Tensor) -> Tensor:
    """Return scores in units of a third of their deviation over the rows that exist."""
    exists = valid[:, None, :, None].to(scores.dtype)
    count = exists.sum((-1, -2), keepdim=True) * scores.shape[-1]
    mean = (exists * scores).sum((-1, -2), keepdim=True) / count
    squares = (exists * (scores - mean).square()).sum((-1, -2), keepdim=True)
    spread = (squares / (count - 1).clamp(min=1)).sqrt()
    return _SHARPNESS * scores / spread.clamp(min=_TINY)


def _judge(scores: Tensor, y: Tensor, judged: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean log-probability and hits of judged rows, both beyond chance."""
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


def context_numbers(
    kernels: ContextKernels, n_columns: int, target: Float[Tensor, "b m c"]
) -> Float[Tensor, "b s"]:
    """Return labels per class, classes, columns, rows, the share of labels, unevenness.

    The last tells whether labels were drawn at random, so that their counts are those of
    the classes, or as many of each class.
    """
    n, c = kernels.parts[0].graph.context.functions.shape[1], kernels.n_classes
    counts = target.sum(1).double()
    total = counts.sum(-1, keepdim=True)
    fixed = [math.log(c), math.log(n_columns) / 3, math.log(n) / 5]
    sizes = torch.tensor(fixed, dtype=counts.dtype, device=counts.device)
    per_class = total / c
    squares = (counts - per_class).square() / per_class
    uneven = (squares.sum(-1, keepdim=True) / (c - 1)).log1p()
    numbers = [per_class.log(), sizes.expand(len(counts), -1), total / n, uneven]
    return torch.cat(numbers, dim=-1)


def graph_numbers(kernels: ContextKernels) -> Float[Tensor, "b e a"]:
    """Return contrast and eigenvalues of the graph that every kernel is made with."""
    by_graph = {part.graph.spec: _numbers_of_graph(part) for part in kernels.parts}
    return torch.stack([by_graph[kernel.graph] for kernel in kernels.kernels], dim=1)


def _numbers_of_graph(part: GraphKernels) -> Float[Tensor, "b a"]:
    values = part.graph.eigenmap.values
    # With c clusters, the first c eigenvalues are near one, the constant one among them:
    # the c-th tells whether there are so many parts, and a later one whether more.
    last = values.shape[-1] - 1
    inside = values[:, min(part.n_classes - 1, last)]
    beyond = values[:, min(2 * part.n_classes, last)]
    contrast = torch.full_like(inside, _USUAL_CONTRAST)
    if isinstance(part.graph, ViewGraph):
        distances = part.graph.context.distances
        contrast = (distances.contrast / distances.far).mean(-1).log()
    return torch.stack([contrast, inside, beyond], dim=-1)
