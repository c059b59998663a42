"""Artefact ``ablation``: without the RBF in stage 1, and with one layer per stage."""

from pathlib import Path

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.table_cells import (
    LEGEND,
    REFERENCES,
    accuracy_text,
    against_svc,
    classical,
    majority_text,
    published_text,
    scores,
    title_of,
    training_text,
    trainings,
)
from icssl.bench.render import Item, Table

METHODS = ("lap_pe_1layer", "e2e_icl", "lap_linear")


def specs(profile: Profile) -> Specs:
    """Return three models on the product, trained several times, at the paper's budgets."""
    cells: Specs = {}
    for method in METHODS:
        trained = trainings(
            profile, method, ("product",), kernel="rbf", models=profile.runs
        )
        for labels in profile.product_budgets:
            cell = Cell("product", labels, method, "rbf")
            cells[cell] = scores(profile, cell, trained)
    return cells | classical(
        profile, "product", profile.product_budgets, methods=REFERENCES
    )


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one table, our accuracies beside the paper's."""
    lines = []
    for labels in profile.product_budgets:
        line = [str(labels)]
        for method in METHODS:
            cell = Cell("product", labels, method, "rbf")
            line += [accuracy_text(rows.get(cell)), published_text("ablation", cell)]
        for method in REFERENCES:
            line.append(accuracy_text(rows.get(Cell("product", labels, method))))
        lines.append((*line, majority_text(rows, "product", labels)))
    header = ["labels"]
    for method in METHODS:
        header += [title_of(Cell("product", 0, method)), "paper"]
    header += ["RBF-SVC", "Bayes ceiling", "largest class"]
    ours = [Cell("product", m, "e2e_icl", "rbf") for m in profile.product_budgets]
    notes = (against_svc(rows, ours), LEGEND, training_text(rows, specs(profile)))
    return [Table("The product of five manifolds", tuple(header), tuple(lines), notes)]


ARTEFACT = Artefact(
    "ablation",
    "Ablations of stages 1 and 2",
    "On the product, a single pass of stages 1 and 2 loses 12 to 16 points, a linear "
    "Laplacian 18 to 26.",
    specs,
    draw,
)
