"""Artefact ``id-ood``: trained on the manifold itself, or on the other four."""

from pathlib import Path

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.table_cells import (
    KERNELS,
    LEGEND,
    REFERENCES,
    SURFACES,
    accuracy_text,
    against_svc,
    balanced_text,
    classical,
    majority_text,
    other_surfaces,
    published_text,
    scores,
    source_title,
    title_of,
    training_text,
    trainings,
)
from icssl.bench.render import Item, Table

CONTEXTS = (3, 21, 39)
SETTINGS = ("id", "ood")
THRESHOLDS: dict[str | float, str] = {
    "median": "half of the points in each class",
    "published": "the published radii",
    0.5: "radius 0.5",
}


def specs(profile: Profile) -> Specs:
    """Return every cell of the paper's three tables, under three rules for the classes."""
    cells: Specs = {}
    for threshold in THRESHOLDS:
        balanced = threshold == "median"
        for source in SURFACES:
            for setting in SETTINGS:
                sources = (source,) if setting == "id" else other_surfaces(source)
                columns = [(m, k) for m in ("eig_icl", "e2e_icl") for k in KERNELS]
                columns += [("e2e_encoder", ""), ("transformer", "")] if balanced else []
                for method, kernel in columns:
                    trained = trainings(
                        profile,
                        method,
                        sources,
                        kernel=kernel,
                        threshold=threshold,
                        # The point of the radii is the imbalance, which no seed changes.
                        models=None if balanced else 1,
                    )
                    for labels in CONTEXTS:
                        cell = Cell(source, labels, method, kernel, setting, threshold)
                        cells[cell] = scores(profile, cell, trained)
            cells |= classical(profile, source, CONTEXTS, threshold, REFERENCES)
    return cells


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one table per rule and number of labels."""
    return [
        table(rows, threshold, labels) for threshold in THRESHOLDS for labels in CONTEXTS
    ]


def table(rows: Rows, threshold: str | float, labels: int) -> Table:
    """Return accuracy beside the paper's, balanced accuracy, and the largest class."""
    lines = []
    for kernel in (*KERNELS, ""):
        methods = ("eig_icl", "e2e_icl") if kernel else ("e2e_encoder", "transformer")
        for method in methods:
            if not kernel and threshold != "median":
                continue
            for source in SURFACES:
                lines.append(_line(rows, Cell(source, labels, method, kernel), threshold))
    for method in REFERENCES:
        for source in SURFACES:
            cell = Cell(source, labels, method, threshold=threshold)
            if cell in rows:
                lines.append(_reference_line(rows, cell))
    ours = [
        Cell(source, labels, "e2e_icl", "rbf", threshold=threshold) for source in SURFACES
    ]
    columns = ("method", "manifold", "ID", "paper", "OOD", "paper")
    header = (*columns, "balanced ID", "balanced OOD", "largest class")
    title = f"{labels} labels, {THRESHOLDS[threshold]}"
    shown = [c for c in rows if (c.labels, c.threshold) == (labels, threshold)]
    notes = (against_svc(rows, ours), LEGEND, training_text(rows, shown))
    return Table(title, header, tuple(lines), notes)


def _line(rows: Rows, cell: Cell, threshold: str | float) -> tuple[str, ...]:
    inside = cell._replace(threshold=threshold)
    outside = inside._replace(setting="ood")
    return (
        title_of(cell),
        source_title(cell.source),
        accuracy_text(rows.get(inside)),
        published_text("id-ood", cell),
        accuracy_text(rows.get(outside)),
        published_text("id-ood", cell._replace(setting="ood")),
        balanced_text(rows.get(inside)),
        balanced_text(rows.get(outside)),
        majority_text(rows, cell.source, cell.labels, threshold),
    )


def _reference_line(rows: Rows, cell: Cell) -> tuple[str, ...]:
    row = rows[cell]
    name, source = title_of(cell), source_title(cell.source)
    share = f"{row['majority_rate']:.3f}"
    return (name, source, accuracy_text(row), "", "", "", balanced_text(row), "", share)


ARTEFACT = Artefact(
    "id-ood",
    "In and out of distribution",
    "With the RBF kernel E2E is above Eig+ICL in distribution on most manifolds; on the "
    "cylinder, the sphere and the torus it is higher still when trained on the other four "
    "manifolds (.935, .930 and .970 at 39 labels). Those three numbers are the shares of "
    "the larger class at radius 0.5 (derived in claims.md), which labels do not change.",
    specs,
    draw,
)
