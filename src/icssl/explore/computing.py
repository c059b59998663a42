"""How the page computes: once for the same question, one at a time, in one thread.

The server has a thread for each request, and a click makes several requests. Warnings are
caught for the whole process, so that two threads which fit at once would mix theirs up; and
threads that wait for each other on few cores are slower than one.
"""

import threading
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

Found = TypeVar("Found")

_COMPUTING = threading.RLock()


def remembered(count: int) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """Keep the last ``count`` answers of a function that fits or runs a model."""

    def decorate(compute: Callable[..., Found]) -> Callable[..., Found]:
        @lru_cache(maxsize=count)
        def alone(*question: Hashable) -> Found:
            # OpenMP has a number for every thread: what the main one set holds for it only.
            with threadpool_limits(1):
                return compute(*question)

        @wraps(compute)
        def found(*question: Hashable) -> Found:
            with _COMPUTING:
                return alone(*question)

        return found

    return decorate


def use_one_thread() -> None:
    """For all that is not :func:`remembered`: PyTorch and BLAS, in the whole process."""
    torch.set_num_threads(1)
    threadpool_limits(1)
