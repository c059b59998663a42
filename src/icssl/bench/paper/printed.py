"""What the paper's own tables say where a sentence of it makes a claim."""

from icssl.bench.paper.artefact import Cell, published
from icssl.bench.paper.image_transfer import CURVE_SET, SETS
from icssl.bench.paper.runs import SURFACES

CONTEXTS = (3.0, 21.0, 39.0)
ABLATED = ("lap_linear", "lap_pe_1layer")


def value(artefact: str, cell: Cell) -> float:
    """An accuracy that was printed."""
    return published()[artefact, cell][0]


def _difference(artefact: str, first: Cell, second: Cell) -> str:
    points = 100 * (value(artefact, first) - value(artefact, second))
    return f"{points:+.1f}"


def _at_contexts(texts: list[str]) -> str:
    places = " / ".join(f"{labels:.0f}" for labels in CONTEXTS)
    return f"{' / '.join(texts)} at {places}"


def cylinder_margin() -> str:
    """E2E minus Eig+ICL on the cylinder."""
    cells = [Cell("cylinder", m, "e2e_icl", "rbf") for m in CONTEXTS]
    return _at_contexts(
        [_difference("id-ood", cell, cell._replace(method="eig_icl")) for cell in cells]
    )


def outside_cylinder() -> str:
    """E2E trained on the other four minus trained on the cylinder."""
    cells = [Cell("cylinder", m, "e2e_icl", "rbf") for m in CONTEXTS]
    return _at_contexts(
        [_difference("id-ood", cell._replace(setting="ood"), cell) for cell in cells]
    )


def every_baseline() -> str:
    """How often E2E is above Eig+ICL, over manifolds, kernels and contexts."""
    cells = [
        Cell(source, labels, "e2e_icl", kernel)
        for source in SURFACES
        for kernel in ("rbf", "linear")
        for labels in CONTEXTS
    ]
    above = sum(
        value("id-ood", cell) > value("id-ood", cell._replace(method="eig_icl"))
        for cell in cells
    )
    return f"above Eig+ICL in {above} of {len(cells)} cells"


def outside_levels() -> str:
    """E2E out of distribution at the most labels."""
    texts = [
        f"{source} {value('id-ood', Cell(source, 39.0, 'e2e_icl', 'rbf', 'ood')):.3f}"
        for source in ("cylinder", "sphere", "torus")
    ]
    return ", ".join(texts)


def _pictures(sources: tuple[str, ...], labels: float, setting: str) -> float:
    """The table names a set in an order of its own."""
    for (artefact, cell), (accuracy, _) in published().items():
        same = set(cell.source.split("+")) == set(sources)
        place = (cell.labels, cell.method, cell.setting) == (labels, "e2e_icl", setting)
        if artefact == "image-transfer" and same and place:
            return accuracy
    raise KeyError(f"the paper prints no accuracy of {sources} at {labels} labels")


def pictures() -> str:
    """E2E on image manifolds, trained on the surfaces of the curve."""
    return _at_contexts([f"{_pictures(CURVE_SET, m, 'ood'):.3f}" for m in CONTEXTS])


def pictures_trained() -> str:
    """E2E trained on image manifolds."""
    return _at_contexts([f"{_pictures(CURVE_SET, m, 'id'):.3f}" for m in CONTEXTS])


def best_sets() -> str:
    """Sets with both the roll and the torus, then the others, at 39 labels."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for four in SETS:
        both = {"swiss_roll", "torus"} <= set(four)
        found[both].append(f"{_pictures(four, 39.0, 'ood'):.3f}")
    return f"with both {', '.join(found[True])}; others {', '.join(found[False])}"


def rbf_over_linear() -> str:
    """Where the linear kernel is above, at three labels."""
    cells = [Cell(source, 3.0, "e2e_icl", "rbf") for source in SURFACES]
    texts = [
        f"{c.source.replace('_', ' ')} "
        f"{_difference('id-ood', c, c._replace(kernel='linear'))}"
        for c in cells
    ]
    return f"on the manifolds at 3 labels, RBF minus linear: {', '.join(texts)}"


def ablations() -> str:
    """How much the full model is above its ablations, over label counts."""
    labels = sorted({c.labels for a, c in published() if a == "ablation"})
    parts = []
    for ablated in ABLATED:
        losses = [
            value("ablation", Cell("product", m, "e2e_icl", "rbf"))
            - value("ablation", Cell("product", m, ablated, "rbf"))
            for m in labels
        ]
        parts.append(f"{100 * min(losses):.1f} to {100 * max(losses):.1f} over {ablated}")
    return ", ".join(parts)
