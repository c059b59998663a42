"""A process of its own for one measurement, and the memory that it holds."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from icssl.memory import held_bytes


def apart(work: Callable[..., Any], *given: Any) -> Any:
    """What ``work`` returns, from a process of its own, whose memory is its own.

    A process that the system kills, mostly for want of memory, is a ``RuntimeError``; of
    multiprocessing's own pools one would wait for it for ever.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(work, *given).result()
        except BrokenProcessPool as error:
            raise RuntimeError("ended without an answer (out of memory?)") from error


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """Bytes that the process holds at most, as long as this lasts: whole, and added.

    The kernel's own record would have the making of the table in it.
    """
    done, before = threading.Event(), held_bytes()
    found = {"whole": before, "added": 0}

    def look() -> None:
        while not done.wait(0.01):
            found["whole"] = max(found["whole"], held_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
        found["whole"] = max(found["whole"], held_bytes())
        found["added"] = found["whole"] - before
