"""Rows of the real-data suite as a table, and their means over draws."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from icssl.bench.real.scores import BINS
from icssl.bench.store import Row
from icssl.methods.registry import names_in

METRICS = ("accuracy", "balanced_accuracy", "log_loss")
_CELL = ["set", "labels"]
CONTEXT = [*_CELL, "draw"]


def frame_of(rows: Iterable[Row]) -> Any:
    """Return rows as a table, one line per method and context.

    A run that failed counts as a guess with equal probabilities: that is all a person has
    who relied on it.
    """
    return pd.DataFrame([_flat(row) for row in rows])


def keep_shared_contexts(table: Any, methods: Sequence[str]) -> Any:
    """Return the lines of these methods, on the contexts that all of them have."""
    table = table[table["method"].isin(methods)]
    return table[table.groupby(CONTEXT)["method"].transform("size") == len(methods)]


def split_by_contexts(table: Any) -> tuple[list[str], list[str]]:
    """Return the methods whose contexts a page counts, and those with too few of them.

    A method with fewer than half as many contexts as the one with most does not decide
    which contexts are counted: slow methods are run on some only. A run that was
    interrupted goes draw by draw, so that its methods differ by a draw at most and all
    stay on the page.
    """
    counts = table["method"].value_counts()
    present = [name for name in names_in("real") if name in counts.index]
    main = [name for name in present if 2 * counts[name] >= counts.max()]
    return main, [name for name in present if name not in main]


def _flat(row: Row) -> dict[str, Any]:
    named = {name: row["spec"][name] for name in (*CONTEXT, "method")}
    failed = "error" in row
    values = _guess(row) if failed else row
    return {
        **named,
        **{name: values[name] for name in (*METRICS, "bins")},
        "seconds": row["seconds"],
        "scored": row["scored"],
        "undecided": 0 if failed else row["undecided"],
        "failed": failed,
    }


def _guess(row: Row) -> dict[str, Any]:
    """Return what equal probabilities score, on average over the order of classes."""
    share, n = 1 / row["classes"], row["scored"]
    place = int(np.clip(np.ceil(share * BINS) - 1, 0, BINS - 1))
    return {
        "accuracy": share,
        "balanced_accuracy": share,
        "log_loss": -np.log(share),
        "bins": {str(place): [n, n * share, n * share]},
    }


def cells_of(table: Any, metric: str) -> Any:
    """Return means over draws: one line per set and label count, one column per method."""
    return table.pivot_table(metric, _CELL, "method", sort=False)


def calibration_of(table: Any) -> Any:
    """Return expected calibration errors, all draws of a set and label count pooled."""
    grouped = table.groupby([*_CELL, "method"], sort=False)["bins"]
    return grouped.agg(calibration_error).unstack("method")


def mean_scores(table: Any) -> dict[str, Any]:
    """Return the mean of each metric over all cells, by its title and by method."""
    return {
        "accuracy": cells_of(table, "accuracy").mean(),
        "balanced": cells_of(table, "balanced_accuracy").mean(),
        "log-loss": cells_of(table, "log_loss").mean(),
        "ECE": calibration_of(table).mean(),
    }


def calibration_error(histograms: Iterable[dict[str, list[float]]]) -> float:
    """Return the mean distance of confidence from accuracy over several histograms.

    Examples
    --------
    >>> calibration_error([{"14": [4, 4.0, 3]}, {"14": [4, 4.0, 2], "9": [2, 1.3, 1.3]}])
    0.3
    """
    pooled = np.zeros((BINS, 3))
    for histogram in histograms:
        for b, sums in histogram.items():
            pooled[int(b)] += sums
    count, confidence, right = pooled.T
    return float(np.abs(confidence - right).sum() / count.sum())
