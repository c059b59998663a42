"""What the classifier settles before it computes: device, dtype, views, backend, prior.

Memory is estimated before anything is allocated; ``benchmarks/scale_classifier.py`` shows
the estimates beside what was used.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import sparse

from icssl._util.errors import check_choice, check_device
from icssl._util.hardware import free_bytes
from icssl.classifier.graph_sparse import (
    MOST_BRUTE_FORCE_ROWS,
    SPARSE_NEIGHBOURS,
    has_index,
)
from icssl.classifier.graphs import (
    FEW_SOLVED_ROWS,
    MOST_KERNEL_VALUES,
    MOST_WEIGHTS,
    SOLVED_ROWS,
    SPARE_COLUMNS,
    is_solved,
)
from icssl.classifier.views import VIEWS

BACKENDS = ("dense", "exact", "sparse")

DENSE_ROWS = 4_096
"""Contexts of more rows hold no matrix of them on a CPU, unless asked for."""

DENSE_ROWS_GPU = 50_000
"""The same on a GPU, where products with a matrix are as fast as its memory."""

_BASIS = 48 + SPARE_COLUMNS  # columns that the eigenmap is iterated in
_UNHELD = 2**26  # weights at once, of those that never are: a block of rows on a GPU
_GIVEN_BYTES, _LISTED_BYTES = 36, 80  # a weight of a given graph, dense and sparse
_PART_BYTES = 28  # a contribution, with the copies that are made of it
_ALWAYS = 2**26  # what threads and libraries take with the first rows
_MARGIN = 1.2  # of the estimates, for what the allocator leaves unused


@dataclass(frozen=True)
class Backend:
    """How the graph of a context is held.

    Parameters
    ----------
    name : {"dense", "exact", "sparse"}
        All weights are held; none are, and all take part; each row keeps those to its
        nearest neighbours.
    n_neighbors : int
        Neighbours that a row keeps, with "sparse".
    """

    name: str = "dense"
    n_neighbors: int = SPARSE_NEIGHBOURS


DENSE = Backend("dense")


@dataclass(frozen=True)
class Size:
    """What the memory that a context takes depends on.

    Parameters
    ----------
    rows, columns, views, labelled, classes : int
    bytes_each : int
        Of a number.
    """

    rows: int
    columns: int
    views: int
    labelled: int
    classes: int
    bytes_each: int = 4


def free_memory(device: str) -> int:
    """Bytes that can be had now, of the machine or of the GPU."""
    if torch.device(device).type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserved
    return min(free_bytes(), *_left_in_containers())


def _left_in_containers(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Bytes that control groups leave to this process, in either of their versions."""
    left = [2**63]
    for most, now, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        *((f"memory/memory.{n}" for n in ("limit_in_bytes", "usage_in_bytes", "stat")),),
    ):
        try:
            used = int((root / now).read_text()) - _cached(root / stat)
            left.append(int((root / most).read_text()) - used)
        except (OSError, ValueError):  # there are none, or they set no limit
            continue
    return left


def _cached(stat: Path) -> int:
    """Bytes of files that are kept only as long as nobody needs the room."""
    counts = dict(line.split() for line in stat.read_text().splitlines())
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))


def needed_memory(backend: Backend, size: Size) -> int:
    """Bytes that reading a context takes at its peak, about."""
    n, m, each = size.rows, size.labelled, size.bytes_each
    graph = {
        "dense": n * n + 5 * min(MOST_WEIGHTS, n * n),
        "exact": 5 * min(_UNHELD, n * n) + 4 * n * _BASIS,
        "sparse": 8 * n * min(backend.n_neighbors, n),
    }[backend.name]
    # One after the other: columns by rank, the graph of a view, kernels with the labels.
    ranks = 8 * n * size.columns * 8 // each
    kernels = min(MOST_KERNEL_VALUES, n * m * (10 * size.views + 1))
    passing = max(ranks, graph + 6 * n * _BASIS, 5 * kernels, _solved(backend, n))
    kept = size.views * n * (3 * size.columns + _BASIS) + 4 * m * m
    doubles = n * (2 * size.columns + 4 * size.classes + 8)
    return int(_MARGIN * (each * (kept + passing) + 8 * doubles)) + _ALWAYS


def _solved(backend: Backend, n: int) -> int:
    """Return the numbers that LAPACK and its copies take, beside a graph that is held."""
    if backend.name == "sparse":
        return 6 * min(n, FEW_SOLVED_ROWS) ** 2
    return (7 if backend.name == "dense" else 6) * min(n, SOLVED_ROWS) ** 2


def choose_backend(asked: str, n_neighbors: int, size: Size, device: str) -> Backend:
    """The first that fits the memory, of those that suit, or the one that was asked for."""
    names = [asked] if asked != "auto" else _suitable(size.rows, device)
    if "sparse" in names:
        _check_search(size.rows, device, asked)
    free = free_memory(device)
    for name in names:
        if needed_memory(Backend(name, n_neighbors), size) <= free:
            return Backend(name, n_neighbors)
    raise ValueError(_refusal(Backend(names[-1], n_neighbors), size, free))


def choose_for_graph(asked: str, n: int, stored: int | None, device: str) -> str:
    """The same for a graph that is given: how its weights are held.

    Parameters
    ----------
    asked : str
    n : int
        Rows.
    stored : int, optional
        Weights that a sparse graph has.
    device : str
    """
    if asked == "exact":
        raise ValueError(
            "backend='exact' makes weights from columns, and metric='precomputed' has "
            "none: choose 'auto', 'dense' or 'sparse'."
        )
    free, dense = free_memory(device), _GIVEN_BYTES * n**2
    if asked == "auto":
        thin = stored is not None and (n > DENSE_ROWS or dense > free)
        asked = "sparse" if thin else "dense"
    need = dense if asked == "dense" else _LISTED_BYTES * (stored or n**2)
    need += 8 * 6 * n * _BASIS
    if need > free:
        most = int((free / _GIVEN_BYTES) ** 0.5) if asked == "dense" else n * free // need
        raise ValueError(
            f"a graph of {n:,} rows needs about {_gigabytes(need)} with "
            f"backend={asked!r}, and {_gigabytes(free)} are free: at most about {most:,} "
            "rows fit."
        )
    return asked


def check_explanation(rows: int, labelled: int, classes: int, device: str) -> None:
    """Refuse to list more contributions than the memory holds."""
    free, each = free_memory(device), _PART_BYTES * labelled * classes
    if rows * each > free:
        raise ValueError(
            f"what {labelled:,} labelled rows contribute to {classes:,} classes of "
            f"{rows:,} rows needs about {_gigabytes(rows * each)}, and "
            f"{_gigabytes(free)} are free: explain at most {free // each:,} rows at once."
        )


def _suitable(n: int, device: str) -> list[str]:
    """From the one that is best for so many rows down."""
    if torch.device(device).type == "cuda":
        return ["dense", "exact"] if n <= DENSE_ROWS_GPU else ["exact"]
    return ["dense", "sparse"] if n <= DENSE_ROWS else ["sparse"]


def _check_search(n: int, device: str, asked: str) -> None:
    """Beyond some number, neighbours need an index: comparing takes hours."""
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
    """The largest number of rows that fits."""
    fits, too_many = 0, size.rows
    while too_many - fits > 1:
        rows = (fits + too_many) // 2
        labelled = min(size.labelled, rows)
        need = needed_memory(backend, replace(size, rows=rows, labelled=labelled))
        fits, too_many = (rows, too_many) if need <= free else (fits, rows)
    return fits


MODELS = {
    "all views": VIEWS,
    "one view": VIEWS[:1],  # a few dozen passes over the rows, and no matrix of them
}
# Rows that are read in all views, unless asked for: a minute or two on two cores. Fewer of
# many columns, where neighbours take longer to find; fewer where all weights take part.
_MOST_ROWS, _MOST_CELLS = 200_000, 2**23
_WIDE_ROWS = 2_000  # however many columns they have
_MOST_WEIGHT = 1e18  # of a new row, where one is the largest in the graph
_GPU_ROWS = 2_000  # from which a GPU is worth its start


def check_model(asked: object) -> None:
    """Refuse what is neither a name nor a file of weights."""
    if not is_file(asked):
        also = "a file that ends in .safetensors"
        check_choice("model", asked, ["auto", *MODELS], also)


def is_file(model: object) -> bool:
    """Whether a model is a file of weights."""
    return str(model).endswith(".safetensors")


def device_for(asked: str, n: int) -> str:
    """The device on which so many rows are read."""
    if asked != "auto":
        check_device(str(asked))
        return str(asked)
    return "cuda" if n >= _GPU_ROWS and torch.cuda.is_available() else "cpu"


def dtype_for(n: int, device: str) -> torch.dtype:
    """Return the precision of so many rows: float64 where their eigenmap is exact."""
    return torch.float64 if is_solved(n, device) else torch.float32


def views_for(model: Any, backend: str, n: int, d: int, device: str) -> str:
    """The name of the views in which a table is read: of :data:`MODELS`.

    Parameters
    ----------
    model, backend : str
        As they were asked for.
    n, d : int
        Rows and columns.
    device : str
        The one on which the table is read.
    """
    if model in MODELS:
        return str(model)
    return "all views" if n <= _most_rows(backend, d, device) else "one view"


def _most_rows(backend: str, d: int, device: str) -> int:
    """That are read in all views."""
    if torch.device(device).type == "cuda":
        return DENSE_ROWS_GPU
    if backend in ("dense", "exact"):
        return DENSE_ROWS
    return min(_MOST_ROWS, max(_WIDE_ROWS, _MOST_CELLS // max(1, d)))


def without_diagonal(w: Any) -> Any:
    """Return a graph, dense or sparse, in which no row is its own neighbour."""
    w = w.copy()
    if sparse.issparse(w):
        w.setdiag(0.0)
        w.eliminate_zeros()
    else:
        np.fill_diagonal(w, 0.0)
    return w


def weight_exponent(w: Any) -> int:
    """Return the exponent of two of a graph's largest weight, dense or sparse."""
    cells = w.data if sparse.issparse(w) else w
    return int(np.frexp(cells.max(initial=0.0))[1])


def comparable_weights(w: Any, exponent: int) -> Any:
    """Return weights divided by a power of two, which no digit is lost by.

    The unit of a graph's weights does not matter, and sums of them must not overflow. New
    rows can have larger weights: above 1e18 times the graph's largest they are cut to that.
    """
    scaled = w.copy()
    cells = scaled.data if sparse.issparse(w) else scaled
    with np.errstate(over="ignore"):  # what is infinite is cut off in the next line
        np.minimum(np.ldexp(cells, -exponent), _MOST_WEIGHT, out=cells)
    return scaled


def symmetric_weights(w: Any) -> Float[ndarray, "n n"]:
    """Return a graph as a matrix in which either way counts, as of nearest neighbours."""
    w = w.toarray() if sparse.issparse(w) else w
    return np.maximum(w, w.T)


def prior_for(
    asked: Any, codes: Int[ndarray, " n"], count: int
) -> Float[ndarray, " classes"]:
    """How frequent each of so many classes is: as asked for, else by the labels."""
    if asked is None:
        share = np.bincount(codes[codes >= 0], minlength=count) + 1.0
    elif isinstance(asked, str):
        check_choice("class_prior", asked, ["uniform"], "an array with a number a class")
        share = np.ones(count)
    else:
        share = _as_numbers(asked)
    if share.shape != (count,) or not (np.isfinite(share) & (share > 0)).all():
        raise ValueError(
            f"class_prior must have a positive number for each of the {count} classes, got "
            f"{asked!r}."
        )
    share = share / share.max()  # or a sum of the largest floats would be infinite
    share = np.maximum(share, np.finfo(float).tiny)  # a ratio that underflows is not zero
    return share / share.sum()


def _as_numbers(asked: Any) -> ndarray:
    """Return numbers, or none at all where something else was given."""
    try:
        return np.asarray(asked, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)
