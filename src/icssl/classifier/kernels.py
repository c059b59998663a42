"""Kernels between rows and the labelled rows, in which the classifier descends.

:data:`GRAPHS` declares every graph and every kernel: all names, sizes and counts follow
from it, and adding one takes a line there and new weights. In most graphs kernels have ten
forms. Five come from coordinates: linear, cosine, and three Gaussian widths. Five are
cosines after some diffusion along the eigenmap: two times are in steps, three are multiples
of the time after which a walk remembers which part of the graph it began in, but not where
within that part; classes are taken to be the parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from icssl._util.progress import begin_steps
from icssl.classifier.graphs import (
    BANDWIDTH_NEIGHBOURS,
    DENSE,
    FEW_NEIGHBOURS,
    Backend,
    GraphSpec,
    WeightedGraph,
    blocks,
    squared_distances,
)
from icssl.classifier.view_graph import (
    AffinityGraph,
    ContextGraph,
    PlacedPoints,
    PlacedRows,
    ViewGraph,
    view_graphs,
)
from icssl.classifier.views import Views

STEPS = (2, 6)
RELAXATIONS = (0.5, 1.5, 4.0)
REACH_TIME = 16  # steps of a walk within which a label reaches a row
_COORDINATE = ("linear", "cosine", "wide", "narrow", "local")
DIFFUSED = (*(f"steps{t}" for t in STEPS), *(f"relaxed{t}" for t in RELAXATIONS))
FORMS = (*_COORDINATE, *DIFFUSED)
ABSOLUTE = "absolute"

GRAPHS: tuple[GraphSpec, ...] = (
    GraphSpec("raw", BANDWIDTH_NEIGHBOURS, FORMS),
    GraphSpec("raw", FEW_NEIGHBOURS, DIFFUSED),
    GraphSpec("ranks", BANDWIDTH_NEIGHBOURS, (*FORMS, ABSOLUTE)),
    GraphSpec("half", BANDWIDTH_NEIGHBOURS, FORMS),
    GraphSpec("white", BANDWIDTH_NEIGHBOURS, FORMS),
    GraphSpec("relevant", BANDWIDTH_NEIGHBOURS, FORMS),
    GraphSpec("raw", BANDWIDTH_NEIGHBOURS, FORMS, "common"),
    GraphSpec("raw", FEW_NEIGHBOURS, DIFFUSED, "common"),
    GraphSpec("half", BANDWIDTH_NEIGHBOURS, FORMS, "common"),
)
"""Every graph of the released model, and the kernels it gives. The first of a geometry is
the only one of ``model="one view"``; a graph that a user gives takes its place."""

MAIN_VIEWS = ("raw", "ranks", "relevant")
"""Views of ``model="main views"``, which are enough where rows are many: without whitened
ones, whose neighbours take longest to find, accuracy on the development half is the same to
a tenth of a point."""

GEOMETRIES = ("each", "common")
"""Ways to scale columns: each by itself, or those of one unit in common."""


def graphs_of_geometry(geometry: str) -> tuple[GraphSpec, ...]:
    """Return the graphs with which one geometry is read, its own first.

    Whitening undoes any scale of the columns, so that its graph serves both.
    """
    own = tuple(graph for graph in GRAPHS if graph.geometry == geometry)
    return own + tuple(g for g in GRAPHS if g.view == "white" and g not in own)


MOST_KERNEL_VALUES = 2**26  # of all kernels between rows and labelled rows, at once
_MEAN_ROWS = 1000  # rows that are enough for the mean of absolute differences
_NO_DIRECTION = 1e-3  # a row so short, where one is the usual length, has no direction
_TINY = 1e-6


class Kernel(NamedTuple):
    """One kernel: a form, made with a graph."""

    graph: GraphSpec
    form: str

    def __str__(self) -> str:
        usual = self.graph.neighbours == BANDWIDTH_NEIGHBOURS
        scale = "" if self.graph.geometry == "each" else "common "
        neighbours = "" if usual else self.graph.neighbours
        return f"{scale}{self.graph.view}{neighbours}.{self.form}"


def kernels_of(graphs: Iterable[GraphSpec]) -> tuple[Kernel, ...]:
    """Return the kernels of some graphs, in the order in which the gate knows them."""
    return tuple(Kernel(graph, form) for graph in graphs for form in graph.forms)


KERNELS = kernels_of(GRAPHS)


class LabelKernels(NamedTuple):
    """Kernel values between some rows and the labelled rows.

    Parameters
    ----------
    kernels : Tensor of shape (b, e, r, m)
        Values of every kernel.
    contact : Tensor of shape (b, r)
        One for a row as close to the context as its own rows, zero far from all of them.
    reach : Tensor of shape (b, r)
        How likely a walk from the row meets a labelled one, at most one, times contact.
    """

    kernels: Tensor
    contact: Tensor
    reach: Tensor

    @torch.no_grad()
    def likeness(
        self, weights: Float[Tensor, "b e"], valid: Bool[Tensor, "b m"]
    ) -> Float[Tensor, "b r"]:
        """Return how alike each row is to the labelled row that is most like it.

        It is from 0 to 1: the weighted mean of the kernels, times contact.

        Parameters
        ----------
        weights : Tensor
            How much every kernel counts; their sum is one.
        valid : Tensor
            Which labelled rows exist.
        """
        mixed = torch.einsum("be,berm->brm", weights, self.kernels)
        mixed = mixed.masked_fill(~valid[:, None], 0.0)
        return self.contact * mixed.amax(dim=-1).clamp(0, 1)


@dataclass(frozen=True)
class GraphKernels:
    """The kernels of one graph.

    Parameters
    ----------
    graph : ViewGraph or AffinityGraph
        The graph, with the context's rows in it.
    labelled : PlacedRows
        The labelled rows in it.
    kernels : tuple of Kernel
        Which kernels to make.
    n_classes : int
        Number of classes, which are thought of as the parts of the graph.
    absolute_mean : Tensor of shape (b, 1, 1), optional
        Mean sum of absolute differences, if these are among the kernels.
    """

    graph: ContextGraph
    labelled: PlacedRows
    kernels: tuple[Kernel, ...]
    n_classes: int
    absolute_mean: Tensor | None = None

    def values(self, rows: PlacedRows) -> dict[Kernel, Float[Tensor, "b r m"]]:
        """Return every kernel between some rows and the labelled rows."""
        by_form, labelled = self._diffusion_kernels(rows), self.labelled
        # Rows of a graph that a user gave have no coordinates, and no kernels of them.
        if isinstance(rows, PlacedPoints) and isinstance(labelled, PlacedPoints):
            if any(kernel.form in _COORDINATE for kernel in self.kernels):
                by_form |= _coordinate_kernels(rows, labelled)
            if self.absolute_mean is not None:
                differences = torch.cdist(rows.points, labelled.points, p=1)
                by_form[ABSOLUTE] = (-2 * differences / self.absolute_mean).exp()
        return {kernel: by_form[kernel.form] for kernel in self.kernels}

    def _diffusion_kernels(self, rows: PlacedRows) -> dict[str, Tensor]:
        eigenmap = self.graph.eigenmap
        relaxed = eigenmap.relaxation(self.n_classes)
        times: list[float | Tensor] = [*STEPS, *(relaxed * t for t in RELAXATIONS)]
        return {
            form: _cosine(
                eigenmap.diffusion_features(rows.functions, time),
                eigenmap.diffusion_features(self.labelled.functions, time),
            )
            for form, time in zip(DIFFUSED, times, strict=True)
        }

    def reach(self, rows: PlacedRows, valid: Bool[Tensor, "b m"]) -> Float[Tensor, "b r"]:
        """Return how likely a walk ends at the likeliest labelled row; 1 is average."""
        eigenmap = self.graph.eigenmap
        start = eigenmap.diffusion_features(rows.functions, REACH_TIME)
        end = eigenmap.diffusion_features(self.labelled.functions, REACH_TIME)
        likely = (start @ end.mT).masked_fill(~valid[:, None], -1.0)
        return (1 + likely.amax(dim=-1)).clamp(0, 1)


@dataclass(frozen=True)
class ContextKernels:
    """The kernels of a batch of contexts.

    Parameters
    ----------
    views : dict of str to Views
        Views of the tables by geometry; none where graphs were given.
    factors : Tensor of shape (b, 1, d), optional
        What columns are multiplied with in the common geometry.
    parts : tuple of GraphKernels
        The kernels by graph.
    valid : Tensor of shape (b, m)
        Which labelled rows exist; the others fill the batch up to one number of them.
    n_classes : int
        Number of classes.
    """

    views: dict[str, Views]
    factors: Tensor | None
    parts: tuple[GraphKernels, ...]
    valid: Bool[Tensor, "b m"]
    n_classes: int

    @classmethod
    def of_tables(
        cls,
        x: Float[Tensor, "b n d"],
        labelled: Int[Tensor, "b m"],
        target: Float[Tensor, "b m c"],
        k: int,
        graphs: Sequence[GraphSpec] = GRAPHS,
        backend: Backend = DENSE,
        *,
        factors: Float[Tensor, "b d"] | None = None,
        draws: int = 1,
    ) -> "ContextKernels":
        """Make the views, graphs and eigenmaps of tables, and place the labelled rows.

        Parameters
        ----------
        x : Tensor
            Columns of the tables, each with deviation one.
        labelled, target : Tensor
            Indices of labelled rows, and their classes, one-hot; zeros for none.
        k : int
            Eigenfunctions of every graph.
        graphs : sequence of GraphSpec
            The graphs to make.
        backend : Backend
            How they are held.
        factors : Tensor, optional
            What columns are multiplied with in the common geometry; one by default.
        draws : int
            How often every table comes, one after the other, with other labels.
        """
        factors = None if factors is None else factors[:, None]
        begin_steps(len(graphs), "graphs of the rows")
        views, parts = {}, []
        valid, n_classes = target.sum(-1) > 0, target.shape[-1]
        for geometry in dict.fromkeys(graph.geometry for graph in graphs):
            chosen = [graph for graph in graphs if graph.geometry == geometry]
            names = tuple(dict.fromkeys(graph.view for graph in chosen))
            rows = _in_geometry(x, geometry, factors)
            fitted, in_views = Views.fit_rows(rows, names, labelled, target, draws)
            views[geometry], points = fitted, dict(zip(names, in_views, strict=True))
            parts += [
                _graph_kernels(graph, labelled, valid, n_classes)
                for graph in view_graphs(chosen, x, points, k, backend, draws)
            ]
        return cls(views, factors, tuple(parts), valid, n_classes)

    @classmethod
    def of_affinities(
        cls,
        w: Float[Tensor, "b n n"] | WeightedGraph,
        labelled: Int[Tensor, "b m"],
        n_classes: int,
        k: int,
        valid: Bool[Tensor, "b m"] | None = None,
        spec: GraphSpec = GRAPHS[0],
    ) -> "ContextKernels":
        """Make the eigenmap of graphs that were given, in the place of a declared one."""
        graph = AffinityGraph.of_weights(spec, w, k)
        valid = torch.ones_like(labelled, dtype=torch.bool) if valid is None else valid
        kernels = tuple(kernel for kernel in kernels_of([spec]) if kernel.form in DIFFUSED)
        part = GraphKernels(graph, graph.context.at(labelled), kernels, n_classes)
        return cls({}, None, (part,), valid, n_classes)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels in order, some of :data:`KERNELS`."""
        return tuple(kernel for part in self.parts for kernel in part.kernels)

    @property
    def rows_at_once(self) -> int:
        """How many new rows are placed together."""
        return self.parts[0].graph.rows_at_once

    def context_rows(self) -> list[PlacedRows]:
        """Return the rows of the contexts in every graph."""
        return [part.graph.context for part in self.parts]

    def labelled_rows(self) -> list[PlacedRows]:
        """Return the labelled rows in every graph."""
        return [part.labelled for part in self.parts]

    def place(self, x: Float[Tensor, "b r d"]) -> list[PlacedRows]:
        """Place new rows in every graph; of a given graph, x are weights to its rows."""
        if not self.views:
            return [self.parts[0].graph.place(x)]
        points = {
            (geometry, name): rows
            for geometry, views in self.views.items()
            for name, rows in zip(
                views.names, views(_in_geometry(x, geometry, self.factors)), strict=True
            )
        }
        return [
            part.graph.place(points[part.graph.spec.geometry, part.graph.spec.view])
            for part in self.parts
        ]

    def label_kernels(self, placed: Sequence[PlacedRows]) -> LabelKernels:
        """Return the kernels between placed rows and the labelled rows."""
        values: dict[Kernel, Tensor] = {}
        for part, rows in zip(self.parts, placed, strict=True):
            values |= part.values(rows)
        contact = torch.stack([rows.contact for rows in placed]).amin(dim=0)
        # Whether a label reaches a row is for the first graph to say: ranks know no gaps.
        reach = self.parts[0].reach(placed[0], self.valid)
        kernels = torch.stack([values[kernel] for kernel in self.kernels], dim=1)
        return LabelKernels(kernels, contact, contact * reach)

    def in_pieces(
        self, placed: Sequence[PlacedRows]
    ) -> Iterator[tuple[slice, LabelKernels]]:
        """Yield kernels of placed rows, as many rows at once as the memory holds."""
        functions = placed[0].functions
        b, n, _ = functions.shape
        m = self.valid.shape[1]
        size = max(1, MOST_KERNEL_VALUES // (b * m * len(self.kernels)))
        for part in blocks(n, size):
            some = placed
            if size < n:
                indices = torch.arange(part.start, part.stop, device=functions.device)
                some = [rows.at(indices.expand(b, -1)) for rows in placed]
            yield part, self.label_kernels(some)


def _in_geometry(x: Tensor, geometry: str, factors: Tensor | None) -> Tensor:
    """Return columns that have deviation one in the scale of a geometry."""
    return x if geometry == "each" or factors is None else x * factors


def _graph_kernels(
    graph: ViewGraph, labelled: Tensor, valid: Tensor, n_classes: int
) -> GraphKernels:
    """Return the kernels of one graph, with the mean that absolute differences need."""
    rows, kernels = graph.context.at(labelled), kernels_of([graph.spec])
    mean = None
    if ABSOLUTE in graph.spec.forms:
        points = graph.context.points
        some = points[:, :: max(1, points.shape[1] // _MEAN_ROWS)]
        differences = torch.cdist(some, rows.points, p=1).mean(1)
        mean = (differences * valid).sum(-1) / valid.sum(-1)
        mean = mean[:, None, None].clamp(min=_TINY)
    return GraphKernels(graph, rows, kernels, n_classes, mean)


def _coordinate_kernels(rows: PlacedPoints, labelled: PlacedPoints) -> dict[str, Tensor]:
    a, b = rows.points, labelled.points
    sq_dist = squared_distances(a, b)
    local = (rows.distances.far[:, :, None] * labelled.distances.far[:, None]).sqrt()
    return {
        "linear": a @ b.mT,
        "cosine": _cosine(a, b),
        "wide": (-sq_dist / 2).exp(),  # the mean squared distance of two rows is two
        "narrow": (-2 * sq_dist).exp(),
        "local": (-sq_dist / local).exp(),
    }


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return _unit(a) @ _unit(b).mT


def _unit(rows: Tensor) -> Tensor:
    """Return rows of length one; those nearly zero stay so, or rounding would blow up."""
    return rows * (rows.square().sum(-1, keepdim=True) + _NO_DIRECTION**2).rsqrt()
