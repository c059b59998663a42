"""``ContextModel``: any table in context, with any classes, by a gated mixture of kernels.

The three stages of the paper, several times over. Stages 1 and 2 of every view are those of
:mod:`icssl.classifier.graphs`; the head descends on the labels, as the paper's does, in a
mixture of kernels whose weights a small network reads off the context. Nothing in it knows
the number of rows, columns or classes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from icssl.classifier.fitted import INTERCEPT, FittedContext, kernel_pieces
from icssl.classifier.gate import FEATURES, evidence
from icssl.classifier.graphs import WeightedGraph
from icssl.classifier.kernels import KERNELS, ContextKernels, LabelKernels
from icssl.classifier.plan import DENSE, Backend
from icssl.classifier.views import VIEWS

_BALANCINGS = 3
_ROWS_READ, _LABELS_READ = 1024, 256  # of a context, by the gate, at most
_UNKNOWN_COLUMNS = 10  # of a graph that was given
_USUAL_CONTRAST = -1.0  # the logarithm, where there are no distances
_SHAPE, _ABOUT = 5, 3  # numbers of a context, and of a view
_TINY = 1e-6


@dataclass(frozen=True)
class ContextConfig:
    """Sizes of a :class:`ContextModel`.

    Parameters
    ----------
    k : int
        Eigenfunctions of every view.
    steps : int
        Of the descent on the labels.
    width, embedding : int
        Of the gate's layers, and of what it knows of each kernel.
    members : int
        Gates, whose weights are averaged.
    """

    k: int = 48
    steps: int = 40
    width: int = 48
    embedding: int = 12
    members: int = 1


@dataclass(frozen=True)
class ContextFeatures:
    """All of a batch of contexts that no weight has a part in.

    Parameters
    ----------
    kernels : ContextKernels
    columns : LabelKernels, optional
        Of the contexts' own rows, where they fit the memory.
    sample : LabelKernels
        Of some of them, at most a thousand.
    centre, length : Tensor of shape (b, e, 1, m) and (b, e, 1, 1)
        What makes kernels comparable.
    among : Tensor of shape (b, e, m, m), optional
        Kernels among labelled rows, where they fit the memory.
    target, real : Tensor of shape (b, m, c) and (b, m)
        Their classes, and which there are: a batch is filled up to one number.
    found, about, context : Tensor of shape (b, e, f), (b, e, a) and (b, s)
        What the gate reads: of kernels, of their views, of the context.
    """

    kernels: ContextKernels
    columns: LabelKernels | None
    sample: LabelKernels
    centre: Tensor
    length: Tensor
    among: Tensor | None
    target: Tensor
    real: Tensor
    found: Tensor
    about: Tensor
    context: Tensor

    @property
    def labels_per_class(self) -> Float[Tensor, " b"]:
        """Labels a class."""
        return self.target.sum((1, 2)) / self.target.shape[-1]

    def mixed(self, mixture: Float[Tensor, "b e"]) -> Float[Tensor, "b m m"]:
        """The kernels among labelled rows by their weights, and what all have in common."""
        if self.among is not None:
            return torch.einsum("be,bemk->bmk", mixture, self.among) + INTERCEPT
        pieces = _among(self.kernels, self.centre, self.real)
        mixed = [torch.einsum("be,bemk->bmk", mixture, a / self.length) for a in pieces]
        return torch.cat(mixed, dim=1) + INTERCEPT


@torch.no_grad()
def features_of_tables(
    x: Float[Tensor, "b n d"],
    y: Int[Tensor, "b n"],
    labelled: Bool[Tensor, "b n"],
    n_classes: int,
    views: Sequence[str],
    k: int,
    backend: Backend = DENSE,
) -> ContextFeatures:
    """Look at tables."""
    indices, real, target = _labels(y, labelled, n_classes, x.dtype)
    kernels = ContextKernels.of_rows(x, indices, target, k, views, backend)
    return _see(kernels, real, target, x.shape[-1])


@torch.no_grad()
def features_of_graphs(
    w: Float[Tensor, "b n n"] | WeightedGraph,
    y: Int[Tensor, "b n"],
    labelled: Bool[Tensor, "b n"],
    n_classes: int,
    k: int,
) -> ContextFeatures:
    """Look at contexts of which only weights between rows are known."""
    dtype = w.dtype if isinstance(w, Tensor) else w.degrees.dtype
    indices, real, target = _labels(y, labelled, n_classes, dtype)
    kernels = ContextKernels.of_weights(w, indices, n_classes, k, real)
    return _see(kernels, real, target, _UNKNOWN_COLUMNS)


def _see(kernels: ContextKernels, real: Tensor, target: Tensor, d: int) -> ContextFeatures:
    columns, centre = _centre(kernels, real)
    step = -(-real.shape[1] // _LABELS_READ)
    among, some_among, trace = _summed_up(_among(kernels, centre, real), step)
    length = (trace / real.sum(1)[:, None]).clamp(min=_TINY)[..., None, None]
    sample = _some_columns(kernels, columns)
    few = sample.kernels[..., ::step] * real[:, None, None, ::step] - centre[..., ::step]
    found = evidence(few / length, some_among / length, target[:, ::step], real[:, ::step])
    among = None if among is None else among / length
    n, c = kernels.view_graphs[0].own.functions.shape[1], kernels.n_classes
    context = _shape_of(real, n, d, c).to(found.dtype)
    about = _about(kernels).to(found.dtype)
    return ContextFeatures(
        kernels, columns, sample, centre, length, among, target, real, found, about, context
    )


def _among(
    kernels: ContextKernels, centre: Tensor, real: Tensor
) -> Iterator[Float[Tensor, "b e r m"]]:
    """Centred kernels of labelled rows with each other, some rows at a time."""
    start = 0
    for columns in kernel_pieces(kernels, kernels.labelled):
        among = columns.kernels * real[:, None, None]
        stop = start + among.shape[2]
        yield (among - centre) * real[:, None, start:stop, None]
        start = stop


def _summed_up(pieces: Iterator[Tensor], step: int) -> tuple[Tensor | None, Tensor, Tensor]:
    """Kernels among labelled rows if they come in one piece; among some; their traces."""
    some, trace, start, first = [], torch.zeros(()), 0, None
    for among in pieces:
        first = among if start == 0 else None
        trace = trace.to(among) + among.diagonal(start, dim1=2, dim2=3).sum(-1)
        some.append(among[:, :, -start % step :: step, ::step].contiguous())
        start += among.shape[2]
    return first, torch.cat(some, dim=2) if len(some) > 1 else some[0], trace


def _some_columns(kernels: ContextKernels, columns: LabelKernels | None) -> LabelKernels:
    """Of all rows, or of some if there are many: the gate reads means."""
    if columns is not None and columns.kernels.shape[2] <= _ROWS_READ:
        return columns
    own = kernels.own()
    b, n, _ = own[0].functions.shape
    count = min(n, _ROWS_READ)
    some = (
        torch.arange(count, device=own[0].functions.device) * (n - 1) // max(count - 1, 1)
    )
    return kernels.label_kernels([one.at(some.expand(b, -1)) for one in own])


class _Gate(nn.Module):
    """What a member knows: weights of kernels, how far to descend, and how sure to be."""

    def __init__(self, config: ContextConfig) -> None:
        super().__init__()
        self.names = nn.Parameter(0.3 * torch.randn(len(KERNELS), config.embedding))
        read = config.embedding + len(FEATURES) + _ABOUT + _SHAPE
        self.weigh = nn.Sequential(
            nn.Linear(read, config.width),
            nn.GELU(),
            nn.Linear(config.width, config.width),
            nn.GELU(),
            nn.Linear(config.width, 1),
        )
        self.scale = nn.Sequential(
            nn.Linear(_SHAPE + len(FEATURES), 16), nn.GELU(), nn.Linear(16, 3)
        )
        last = self.scale[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight.mul_(0.1)
            last.bias.copy_(torch.tensor([1.5, 0.0, -1.0]))

    def forward(
        self, found: Tensor, about: Tensor, context: Tensor, places: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Weights (b, e); logarithms of amplitude, temperature and balance (b, 3)."""
        b, e, _ = found.shape
        names = self.names[places].expand(b, -1, -1)
        shape = context[:, None].expand(-1, e, -1)
        read = torch.cat([names, found, about, shape], dim=-1)
        mixture = self.weigh(read)[..., 0].softmax(-1)
        mean = torch.einsum("be,bef->bf", mixture, found)
        scale = self.scale(torch.cat([context, mean], dim=-1))
        return mixture, scale.clamp(-3, 5)


class ContextModel(nn.Module):
    """Gates over kernels, and a head that descends in their mixture.

    Several members, each a gate that was trained by itself, give the mean of their weights.
    """

    def __init__(self, config: ContextConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or ContextConfig()
        self.calibration: Tensor
        self.gates = nn.ModuleList(_Gate(config) for _ in range(config.members))
        self.register_buffer("calibration", torch.zeros(4))

    def fit(
        self,
        x: Float[Tensor, "b n d"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        n_classes: int,
        views: Sequence[str] = VIEWS,
        backend: Backend = DENSE,
    ) -> FittedContext:
        """Read contexts: rows, the classes of some, and which; in some of the views."""
        k = self.config.k
        return self.fit_features(
            features_of_tables(x, y, labelled, n_classes, views, k, backend)
        )

    def fit_graph(
        self,
        w: Float[Tensor, "b n n"] | WeightedGraph,
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        n_classes: int,
    ) -> FittedContext:
        """Read contexts of which only weights between rows are known."""
        return self.fit_features(
            features_of_graphs(w, y, labelled, n_classes, self.config.k)
        )

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        n_classes: int,
    ) -> Float[Tensor, "b n c"]:
        """Logits of every row of the contexts."""
        return self.fit(x, y, labelled, n_classes).predict_context().logits

    def fit_features(
        self, seen: ContextFeatures, members: Sequence[int] | None = None
    ) -> FittedContext:
        """Weigh the kernels of contexts and descend on the labels, by some members."""
        mixture, scale = self._gated(seen, members)
        amplitude, temperature, balance = scale[:, :, None].split(1, dim=1)
        mixed = seen.mixed(mixture) * amplitude
        coefficients = self._descend(mixed, seen.target, seen.real)
        found = FittedContext(
            seen.kernels,
            seen.columns,
            seen.centre,
            seen.length,
            mixture,
            coefficients * (amplitude * temperature),
            torch.zeros_like(coefficients[:, :1]),
            seen.labels_per_class,
            torch.zeros_like(self.calibration),  # which was fitted to biases without it
        )
        logits = found.predict_kernels(seen.sample).logits
        bias = _balancing(logits, balance.clamp(max=1))
        return replace(found, bias=bias, calibration=self.calibration)

    def _gated(
        self, seen: ContextFeatures, members: Sequence[int] | None
    ) -> tuple[Tensor, Tensor]:
        """Weights of kernels (b, e); amplitude, temperature and balance (b, 3)."""
        places = [KERNELS.index(name) for name in seen.kernels.names]
        chosen = range(len(self.gates)) if members is None else members
        read = (seen.found, seen.about, seen.context, places)
        each = [self.gates[i](*read) for i in chosen]
        mixture = torch.stack([mixture for mixture, _ in each]).mean(dim=0)
        scale = torch.stack([scale for _, scale in each]).mean(dim=0).exp()
        return mixture, scale

    def _descend(self, kernel: Tensor, y: Tensor, real: Tensor) -> Tensor:
        """Coefficients of labelled rows after steps of descent on their cross-entropy.

        With momentum, as Nesterov has it, and a penalty, so that the minimum is that of
        logistic regression in the kernel. Classes weigh alike, however many labels each
        has: which rows get labels says little about how many there are.
        """
        c = y.shape[-1]
        counts = (y * y.sum(1, keepdim=True)).sum(-1).clamp(min=1)
        each = y.sum((1, 2))[:, None] / c  # labels a class
        weight = (real / counts * each)[..., None]
        bound = (kernel * weight.mT).abs().sum(-1).amax(-1)[:, None, None] / 2 + 1
        before = ahead = torch.zeros_like(y)
        momentum = (1 - bound.rsqrt()) / (1 + bound.rsqrt())
        for _ in range(self.config.steps):
            p = (kernel @ ahead).softmax(-1) * real[..., None]
            now = ahead + (weight * (y - p) - ahead) / bound
            before, ahead = now, now + momentum * (now - before)
        return before


def _balancing(logits: Float[Tensor, "b r c"], strength: Tensor) -> Float[Tensor, "b 1 c"]:
    """Take from classes with more than their share of rows, by a part of the excess."""
    bias = torch.zeros_like(logits[:, :1])
    for _ in range(_BALANCINGS):
        share = (logits + bias).softmax(-1).mean(1, keepdim=True)
        excess = share.clamp(min=_TINY).log() + math.log(logits.shape[-1])
        bias = bias - strength * excess
    return bias


def _labels(
    y: Tensor, labelled: Tensor, c: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows are labelled, filled up to one number; whether they are; their classes."""
    most = int(labelled.sum(1).max())
    order = labelled.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    indices = order[:, :most]
    real = labelled.gather(1, indices)
    target = nn.functional.one_hot(y.gather(1, indices).clamp(min=0), c)
    return indices, real, target.to(dtype) * real[..., None]


def _centre(kernels: ContextKernels, real: Tensor) -> tuple[LabelKernels | None, Tensor]:
    """Mean of every kernel over the context, and its columns if they come in one piece."""
    total, count, pieces = torch.zeros(()), 0, 0
    for columns in kernel_pieces(kernels, kernels.own()):
        total = total.to(columns.kernels) + columns.kernels.sum(2, keepdim=True)
        count, pieces = count + columns.kernels.shape[2], pieces + 1
    centre = total / count * real[:, None, None]
    return (columns if pieces == 1 else None), centre


def _shape_of(real: Tensor, n: int, d: int, c: int) -> Float[Tensor, "b s"]:
    """Labels a class, classes, columns, rows, and the share of labels."""
    count = real.sum(1).double()
    fixed = [math.log(c), math.log(d) / 3, math.log(n) / 5]
    about = torch.tensor(fixed, dtype=count.dtype, device=count.device)
    labels_per_class, share = (count / c).log()[:, None], (count / n)[:, None]
    return torch.cat([labels_per_class, about.expand(len(real), -1), share], dim=-1)


def _about(kernels: ContextKernels) -> Float[Tensor, "b e a"]:
    """Of the view of every kernel: contrast, and the eigenvalues about the classes."""
    c, found = kernels.n_classes, {}
    for one in kernels.view_graphs:
        values, scale = one.eigenmap.values, one.own.scale
        last = values.shape[-1] - 1
        inside, beyond = values[:, min(c - 1, last)], values[:, min(2 * c, last)]
        contrast = torch.full_like(inside, _USUAL_CONTRAST)
        if scale is not None:
            contrast = (scale.contrast / scale.far).mean(-1).log()
        found[one.name] = torch.stack([contrast, inside, beyond], dim=-1)
    return torch.stack([found[name.split(".")[0]] for name in kernels.names], dim=1)
