"""Cells of ``label-curves`` whose test episodes have a label of every class.

With few labels drawn at random, a context often shows one class alone.
"""

from icssl.bench.paper.artefact import Cell, Profile, Rows
from icssl.bench.paper.table_cells import (
    COVERING,
    ENCODERS,
    KERNELS,
    LEGEND,
    SURFACES,
    accuracy_text,
    source_title,
    title_of,
)
from icssl.bench.render import Table

_LABELS = (3, 5)
_METHODS = [("e2e_icl", kernel) for kernel in KERNELS]
_METHODS += [(name, "") for name in (*ENCODERS, "svc_rbf", "label_spreading")]


def covering_cells(profile: Profile) -> list[Cell]:
    """Return cells whose test episodes have a label of every class."""
    return [
        Cell(source, labels, method, kernel, COVERING)
        for source in SURFACES
        for method, kernel in _METHODS
        for labels in _LABELS
        if labels in profile.budgets
    ]


def covering_table(profile: Profile, rows: Rows) -> Table:
    """Return the same models where labels are drawn at random, and where they cover."""
    cells = covering_cells(profile)
    lines = []
    for cell in cells:
        pair = [cell._replace(setting="id"), cell]
        texts = [accuracy_text(rows.get(c)) for c in pair]
        name, place = title_of(cell._replace(setting="id")), source_title(cell.source)
        lines.append((place, f"{cell.labels:g}", name, *texts))
    header = ("source", "labels", "method", "labels at random", "each class has a label")
    notes = ("Models are those of the other tables, trained with labels at random.", LEGEND)
    return Table("A label of every class", header, tuple(lines), notes)
