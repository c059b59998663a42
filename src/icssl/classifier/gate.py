"""The gate: a small network that weighs the kernels of a context, and what it reads.

For every kernel it reads how well that kernel predicts labelled rows that are left out, and
how its predictions for all rows look; for every context, its size and its graphs. It knows
nothing of columns, classes or rows by name, and serves tables of any shape.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from icssl.classifier.kernels import ContextKernels, GraphKernels
from icssl.classifier.view_graph import ViewGraph

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
_CONTEXT_NUMBERS, _GRAPH_NUMBERS = 5, 3  # numbers about a context, and about a graph
_CONFIDENCE_WIDTH = 16  # of the hidden layer that gives amplitude, sharpness and balance
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
    context : Tensor of shape (b, 5)
        Numbers about the context.
    """

    evidence: Tensor
    graphs: Tensor
    context: Tensor


class GateOutput(NamedTuple):
    """What the gate says of a batch of contexts.

    Parameters
    ----------
    mixture : Tensor of shape (b, e)
        Weights of the kernels, whose sum is one.
    amplitude, sharpness, balance : Tensor of shape (b, 1, 1)
        Factor of the mixed kernel; factor of the logits (larger is more
        confident); strength of class balancing.
    """

    mixture: Tensor
    amplitude: Tensor
    sharpness: Tensor
    balance: Tensor


class Gate(nn.Module):
    """Small network that gives kernel weights, amplitude, sharpness and class balance.

    Parameters
    ----------
    n_kernels : int
        Kernels that there are, of which a context may have some.
    embedding : int
        Numbers that are learned about each kernel.
    width : int
        Width of the hidden layers.
    """

    def __init__(self, n_kernels: int, embedding: int, width: int) -> None:
        super().__init__()
        self.names = nn.Parameter(0.3 * torch.randn(n_kernels, embedding))
        n_inputs = embedding + len(FEATURES) + _GRAPH_NUMBERS + _CONTEXT_NUMBERS
        self.weigh = nn.Sequential(
            nn.Linear(n_inputs, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )
        first = nn.Linear(_CONTEXT_NUMBERS + len(FEATURES), _CONFIDENCE_WIDTH)
        last = nn.Linear(_CONFIDENCE_WIDTH, 3)
        # Files of weights know the layers of :attr:`confidence` by this older name.
        self.scale = nn.Sequential(first, nn.GELU(), last)
        with torch.no_grad():
            last.weight.mul_(0.1)
            last.bias.copy_(torch.tensor([1.5, 0.0, -1.0]))

    @property
    def confidence(self) -> nn.Sequential:
        """The layers that give logarithms of amplitude, sharpness and balance."""
        return self.scale

    def forward(self, inputs: GateInputs, places: list[int]) -> tuple[Tensor, Tensor]:
        """Return kernel weights (b, e), and logarithms of the other outputs (b, 3).

        ``places`` says which of all kernels those of the context are.
        """
        b, e, _ = inputs.evidence.shape
        names = self.names[places].expand(b, -1, -1)
        context = inputs.context[:, None].expand(-1, e, -1)
        read = torch.cat([names, inputs.evidence, inputs.graphs, context], dim=-1)
        mixture = self.weigh(read)[..., 0].softmax(-1)
        mean = torch.einsum("be,bef->bf", mixture, inputs.evidence)
        logarithms = self.confidence(torch.cat([inputs.context, mean], dim=-1))
        return mixture, logarithms.clamp(-3, 5)


def average_gates(
    gates: Iterable[nn.Module], inputs: GateInputs, places: list[int]
) -> GateOutput:
    """Return what several gates say in the mean: weights, and logarithms of the others."""
    mixtures, logarithms = zip(*(gate(inputs, places) for gate in gates), strict=True)
    factors = torch.stack(logarithms).mean(dim=0).exp()[:, :, None]
    return GateOutput(torch.stack(mixtures).mean(dim=0), *factors.split(1, dim=1))


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
    deviation = (kernels.std(2) * valid[:, None]).sum(-1) / valid.sum(1)[:, None]
    spread = deviation.clamp(min=_TINY).log()
    of_labels = [score, hits, ridge, ridge_hits, score * many, spread]
    return torch.stack([*of_labels, agreement, confidence, balance], dim=-1)


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


def context_numbers(kernels: ContextKernels, n_columns: int) -> Float[Tensor, "b s"]:
    """Return labels per class, classes, columns, rows, and the share of labels."""
    n, c = kernels.parts[0].graph.context.functions.shape[1], kernels.n_classes
    count = kernels.valid.sum(1).double()
    fixed = [math.log(c), math.log(n_columns) / 3, math.log(n) / 5]
    sizes = torch.tensor(fixed, dtype=count.dtype, device=count.device)
    per_class, share = (count / c).log()[:, None], (count / n)[:, None]
    return torch.cat([per_class, sizes.expand(len(count), -1), share], dim=-1)


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
