"""From rows to numbers: means, ranks, calibration, paired differences over datasets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from icssl.evaluation.metrics import Comparison, paired
from icssl.real.bench import BINS, Row

METRICS = ("accuracy", "balanced_accuracy", "log_loss")
CELL = ["set", "labels"]
CONTEXT = [*CELL, "draw"]


def frame_of(rows: Iterable[Row]) -> Any:
    """Rows as a table, of the contexts that every method has a row of.

    A run that failed counts as a guess with equal probabilities: that is all a person has
    who relied on it.
    """
    table = pd.DataFrame([_flat(row) for row in rows])
    if not len(table):
        return table
    methods = table["method"].nunique()
    return table[table.groupby(CONTEXT)["method"].transform("size") == methods]


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
    """What equal probabilities score, on average over the order of the classes."""
    share, n = 1 / row["classes"], row["scored"]
    place = int(np.clip(np.ceil(share * BINS) - 1, 0, BINS - 1))
    return {
        "accuracy": share,
        "balanced_accuracy": share,
        "log_loss": -np.log(share),
        "bins": {str(place): [n, n * share, n * share]},
    }


def cells_of(table: Any, metric: str) -> Any:
    """Means over draws: a line a set and label count, a column a method."""
    return table.pivot_table(metric, CELL, "method", sort=False)


def calibration_of(table: Any) -> Any:
    """Expected calibration error, all draws of a set and label count pooled."""
    grouped = table.groupby([*CELL, "method"], sort=False)["bins"]
    return grouped.agg(calibration_error).unstack("method")


def calibration_error(histograms: Iterable[dict[str, list[float]]]) -> float:
    """Of several histograms together: mean distance of confidence from accuracy.

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


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods, the best first, and when two of them differ.

    Parameters
    ----------
    ranks : dict of str to float
        1 is the best; methods that are level share their ranks.
    p_value : float
        Friedman's test that all methods are alike.
    critical : float
        Nemenyi's critical difference at the 5% level, with every cell counted.
    critical_sets : float
        The same with every set counted once: the cells of one set are not independent,
        so the truth lies between the two.
    """

    ranks: dict[str, float]
    p_value: float
    critical: float
    critical_sets: float


def ranking_of(cells: Any) -> Ranking:
    """Rank the methods in every cell by accuracy."""
    values = cells.to_numpy()
    means = rankdata(-values, axis=1).mean(axis=0)
    count, k = values.shape
    # The test is of three methods or more.
    p_value = float(friedmanchisquare(*values.T).pvalue) if k > 2 else float("nan")
    order = np.argsort(means, kind="stable")
    sets = cells.index.get_level_values("set").nunique()
    return Ranking(
        {cells.columns[i]: float(means[i]) for i in order},
        p_value,
        critical_difference(k, count),
        critical_difference(k, sets),
    )


def critical_difference(methods: int, blocks: int) -> float:
    """Nemenyi's, at the 5% level: mean ranks further apart than this differ."""
    if methods < 2:
        return float("nan")
    quantile = float(studentized_range.ppf(0.95, methods, np.inf)) / 2**0.5
    return quantile * (methods * (methods + 1) / (6 * blocks)) ** 0.5


def cliques(ranks: Sequence[float], critical: float) -> list[tuple[int, int]]:
    """Longest runs of sorted ranks within the critical difference, by first and last.

    Examples
    --------
    >>> cliques([1.0, 1.5, 2.2, 4.0], critical=0.8)
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(i for i, other in enumerate(ranks) if other - rank <= critical)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def difference(cells: Any, first: str, second: str) -> Comparison:
    """One method minus another with the 95% interval over sets, each set counted once."""
    means = cells[[first, second]].groupby(level="set", sort=False).mean()
    return paired(*(torch.tensor(means[name].to_numpy()) for name in (first, second)))


def best_peer(cells: Any, peers: Iterable[str]) -> str:
    """The single peer with the best mean over sets and label counts."""
    means = cells.mean()
    return max((name for name in peers if name in cells), key=lambda name: means[name])
