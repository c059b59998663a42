"""Kernels between rows and the labelled rows, of every view: what the head descends in.

Ten a view: linear, cosine, three Gaussian widths, and five diffusion times along the
eigenmap, two in steps and three in units of the time in which a walk forgets which class it
came from, were classes the parts of the graph; and one of absolute differences of ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icssl.classifier.graph_exact import exact_distances, exact_graph
from icssl.classifier.graph_sparse import (
    Nearest,
    Nodes,
    Search,
    SparseGraph,
    all_neighbours,
    make_search,
    nearest_weights,
    node_distances,
    sum_over_nearest,
)
from icssl.classifier.graphs import (
    DenseGraph,
    Eigenmap,
    NeighbourDistances,
    PrecomputedGraph,
    WeightedGraph,
    at_once,
    neighbour_distances,
    squared_distances,
    walk,
    waves,
    weights,
)
from icssl.classifier.plan import DENSE, Backend
from icssl.classifier.views import VIEWS, Views

STEPS = (2, 6)
RELAXATIONS = (0.5, 1.5, 4.0)
REACH_TIME = 16  # steps of a walk within which a label reaches a row
POINTWISE = ("linear", "cosine", "wide", "narrow", "local")
DIFFUSED = (*(f"steps{t}" for t in STEPS), *(f"relaxed{t}" for t in RELAXATIONS))
FORMS = (*POINTWISE, *DIFFUSED)
ABSOLUTE = "ranks.absolute"
KERNELS = (*(f"{view}.{form}" for view in VIEWS for form in FORMS), ABSOLUTE)
_PLACED = 2**14  # new rows, by their nearest neighbours, at once
_NOTHING = 1e-3  # length of a row, where one is usual, that has no direction
_TINY = 1e-6


class LabelKernels(NamedTuple):
    """Rows against the labelled rows.

    Parameters
    ----------
    kernels : Tensor of shape (b, e, r, m)
    contact : Tensor of shape (b, r)
        One for a row as close to the context as its own rows, zero far from all of them.
    reach : Tensor of shape (b, r)
        How likely a walk from the row meets a labelled one, at most one, times contact.
    """

    kernels: Tensor
    contact: Tensor
    reach: Tensor


@dataclass(frozen=True)
class PlacedRows:
    """Rows in one view of a context; without coordinates where a graph was given."""

    rows: Float[Tensor, "b r p"] | None
    scale: NeighbourDistances | None
    functions: Float[Tensor, "b r k"]
    contact: Float[Tensor, "b r"]

    def at(self, indices: Int[Tensor, "b i"]) -> "PlacedRows":
        """Some of the rows."""
        rows = None if self.rows is None else take_rows(self.rows, indices)
        scale = None if self.scale is None else self.scale.at(indices)
        functions = take_rows(self.functions, indices)
        return PlacedRows(rows, scale, functions, self.contact.gather(1, indices))


@dataclass(frozen=True)
class NodeIndex:
    """The nodes of a context, among which new rows find their nearest neighbours.

    Parameters
    ----------
    search : Search
    scale : NeighbourDistances
        Of the nodes.
    counts : Tensor of shape (u,)
        Rows of each.
    n_neighbors : int
        How many neighbours a row reads.
    """

    search: Search
    scale: NeighbourDistances
    counts: Int[Tensor, " u"]
    n_neighbors: int

    def nearest(
        self, rows: Float[Tensor, "r p"]
    ) -> tuple[Nearest, NeighbourDistances, Tensor]:
        """Return the nearest nodes of new rows, the rows' scale, and weights of sum one."""
        found = self.search(rows, min(self.n_neighbors, len(self.counts)))
        scale = node_distances(found, self.counts)
        w = nearest_weights(found, scale, self.scale) * self.counts[found.indices.long()]
        return found, scale, walk(w)


@dataclass(frozen=True)
class ViewGraph:
    """One view of a context: its own rows, and the eigenmap of its graph.

    Parameters
    ----------
    name : str
        Of the view.
    own : PlacedRows
    eigenmap : Eigenmap
    degrees : Tensor of shape (b, n)
        Of the graph.
    node_index : NodeIndex, optional
        What new rows read, if these are their nearest neighbours alone.
    """

    name: str
    own: PlacedRows
    eigenmap: Eigenmap
    degrees: Float[Tensor, "b n"]
    node_index: NodeIndex | None = None

    @classmethod
    def of_rows(
        cls, name: str, rows: Float[Tensor, "b n p"], k: int, backend: Backend = DENSE
    ) -> "ViewGraph":
        """Of a view's rows."""
        graph: WeightedGraph
        if backend.name == "exact":
            scale = exact_distances(rows)
            graph = exact_graph(rows, scale)
        else:
            scale = neighbour_distances(rows, rows, skip_self=True)
            graph = DenseGraph(rows, scale, hold=True)
        eigenmap = Eigenmap.of_graph(graph, lambda: waves(rows, k), k)
        own = PlacedRows(rows, scale, eigenmap.functions, _contact(scale, scale))
        return cls(name, own, eigenmap, graph.degrees)

    @classmethod
    def of_nodes(
        cls, name: str, rows: Float[Tensor, "1 n p"], nodes: Nodes, k: int, n_neighbors: int
    ) -> "ViewGraph":
        """Of a view's rows, each with its nearest alone; equal rows are one node."""
        points = rows[:, nodes.first]
        search = make_search(points[0])
        found = all_neighbours(search, min(n_neighbors, len(nodes.first) - 1))
        scale = node_distances(found, nodes.counts, own=nodes.counts)
        graph = SparseGraph.of_neighbours(found, scale, nodes.counts)
        del found  # as large as the graph, which is all that is needed
        eigenmap = Eigenmap.of_graph(graph, lambda: waves(points, k), k)
        of_row = nodes.of_row[None]
        own_scale, functions = scale.at(of_row), take_rows(eigenmap.functions, of_row)
        own = PlacedRows(rows, own_scale, functions, _contact(own_scale, own_scale))
        degrees = (graph.degrees / nodes.counts).gather(1, of_row)
        node_index = NodeIndex(search, scale, nodes.counts, n_neighbors)
        return cls(name, own, eigenmap, degrees, node_index)

    @classmethod
    def of_weights(cls, w: Float[Tensor, "b n n"] | WeightedGraph, k: int) -> "ViewGraph":
        """Of a graph that was given, whose rows have no coordinates."""
        graph = PrecomputedGraph(w) if isinstance(w, Tensor) else w
        # Any order of the rows gives the same start: a row is told by its neighbours.
        eigenmap = Eigenmap.of_graph(
            graph, lambda: waves(graph @ waves(graph.degrees[..., None], 16), k), k
        )
        # No neighbour, no evidence.
        contact = (graph.degrees / graph.regularised_degrees).nan_to_num(0.0)
        own = PlacedRows(None, None, eigenmap.functions, contact)
        return cls(VIEWS[0], own, eigenmap, graph.degrees)

    def place(self, rows: Float[Tensor, "b r p"]) -> PlacedRows:
        """New rows in it, each by itself."""
        assert self.own.rows is not None
        assert self.own.scale is not None
        if self.node_index is None:
            scale = neighbour_distances(rows, self.own.rows, skip_self=False)
            w = weights(rows, scale, self.own.rows, self.own.scale)
            functions = self.eigenmap.extend(w)
        else:
            found, scale, w = self.node_index.nearest(rows[0])
            read = sum_over_nearest(w, found, self.eigenmap.functions[0])
            functions = self.eigenmap.undo_step(read[None])
        return PlacedRows(rows, scale, functions, _contact(scale, self.own.scale))

    def place_weights(self, w: Float[Tensor, "b r n"]) -> PlacedRows:
        """New rows by their weights to the rows of a given graph."""
        joined = torch.where(self.degrees > 0, self.degrees, torch.nan)
        usual = joined.nanmedian(dim=-1, keepdim=True).values.nan_to_num(torch.inf)
        total = w.sum(-1)
        contact = (4 * total / usual).clamp(max=1)
        shares = w / torch.where(total > 0, total, torch.inf)[..., None]
        return PlacedRows(None, None, self.eigenmap.extend(shares), contact)

    @property
    def at_once(self) -> int:
        """New rows that are placed together."""
        return _PLACED if self.node_index is not None else at_once(self.own.functions)

    @property
    def forms(self) -> tuple[str, ...]:
        """Kernels that can be made."""
        return DIFFUSED if self.own.rows is None else FORMS


@dataclass(frozen=True)
class ContextKernels:
    """The kernels of a batch of contexts.

    Parameters
    ----------
    views : Views, optional
        None where a graph was given.
    view_graphs : tuple of ViewGraph
        One a view.
    labelled : tuple of PlacedRows
        The labelled rows in each.
    n_classes : int
    spread : Tensor of shape (b, 1, 1), optional
        Mean sum of absolute differences of ranks, if these are among the views.
    """

    views: Views | None
    view_graphs: tuple[ViewGraph, ...]
    labelled: tuple[PlacedRows, ...]
    n_classes: int
    real: Tensor
    spread: Tensor | None = None

    @classmethod
    def of_rows(
        cls,
        x: Float[Tensor, "b n d"],
        labelled: Int[Tensor, "b m"],
        target: Float[Tensor, "b m c"],
        k: int,
        views: Sequence[str] = VIEWS,
        backend: Backend = DENSE,
    ) -> "ContextKernels":
        """Of contexts, in some of the views."""
        fitted, n_classes = Views.fit(x, views, labelled, target), target.shape[-1]
        real = target.sum(-1) > 0
        made = zip(views, fitted(x), strict=True)
        if backend.name == "sparse":
            nodes = Nodes.of_rows(x[0])
            view_graphs = tuple(
                ViewGraph.of_nodes(name, rows, nodes, k, backend.n_neighbors)
                for name, rows in made
            )
        else:
            view_graphs = tuple(
                ViewGraph.of_rows(name, rows, k, backend) for name, rows in made
            )
        known = tuple(one.own.at(labelled) for one in view_graphs)
        if "ranks" not in views:
            return cls(fitted, view_graphs, known, n_classes, real)
        place = list(views).index("ranks")
        ranks, some = view_graphs[place].own.rows, known[place].rows
        assert ranks is not None
        assert some is not None
        apart = torch.cdist(ranks[:, :: _stride(ranks)], some, p=1).mean(1)
        spread = (apart * real).sum(-1) / real.sum(-1)
        spread = spread[:, None, None].clamp(min=_TINY)
        return cls(fitted, view_graphs, known, n_classes, real, spread)

    @classmethod
    def of_weights(
        cls,
        w: Float[Tensor, "b n n"] | WeightedGraph,
        labelled: Int[Tensor, "b m"],
        n_classes: int,
        k: int,
        real: Tensor | None = None,
    ) -> "ContextKernels":
        """Of graphs that were given."""
        one = ViewGraph.of_weights(w, k)
        real = torch.ones_like(labelled, dtype=torch.bool) if real is None else real
        return cls(None, (one,), (one.own.at(labelled),), n_classes, real)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the kernels, in order; some of :data:`KERNELS`."""
        made = [f"{one.name}.{form}" for one in self.view_graphs for form in one.forms]
        return (*made, ABSOLUTE) if self.spread is not None else tuple(made)

    def own(self) -> list[PlacedRows]:
        """The rows of the contexts in every view."""
        return [one.own for one in self.view_graphs]

    def place(self, x: Float[Tensor, "b r d"]) -> list[PlacedRows]:
        """New rows in every view; of a given graph, their weights to its rows."""
        if self.views is None:
            return [self.view_graphs[0].place_weights(x)]
        pairs = zip(self.view_graphs, self.views(x), strict=True)
        return [one.place(rows) for one, rows in pairs]

    def label_kernels(self, placed: Sequence[PlacedRows]) -> LabelKernels:
        """Kernels of rows with the labelled rows."""
        triples = list(zip(self.view_graphs, placed, self.labelled, strict=True))
        kernels = [kernel for triple in triples for kernel in self._of_view(*triple)]
        if self.spread is not None:
            place = [one.name for one in self.view_graphs].index("ranks")
            ranks, known = placed[place].rows, self.labelled[place].rows
            assert ranks is not None
            assert known is not None
            kernels.append((-2 * torch.cdist(ranks, known, p=1) / self.spread).exp())
        contact = torch.stack([rows.contact for rows in placed]).amin(dim=0)
        # Ranks know no gaps: whether a label reaches a row is a matter of the first view.
        met = _meeting(*triples[0], self.real)
        return LabelKernels(torch.stack(kernels, dim=1), contact, contact * met)

    def _of_view(self, one: ViewGraph, rows: PlacedRows, known: PlacedRows) -> list[Tensor]:
        """In the order of its forms."""
        relaxed = one.eigenmap.relaxation(self.n_classes)
        times: list[float | Tensor] = [*STEPS, *(relaxed * t for t in RELAXATIONS)]
        diffused = [
            _cosine(
                one.eigenmap.diffusion_features(rows.functions, time),
                one.eigenmap.diffusion_features(known.functions, time),
            )
            for time in times
        ]
        return [*_pointwise(rows, known), *diffused]


def _pointwise(rows: PlacedRows, known: PlacedRows) -> list[Tensor]:
    if rows.rows is None or known.rows is None:
        return []
    assert rows.scale is not None
    assert known.scale is not None
    apart = squared_distances(rows.rows, known.rows)
    local = (rows.scale.far[:, :, None] * known.scale.far[:, None]).sqrt()
    return [
        rows.rows @ known.rows.mT,
        _cosine(rows.rows, known.rows),
        (-apart / 2).exp(),  # rows are two apart, squared, in the mean
        (-2 * apart).exp(),
        (-apart / local).exp(),
    ]


def _meeting(one: ViewGraph, rows: PlacedRows, known: PlacedRows, real: Tensor) -> Tensor:
    """How likely a walk is at the likeliest labelled row; one is as anywhere."""
    start = one.eigenmap.diffusion_features(rows.functions, REACH_TIME)
    end = one.eigenmap.diffusion_features(known.functions, REACH_TIME)
    likely = (start @ end.mT).masked_fill(~real[:, None], -1.0)
    return (1 + likely.amax(dim=-1)).clamp(0, 1)


def _contact(rows: NeighbourDistances, context: NeighbourDistances) -> Tensor:
    usual = context.far.median(dim=-1, keepdim=True).values
    return (-(rows.near / usual - 1).clamp(min=0) / 2).exp()


def _stride(rows: Tensor) -> int:
    """A thousand rows are enough for a mean."""
    return max(1, rows.shape[1] // 1000)


def take_rows(rows: Tensor, indices: Tensor) -> Tensor:
    """Some rows of every context."""
    return rows.gather(1, indices[..., None].expand(-1, -1, rows.shape[-1]))


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return _unit(a) @ _unit(b).mT


def _unit(rows: Tensor) -> Tensor:
    """Rows of length one; such as are nearly zero stay so, and rounding is not blown up."""
    return rows * (rows.square().sum(-1, keepdim=True) + _NOTHING**2).rsqrt()
