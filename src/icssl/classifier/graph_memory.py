"""Graphs that are remembered while one table gets one label after the other.

Most graphs of a table and their eigenmaps depend on its rows only, and take nearly all the
time of a fit. Whoever fits the same rows again and again, as the page of ``icssl explore``
does after each click, keeps them with :func:`remember_graphs`.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor

_Made = TypeVar("_Made")


class GraphMemory:
    """The graphs of the last few views.

    Parameters
    ----------
    most : int
        How many views to remember.
    """

    def __init__(self, most: int = 16) -> None:
        self._made: OrderedDict[Hashable, Any] = OrderedDict()
        self._most = most
        self._lock = threading.Lock()  # views are made in threads

    def recall(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """Return what was made for the key, or make it."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        made = make()
        with self._lock:
            self._made[key] = made
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        return made


_MEMORY: ContextVar[GraphMemory | None] = ContextVar("graph memory", default=None)


@contextmanager
def remember_graphs(memory: GraphMemory) -> Iterator[None]:
    """Let fits within the block take graphs from a memory, and leave theirs in it."""
    token = _MEMORY.set(memory)
    try:
        yield
    finally:
        _MEMORY.reset(token)


def is_remembering() -> bool:
    """Whether fits take graphs from a memory here."""
    return _MEMORY.get() is not None


def recalling(
    make: Callable[[str], _Made], points: Mapping[str, Tensor], *settings: Hashable
) -> Callable[[str], _Made]:
    """Return ``make`` so that it recalls graphs of equal points, if there is a memory.

    Parameters
    ----------
    make : callable
        Makes the graphs of a view, by its name.
    points : mapping
        The rows' coordinates in every view.
    *settings
        All else that decides what is made.
    """
    memory = _MEMORY.get()
    if memory is None:
        return make

    def recall(view: str) -> _Made:
        key = (settings, view, digest(points[view]))
        return memory.recall(key, lambda: make(view))

    return recall


def digest(values: Tensor) -> tuple[Hashable, ...]:
    """Return a fingerprint of a tensor, its shape, type and place."""
    content = values.detach().cpu().contiguous().numpy().tobytes()
    place = (tuple(values.shape), str(values.dtype), str(values.device))
    return (*place, hashlib.sha256(content).digest())
