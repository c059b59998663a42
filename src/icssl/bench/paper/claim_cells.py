"""Cells that the paper's statements compare, and what each is compared with."""

from collections.abc import Iterable

from icssl.bench.paper.artefact import Cell
from icssl.bench.paper.image_transfer import CURVE_SET, transfer_cell
from icssl.bench.paper.table_cells import KERNELS, SURFACES
from icssl.bench.paper.verdicts import Pair

CONTEXTS = (3, 21, 39)
SIMPLE_SURFACES = ("cylinder", "sphere", "torus")
# Of a table over the product, numbers of labels that both profiles have.
PRODUCT_CONTEXTS = (3, 20, 40)


def e2e_cell(source: str, labels: float, kernel: str = "rbf", setting: str = "id") -> Cell:
    """Return the cell of E2E on a source."""
    return Cell(source, labels, "e2e_icl", kernel, setting)


def against(cells: Iterable[Cell], method: str, has_kernel: bool = False) -> list[Pair]:
    """Return every cell against another method on the same episodes."""
    return [
        Pair(
            f"{c.source.replace('_', ' ')} {c.labels:g}",
            c,
            c._replace(
                method=method, kernel=c.kernel if has_kernel else "", setting="id", size=0
            ),
        )
        for c in cells
    ]


def outside_minus_inside(cells: Iterable[Cell]) -> list[Pair]:
    """Return every cell out of distribution against the same in distribution."""
    return [
        Pair(
            f"{c.source.replace('_', ' ')} {c.labels:g}",
            c._replace(setting="ood"),
            c._replace(setting="id"),
        )
        for c in cells
    ]


def levels(cells: Iterable[Cell]) -> list[Pair]:
    """Return every cell against nothing: its accuracy is what is judged."""
    return [Pair(f"{c.source} {c.labels:g}", c) for c in cells]


def both_ways(pairs: Iterable[Pair]) -> list[Pair]:
    """Return pairs the other way round."""
    return [Pair(p.place, p.second, p.first) for p in pairs if p.second is not None]


CYLINDER = [e2e_cell("cylinder", m) for m in CONTEXTS]
EVERYWHERE = [e2e_cell(s, m, k) for s in SURFACES for k in KERNELS for m in CONTEXTS]
ON_PRODUCT = [e2e_cell("product", m) for m in PRODUCT_CONTEXTS]
FEW_LINEAR = [e2e_cell(s, 3, "linear") for s in SURFACES]
ROLL_AND_CONE = [e2e_cell(s, m) for s in ("swiss_roll", "cone") for m in CONTEXTS]
ON_SIMPLE = [e2e_cell(s, m) for s in SIMPLE_SURFACES for m in CONTEXTS]
LOW_LABELS = [e2e_cell("cylinder", 3)]  # of 3 to 15, what both protocols have
OTHER_SURFACES = [e2e_cell(s, m) for s in SURFACES if s != "cylinder" for m in CONTEXTS]
PICTURES_OUT = [transfer_cell(m, "e2e_icl", "rbf", CURVE_SET) for m in CONTEXTS]
PICTURES_IN = [Cell("images", m, "e2e_icl", "rbf") for m in CONTEXTS]
RBF_FIRST = [
    Pair(f"{s.replace('_', ' ')} 3", e2e_cell(s, 3), e2e_cell(s, 3, "linear"))
    for s in SURFACES
]
AT_DEPTH = {
    (kernel, depth): [
        Cell("product", m, "e2e_icl", kernel, size=depth) for m in PRODUCT_CONTEXTS
    ]
    for kernel in KERNELS
    for depth in (1, 2)
}
"""Cells of the statements on depth, by kernel and steps of the head."""
DEEPER, DEEPER_LINEAR = (
    [
        Pair(f"{a.labels:g}", a, b)
        for a, b in zip(AT_DEPTH[kernel, 2], AT_DEPTH[kernel, 1], strict=True)
    ]
    for kernel in ("rbf", "linear")
)
ABLATED = [
    Pair(
        f"{m} {name}", e2e_cell("product", m), e2e_cell("product", m)._replace(method=name)
    )
    for name in ("lap_linear", "lap_pe_1layer")
    for m in PRODUCT_CONTEXTS
]
