"""How the graph of a context is held, and which way suits the rows and the memory.

Memory is estimated before anything is made; ``benchmarks/scale_classifier.py`` shows the
estimates beside what was used.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from icssl.context.neighbours import (
    FEW_SOLVED_ROWS,
    MOST_NUMBERS,
    MOST_WEIGHTS,
    SOLVED_ROWS,
    SPARE,
)
from icssl.context.search import MOST_COMPARED, has_index
from icssl.context.sparse import KEPT
from icssl.memory import free_bytes

BACKENDS = ("dense", "exact", "sparse")

DENSE_ROWS = 4_096
"""Contexts of more rows hold no matrix of them on a CPU, unless asked for."""

DENSE_ROWS_GPU = 50_000
"""The same on a GPU, where products with a matrix are as fast as its memory."""

_BASIS = 48 + SPARE  # columns that the eigenmap is iterated in
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
    kept : int
        Neighbours that a row keeps, with "sparse".
    """

    name: str = "dense"
    kept: int = KEPT


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
        "sparse": 8 * n * min(backend.kept, n),
    }[backend.name]
    # One after the other: columns by rank, the graph of a view, kernels with the labels.
    ranks = 8 * n * size.columns * 8 // each
    kernels = min(MOST_NUMBERS, n * m * (10 * size.views + 1))
    passing = max(ranks, graph + 6 * n * _BASIS, 5 * kernels, _solved(backend, n))
    kept = size.views * n * (3 * size.columns + _BASIS) + 4 * m * m
    doubles = n * (2 * size.columns + 4 * size.classes + 8)
    return int(_MARGIN * (each * (kept + passing) + 8 * doubles)) + _ALWAYS


def _solved(backend: Backend, n: int) -> int:
    """Return the numbers that LAPACK and its copies take, beside a graph that is held."""
    if backend.name == "sparse":
        return 6 * min(n, FEW_SOLVED_ROWS) ** 2
    return (7 if backend.name == "dense" else 6) * min(n, SOLVED_ROWS) ** 2


def choose_backend(asked: str, kept: int, size: Size, device: str) -> Backend:
    """The first that fits the memory, of those that suit, or the one that was asked for."""
    names = [asked] if asked != "auto" else _suitable(size.rows, device)
    if "sparse" in names:
        _check_search(size.rows, device, asked)
    free = free_memory(device)
    for name in names:
        if needed_memory(Backend(name, kept), size) <= free:
            return Backend(name, kept)
    raise ValueError(_refusal(Backend(names[-1], kept), size, free))


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
    if on_cpu and n > MOST_COMPARED and not has_index():
        raise ImportError(
            f"backend={asked!r} finds the nearest neighbours of {n:,} rows by an index, "
            f"which more than {MOST_COMPARED:,} rows need: pip install 'icssl[large]'. "
            "backend='exact' needs none and takes hours."
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
