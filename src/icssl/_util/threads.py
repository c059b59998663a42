"""Threads of torch and BLAS: small work runs on one, since waiting threads spin.

Two threads gain nothing on a small table, and where other programs keep the cores busy they
cost many times the work: every product then waits for a thread that has no core.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Limit(local):
    """How deep this thread is inside :func:`one_thread`; the rest all threads share.

    Attributes
    ----------
    depth : int
        Blocks of this thread. The outermost alone sets and restores.
    blocks, before : int
        Threads that are inside, and how many torch used before the first of them entered:
        a thread that enters while another is inside would find one.
    blas : object
        What restores the threads of BLAS to what the first of them found.
    """

    depth = 0
    lock, blocks, before = Lock(), 0, 1
    blas: Any = None


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
    if not when or _LIMIT.depth:
        yield
        return
    with _LIMIT.lock:
        limit = _controller().limit(limits=1, user_api="blas")
        if _Limit.blocks == 0:
            _Limit.before, _Limit.blas = torch.get_num_threads(), limit
        _Limit.blocks += 1
        torch.set_num_threads(1)
    _LIMIT.depth = 1
    try:
        yield
    finally:
        _LIMIT.depth = 0
        with _LIMIT.lock:
            _Limit.blocks -= 1
            _Limit.blas.restore_original_limits()
            # The number belongs to the thread that sets it, and to threads that start
            # later: each thread restores its own.
            torch.set_num_threads(_Limit.before)


def allowed_threads() -> int:
    """Return how many threads torch may use, also within :func:`one_thread`."""
    return _Limit.before if _Limit.blocks else torch.get_num_threads()


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
