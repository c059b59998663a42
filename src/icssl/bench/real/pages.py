"""Pages of the real-data suite: means, ranks and calibration, as tables and a figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from icssl._util.colours import COLOURS
from icssl.bench.real.cells import (
    CONTEXT,
    METRICS,
    cells_of,
    frame_of,
    keep_shared_contexts,
    mean_scores,
    split_by_contexts,
)
from icssl.bench.real.comparisons import comparisons, on_fewer_contexts
from icssl.bench.real.datasets import PER_CLASS, RANDOM
from icssl.bench.render import Item, Table, save_picture, write_page
from icssl.bench.store import Row
from icssl.methods import TITLES
from icssl.methods.registry import OURS

_LABELLING = {
    PER_CLASS: "Every class has the same number of labels.",
    RANDOM: (
        "Labels are drawn at random, so many per class on average; a class without one "
        "gets one more."
    ),
}


@dataclass(frozen=True)
class _Ranking:
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


def ranking_of(cells: Any) -> _Ranking:
    """Rank the methods in every cell by accuracy."""
    values = cells.to_numpy()
    means = rankdata(-values, axis=1).mean(axis=0)
    count, k = values.shape
    # The test is of three methods or more.
    p_value = float(friedmanchisquare(*values.T).pvalue) if k > 2 else float("nan")
    order = np.argsort(means, kind="stable")
    sets = cells.index.get_level_values("set").nunique()
    return _Ranking(
        {cells.columns[i]: float(means[i]) for i in order},
        p_value,
        critical_difference(k, count),
        critical_difference(k, sets),
    )


def critical_difference(methods: int, blocks: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the 5% level."""
    if methods < 2:
        return float("nan")
    quantile = float(studentized_range.ppf(0.95, methods, np.inf)) / 2**0.5
    return quantile * (methods * (methods + 1) / (6 * blocks)) ** 0.5


def _cliques(ranks: Sequence[float], critical: float) -> list[tuple[int, int]]:
    """Return the longest runs of sorted ranks within the critical difference.

    Examples
    --------
    >>> _cliques([1.0, 1.5, 2.2, 4.0], critical=0.8)
    [(0, 1), (1, 2)]
    """
    runs: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(i for i, other in enumerate(ranks) if other - rank <= critical)
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs


def write_half(
    half: str, rows: Sequence[Row], wanted: int, folder: Path, protocol: str = PER_CLASS
) -> Path | None:
    """Draw one half from its rows; nothing where no context has a row of every method.

    Methods on fewer contexts than the others (see :func:`split_by_contexts`) have tables
    of their own and decide nothing about the other tables.

    Parameters
    ----------
    half : str
    rows : sequence of rows
        All of one protocol.
    wanted : int
        How many rows there should be.
    folder : Path
    protocol : {"per-class", "random"}
        The page of the second one has a name and a title of its own.
    """
    if not rows:
        return None
    everything = frame_of(rows)
    methods, fewer = split_by_contexts(everything)
    table = keep_shared_contexts(everything, methods)
    if not len(table):
        return None
    contexts = len(table[CONTEXT].drop_duplicates())
    text = (
        f"{table['set'].nunique()} sets, {contexts} contexts, {len(methods)} methods, all "
        f"scored on the same unlabelled rows. {_LABELLING[protocol]} {len(rows)} of "
        f"{wanted} rows are there."
    )
    uncounted = [
        name for name in everything["set"].unique() if name not in set(table["set"])
    ]
    if uncounted:
        text += f" Not counted, since some methods have no rows: {', '.join(uncounted)}."
    if fewer:
        text += f" On fewer contexts: {', '.join(TITLES[name] for name in fewer)}."
    cells, balanced = (cells_of(table, metric)[methods] for metric in METRICS[:2])
    name = half if protocol == PER_CLASS else f"{half}-{protocol}"
    title = f"Real data, {half} half"
    if protocol != PER_CLASS:
        title += ", labels drawn at random"
    path = folder / f"{name}.md"
    items = [
        overview(table, cells),
        by_labels(cells),
        by_set(cells),
        *comparisons(cells, balanced),
        *(item for name in fewer for item in on_fewer_contexts(everything, name, cells)),
        *_ranks(cells, folder / f"{name}-ranks"),
    ]
    write_page(title, text, items, path)
    return path


def overview(table: Any, cells: Any) -> Table:
    """Return one line per method, the most accurate first: means over all cells."""
    metrics = mean_scores(table)
    ranks = ranking_of(cells).ranks
    grouped = table.groupby("method")
    seconds, failed = grouped["seconds"].median(), grouped["failed"].sum()
    undecided = grouped["undecided"].sum() / grouped["scored"].sum()
    lines = []
    for name in sorted(ranks, key=lambda name: -metrics["accuracy"][name]):
        cells_here = [f"{values[name]:.3f}" for values in metrics.values()]
        rank, speed = f"{ranks[name]:.2f}", f"{seconds[name]:.3f}"
        rest = (f"{undecided[name]:.1%}", str(failed[name]))
        lines.append((TITLES[name], *cells_here, rank, speed, *rest))
    return Table(
        "Overview",
        ("method", *metrics, "mean rank", "seconds", "undecided", "failed"),
        tuple(lines),
        (
            "Means over sets and label counts. ECE: of all draws of a set and label count "
            "together. Seconds: the median, on one core, with everything from the raw "
            "columns on. Undecided: rows without probabilities. Failed: runs that ended "
            "in an error or not in time; they count as a guess.",
        ),
    )


def by_labels(cells: Any) -> Table:
    """Return the mean accuracy over sets at each label count."""
    means = cells.groupby(level="labels", sort=False).mean()
    lines = [
        (TITLES[name], *(f"{value:.3f}" for value in means[name])) for name in means.columns
    ]
    header = ("labels per class", *map(str, means.index))
    return Table("Accuracy by labels per class, mean over sets", header, tuple(lines))


def by_set(cells: Any) -> Table:
    """Return the mean accuracy on each set; the best of a line is bold."""
    means = cells.groupby(level="set", sort=False).mean()
    lines = []
    for name, values in means.iterrows():
        best = f"{values.max():.3f}"
        shown = (f"{value:.3f}" for value in values)
        lines.append((name, *(f"**{v}**" if v == best else v for v in shown)))
    header = ("set", *(TITLES[name] for name in means.columns))
    title = "Accuracy by set, mean over label counts"
    return Table(title, header, tuple(lines))


def _ranks(cells: Any, path: Path) -> list[Item]:
    """Return the table and the figure of ranks; one method alone has no rank."""
    if len(cells.columns) < 2:
        return []
    ranking = ranking_of(cells)
    lines = [(TITLES[name], f"{rank:.2f}") for name, rank in ranking.ranks.items()]
    note = (
        f"Over {len(cells)} cells of set and label count; Friedman's test: p = "
        f"{ranking.p_value:.2g}. Mean ranks differ at the 5% level where they are "
        f"{ranking.critical:.2f} apart (Nemenyi) if cells are counted as independent, "
        f"{ranking.critical_sets:.2f} if only sets are."
    )
    title = "Mean ranks by accuracy"
    picture = save_picture(_rank_figure(ranking), title, path)
    return [Table(title, ("method", "mean rank"), tuple(lines), (note,)), picture]


def _rank_figure(ranking: _Ranking) -> Figure:
    """Draw the critical-difference diagram: bars join methods that do not differ."""
    names, ranks = list(ranking.ranks), list(ranking.ranks.values())
    k, joined = len(names), _cliques(ranks, ranking.critical)
    half, top = (k + 1) // 2, 0.35 * len(joined) + 0.5  # the first name stands below
    figure = Figure(figsize=(8.5, 0.9 + 0.3 * (half + top)), layout="constrained")
    axes = figure.add_subplot()
    low, high = 1.0, float(k)
    # Space for the names on both sides, the better methods on the left.
    axes.set(xlim=(low - 0.45 * k, high + 0.45 * k), ylim=(half + top, -1.8))
    axes.axis("off")
    axes.plot([low, high], [0, 0], color="black", linewidth=1)
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, -0.15], color="black", linewidth=1)
        axes.text(tick, -0.25, str(tick), ha="center", va="bottom", fontsize=9)
    for i, (name, rank) in enumerate(ranking.ranks.items()):
        left = i < half
        y = top + (i if left else k - 1 - i)
        edge, side = (low - 0.1 * k, "right") if left else (high + 0.1 * k, "left")
        colour: dict[str, Any] = {"color": COLOURS[5] if name == OURS else "black"}
        axes.plot([rank, rank, edge], [0, y, y], linewidth=0.8, **colour)
        text = f" {TITLES[name]} ({rank:.2f}) "
        axes.text(edge, y, text, ha=side, va="center", fontsize=9, **colour)
    for i, (first, last) in enumerate(joined):
        y = 0.35 * (i + 1)
        ends = [ranks[first] - 0.04, ranks[last] + 0.04]
        axes.plot(ends, [y, y], color=COLOURS[0], linewidth=4, solid_capstyle="butt")
    axes.plot([low, low + ranking.critical], [-1.2, -1.2], color=COLOURS[0], linewidth=2)
    text = f" critical difference {ranking.critical:.2f}"
    axes.text(low + ranking.critical, -1.2, text, va="center", fontsize=9)
    return figure
