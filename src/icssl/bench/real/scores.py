"""Specs of the suite on real tables: one method on one context, scored on hidden rows."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss

from icssl.bench.real.datasets import (
    DRAWS,
    FEWER_DRAWS,
    MOST_ROWS,
    PER_CLASS,
    draw_context,
    fingerprint,
    read_set,
)
from icssl.bench.store import key_of
from icssl.methods.peers import Context
from icssl.methods.registry import recipe_of
from icssl.model.build import AnyModel
from icssl.training.config import TrainConfig

BINS = 15
LIMIT = 60.0  # seconds for one method on one context; most take less than one
FOLDER = Path("data/real")


@dataclass(frozen=True)
class RealSpec:
    """One method on one context: a :class:`icssl.bench.spec.Spec` without models.

    Parameters
    ----------
    set, labels, draw
        The context, see :func:`icssl.bench.real.datasets.draw_context`.
    method : str
        A method that the registry has for ``real``.
    data : str
        Hash of the set's table.
    folder : Path
        Folder of the sets. It does not decide the row.
    protocol : {"per-class", "random"}
        How rows get their labels.
    """

    set: str
    labels: int
    draw: int
    method: str
    data: str
    folder: Path = field(default=FOLDER, compare=False)
    protocol: str = PER_CLASS

    trainings: ClassVar[tuple[TrainConfig, ...]] = ()

    @property
    def key(self) -> str:
        """A hash of everything that decides the row."""
        return key_of(self.describe())

    @property
    def title(self) -> str:
        """Method, set, label count and protocol."""
        return f"{self.method}, {self.set}, {self.labels} labels per class, {self.protocol}"

    def describe(self) -> dict[str, Any]:
        """Return everything that decides the row, as plain values."""
        values = {
            "set": self.set,
            "labels": self.labels,
            "draw": self.draw,
            "method": self.method,
            "data": self.data,
            "rows": MOST_ROWS,
            "settings": recipe_of("real", self.method).stated_settings,
        }
        # Rows of the first protocol are older than the second, and keep their keys.
        return (
            values if self.protocol == PER_CLASS else {**values, "protocol": self.protocol}
        )

    def measure(self, models: Sequence[AnyModel], device: str) -> dict[str, Any]:
        """Run the method and score it; an error that it raises becomes part of the row."""
        context, method = self._context(), recipe_of("real", self.method).method
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            began = time.perf_counter()
            try:
                probabilities = method(context, seed=self.draw)
                seconds = time.perf_counter() - began
                measured = score(probabilities, context)
            except (Exception, SystemExit) as error:  # GraphLearning leaves by the latter
                seconds = time.perf_counter() - began
                measured = {"error": f"{type(error).__name__}: {error}"}
        if caught:
            measured["warned"] = sorted({warning.category.__name__ for warning in caught})
        return {**self._size(context), **measured, "seconds": round(seconds, 4)}

    def failure(self, why: str) -> dict[str, Any]:
        """Return the measured part of the row of a method that did not come to an end."""
        return {**self._size(self._context()), "error": why}

    def _context(self) -> Context:
        return _context(self.folder, self.set, self.draw, self.labels, self.protocol)

    def _size(self, context: Context) -> dict[str, int]:
        return {"classes": context.n_classes, "scored": int((~context.labelled).sum())}


@lru_cache(maxsize=8)
def _context(
    folder: Path, name: str, draw: int, labels: int, protocol: str = PER_CLASS
) -> Context:
    return draw_context(read_set(folder, name), name, draw, labels, protocol)


def specs_of(
    folder: Path,
    sets: Sequence[str],
    labels: Sequence[int],
    draws: int | None,
    methods: Sequence[str],
    protocol: str = PER_CLASS,
) -> list[RealSpec]:
    """Return every combination, draw by draw: a run cut short then compares all methods.

    Without a number of draws, they are those of the protocol (``DRAWS``), and fewer for
    methods that are slow (``FEWER_DRAWS``). A number counts for every method.
    """
    most = DRAWS[protocol] if draws is None else draws
    fewer = FEWER_DRAWS if draws is None else {}
    data = {name: fingerprint(read_set(folder, name)) for name in sets}
    return [
        RealSpec(name, m, draw, method, data[name], folder, protocol)
        for draw, name, m, method in product(range(most), sets, labels, methods)
        if draw < fewer.get(method, most)
    ]


def score(probabilities: Float[ndarray, "n c"], context: Context) -> dict[str, Any]:
    """Return the metrics on the unlabelled rows.

    A row without probabilities, because they are NaN or all zero, gets the same for every
    class; how many there are is ``undecided``.
    """
    shape = (len(context.y), context.n_classes)
    if probabilities.shape != shape:
        raise ValueError(f"probabilities must be {shape}, got {probabilities.shape}.")
    hidden = ~context.labelled
    p = np.array(probabilities[hidden], dtype=np.float64)
    total = p.sum(axis=1, keepdims=True)
    decided = np.isfinite(total) & (total > 0) & (p >= 0).all(axis=1, keepdims=True)
    p = np.divide(p, total, out=np.full_like(p, 1 / shape[1]), where=decided)
    y, guess = context.y[hidden], p.argmax(axis=1)
    return {
        "accuracy": round(accuracy_score(y, guess), 5),
        "balanced_accuracy": round(balanced_accuracy_score(y, guess), 5),
        "log_loss": round(log_loss(y, p, labels=range(shape[1])), 5),
        "bins": _reliability(p, y),
        "undecided": int((~decided).sum()),
    }


def _reliability(
    probabilities: Float[ndarray, "m c"], y: Int[ndarray, " m"]
) -> dict[str, list[float]]:
    """Return rows, summed confidence and right answers for every bin of confidence.

    Only bins that have rows; sums, so that draws can be pooled. A bin is open below.
    """
    confidence, is_right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return {
        str(b): [
            int((place == b).sum()),
            round(float(confidence[place == b].sum()), 4),
            int(is_right[place == b].sum()),
        ]
        for b in np.unique(place)
    }
