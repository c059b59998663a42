"""How far long work is, told to whoever asked: a bar, a terminal, or nobody."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

Show = Callable[[int, int | None, str], None]
"""Takes what is done, the total if it is known, and what is being done."""


class _Progress:
    """A count of steps that several threads may add to."""

    def __init__(self, show: Show) -> None:
        self._show, self._lock = show, Lock()
        self._done, self._total, self._text = 0, 0, ""

    def begin(self, total: int, text: str) -> None:
        self._done, self._total, self._text = 0, total, text
        self._show(0, total or None, text)

    def step(self, count: int = 1) -> None:
        with self._lock:
            self._done += count
            self._show(self._done, self._total or None, self._text)


class Pace:
    """The time that is left, if work goes on as fast as since its first step."""

    def __init__(self) -> None:
        self._first, self._last, self._began = 0, 0, 0.0
        self._total: int | None = None

    def seconds_left(self, done: int, total: int | None) -> float | None:
        """Return the seconds left, or None as long as that cannot be known."""
        # Other work begins, or a run is resumed with some steps done, which took no time.
        if total != self._total or done < self._last:
            self._first, self._total, self._began = done, total, time.monotonic()
        self._last = done
        if total is None or done == self._first:
            return None
        elapsed = time.monotonic() - self._began
        return elapsed / (done - self._first) * (total - done)


def duration_text(seconds: float) -> str:
    """Return a number of seconds in the unit that a person would choose.

    Examples
    --------
    >>> [duration_text(seconds) for seconds in (4.2, 130, 9000)]
    ['4 s', '2 min', '2.5 h']
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


_CURRENT: ContextVar[_Progress | None] = ContextVar("progress", default=None)


@contextmanager
def showing(show: Show | None) -> Iterator[None]:
    """Tell ``show`` how far the work inside the block is; None for nobody.

    Examples
    --------
    >>> seen = []
    >>> with showing(lambda done, total, text: seen.append((done, total, text))):
    ...     begin_steps(2, "graphs")
    ...     stepper()()
    >>> seen
    [(0, 2, 'graphs'), (1, 2, 'graphs')]
    """
    token = _CURRENT.set(None if show is None else _Progress(show))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def is_shown() -> bool:
    """Whether somebody is told already."""
    return _CURRENT.get() is not None


def begin_steps(total: int, text: str) -> None:
    """Say that so many steps begin; 0 if it is not known how many."""
    progress = _CURRENT.get()
    if progress is not None:
        progress.begin(total, text)


def stepper() -> Callable[..., None]:
    """Return what to call after each step, or after some, from any thread."""
    progress = _CURRENT.get()
    return _tell_nobody if progress is None else progress.step


def _tell_nobody(count: int = 1) -> None:
    """Tell nobody."""


@contextmanager
def bar_on_standard_error(when: bool) -> Iterator[None]:
    """Show a bar with the time left while the block works, unless one is shown already."""
    if not when or is_shown():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:

        def show(done: int, total: int | None, text: str) -> None:
            if not done:  # other work begins: a bar of its own, and its own time
                for task in bar.task_ids:
                    bar.remove_task(task)
                bar.add_task(text, total=total)
            bar.update(bar.task_ids[0], completed=done)

        with showing(show):
            yield
