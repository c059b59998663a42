"""Cells and lines that the tables of several artefacts share."""

from collections.abc import Iterable, Sequence
from statistics import stdev
from typing import Any

from matplotlib.figure import Figure

from icssl.evaluation.metrics import Comparison, paired
from icssl.experiments.spec import accuracies_of
from icssl.paper.artefact import Cell, Row, Rows, published
from icssl.paper.runs import title_of
from icssl.plots import COLOURS

UNDERTRAINED = "†"
LEGEND = (
    "Accuracy on unlabelled points ± 95% interval over test episodes, in brackets the sd "
    "over seeds where there are several; † marks a model whose held-out loss was still "
    "falling, which supports no verdict."
)


def accuracy_text(row: Row | None) -> str:
    """Accuracy with interval, sd over seeds, and a mark where training was cut short."""
    if row is None:
        return ""
    value = row["metrics"]["accuracy"]
    seeds = row["seeds"]
    sd = f" ({stdev(seeds):.3f})" if len(seeds) > 1 else ""
    mark = f" {UNDERTRAINED}" if row.get("undertrained") else ""
    return f"{value['mean']:.3f} ± {value['half_width']:.3f}{sd}{mark}"


def balanced_text(row: Row | None) -> str:
    """Balanced accuracy."""
    return "" if row is None else f"{row['metrics']['balanced_accuracy']['mean']:.3f}"


def published_text(artefact: str, cell: Cell) -> str:
    """What the paper printed for a cell, with its sd."""
    value = published().get((artefact, cell._replace(labels=float(cell.labels))))
    if value is None:
        return ""
    return f"{value[0]:.3f}" if value[1] is None else f"{value[0]:.3f} ± {value[1]:.3f}"


def majority_text(rows: Rows, source: str, labels: float, threshold: str = "median") -> str:
    """Mean share of the largest class among the test episodes of any row there."""
    for cell, row in rows.items():
        if (cell.source, cell.labels, cell.threshold) == (source, labels, threshold):
            return f"{row['majority_rate']:.3f}"
    return ""


def compared(rows: Rows, cell: Cell, other: Cell) -> Comparison | None:
    """One row against another on the same episodes; None where either is missing."""
    if cell not in rows or other not in rows:
        return None
    return paired(accuracies_of(rows[cell]), accuracies_of(rows[other]))


def against_svc(rows: Rows, cells: Iterable[Cell]) -> str:
    """The first line of a table: where the first of its methods is not ahead of the SVC."""
    cells = list(cells)
    lost, won = [], 0
    for cell in cells:
        reference = Cell(cell.source, cell.labels, "svc_rbf", threshold=cell.threshold)
        found = compared(rows, cell, reference)
        if found is None or rows[cell].get("undertrained"):
            continue
        if found.verdict == "ahead":
            won += 1
        else:
            lost.append(f"{_name(cell.source)} at {cell.labels} ({found.verdict})")
    name = title_of(cells[0])
    if not won and not lost:
        return f"{name} has not been compared with the tuned SVC yet."
    if won < len(cells) and not lost:
        return (
            f"{name} beats the tuned RBF-SVC in the {won} of {len(cells)} cells compared."
        )
    if lost:
        return f"{name} does not beat the tuned RBF-SVC on {', '.join(lost)}."
    return f"{name} beats the tuned RBF-SVC in all {won} cells, beyond the 95% interval."


def _name(source: str) -> str:
    return source.replace("_", " ")


def draw_curves(
    rows: Rows, panels: Sequence[tuple[str, Sequence[Cell]]], xlabel: str
) -> Figure:
    """A panel a title, with a curve for each method, kernel and setting of its cells."""
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.4 * lines + 0.9), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).flatten()
    styles: dict[str, int] = {}
    for axes, (title, cells) in zip(grid, panels, strict=False):
        curves: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell in rows:
                curves.setdefault(title_of(cell), []).append(cell)
        for name, own in curves.items():
            index = styles.setdefault(name, len(styles))
            values = [rows[cell]["metrics"]["accuracy"] for cell in own]
            axes.errorbar(
                [cell.labels for cell in own],
                [value["mean"] for value in values],
                yerr=[value["half_width"] for value in values],
                color=COLOURS[index % len(COLOURS)],
                linestyle=["-", "--", ":"][index // len(COLOURS) % 3],
                marker="os^Dv"[index % 5],
                markersize=3,
                capsize=1.5,
                linewidth=1.2,
                label=name,
            )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(xlabel, fontsize=9)
        axes.set_ylabel("accuracy", fontsize=9)
        axes.grid(alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    found: dict[str, Any] = {}
    for axes in grid:
        handles, names = axes.get_legend_handles_labels()
        found |= dict(zip(names, handles, strict=True))
    if found:
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower center",
            ncols=4,
            fontsize=7,
        )
    return figure
