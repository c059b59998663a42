"""What the paper's own tables say about its sentences, read from the published numbers."""

from icssl.bench.paper.artefact import Cell, published_values
from icssl.bench.paper.image_transfer import CURVE_SET, SETS
from icssl.bench.paper.table_cells import KERNELS, SURFACES, source_title

_CONTEXTS = (3.0, 21.0, 39.0)


def _printed_value(artefact: str, cell: Cell) -> float:
    """Return an accuracy that the paper printed."""
    return published_values()[artefact, cell][0]


def _difference_text(artefact: str, first: Cell, second: Cell) -> str:
    points = 100 * (_printed_value(artefact, first) - _printed_value(artefact, second))
    return f"{points:+.1f}"


def _at_contexts(texts: list[str]) -> str:
    places = " / ".join(f"{labels:.0f}" for labels in _CONTEXTS)
    return f"{' / '.join(texts)} at {places}"


def printed_cylinder_margin() -> str:
    """Return E2E minus Eig+ICL on the cylinder."""
    cells = [Cell("cylinder", m, "e2e_icl", "rbf") for m in _CONTEXTS]
    return _at_contexts(
        [
            _difference_text("id-ood", cell, cell._replace(method="eig_icl"))
            for cell in cells
        ]
    )


def printed_outside_cylinder() -> str:
    """Return E2E trained on the other four minus trained on the cylinder."""
    cells = [Cell("cylinder", m, "e2e_icl", "rbf") for m in _CONTEXTS]
    return _at_contexts(
        [_difference_text("id-ood", cell._replace(setting="ood"), cell) for cell in cells]
    )


def printed_outside_others() -> str:
    """Return E2E out of distribution minus in it, by manifold, without the cylinder."""
    parts = []
    for source in SURFACES:
        if source == "cylinder":
            continue
        gains = [
            _printed_value("id-ood", Cell(source, m, "e2e_icl", "rbf", "ood"))
            - _printed_value("id-ood", Cell(source, m, "e2e_icl", "rbf"))
            for m in _CONTEXTS
        ]
        parts.append(f"{source_title(source)} {100 * sum(gains) / len(gains):+.1f}")
    return f"mean over labels: {', '.join(parts)}"


def printed_every_baseline() -> str:
    """Return how often E2E is above Eig+ICL, over manifolds, kernels and labels."""
    cells = [
        Cell(source, labels, "e2e_icl", kernel)
        for source in SURFACES
        for kernel in KERNELS
        for labels in _CONTEXTS
    ]
    above = sum(
        _printed_value("id-ood", cell)
        > _printed_value("id-ood", cell._replace(method="eig_icl"))
        for cell in cells
    )
    return f"above Eig+ICL in {above} of {len(cells)} cells"


def printed_outside_levels() -> str:
    """Return E2E out of distribution at the most labels."""
    texts = [
        f"{cell.source} {_printed_value('id-ood', cell):.3f}"
        for cell in (
            Cell(source, 39.0, "e2e_icl", "rbf", "ood")
            for source in ("cylinder", "sphere", "torus")
        )
    ]
    return ", ".join(texts)


def printed_on_images(surfaces: tuple[str, ...], labels: float, setting: str) -> str:
    """Return an accuracy in the paper's line of a set of surfaces."""
    cell = Cell("images", labels, "e2e_icl", "rbf", setting, trained_on=surfaces)
    return f"{_printed_value('image-transfer', cell):.3f}"


def printed_pictures() -> str:
    """Return E2E on image manifolds, trained on the surfaces of the curve."""
    return _at_contexts([printed_on_images(CURVE_SET, m, "ood") for m in _CONTEXTS])


def printed_pictures_trained() -> str:
    """Return E2E trained on image manifolds."""
    return _at_contexts([printed_on_images(CURVE_SET, m, "id") for m in _CONTEXTS])


def printed_best_sets() -> str:
    """Return sets with both the roll and the torus, then the others, at 39 labels."""
    with_both: list[str] = []
    others: list[str] = []
    for four in SETS:
        has_both = {"swiss_roll", "torus"} <= set(four)
        (with_both if has_both else others).append(printed_on_images(four, 39.0, "ood"))
    return f"with both {', '.join(with_both)}; others {', '.join(others)}"


def printed_rbf_over_linear() -> str:
    """Return the RBF kernel minus the linear one, at three labels."""
    cells = [Cell(source, 3.0, "e2e_icl", "rbf") for source in SURFACES]
    texts = [
        f"{source_title(c.source)} "
        f"{_difference_text('id-ood', c, c._replace(kernel='linear'))}"
        for c in cells
    ]
    return f"on the manifolds at 3 labels, RBF minus linear: {', '.join(texts)}"


def printed_ablations() -> str:
    """Return how much the full model is above its ablations, over numbers of labels."""
    labels = sorted({c.labels for a, c in published_values() if a == "ablation"})
    parts = []
    for ablated in ("lap_linear", "lap_pe_1layer"):
        losses = [
            _printed_value("ablation", Cell("product", m, "e2e_icl", "rbf"))
            - _printed_value("ablation", Cell("product", m, ablated, "rbf"))
            for m in labels
        ]
        parts.append(f"{100 * min(losses):.1f} to {100 * max(losses):.1f} over {ablated}")
    return ", ".join(parts)
