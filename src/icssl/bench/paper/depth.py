"""Artefact ``depth``: more descent steps in the head."""

from pathlib import Path

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.curves import draw_curves
from icssl.bench.paper.runs import KERNELS, REFERENCES, classical, scores, trainings
from icssl.bench.paper.tables import (
    LEGEND,
    accuracy_text,
    against_svc,
    majority_text,
    seen_text,
)
from icssl.bench.render import Item, Table, save_picture

DEPTHS = (1, 2, 4)


def specs(profile: Profile) -> Specs:
    """E2E on the product with one, two and four steps, both kernels."""
    found: Specs = {}
    for kernel in KERNELS:
        for depth in DEPTHS:
            overrides = () if depth == 1 else (f"model.steps={depth}",)
            trained = trainings(
                profile, "e2e_icl", ("product",), kernel=kernel, overrides=overrides
            )
            for labels in profile.product_budgets:
                cell = Cell("product", labels, "e2e_icl", kernel, size=depth)
                found[cell] = scores(profile, cell, trained)
    return found | classical(
        profile, "product", profile.product_budgets, methods=REFERENCES
    )


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """A table and a panel a depth."""
    budgets = profile.product_budgets
    lines = []
    for kernel in KERNELS:
        for depth in DEPTHS:
            cells = [Cell("product", m, "e2e_icl", kernel, size=depth) for m in budgets]
            name = f"{kernel}, {depth} step{'s' if depth > 1 else ''}"
            lines.append((name, *(accuracy_text(rows.get(cell)) for cell in cells)))
    for method, name in (("svc_rbf", "RBF-SVC"), ("bayes_ceiling", "Bayes ceiling")):
        found = [rows.get(Cell("product", m, method)) for m in budgets]
        lines.append((name, *map(accuracy_text, found)))
    shares = [majority_text(rows, "product", m) for m in budgets]
    lines.append(("largest class", *shares))
    header = ("kernel, depth", *(f"{m} labels" for m in budgets))
    panels = [
        (
            f"{depth} step{'s' if depth > 1 else ''}",
            [Cell("product", m, "e2e_icl", k, size=depth) for k in KERNELS for m in budgets]
            + [Cell("product", m, "svc_rbf") for m in budgets],
        )
        for depth in DEPTHS
    ]
    title = "Depth of the head on the product"
    figure = draw_curves(rows, panels, "labelled points of 100", one_scale=True)
    picture = save_picture(figure, title, folder / "depth")
    ours = [Cell("product", m, "e2e_icl", "rbf", size=1) for m in budgets]
    notes = (against_svc(rows, ours), LEGEND, seen_text(rows, specs(profile)))
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
