"""What the classifier settles before it computes: device, dtype, views, backend.

Memory is estimated before anything is allocated; ``benchmarks/scale_classifier.py`` shows
the estimates beside what was used.
"""

from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from icssl._util.errors import check_at_least, check_choice, check_device
from icssl._util.hardware import free_bytes
from icssl._util.threads import allowed_threads
from icssl.classifier.eigenmap import EIGENFUNCTIONS, SPARE_COLUMNS, uses_lapack
from icssl.classifier.graph_sparse import MOST_REACH, MOST_SQUARES
from icssl.classifier.graphs import (
    FEW_SOLVED_ROWS,
    MOST_WEIGHTS,
    SOLVED_ROWS,
    Backend,
    GraphSpec,
)
from icssl.classifier.kernels import GRAPHS, MAIN_VIEWS, MOST_KERNEL_VALUES, kernels_of
from icssl.classifier.neighbour_search import MOST_BRUTE_FORCE_ROWS, has_index
from icssl.classifier.view_graph import views_at_once

BACKENDS = ("dense", "exact", "sparse")

MODELS = {
    "all views": GRAPHS,
    "main views": tuple(graph for graph in GRAPHS if graph.view in MAIN_VIEWS),
    "one view": GRAPHS[:1],  # a few dozen passes over the rows, and no matrix of them
}
"""The most graphs that every choice of ``model`` uses."""

# The rule for backends and views. A test compares the pages that name these numbers.
DENSE_ROWS = SOLVED_ROWS
"""Contexts of more rows hold no matrix of them on a CPU, unless asked for."""

_DENSE_ROWS_GPU = 50_000
"""The same on a GPU, where products with a matrix are as fast as its memory."""

# Rows that are read in several views, unless asked for: a minute or two on two cores. Fewer
# if they have many columns, where neighbours take longer to find; but so many at least.
_MOST_ROWS, _MOST_CELLS = 200_000, 2**23
_WIDE_ROWS = 2_000
_GPU_ROWS = 2_000  # from which on a GPU is worth its start

_BASIS = EIGENFUNCTIONS + SPARE_COLUMNS  # columns that the eigenmap is iterated in
_BLOCK_WEIGHTS = 2**26  # weights of a block of rows on a GPU, where none are held
_GIVEN_BYTES, _SPARSE_BYTES = 36, 80  # per weight of a given graph, dense and sparse
_PART_BYTES = 28  # per contribution, with the copies that are made of it
_ALWAYS = 2**26  # what threads and libraries take with the first rows
_MARGIN = 1.2  # factor of the estimates, for what the allocator leaves unused
_MOST_WEIGHT = 1e18  # of a new row, where one is the largest in the graph


@dataclass(frozen=True)
class Size:
    """What the memory that a context takes depends on.

    Parameters
    ----------
    rows, columns : int
        Shape of the table.
    graphs : tuple of GraphSpec
        The graphs that are made.
    labelled, classes : int
        How many rows have a label, and how many classes there are.
    bytes_each : int
        Bytes per number.
    """

    rows: int
    columns: int
    graphs: tuple[GraphSpec, ...]
    labelled: int
    classes: int
    bytes_each: int = 4


def free_memory(device: str) -> int:
    """Return the bytes that can be had now, of the machine or of the GPU."""
    if torch.device(device).type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserved
    return min(free_bytes(), *_left_in_containers())


def _left_in_containers(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return the bytes that control groups leave to this process, by either version."""
    left = [2**63]
    for most, now, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        *((f"memory/memory.{n}" for n in ("limit_in_bytes", "usage_in_bytes", "stat")),),
    ):
        try:
            used = int((root / now).read_text()) - _cache_bytes(root / stat)
            left.append(int((root / most).read_text()) - used)
        except (OSError, ValueError):  # there are none, or they set no limit
            continue
    return left


def _cache_bytes(stat: Path) -> int:
    """Return the bytes of files that stay in memory only while nobody needs the room."""
    counts = dict(line.split() for line in stat.read_text().splitlines())
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))


def needed_memory(backend: Backend, size: Size) -> int:
    """Estimate the bytes that fitting a context takes at its peak."""
    n, m, n_graphs = size.rows, size.labelled, len(size.graphs)
    graph = {
        "dense": n * n + 5 * min(MOST_WEIGHTS, n * n),
        "exact": 5 * min(_BLOCK_WEIGHTS, n * n) + 4 * n * _BASIS,
        "sparse": 10 * n * min(backend.n_neighbors, n),  # neighbours, and the graph
    }[backend.name]
    # One after the other: columns by rank, the graphs of views, kernels with the labels.
    ranks = 8 * n * size.columns * 8 // size.bytes_each
    kernels = min(MOST_KERNEL_VALUES, n * m * len(kernels_of(size.graphs)))
    iterated = _thin_numbers(n) if backend.name == "sparse" else 6 * n * _BASIS
    graph = max(graph + iterated, _lapack_numbers(backend, n))
    passing = max(ranks, graph * _graphs_at_once(backend, size), 5 * kernels)
    lasting = n_graphs * n * (3 * size.columns + _BASIS) + 4 * m * m
    doubles = n * (2 * size.columns + 4 * size.classes + 8)
    estimate = size.bytes_each * (lasting + passing) + 8 * doubles
    return int(_MARGIN * estimate) + _ALWAYS


def _graphs_at_once(backend: Backend, size: Size) -> int:
    """Return how many graphs are made at the same time, in views of their own."""
    n_views = len({graph.view for graph in size.graphs})
    return min(views_at_once(size.rows, backend.name), n_views, allowed_threads())


def _lapack_numbers(backend: Backend, n: int) -> int:
    """Return the numbers that LAPACK and its copies take, beside a graph that is held."""
    if backend.name == "sparse":
        return 6 * min(n, FEW_SOLVED_ROWS) ** 2
    return (7 if backend.name == "dense" else 6) * min(n, SOLVED_ROWS) ** 2


def _thin_numbers(n: int) -> int:
    """Return the numbers that an eigenmap takes if the graph is thin: factors, columns."""
    # Its rows cannot reach farther together than their squares allow. That is about what
    # two factors hold, with float64 and an index, on shapes that are far from this limit.
    reach = min(MOST_REACH, int((n * MOST_SQUARES) ** 0.5))
    return 3 * reach + 12 * n * _BASIS


def choose_backend(asked: str, n_neighbors: int, size: Size, device: str) -> Backend:
    """Return the best backend that fits the memory, or the one that was asked for."""
    names = [asked] if asked != "auto" else _suitable(size.rows, device)
    if "sparse" in names:
        _check_search(size.rows, device, asked)
    free = free_memory(device)
    for name in names:
        if needed_memory(Backend(name, n_neighbors), size) <= free:
            return Backend(name, n_neighbors)
    raise ValueError(_refusal(Backend(names[-1], n_neighbors), size, free))


def choose_for_graph(asked: str, n: int, stored: int | None, device: str) -> str:
    """Return how the weights of a graph that is given are held: "dense" or "sparse".

    Parameters
    ----------
    asked : str
        The backend that was asked for, or "auto".
    n : int
        Number of rows.
    stored : int, optional
        Weights that a sparse graph has; None for a dense one.
    device : str
        Where the graph will be.
    """
    if asked == "exact":
        raise ValueError(
            "backend='exact' makes weights from columns, and metric='precomputed' has "
            "none: choose 'auto', 'dense' or 'sparse'."
        )
    free, dense = free_memory(device), _GIVEN_BYTES * n**2
    if asked == "auto":
        is_large = stored is not None and (n > DENSE_ROWS or dense > free)
        asked = "sparse" if is_large else "dense"
    need = dense if asked == "dense" else _SPARSE_BYTES * (stored or n**2)
    need += 8 * max(6 * n * _BASIS, _thin_numbers(n) if asked == "sparse" else 0)
    if need > free:
        most = int((free / _GIVEN_BYTES) ** 0.5) if asked == "dense" else n * free // need
        raise ValueError(
            f"a graph of {n:,} rows needs about {_gigabytes(need)} with "
            f"backend={asked!r}, and {_gigabytes(free)} are free: at most about {most:,} "
            "rows fit."
        )
    return asked


def check_explanation(rows: int, labelled: int, classes: int, device: str) -> None:
    """Raise ``ValueError`` if so many contributions do not fit the memory."""
    free, per_row = free_memory(device), _PART_BYTES * labelled * classes
    if rows * per_row > free:
        raise ValueError(
            f"what {labelled:,} labelled rows contribute to {classes:,} classes of "
            f"{rows:,} rows needs about {_gigabytes(rows * per_row)}, and "
            f"{_gigabytes(free)} are free: explain at most "
            f"{free // per_row:,} rows at once."
        )


def _suitable(n: int, device: str) -> list[str]:
    """Return the backends for so many rows, the best first."""
    if torch.device(device).type == "cuda":
        return ["dense", "exact"] if n <= _DENSE_ROWS_GPU else ["exact"]
    return ["dense", "sparse"] if n <= DENSE_ROWS else ["sparse"]


def _check_search(n: int, device: str, asked: str) -> None:
    """Raise ``ImportError`` if so many rows need an index and none is installed."""
    on_cpu = torch.device(device).type == "cpu"
    if on_cpu and n > MOST_BRUTE_FORCE_ROWS and not has_index():
        raise ImportError(
            f"backend={asked!r} finds the nearest neighbours of {n:,} rows by an index, "
            f"which more than {MOST_BRUTE_FORCE_ROWS:,} rows need: "
            "pip install 'icssl[large]'. backend='exact' needs none and takes hours."
        )


def _refusal(backend: Backend, size: Size, free: int) -> str:
    need = _gigabytes(needed_memory(backend, size))
    labels = f" with {size.labelled:,} labels" if size.labelled > 1 else ""
    return (
        f"{size.rows:,} rows of {size.columns:,} columns{labels} need about {need} with "
        f"backend={backend.name!r}, and {_gigabytes(free)} are free: at most about "
        f"{largest_rows(backend, size, free):,} rows fit."
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


def largest_rows(backend: Backend, size: Size, free: int) -> int:
    """Return the largest number of rows that fits the memory, by bisection."""
    fits, too_many = 0, size.rows
    while too_many - fits > 1:
        rows = (fits + too_many) // 2
        labelled = min(size.labelled, rows)
        need = needed_memory(backend, replace(size, rows=rows, labelled=labelled))
        fits, too_many = (rows, too_many) if need <= free else (fits, rows)
    return fits


def check_options(model: Any, backend: Any, n_neighbors: Any) -> None:
    """Raise an error if model, backend or number of neighbours is not allowed."""
    if not is_file(model):
        also = "a file that ends in .safetensors"
        check_choice("model", model, ["auto", *MODELS], also)
    check_choice("backend", backend, ["auto", *BACKENDS])
    least = max(graph.neighbours for graph in GRAPHS)  # or a graph would have no bandwidth
    check_at_least("n_neighbors", index(n_neighbors), least)


def is_file(model: object) -> bool:
    """Return whether a model is a file of weights."""
    return str(model).endswith(".safetensors")


def device_for(asked: str, n: int) -> str:
    """Return the device on which so many rows are fitted."""
    if asked != "auto":
        check_device(str(asked))
        return str(asked)
    return "cuda" if n >= _GPU_ROWS and torch.cuda.is_available() else "cpu"


def dtype_for(n: int, device: str) -> torch.dtype:
    """Return the precision of so many rows: float64 where their eigenmap is exact."""
    return torch.float64 if uses_lapack(n, device) else torch.float32


def views_for(model: Any, backend: str, n: int, d: int, device: str) -> str:
    """Return the name of the views in which a table is read, one of :data:`MODELS`.

    Parameters
    ----------
    model, backend : str
        What was asked for.
    n, d : int
        Rows and columns of the table.
    device : str
        The one on which the table is fitted.
    """
    if model in MODELS:
        return str(model)
    if n > _most_rows(backend, d, device):
        return "one view"
    few = n <= DENSE_ROWS or torch.device(device).type == "cuda"
    return "all views" if few else "main views"


def _most_rows(backend: str, d: int, device: str) -> int:
    """Return the most rows with which so many columns are read in several views."""
    if torch.device(device).type == "cuda":
        return _DENSE_ROWS_GPU
    if backend in ("dense", "exact"):  # all weights take part, which takes longer
        return DENSE_ROWS
    return min(_MOST_ROWS, max(_WIDE_ROWS, _MOST_CELLS // max(1, d)))


class _GraphPlan(NamedTuple):
    """A given graph as the model reads it.

    Parameters
    ----------
    weights : ndarray or csr_matrix of shape (n, n)
        The weights, as the backend holds them.
    exponent : int
        The power of two by which they were divided.
    backend : str
        "dense" or "sparse".
    """

    weights: Any
    exponent: int
    backend: str


def plan_graph(w: Any, backend: str, device: str) -> _GraphPlan:
    """Check a graph that was given, and bring its weights into the form the model reads."""
    if w.shape[0] != w.shape[1]:
        raise ValueError(
            "With metric='precomputed', X must have a column for every row, got shape "
            f"{w.shape}."
        )
    w = _without_diagonal(w)
    cells = w.data if sparse.issparse(w) else w
    exponent = int(np.frexp(cells.max(initial=0.0))[1])
    w = comparable_weights(w, exponent)
    n, stored = w.shape[0], w.nnz if sparse.issparse(w) else None
    backend = choose_for_graph(backend, n, stored, device_for(device, n))
    if backend == "sparse":
        w = sparse.csr_matrix(w)  # which its graph makes symmetric
    else:
        w = w.toarray() if sparse.issparse(w) else w
        w = np.maximum(w, w.T)  # either way counts, as in a graph of nearest neighbours
    return _GraphPlan(w, exponent, backend)


def _without_diagonal(w: Any) -> Any:
    """Return a graph, dense or sparse, in which no row is its own neighbour."""
    w = w.copy()
    if sparse.issparse(w):
        w.setdiag(0.0)
        w.eliminate_zeros()
    else:
        np.fill_diagonal(w, 0.0)
    return w


def comparable_weights(w: Any, exponent: int) -> Any:
    """Return weights divided by a power of two, which loses no digit.

    The unit of a graph's weights does not matter, and sums of them must not overflow. New
    rows can have larger weights: above 1e18 times the graph's largest they are cut to that.
    """
    scaled = w.copy()
    cells = scaled.data if sparse.issparse(w) else scaled
    with np.errstate(over="ignore"):  # what is infinite is cut off in the next line
        np.minimum(np.ldexp(cells, -exponent), _MOST_WEIGHT, out=cells)
    return scaled
