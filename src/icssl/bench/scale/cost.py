"""Specs of the suite by size: time, memory and accuracy of one method on one table."""

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from sklearn.datasets import make_classification

from icssl._util.hardware import held_bytes
from icssl._util.provenance import made_with
from icssl.bench.store import key_of
from icssl.methods.registry import OURS, recipe_of
from icssl.model.build import AnyModel
from icssl.training.config import TrainConfig

COLUMNS, CLASSES = 20, 8
MADE = "clusters"  # the table that is made here
# Rows of a first fit, which loads what is needed; on a GPU enough to take the same kernels.
_WARM_ROWS = {"cpu": 400, "cuda": 60_000}


@dataclass(frozen=True)
class ScaleSpec:
    """One method on one table: a :class:`icssl.bench.spec.Spec` without models.

    Parameters
    ----------
    data : str
        :data:`MADE`, or the path of an .npz with arrays x and y.
    rows, labels, draw : int
        Number of rows, of labelled rows per class, and which draw of the labels.
    method : str
        A method that the registry has for ``scale``.
    device : str
        Device of the machine; methods other than ours run on its cores.
    threads : int
        Threads of torch.
    """

    data: str
    rows: int
    labels: int
    draw: int
    method: str
    device: str
    threads: int

    trainings: ClassVar[tuple[TrainConfig, ...]] = ()

    @property
    def key(self) -> str:
        """A hash of everything that decides the row."""
        return key_of(self.describe())

    @property
    def title(self) -> str:
        """Method, rows and label count."""
        return f"{self.method}, {self.rows:,} rows, {self.labels} labels per class"

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the row; a file by its name and its contents."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["data"] = Path(self.data).stem
        if self.data != MADE:
            values["digest"] = _digest(self.data)
        return {**values, **recipe_of("scale", self.method).stated_settings}

    @property
    def runs_on(self) -> str:
        """The device that the method itself runs on."""
        return self.device if self.method == OURS else "cpu"

    def measure(self, models: Sequence[AnyModel], device: str) -> dict[str, Any]:
        """Return time, peak memory and accuracy on the rows without a label."""
        torch.set_num_threads(self.threads)
        x, truth = table_of(self.data, self.rows)
        y = few_labels(truth, self.labels, self.draw)
        run, device = recipe_of("scale", self.method).method, self.runs_on
        warm = min(_WARM_ROWS[device], len(x))
        run(x[:warm], few_labels(truth[:warm], 2, 0), device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with track_memory() as memory:
            began = time.perf_counter()
            classes, how = run(x, y, device)
            seconds = time.perf_counter() - began
        return {
            "seconds": round(seconds, 4),
            "megabytes": round(memory["added"] / 1e6),
            "whole_megabytes": round(memory["whole"] / 1e6),
            **(_gpu_memory() if device == "cuda" else {}),
            "accuracy": round(float((classes == truth)[y == -1].mean()), 5),
            "how": how if device == self.device else f"{how}, on the cores",
            **made_with(self.device),
        }

    def failure(self, why: str) -> dict[str, Any]:
        """Return the measured part of the row of a method that failed."""
        return {"error": why}


def specs_of(
    methods: Sequence[str],
    sizes: Sequence[int],
    labels: Sequence[int],
    draws: int,
    **settings: Any,
) -> list[ScaleSpec]:
    """Return every combination that can be run, small ones first."""
    specs = [
        ScaleSpec(rows=n, labels=m, draw=draw, method=method, **settings)
        for method in methods
        for n in sizes_for(method, sizes)
        for m in labels
        for draw in range(draws)
    ]
    return sorted(specs, key=lambda spec: (spec.rows, spec.labels, spec.draw))


def sizes_for(method: str, sizes: Sequence[int]) -> list[int]:
    """Return the numbers of rows at which a method is run."""
    most = recipe_of("scale", method).most_rows
    return [n for n in sizes if most is None or n <= most]


@contextmanager
def track_memory() -> Iterator[dict[str, int]]:
    """Give the most bytes that the process holds meanwhile: whole, and added.

    The kernel's own record would include the making of the table.
    """
    is_over, before = threading.Event(), held_bytes()
    peak = {"whole": before, "added": 0}

    def look() -> None:
        while not is_over.wait(0.01):
            peak["whole"] = max(peak["whole"], held_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()
        peak["whole"] = max(peak["whole"], held_bytes())
        peak["added"] = peak["whole"] - before


def _gpu_memory() -> dict[str, int]:
    return {"gpu_megabytes": round(torch.cuda.max_memory_allocated() / 1e6)}


@cache
def _digest(path: str) -> str:
    """Return a hash of a file: neither its name nor its folder says what is in it."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def clusters(n: int) -> tuple[Float[ndarray, "n d"], Int[ndarray, " n"]]:
    """Make eight classes of two clusters; ten columns are informative, five repeat them."""
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
    """Return rows and classes: made here, or the first n of a file in a random order."""
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
    """Return the classes with all but ``per_class`` of each hidden, as -1."""
    rng, y = np.random.default_rng(draw), np.full(len(truth), -1)
    for c in np.unique(truth):
        order = rng.permutation(np.flatnonzero(truth == c))
        y[order[:per_class]] = c
    return y
