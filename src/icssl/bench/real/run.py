"""Rows: one method on one context, each within a time limit, stored as they come."""

import os
import platform
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss
from threadpoolctl import threadpool_limits

from icssl import __version__
from icssl.bench.real.datasets import (
    MOST_ROWS,
    draw_context,
    fingerprint,
    read_set,
)
from icssl.bench.runner import Progress
from icssl.bench.runs import commit, record_run
from icssl.bench.store import SharedQueue, Store, key_of
from icssl.methods.peers import Context
from icssl.methods.registry import recipe_of

BINS = 15
LIMIT = 60.0  # seconds for one method on one context; most take less than one
Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One method on one context.

    Parameters
    ----------
    set, labels, draw
        The context, see :func:`icssl.bench.real.datasets.draw_context`.
    method : str
        A method that the registry has for ``real``.
    data : str
        Hash of the set's table.
    """

    set: str
    labels: int
    draw: int
    method: str
    data: str

    @property
    def key(self) -> str:
        """A hash of everything that decides the row."""
        return key_of(self.describe())

    def describe(self) -> dict[str, Any]:
        """All of that, as plain values."""
        return {
            "set": self.set,
            "labels": self.labels,
            "draw": self.draw,
            "method": self.method,
            "data": self.data,
            "rows": MOST_ROWS,
            "settings": recipe_of("real", self.method).stated_settings,
        }

    def __str__(self) -> str:
        return f"{self.method}, {self.set}, {self.labels} labels a class"


def trials_of(
    folder: Path,
    sets: Sequence[str],
    labels: Sequence[int],
    draws: int,
    methods: Sequence[str],
) -> list[Trial]:
    """Every combination, draw by draw: what is cut short then compares all methods."""
    data = {name: fingerprint(read_set(folder, name)) for name in sets}
    return [
        Trial(name, m, draw, method, data[name])
        for draw, name, m, method in product(range(draws), sets, labels, methods)
    ]


def measure(trial: Trial, folder: Path) -> Row:
    """Run a method and score it; one that raises gives a row with its error."""
    context = _context(folder, trial.set, trial.draw, trial.labels)
    measured: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        try:
            found = recipe_of("real", trial.method).method(context, seed=trial.draw)
            seconds = time.perf_counter() - began
            measured = score(found, context)
        except (Exception, SystemExit) as error:  # GraphLearning leaves by the latter
            seconds = time.perf_counter() - began
            measured = {"error": f"{type(error).__name__}: {error}"}
    warned = sorted({warning.category.__name__ for warning in caught})
    if warned:
        measured["warned"] = warned
    return _row(trial, context, seconds, measured)


def _row(trial: Trial, context: Context, seconds: float, measured: dict[str, Any]) -> Row:
    return {
        "key": trial.key,
        "spec": trial.describe(),
        "classes": context.n_classes,
        "scored": int((~context.labelled).sum()),
        **measured,
        "seconds": round(seconds, 4),
        "commit": commit(),
    }


@lru_cache(maxsize=8)
def _context(folder: Path, name: str, draw: int, labels: int) -> Context:
    return draw_context(read_set(folder, name), name, draw, labels)


def score(probabilities: Float[ndarray, "n c"], context: Context) -> dict[str, Any]:
    """Metrics on the unlabelled rows.

    A row without probabilities, because they are NaN or all zero, gets the same for every
    class; how many there are is ``undecided``.
    """
    wanted = (len(context.y), context.n_classes)
    if probabilities.shape != wanted:
        raise ValueError(f"probabilities must be {wanted}, got {probabilities.shape}.")
    hidden = ~context.labelled
    found = np.array(probabilities[hidden], dtype=np.float64)
    total = found.sum(axis=1, keepdims=True)
    decided = np.isfinite(total) & (total > 0) & (found >= 0).all(axis=1, keepdims=True)
    found = np.divide(found, total, out=np.full_like(found, 1 / wanted[1]), where=decided)
    y, guess = context.y[hidden], found.argmax(axis=1)
    return {
        "accuracy": round(accuracy_score(y, guess), 5),
        "balanced_accuracy": round(balanced_accuracy_score(y, guess), 5),
        "log_loss": round(log_loss(y, found, labels=range(wanted[1])), 5),
        "bins": reliability(found, y),
        "undecided": int((~decided).sum()),
    }


def reliability(
    probabilities: Float[ndarray, "m c"], y: Int[ndarray, " m"]
) -> dict[str, list[float]]:
    """By bin of confidence: rows, their summed confidence, and how many were right.

    Only bins that have rows; sums, so that draws can be pooled. A bin is open below.
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return {
        str(b): [
            int((place == b).sum()),
            round(float(confidence[place == b].sum()), 4),
            int(right[place == b].sum()),
        ]
        for b in np.unique(place)
    }


def run_missing(
    trials: Iterable[Trial],
    store: Store,
    folder: Path,
    *,
    workers: int = 1,
    minutes: float | None = None,
    limit: float = LIMIT,
    report: Callable[[Progress], None] = lambda _: None,
) -> int:
    """Run every trial whose row is not in the store, and return how many were added.

    Parameters
    ----------
    trials : iterable of Trial
    store : Store
    folder : Path
        Of the sets.
    workers : int
        Processes, one core each.
    minutes : float, optional
        Start nothing more after so long.
    limit : float
        Seconds for one trial. One that takes longer is killed, with its process, whatever
        it is doing; its row says so.
    report : callable, optional
        Is told after every row.
    """
    missing = [trial for trial in trials if trial.key not in store]
    began, before = time.monotonic(), store.added
    end = began + 60 * minutes if minutes is not None else float("inf")
    if not missing or began >= end:
        return 0
    with store.claims() as claims, record_run(store, _made_with(workers)):
        queue = SharedQueue(missing, claims, lambda trial: trial.key in store)
        lanes = [_Lane(folder) for _ in range(min(workers, len(missing)))]
        try:
            while (len(queue) and time.monotonic() < end) or any(x.trial for x in lanes):
                connection.wait([lane.pipe for lane in lanes], timeout=0.5)
                for lane in lanes:
                    trial, row = lane.trial, lane.take(limit)
                    if row is not None:
                        store.append(row)
                        claims.drop([row["key"]])
                        report(Progress(store.added - before, len(missing), str(trial)))
                    if lane.free and time.monotonic() < end:
                        lane.give(queue.pop())
        finally:
            for lane in lanes:
                lane.close()
    return store.added - before


@dataclass
class _Lane:
    """A process that measures one trial at a time and can be killed at any moment."""

    folder: Path
    trial: Trial | None = None
    free: bool = False
    pipe: Any = field(init=False)

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        context = get_context("spawn")  # a fork of a process that uses threads hangs
        self.pipe, theirs = context.Pipe()
        target = (theirs, self.folder)
        self._process = context.Process(target=_serve, args=target, daemon=True)
        self._process.start()
        theirs.close()
        self.free = False

    def give(self, trial: Trial | None) -> None:
        if trial is None:  # other processes measure all that is left
            return
        self.pipe.send(trial)
        self.trial, self.free, self._since = trial, False, time.monotonic()

    def take(self, limit: float) -> Row | None:
        """The row of the trial, if it is there or will not come any more."""
        trial = self.trial
        if not self.pipe.poll():
            if trial is None or time.monotonic() < self._since + limit:
                return None
            return self._failed(trial, f"did not finish in {limit:g} s", limit)
        try:
            row: Row | None = self.pipe.recv()
        except (EOFError, ConnectionResetError):  # by how far it had read
            if trial is None:
                raise RuntimeError(
                    "a process for the methods ended before it had anything to do; its "
                    "own message stands above."
                ) from None
            return self._failed(trial, "its process died", time.monotonic() - self._since)
        self.trial, self.free = None, True
        return row

    def _failed(self, trial: Trial, why: str, seconds: float) -> Row:
        self.close()
        self._open()
        self.trial = None
        context = _context(self.folder, trial.set, trial.draw, trial.labels)
        return _row(trial, context, seconds, {"error": why})

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Any, folder: Path) -> None:
    """What the process does: say that it is ready, then a row for every trial."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the one that waits for the rows
    torch.set_num_threads(1)
    threadpool_limits(1)
    pipe.send(None)
    while True:
        try:
            trial = pipe.recv()
        except EOFError:
            return
        pipe.send(measure(trial, folder))


def _made_with(workers: int) -> dict[str, Any]:
    """Hardware and versions, for a person who wonders about a number."""
    return {
        "workers": workers,
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "scikit-learn": sklearn.__version__,
        "torch": torch.__version__,
        "version": __version__,
        "commit": commit(),
    }
