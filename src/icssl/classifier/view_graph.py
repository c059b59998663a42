"""Rows placed in a graph: one graph of a context, its eigenmap, and where rows are in it.

A :class:`ViewGraph` is made from coordinates, as a view of a table gives them, an
:class:`AffinityGraph` from weights that a user gave. Either places new rows one by one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icssl._util.progress import stepper
from icssl._util.threads import map_in_threads
from icssl.classifier.eigenmap import Eigenmap, waves
from icssl.classifier.graph_exact import exact_distances, exact_graph
from icssl.classifier.graph_memory import digest, is_remembering, recalling
from icssl.classifier.graph_sparse import NodeIndex, Nodes, SparseGraph, node_distances
from icssl.classifier.graphs import (
    MOST_WEIGHTS,
    ONE_THREAD_ROWS,
    Backend,
    DenseGraph,
    GraphSpec,
    NeighbourDistances,
    PairDistances,
    PrecomputedGraph,
    WeightedGraph,
    graph_weights,
    neighbour_distances,
    rows_at_once,
)
from icssl.classifier.neighbour_search import (
    Nearest,
    Search,
    all_neighbours,
    make_search,
)
from icssl.classifier.views import take_rows

_INDEXED_AT_ONCE = 2**14  # new rows that are placed together by their nearest neighbours
_SHARED_WEIGHTS_GPU = 2**28  # distances of a view that its graphs share on a GPU, at most
_SMALL_ROWS, _MOST_VIEWS = 512, 4  # views of more rows are made so many at the same time
_START_COLUMNS = 16  # waves of the degrees that start an eigenmap without coordinates


@dataclass(frozen=True)
class PlacedRows:
    """Rows in a graph.

    Parameters
    ----------
    functions : Tensor of shape (b, r, k)
        The graph's eigenfunctions at the rows.
    contact : Tensor of shape (b, r)
        One for a row as close to the context as its own rows, zero far from all of them.
    """

    functions: Float[Tensor, "b r k"]
    contact: Float[Tensor, "b r"]

    def at(self, indices: Int[Tensor, "b i"]) -> "PlacedRows":
        """Return some of the rows."""
        return PlacedRows(
            take_rows(self.functions, indices), self.contact.gather(1, indices)
        )


@dataclass(frozen=True)
class PlacedPoints(PlacedRows):
    """Rows in the graph of a view, which gives them coordinates.

    Parameters
    ----------
    points : Tensor of shape (b, r, p)
        The rows' coordinates in the view.
    distances : NeighbourDistances
        How far their neighbours in the context are.
    """

    points: Float[Tensor, "b r p"]
    distances: NeighbourDistances

    def at(self, indices: Int[Tensor, "b i"]) -> "PlacedPoints":
        """Return some of the rows."""
        rows = super().at(indices)
        points, distances = take_rows(self.points, indices), self.distances.at(indices)
        return PlacedPoints(rows.functions, rows.contact, points, distances)


@dataclass(frozen=True)
class ViewGraph:
    """The graph of a context's rows in one view, and its eigenmap.

    Parameters
    ----------
    spec : GraphSpec
        The declaration of this graph.
    context : PlacedPoints
        The rows of the context.
    eigenmap : Eigenmap
        Eigenfunctions of the graph, one value per node.
    degrees : Tensor of shape (b, n)
        Sum of each row's weights.
    node_index : NodeIndex, optional
        Finds the neighbours of new rows where the graph is sparse; otherwise they are
        weighted against all rows.
    """

    spec: GraphSpec
    context: PlacedPoints
    eigenmap: Eigenmap
    degrees: Float[Tensor, "b n"]
    node_index: NodeIndex | None = None

    @classmethod
    def of_points(
        cls,
        spec: GraphSpec,
        points: Float[Tensor, "b n p"],
        k: int,
        backend: Backend,
        pairs: PairDistances | None = None,
    ) -> "ViewGraph":
        """Make the graph in which all weights between rows take part.

        Parameters
        ----------
        spec : GraphSpec
            The declaration of the graph.
        points : Tensor
            The rows' coordinates in its view.
        k : int
            How many eigenfunctions to compute.
        backend : Backend
            How the graph is held: "dense" or "exact".
        pairs : PairDistances, optional
            All distances in the view, where several graphs share them.
        """
        graph: WeightedGraph
        if backend.name == "exact":
            distances = exact_distances(points, spec.neighbours)
            graph = exact_graph(points, distances)
        elif pairs is not None:
            distances = pairs.to_neighbours(spec.neighbours)
            graph = DenseGraph(points, distances, squared=pairs.squared)
        else:
            distances = neighbour_distances(
                points, points, skip_self=True, neighbours=spec.neighbours
            )
            graph = DenseGraph(points, distances, hold=True)
        eigenmap = Eigenmap.of_graph(graph, lambda: waves(points, k), k)
        contact = _contact(distances, distances)
        context = PlacedPoints(eigenmap.functions, contact, points, distances)
        return cls(spec, context, eigenmap, graph.degrees)

    @classmethod
    def of_nodes(
        cls,
        spec: GraphSpec,
        points: Float[Tensor, "1 n p"],
        nodes: Nodes,
        search: Search,
        nearest: Nearest,
        k: int,
        n_neighbors: int,
    ) -> "ViewGraph":
        """Make the graph of the weights to nearest neighbours; equal rows are one node."""
        distances = node_distances(nearest, nodes.counts, nodes.counts, spec.neighbours)
        graph = SparseGraph.of_neighbours(nearest, distances, nodes.counts)
        eigenmap = Eigenmap.of_graph(graph, lambda: waves(search.context[None], k), k)
        of_row = nodes.of_row[None]
        row_distances = distances.at(of_row)
        contact = _contact(row_distances, row_distances)
        functions = take_rows(eigenmap.functions, of_row)
        context = PlacedPoints(functions, contact, points, row_distances)
        degrees = (graph.degrees / nodes.counts).gather(1, of_row)
        node_index = NodeIndex(
            search, distances, nodes.counts, n_neighbors, spec.neighbours
        )
        return cls(spec, context, eigenmap, degrees, node_index)

    def place(self, points: Float[Tensor, "b r p"]) -> PlacedPoints:
        """Place new rows by their coordinates, each by itself."""
        context = self.context
        if self.node_index is None:
            distances = neighbour_distances(
                points, context.points, skip_self=False, neighbours=self.spec.neighbours
            )
            w = graph_weights(points, distances, context.points, context.distances)
            functions = self.eigenmap.extend(w)
        else:
            of_nodes = self.eigenmap.functions[0]
            means, distances = self.node_index.mean_over_nearest(points[0], of_nodes)
            functions = self.eigenmap.undo_step(means[None])
        contact = _contact(distances, context.distances)
        return PlacedPoints(functions, contact, points, distances)

    def repeat(self, times: int) -> "ViewGraph":
        """Return the graphs of a batch in which every context comes so many times."""

        def again(tensor: Tensor) -> Tensor:
            return tensor.repeat_interleave(times, dim=0)

        context, eigenmap = self.context, self.eigenmap
        distances = NeighbourDistances(
            again(context.distances.near), again(context.distances.far)
        )
        functions, points = again(context.functions), again(context.points)
        return ViewGraph(
            self.spec,
            PlacedPoints(functions, again(context.contact), points, distances),
            Eigenmap(
                again(eigenmap.values),
                functions,
                again(eigenmap.shares),
                eigenmap.limits,
            ),
            again(self.degrees),
        )

    @property
    def rows_at_once(self) -> int:
        """How many new rows are placed together."""
        if self.node_index is not None:
            return _INDEXED_AT_ONCE
        return rows_at_once(self.context.functions)


@dataclass(frozen=True)
class AffinityGraph:
    """A graph that a user gave, whose rows have no coordinates, and its eigenmap.

    Parameters
    ----------
    spec : GraphSpec
        The declared graph whose place it takes.
    context : PlacedRows
        The rows of the context.
    eigenmap : Eigenmap
        Eigenfunctions of the graph.
    degrees : Tensor of shape (b, n)
        Sum of each row's weights.
    """

    spec: GraphSpec
    context: PlacedRows
    eigenmap: Eigenmap
    degrees: Float[Tensor, "b n"]

    @classmethod
    def of_weights(
        cls, spec: GraphSpec, w: Float[Tensor, "b n n"] | WeightedGraph, k: int
    ) -> "AffinityGraph":
        """Make the eigenmap of weights between all rows."""
        graph = PrecomputedGraph(w) if isinstance(w, Tensor) else w

        def start() -> Tensor:
            # Instead of coordinates, a row is told apart by its degree and by those of its
            # neighbours: the same start in whatever order the rows come.
            return waves(graph @ waves(graph.degrees[..., None], _START_COLUMNS), k)

        eigenmap = Eigenmap.of_graph(graph, start, k)
        # A row without a neighbour has no evidence.
        contact = (graph.degrees / graph.regularised_degrees).nan_to_num(0.0)
        return cls(spec, PlacedRows(eigenmap.functions, contact), eigenmap, graph.degrees)

    def place(self, w: Float[Tensor, "b r n"]) -> PlacedRows:
        """Place new rows by their weights to the rows of the context."""
        connected = torch.where(self.degrees > 0, self.degrees, torch.nan)
        usual = connected.nanmedian(dim=-1, keepdim=True).values.nan_to_num(torch.inf)
        total = w.sum(-1)
        # A quarter of the usual degree is contact enough: new rows may have been given
        # fewer neighbours than those of the graph.
        contact = (4 * total / usual).clamp(max=1)
        shares = w / torch.where(total > 0, total, torch.inf)[..., None]
        return PlacedRows(self.eigenmap.extend(shares), contact)

    @property
    def rows_at_once(self) -> int:
        """How many new rows are placed together."""
        return rows_at_once(self.context.functions)


ContextGraph = ViewGraph | AffinityGraph


def view_graphs(
    graphs: Sequence[GraphSpec],
    x: Float[Tensor, "b n d"],
    points: Mapping[str, Float[Tensor, "b n p"]],
    k: int,
    backend: Backend,
    draws: int = 1,
) -> list[ViewGraph]:
    """Make the graphs of contexts.

    Parameters
    ----------
    graphs : sequence of GraphSpec
        The graphs to make.
    x : Tensor
        Columns of the tables, by which equal rows are told.
    points : mapping
        The rows' coordinates in every view.
    k : int
        Eigenfunctions of every graph.
    backend : Backend
        How graphs are held; "sparse" takes one context at a time.
    draws : int
        How often every table comes, one after the other, with other labels.
    """
    if backend.name != "sparse":
        return _graphs_of_points(graphs, points, k, backend, draws)
    nodes = Nodes.of_rows(x[0])

    def make(view: str) -> dict[GraphSpec, ViewGraph]:
        # Graphs of one view share the index of its rows, and the neighbours it finds.
        rows, own = points[view], [graph for graph in graphs if graph.view == view]
        search, count = make_search(rows[0, nodes.first]), backend.n_neighbors
        nearest = all_neighbours(search, min(count, len(nodes.first) - 1))
        return {
            g: ViewGraph.of_nodes(g, rows, nodes, search, nearest, k, count) for g in own
        }

    of_rows = digest(x) if is_remembering() else None
    recall = recalling(make, points, tuple(graphs), k, backend, of_rows)
    return _map_views(recall, graphs, views_at_once(len(x[0]), "sparse"))


def _map_views(
    make: Callable[[str], dict[GraphSpec, ViewGraph]],
    graphs: Sequence[GraphSpec],
    at_once: int,
) -> list[ViewGraph]:
    """Make graphs view by view, some views at the same time, and return them in order."""
    made: dict[GraphSpec, ViewGraph] = {}
    views, step = list(dict.fromkeys(graph.view for graph in graphs)), stepper()

    def make_and_tell(view: str) -> dict[GraphSpec, ViewGraph]:
        of_view = make(view)
        step(len(of_view))
        return of_view

    for of_view in map_in_threads(make_and_tell, views, most=at_once):
        made |= of_view
    return [made[graph] for graph in graphs]


def _graphs_of_points(
    graphs: Sequence[GraphSpec],
    points: Mapping[str, Float[Tensor, "b n p"]],
    k: int,
    backend: Backend,
    draws: int,
) -> list[ViewGraph]:
    """Make graphs in which all weights take part, the views in threads of their own."""
    b, n, _ = next(iter(points.values())).shape
    on_cpu = next(iter(points.values())).device.type == "cpu"
    fits = b * n**2 <= (MOST_WEIGHTS if on_cpu else _SHARED_WEIGHTS_GPU)

    def make(view: str) -> dict[GraphSpec, ViewGraph]:
        own = [graph for graph in graphs if graph.view == view]
        # What does not depend on the labels is made for each table once.
        times = 1 if view == "relevant" else draws
        rows = points[view][::times]
        pairs = None
        if backend.name == "dense" and fits:
            most = max(graph.neighbours for graph in own)
            pairs = PairDistances.of_rows(rows, most)
        made = {g: ViewGraph.of_points(g, rows, k, backend, pairs) for g in own}
        return made if times == 1 else {g: made[g].repeat(times) for g in own}

    at_once = views_at_once(n, backend.name) if on_cpu else 1
    recall = recalling(make, points, tuple(graphs), k, backend, draws)
    return _map_views(recall, graphs, at_once)


def views_at_once(n: int, backend: str) -> int:
    """Return in how many views graphs of ``n`` rows are made together, on as many threads.

    Small graphs are not worth a thread, and large ones take much memory each.
    """
    if n <= _SMALL_ROWS:
        return 1
    if backend == "sparse":
        return _MOST_VIEWS if n <= ONE_THREAD_ROWS else 1
    return max(1, min(_MOST_VIEWS, 2 * MOST_WEIGHTS // n**2))


def _contact(rows: NeighbourDistances, context: NeighbourDistances) -> Tensor:
    """Return 1 for rows whose nearest neighbour is at a usual distance, and less beyond."""
    usual = context.far.median(dim=-1, keepdim=True).values
    return (-(rows.near / usual - 1).clamp(min=0) / 2).exp()
