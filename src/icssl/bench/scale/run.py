"""Rows of the scale suite: one method at one size, measured in a process of its own."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from sklearn.datasets import make_classification

from icssl._util.hardware import held_bytes
from icssl.bench.runs import made_with
from icssl.bench.store import SharedQueue, Store, key_of
from icssl.methods.registry import OURS, recipe_of


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


COLUMNS, CLASSES = 20, 8
MADE = "clusters"  # the table that is made here
# Of a first fit, which loads what is needed: on a GPU as many as take the same kernels.
_WARM_ROWS = {"cpu": 400, "cuda": 60_000}
_GLANCE = 0.5  # seconds between two looks at what another process measures
Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One method on one table.

    Parameters
    ----------
    data : str
        :data:`MADE`, or the path of an .npz with arrays x and y.
    rows, labels, draw : int
        How many, how many of each class are labelled, and which.
    method : str
        A method that the registry has for ``scale``.
    device : str
        Of the machine; methods other than ours run on its cores.
    threads : int
    """

    data: str
    rows: int
    labels: int
    draw: int
    method: str
    device: str
    threads: int

    @property
    def key(self) -> str:
        """A hash of everything that decides the row."""
        return key_of(self.describe())

    def describe(self) -> dict[str, Any]:
        """All of that, as plain values; a file by its name and by what is in it."""
        named = {**vars(self), "data": Path(self.data).stem}
        if self.data != MADE:
            named["digest"] = _digest(self.data)
        return {**named, **recipe_of("scale", self.method).stated_settings}

    @property
    def where(self) -> str:
        """The device that the method itself runs on."""
        return self.device if self.method == OURS else "cpu"

    def __str__(self) -> str:
        return f"{self.method}, {self.rows:,} rows, {self.labels} labels a class"


@cache
def _digest(path: str) -> str:
    """A hash of a file: neither its name nor its folder says what is in it."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def clusters(n: int) -> tuple[Float[ndarray, "n d"], Int[ndarray, " n"]]:
    """Eight classes of two clusters; ten columns say something, five repeat them."""
    return make_classification(
        n,
        COLUMNS,
        n_informative=COLUMNS // 2,
        n_redundant=COLUMNS // 4,
        n_classes=CLASSES,
        n_clusters_per_class=2,
        class_sep=2.0,
        random_state=0,
    )


@lru_cache(maxsize=1)
def table_of(data: str, n: int) -> tuple[ndarray, ndarray]:
    """Rows and classes: made, or the first so many of a file, in the order of a draw."""
    if data == MADE:
        return clusters(n)
    path = Path(data)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: an .npz with arrays x and y.")
    with np.load(path) as file:
        if not {"x", "y"} <= set(file.files):
            raise ValueError(f"{path} must have arrays x and y, it has {file.files}.")
        x, y = file["x"], file["y"]
    order = np.random.default_rng(0).permutation(len(x))[:n]
    return x[order].reshape(len(order), -1).astype(np.float32), y[order].astype(np.int64)


def few_labels(truth: Int[ndarray, " n"], per_class: int, draw: int) -> ndarray:
    """The classes with all but so many of each hidden, as -1."""
    rng, y = np.random.default_rng(draw), np.full(len(truth), -1)
    for c in np.unique(truth):
        order = rng.permutation(np.flatnonzero(truth == c))
        y[order[:per_class]] = c
    return y


def measure(trial: Trial) -> Row:
    """Run a method: time, peak memory and accuracy on the rows without a label."""
    torch.set_num_threads(trial.threads)
    x, truth = table_of(trial.data, trial.rows)
    y, run = (
        few_labels(truth, trial.labels, trial.draw),
        recipe_of("scale", trial.method).method,
    )
    where = trial.where
    warm = min(_WARM_ROWS[where], len(x))
    run(x[:warm], few_labels(truth[:warm], 2, 0), where)
    if where == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with watched() as memory:
        began = time.perf_counter()
        found, how = run(x, y, where)
        seconds = time.perf_counter() - began
    hidden = y == -1
    return {
        "key": trial.key,
        "spec": trial.describe(),
        "seconds": round(seconds, 4),
        "megabytes": round(memory["added"] / 1e6),
        "whole_megabytes": round(memory["whole"] / 1e6),
        **(_on_gpu() if where == "cuda" else {}),
        "accuracy": round(float((found == truth)[hidden].mean()), 5),
        "how": how if where == trial.device else f"{how}, on the cores",
        **made_with(trial.device),
    }


def _on_gpu() -> Row:
    return {"gpu_megabytes": round(torch.cuda.max_memory_allocated() / 1e6)}


def _row(trial: Trial) -> Row:
    """Measured in a process of its own; an error becomes the row."""
    try:
        return apart(measure, trial)
    except (ValueError, MemoryError, ImportError, RuntimeError) as error:
        said = f"{type(error).__name__}: {error}"
        return {"key": trial.key, "spec": trial.describe(), "error": said}


def sizes_for(method: str, sizes: Sequence[int]) -> list[int]:
    """Return the numbers of rows at which a method is run."""
    most = recipe_of("scale", method).most_rows
    return [n for n in sizes if most is None or n <= most]


def missing_of(trials: Sequence[Trial], store: Store) -> list[Trial]:
    """Those without a measured row, small ones first.

    One that failed is tried again: memory may be free by then, or a package installed.
    """
    missing = [t for t in trials if t.key not in store or "error" in store[t.key]]
    return sorted(missing, key=lambda t: (t.rows, t.labels, t.draw))


def run_missing(
    trials: Sequence[Trial], store: Store, report: Callable[[Trial, Row], None]
) -> None:
    """Run what the store has not; several processes may, and each trial is run by one."""
    missing = missing_of(trials, store)
    if not missing:
        return
    failed = {t.key: store[t.key] for t in missing if t.key in store}

    def is_done(trial: Trial) -> bool:
        return trial.key in store and store[trial.key] is not failed.get(trial.key)

    with store.claims() as claims:
        queue = SharedQueue(missing, claims, is_done)
        while len(queue):
            trial = queue.pop()
            if trial is None:
                time.sleep(_GLANCE)
                continue
            row = _row(trial)
            store.append(row)
            claims.drop([trial.key])
            report(trial, row)
