"""How far the answer is that a browser waits for, for the words beside the tabs."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from icssl._util.progress import Pace, duration_text, showing

PROGRESS = "/_progress"
"""Path at which the page asks how far its answer is: see ``assets/page.js``."""


class Waiting:
    """What is being computed for every client, as a sentence."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[object, str]] = {}  # of every piece of work
        self._lock = Lock()  # every request has a thread of its own

    @contextmanager
    def work_for(self, client: str) -> Iterator[None]:
        """Keep what the work inside the block tells of its steps, until the block ends."""
        pace, work = Pace(), object()

        def show(done: int, total: int | None, text: str) -> None:
            left = pace.seconds_left(done, total)
            with self._lock:
                self._texts.setdefault(client, {})[work] = _sentence(
                    done, total, text, left
                )

        try:
            with showing(show):
                yield
        finally:
            with self._lock:
                texts = self._texts.get(client, {})
                texts.pop(work, None)
                if not texts:
                    self._texts.pop(client, None)

    def answer(self, client: str) -> dict[str, Any]:
        """Return what a client's page shows; an empty text if nothing is known."""
        with self._lock:  # several tabs of a browser may wait: the last one that began
            return {"text": next(reversed(self._texts.get(client, {}).values()), "")}


def _sentence(done: int, total: int | None, text: str, left: float | None) -> str:
    """Return how far work is.

    Examples
    --------
    >>> _sentence(3, 10, "graphs of the rows", 7.2)
    'graphs of the rows, 3 of 10, about 7 s left'
    >>> _sentence(0, None, "labelling 80 rows", None)
    'labelling 80 rows'
    """
    count = "" if total is None else f", {done:,} of {total:,}"
    rest = "" if left is None else f", about {duration_text(left)} left"
    return f"{text}{count}{rest}"
