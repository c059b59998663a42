"""Artefact ``depth``: more descent steps in the head."""

from pathlib import Path

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.curves import draw_curves
from icssl.bench.paper.table_cells import (
    KERNELS,
    LEGEND,
    REFERENCES,
    accuracy_text,
    against_svc,
    classical,
    majority_text,
    scores,
    training_text,
    trainings,
    with_model,
)
from icssl.bench.render import Item, Table, save_picture

_DEPTHS = (1, 2, 4)


def specs(profile: Profile) -> Specs:
    """Return E2E on the product with one, two and four steps, with both kernels."""
    cells: Specs = {}
    for kernel in KERNELS:
        for depth in _DEPTHS:
            runs = trainings(profile, "e2e_icl", ("product",), kernel=kernel)
            trained = tuple(with_model(config, steps=depth) for config in runs)
            for labels in profile.product_budgets:
                cell = Cell("product", labels, "e2e_icl", kernel, size=depth)
                cells[cell] = scores(profile, cell, trained)
    return cells | classical(
        profile, "product", profile.product_budgets, methods=REFERENCES
    )


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw a table, and a figure with one panel per depth."""
    budgets = profile.product_budgets
    lines = []
    for kernel in KERNELS:
        for depth in _DEPTHS:
            cells = [Cell("product", m, "e2e_icl", kernel, size=depth) for m in budgets]
            name = f"{kernel}, {depth} step{'s' if depth > 1 else ''}"
            lines.append((name, *(accuracy_text(rows.get(cell)) for cell in cells)))
    for method, name in (("svc_rbf", "RBF-SVC"), ("bayes_ceiling", "Bayes ceiling")):
        reference = [rows.get(Cell("product", m, method)) for m in budgets]
        lines.append((name, *map(accuracy_text, reference)))
    shares = [majority_text(rows, "product", m) for m in budgets]
    lines.append(("largest class", *shares))
    header = ("kernel, depth", *(f"{m} labels" for m in budgets))
    panels = [
        (
            f"{depth} step{'s' if depth > 1 else ''}",
            [Cell("product", m, "e2e_icl", k, size=depth) for k in KERNELS for m in budgets]
            + [Cell("product", m, "svc_rbf") for m in budgets],
        )
        for depth in _DEPTHS
    ]
    title = "Depth of the head on the product"
    figure = draw_curves(rows, panels, "labelled points of 100", share_y=True)
    picture = save_picture(figure, title, folder / "depth")
    ours = [Cell("product", m, "e2e_icl", "rbf", size=1) for m in budgets]
    notes = (against_svc(rows, ours), LEGEND, training_text(rows, specs(profile)))
    return [picture, Table(title, header, tuple(lines), notes)]


ARTEFACT = Artefact(
    "depth",
    "Depth of the ICL head",
    "Two layers of the ICL head are above one at every number of labels on the product, "
    "and the RBF kernel is above the linear one at both depths; deeper heads change "
    "little.",
    specs,
    draw,
)
