"""Threads of torch and BLAS: small work runs on one, since waiting threads spin.

Two threads gain nothing on a small table, and where other programs keep the cores busy they
cost many times the work: every product then waits for a thread that has no core.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Limit:
    """How many blocks are inside :func:`one_thread`, and what to restore after the last.

    The numbers of threads belong to the whole process: the first block to enter lowers
    them, and the last to leave restores them, in whatever order threads come and go.
    """

    def __init__(self) -> None:
        self.lock, self.blocks, self.before = Lock(), 0, 1
        self.blas: Any = None

    def enter(self) -> None:
        """Lower the numbers of threads, unless another block has done so."""
        with self.lock:
            if self.blocks == 0:
                self.before = torch.get_num_threads()
                self.blas = _controller().limit(limits=1, user_api="blas")
                torch.set_num_threads(1)
            self.blocks += 1

    def leave(self) -> None:
        """Restore the numbers of threads, if no other block is inside."""
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                torch.set_num_threads(self.before)
                self.blas.restore_original_limits()


_LIMIT = _Limit()


@cache
def _controller() -> ThreadpoolController:
    """Return what sets the threads of BLAS; looking for its libraries takes a while."""
    return ThreadpoolController()


@contextmanager
def one_thread(*, when: bool = True) -> Iterator[None]:
    """Let torch and BLAS use one thread within a block, and restore theirs after it.

    Parameters
    ----------
    when : bool
        Whether to do so; otherwise the block runs as it is.
    """
    if not when:
        yield
        return
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


def allowed_threads() -> int:
    """Return how many threads torch may use, also within :func:`one_thread`."""
    return _LIMIT.before if _LIMIT.blocks else torch.get_num_threads()


def map_in_threads(
    function: Callable[[_T], _R], items: Iterable[_T], most: int | None = None
) -> list[_R]:
    """Return the results of a function for several items, in order.

    Each item is computed on one thread, and as many at once as torch may use threads.
    These do not spin while they wait, and they end with the last item.

    Parameters
    ----------
    function : callable
        What to compute; it must be safe to call from several threads.
    items : iterable
        The items.
    most : int, optional
        At most so many threads; by default as many as torch may use.
    """
    items = list(items)
    workers = min(len(items), allowed_threads(), most or len(items))
    if workers <= 1:
        return [function(item) for item in items]
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
