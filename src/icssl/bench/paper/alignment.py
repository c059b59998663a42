"""Artefact ``alignment``: how alike three representations are, by nearest neighbours."""

from pathlib import Path

from icssl.bench.paper import imagenet
from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.render import Item, Table

LABELS = 3
NAMES = {"e2e_icl": "Orig+E2E-ICL", "transformer": "Transformer baseline", "eig": "Eig"}
MEASURES = ("mutual_knn", "cycle_knn", "lcs_knn")
# The paper's table, at 3% labels and 5,000 datasets.
PUBLISHED = {
    ("e2e_icl", "transformer"): (0.302, 0.289, 0.193),
    ("eig", "e2e_icl"): (0.304, 0.295, 0.195),
    ("eig", "transformer"): (0.269, 0.262, 0.177),
}


def specs(profile: Profile) -> Specs:
    """Those of ``imagenet`` at the largest size: no run of its own."""
    wanted = (LABELS, max(profile.sizes))
    pairs = {"|".join(pair) for pair in PUBLISHED}
    return {
        cell: spec
        for cell, spec in imagenet.specs(profile).items()
        if cell.method in pairs and (cell.labels, cell.size) == wanted
    }


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """One table, ours beside the paper's."""
    lines = []
    for pair, published in PUBLISHED.items():
        cell = Cell(
            profile.features, LABELS, "|".join(pair), "rbf", size=max(profile.sizes)
        )
        row = rows.get(cell)
        line = [" and ".join(NAMES[side] for side in pair)]
        for measure, printed in zip(MEASURES, published, strict=True):
            found = None if row is None else row["measures"][measure]
            text = (
                "" if found is None else f"{found['mean']:.3f} ± {found['half_width']:.3f}"
            )
            line += [text, f"{printed:.3f}"]
        lines.append(tuple(line))
    header = ("pair", "mutual kNN", "paper", "cycle kNN", "paper", "LCS", "paper")
    notes = (
        "Ten nearest neighbours among 100 points: by chance the first is 0.10, the second "
        "0.65. LCS is a share of ten. The paper does not print its number of neighbours. "
        "Models are those of the first seed.",
    )
    return [Table("Alignment of representations", header, tuple(lines), notes)]


ARTEFACT = Artefact(
    "alignment",
    "Alignment of representations",
    "At 5,000 datasets and 3% labels all three pairs are about equally aligned, E2E with "
    "the eigenvectors most.",
    specs,
    draw,
)
