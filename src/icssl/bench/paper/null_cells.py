"""Null models beside every table: their rows, and what is written of them."""

from icssl.bench.paper.artefact import Cell, Row, Rows, Specs
from icssl.bench.render import Table
from icssl.bench.spec import Scores
from icssl.evaluation.predictors import METHODS

VOTE, LINEAR, BEST = "label_vote", "free_head_linear", "free_head"
NULLS = (VOTE, LINEAR, BEST)
"""Null models of every table; the share of the largest class is in every row."""

HEADS = ("free_head_rbf", "free_head_eig_linear", "free_head_eig_rbf")
"""Heads without weights that a trained head alone must not be worse than."""


def null_specs(cells: Specs) -> Specs:
    """Return the null models on every set of test episodes of an artefact."""
    found: Specs = {}
    has_heads = any(cell.method in ("eig_icl", "orig_icl") for cell in cells)
    methods = (*NULLS, *HEADS) if has_heads else NULLS
    for cell, spec in cells.items():
        if isinstance(spec, Scores):
            for method in methods:
                found.setdefault(
                    cell.on_same_episodes(method),
                    Scores(
                        method,
                        spec.data,
                        spec.labels,
                        (),
                        spec.episodes,
                        spec.tuning,
                        spec.seed,
                    ),
                )
    return {cell: spec for cell, spec in found.items() if cell not in cells}


def null_row(rows: Rows, cell: Cell, method: str) -> Row | None:
    """Return the row of a null model on the episodes of a cell."""
    return rows.get(cell.on_same_episodes(method))


def null_text(rows: Rows, cell: Cell, method: str) -> str:
    """Return the accuracy of a null model on the episodes of a cell, to three digits."""
    row = null_row(rows, cell, method)
    return "" if row is None else f"{row['metrics']['accuracy']['mean']:.3f}"


def null_table(rows: Rows) -> Table | None:
    """Return what is reached on the episodes of a page without learning anything."""
    places = {c.on_same_episodes("") for c in rows if c.method in NULLS}
    lines = []
    for cell in sorted(places, key=lambda c: (c.source, c.n, str(c.threshold), c.labels)):
        any_row = next(row for m in NULLS if (row := null_row(rows, cell, m)) is not None)
        scores = [null_text(rows, cell, method) for method in NULLS]
        share = f"{any_row['majority_rate']:.3f}"
        points = f", {cell.n} points" if cell.n else ""
        place = (f"{cell.source}{points}", f"{cell.labels:g}", str(cell.threshold))
        lines.append((*place, share, *scores))
    if not lines:
        return None
    names = [METHODS[name].replace("Training-free", "training-free") for name in NULLS]
    header = ("source", "labels", "classes", "largest class", *names)
    notes = (
        "What learns nothing: the share of the larger class, the vote of the labels, and "
        "the first step of the paper's head without weights: with the linear kernel on "
        "scaled points, where nothing is chosen, and the best kernel, gamma and features "
        "by training episodes.",
    )
    return Table("Null models on the same episodes", header, tuple(lines), notes)
