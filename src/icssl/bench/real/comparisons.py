"""Differences between our classifier and other methods on real data, with intervals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from icssl.bench.real.cells import CONTEXT, cells_of, keep_shared_contexts, mean_scores
from icssl.bench.render import Item, Table
from icssl.evaluation.metrics import Comparison, compare_paired
from icssl.methods import TITLES
from icssl.methods.registry import LABELLED_ONLY, OURS


def difference(cells: Any, first: str, second: str) -> Comparison:
    """Return one method minus another, with the 95% interval over sets."""
    means = cells[[first, second]].groupby(level="set", sort=False).mean()
    return compare_paired(
        *(torch.tensor(means[name].to_numpy()) for name in (first, second))
    )


def _best_peer(cells: Any, peers: Iterable[str]) -> str:
    """Return the single peer with the best mean over sets and label counts."""
    means = cells.mean()
    return max((name for name in peers if name in cells), key=lambda name: means[name])


def comparisons(accuracy: Any, balanced: Any) -> list[Item]:
    """Compare ours with every peer, with the best one, and without unlabelled rows.

    Parameters
    ----------
    accuracy, balanced : DataFrame
        Accuracy and balanced accuracy: one line per set and label count, one column per
        method.
    """
    if OURS not in accuracy:
        return []
    peers = [name for name in accuracy.columns if name not in (OURS, LABELLED_ONLY)]
    tables: list[Item] = []
    if peers:
        best = _best_peer(accuracy, peers)
        tables += [
            _against("accuracy", accuracy, peers),
            _against("balanced accuracy", balanced, peers),
            _cell_by_cell(accuracy, best),
        ]
    if LABELLED_ONLY in accuracy:
        tables.append(_gain_by_unlabelled(accuracy))
    return tables


def _against(metric: str, cells: Any, peers: Sequence[str]) -> Table:
    sets = cells.groupby(level="set").mean()
    lines = []
    for name in peers:
        versus = difference(cells, OURS, name)
        won = int((sets[OURS] > sets[name]).sum())
        lost = int((sets[OURS] < sets[name]).sum())
        lines.append((TITLES[name], *_format_comparison(versus), str(won), str(lost)))
    return Table(
        f"{TITLES[OURS]} minus each peer: {metric}",
        ("peer", "difference", "verdict", "sets won", "sets lost"),
        tuple(lines),
        ("With the 95% interval over sets, each set counted once.",),
    )


def _cell_by_cell(cells: Any, peer: str) -> Table:
    gained = cells[OURS] - cells[peer]
    table = gained.unstack("labels", sort=False)
    lines = [
        (name, *(f"{value:+.3f}" for value in values), f"{values.mean():+.3f}")
        for name, values in table.iterrows()
    ]
    means = (*(f"{value:+.3f}" for value in table.mean()), f"{gained.mean():+.3f}")
    ahead, behind = int((gained > 0).sum()), int((gained < 0).sum())
    return Table(
        f"{TITLES[OURS]} minus {TITLES[peer]}, the best single peer, cell by cell",
        ("set", *map(str, table.columns), "mean"),
        (*lines, ("mean", *means)),
        (f"Ahead in {ahead} cells, behind in {behind}.",),
    )


def on_fewer_contexts(table: Any, name: str, cells: Any) -> list[Item]:
    """Compare a method with ours and the best peer, on the contexts that it has.

    Parameters
    ----------
    table : DataFrame
        One line per method and context, see :func:`icssl.bench.real.cells.frame_of`.
    name : str
        The method that has fewer contexts than the others.
    cells : DataFrame
        Accuracy of the other methods, which decides the best peer: one line per set and
        label count, one column per method.
    """
    peers = [peer for peer in cells.columns if peer not in (OURS, LABELLED_ONLY)]
    beside = [OURS] if OURS in cells else []
    beside += [_best_peer(cells, peers)] if peers else []
    part = keep_shared_contexts(table, [*beside, name])
    if not len(part):
        return []
    means, count = mean_scores(part), len(part[CONTEXT].drop_duplicates())
    grouped = part.groupby("method")
    seconds, failed = grouped["seconds"].median(), grouped["failed"].sum()
    accuracy, balanced = (cells_of(part, m) for m in ("accuracy", "balanced_accuracy"))
    lines = []
    for method in (*beside, name):
        shown = (f"{values[method]:.3f}" for values in means.values())
        versus = ("", "", "", "")
        if OURS in accuracy and method != OURS:
            by_accuracy, by_balanced = (
                difference(values, OURS, method) for values in (accuracy, balanced)
            )
            versus = (*_format_comparison(by_accuracy), *_format_comparison(by_balanced))
        rest = (f"{seconds[method]:.3f}", str(failed[method]), str(count))
        lines.append((TITLES[method], *shown, *rest, *versus))
    compared = [
        column
        for metric in ("accuracy", "balanced")
        for column in (f"difference in {metric}", f"verdict on {metric}")
    ]
    return [
        Table(
            f"Methods on fewer contexts: {TITLES[name]}",
            ("method", *means, "seconds", "failed", "contexts", *compared),
            tuple(lines),
            (
                f"{TITLES[name]} has fewer than half of the contexts of the other tables, "
                f"so all lines here are on its contexts. Sets: {part['set'].nunique()}. "
                f"Differences are {TITLES[OURS]} minus the method of the line, with the "
                "95% interval over sets, each set counted once.",
            ),
        )
    ]


def _gain_by_unlabelled(cells: Any) -> Table:
    """Compare the same weights with and without unlabelled rows."""
    labels = cells.index.get_level_values("labels")
    parts: Mapping[str, Any] = {
        **{str(count): cells[labels == count] for count in dict.fromkeys(labels)},
        "all": cells,
    }
    gains: dict[str, Comparison] = {
        name: difference(part, OURS, LABELLED_ONLY) for name, part in parts.items()
    }
    lines = [(name, *_format_comparison(gain)) for name, gain in gains.items()]
    return Table(
        "What unlabelled rows buy: accuracy with them minus without, the same weights",
        ("labels per class", "difference", "verdict"),
        tuple(lines),
        ("With the 95% interval over sets, each set counted once.",),
    )


def _format_comparison(comparison: Comparison) -> tuple[str, str]:
    """Return the difference with its interval, and the verdict."""
    found = comparison.difference
    return f"{found.mean:+.3f} ± {found.half_width:.3f}", comparison.verdict
