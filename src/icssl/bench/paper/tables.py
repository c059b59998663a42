"""Cells and lines that the tables of several artefacts share."""

from collections import Counter
from collections.abc import Iterable
from statistics import stdev

from icssl.bench.paper.artefact import Cell, Row, Rows, published
from icssl.bench.paper.runs import title_of
from icssl.bench.spec import accuracies_of
from icssl.evaluation.metrics import Comparison, compare_paired
from icssl.evaluation.predictors import METHODS

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
    return compare_paired(accuracies_of(rows[cell]), accuracies_of(rows[other]))


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


def seen_text(rows: Rows, cells: Iterable[Cell]) -> str:
    """How much the models of a table were trained and tested on.

    A row counts the episodes of all its seeds together; here they are those of one model.
    """
    known = [cell for cell in cells if cell in rows]
    if not known:
        return "No rows."
    tested = sorted({len(rows[cell]["accuracies"]) for cell in known})
    counts: dict[str, dict[str, list[Cell]]] = {}
    for cell in known:
        if "episodes_seen" in rows[cell]:
            own = counts.setdefault(_seen(cell, rows[cell]), {})
            own.setdefault(cell.method, []).append(cell)
    times = Counter(method for own in counts.values() for method in own)
    parts = []
    for count, own in counts.items():
        who = [
            f"{METHODS[method]}{_where(where) if times[method] > 1 else ''}"
            for method, where in own.items()
        ]
        parts.append(f"{count}: {'; '.join(who)}.")
    trained = f" Training episodes of each model. {' '.join(parts)}" if parts else ""
    return f"{' or '.join(map(str, tested))} test episodes.{trained}"


def _seen(cell: Cell, row: Row) -> str:
    each = row["episodes_seen"] // len(row["seeds"])
    different = row["spec"]["trainings"][0]["data"]["episodes"]
    # Where that is what a table is about, a cell has it as its size.
    few = f", {different:,} of them different" if different not in (0, cell.size) else ""
    return f"{each:,}{few}"


def _where(cells: Iterable[Cell]) -> str:
    """Of a method that was not trained alike for all cells: for which."""
    outside = "out of distribution"
    words = [_name(c.source) if c.setting == "id" else outside for c in cells]
    return f" ({', '.join(sorted(set(words), key=lambda word: (word == outside, word)))})"


def _name(source: str) -> str:
    return source.replace("_", " ")
