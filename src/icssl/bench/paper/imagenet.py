"""Artefacts ``imagenet`` and ``alignment``: what is learned on features of pictures.

The first shows accuracy, separation and alignment against the number of training episodes,
the second how alike three representations are at the largest number.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.curves import add_legend, plot_curve, style_of, tidy
from icssl.bench.paper.table_cells import (
    LEGEND,
    accuracy_text,
    data_config,
    estimate_text,
    scores,
    title_of,
    training_text,
    trainings,
    with_model,
)
from icssl.bench.probes import EIG, Alignment
from icssl.bench.render import Item, Table, save_picture
from icssl.methods import TITLES
from icssl.training.config import TrainConfig

METHODS = (("e2e_icl", "rbf"), ("transformer", ""), ("orig_icl", "rbf"), ("eig_icl", "rbf"))
NAMES = {
    "e2e_icl": TITLES["e2e_icl"],
    "transformer": TITLES["transformer"],
    EIG: "Eig",
}
PAIRS = (("e2e_icl", "transformer"), (EIG, "e2e_icl"), (EIG, "transformer"))

_BUDGETS = (3, 39)
_DIMENSIONS = {"digits": 64}
_OTHER_DIMENSION = 1280  # of CIFAR-10 features
_PANELS = {
    "accuracy": "accuracy",
    "separation_second": "separation",
    "mutual_knn": "mutual-kNN with the eigenvectors",
}
_PROBED_PAIRS = (*PAIRS, (EIG, "orig_icl"))

# The paper's table of alignments, at 3% labels and 5,000 datasets.
_ALIGNMENT_LABELS = 3
_ALIGNMENT_MEASURES = ("mutual_knn", "cycle_knn", "lcs_knn")
_PUBLISHED_ALIGNMENTS = {
    ("e2e_icl", "transformer"): (0.302, 0.289, 0.193),
    (EIG, "e2e_icl"): (0.304, 0.295, 0.195),
    (EIG, "transformer"): (0.269, 0.262, 0.177),
}

_Value = tuple[float, float]  # mean and half-width


def pair_cell(profile: Profile, labels: float, pair: tuple[str, str], size: int) -> Cell:
    """Return the cell in which the representations of two methods are compared."""
    first, second = pair
    return Cell(profile.features, labels, first, "rbf", size=size, beside=second)


def _trainings_on_features(
    profile: Profile, method: str, kernel: str, size: int, labels: int
) -> tuple[TrainConfig, ...]:
    """Return runs that see so many different episodes, with this number of labels."""
    runs = trainings(
        profile, method, (profile.features,), kernel=kernel, size=size, labels=(labels,)
    )
    # Small sets need no large batches.
    batch = min(32, profile.batch)
    steps = profile.steps_of(batch)
    runs = tuple(replace(config, steps=steps, batch=batch) for config in runs)
    if method == "transformer":
        d = _DIMENSIONS.get(profile.features, _OTHER_DIMENSION)
        return tuple(with_model(config, d=d) for config in runs)
    return runs


def specs(profile: Profile) -> Specs:
    """Return every method at every size and both budgets, and pairs of representations."""
    cells: Specs = {}
    for labels in _BUDGETS:
        for size in profile.sizes:
            models = {
                method: _trainings_on_features(profile, method, kernel, size, labels)
                for method, kernel in METHODS
            }
            for method, kernel in METHODS:
                cell = Cell(profile.features, labels, method, kernel, size=size)
                cells[cell] = scores(profile, cell, models[method])
            for pair in _PROBED_PAIRS:
                # Representations are those of the first seed.
                first, second = (EIG if m == EIG else models[m][0] for m in pair)
                data = data_config(profile.features)
                alignment = Alignment(first, second, data, labels, profile.episodes)
                cells[pair_cell(profile, labels, pair, size)] = alignment
    return cells


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one figure and one table per number of labels."""
    items: list[Item] = []
    for labels in _BUDGETS:
        figure = _figure(profile, rows, labels)
        title = f"{_data_title(profile)}, {labels} labels of 100"
        items.append(save_picture(figure, title, folder / f"imagenet-{labels}"))
        items.append(_table(profile, rows, labels))
    return items


def _data_title(profile: Profile) -> str:
    if profile.features == "digits":
        return "Digits (a stand-in for ImageNet100)"
    return "CIFAR-10 features (a stand-in for ImageNet100)"


def method_value(rows: Rows, cell: Cell, measure: str) -> _Value | None:
    """Return a measure of a method, where it is stored."""
    if measure == "accuracy":
        return _value(rows[cell]["metrics"]["accuracy"]) if cell in rows else None
    if cell.method != "eig_icl":
        return _pair_value(rows, _beside_eigenvectors(cell), measure)
    if measure != "separation_second":
        return None
    # Eig+ICL represents points by the eigenvectors: the first side of any pair with them.
    pair = cell._replace(method=EIG, beside="e2e_icl", kernel="rbf")
    return _pair_value(rows, pair, "separation_first")


def _beside_eigenvectors(cell: Cell) -> Cell:
    """Return the cell in which a method is compared with the true eigenvectors."""
    return cell._replace(method=EIG, beside=cell.method, kernel="rbf")


def _pair_value(rows: Rows, cell: Cell, measure: str) -> _Value | None:
    return _value(rows[cell]["measures"][measure]) if cell in rows else None


def _value(estimate: dict[str, float]) -> _Value:
    return estimate["mean"], estimate["half_width"]


def _is_improving(rows: Rows, cell: Cell, measure: str) -> bool:
    """Whether the model behind a measure was; true eigenvectors have none."""
    if measure != "accuracy" and not cell.beside:
        if cell.method == "eig_icl":
            return False
        cell = _beside_eigenvectors(cell)
    return bool(rows.get(cell, {}).get("undertrained"))


def _figure(profile: Profile, rows: Rows, labels: int) -> Figure:
    figure = Figure(figsize=(8.25, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, (measure, title) in zip(panels, _PANELS.items(), strict=True):
        for method, kernel in METHODS:
            cells = _curve(profile, labels, method, kernel)
            values = [method_value(rows, cell, measure) for cell in cells]
            improving = [_is_improving(rows, cell, measure) for cell in cells]
            name = title_of(Cell("", 0, method))
            _plot(axes, profile, values, improving, name, **style_of(method))
        tidy(axes, "", "different training episodes", title, profile.sizes)
    pairs = [pair_cell(profile, labels, PAIRS[0], size) for size in profile.sizes]
    values = [_pair_value(rows, cell, "mutual_knn") for cell in pairs]
    improving = [_is_improving(rows, cell, "mutual_knn") for cell in pairs]
    name = f"{NAMES['e2e_icl']} with the Transformer baseline"
    style = {"color": "0.4", "marker": "v", "linestyle": "--"}
    _plot(panels[2], profile, values, improving, name, **style)
    add_legend(figure)
    figure.suptitle(f"{_data_title(profile)}, {labels} labels of 100", fontsize=9)
    return figure


def _curve(profile: Profile, labels: int, method: str, kernel: str) -> list[Cell]:
    return [Cell(profile.features, labels, method, kernel, size=s) for s in profile.sizes]


def _plot(
    axes: Axes,
    profile: Profile,
    values: list[_Value | None],
    improving: list[bool],
    name: str,
    **style: Any,
) -> None:
    """Plot a curve against the sizes of the profile, without what is not stored."""
    stored = [
        (size, value, is_improving)
        for size, value, is_improving in zip(profile.sizes, values, improving, strict=True)
        if value
    ]
    points = [(size, *value) for size, value, _ in stored]
    plot_curve(axes, points, [is_improving for *_, is_improving in stored], name, **style)


def _table(profile: Profile, rows: Rows, labels: int) -> Table:
    """Return accuracy and separation at every size."""
    lines = []
    for method, kernel in METHODS:
        cells = _curve(profile, labels, method, kernel)
        name = title_of(cells[0]._replace(kernel=""))
        lines.append((name, *(accuracy_text(rows.get(cell)) for cell in cells)))
        values = [method_value(rows, cell, "separation_second") for cell in cells]
        if any(values):
            texts = ["" if v is None else f"{v[0]:.3f} ± {v[1]:.3f}" for v in values]
            lines.append((f"{name}, separation", *texts))
    header = ("method", *(f"{size:,} episodes" for size in profile.sizes))
    scored = [cell for cell in rows if cell.labels == labels and not cell.beside]
    notes = (
        f"{_data_title(profile)}: two of its classes per episode, none of them seen in "
        'training. A "dataset size" of the paper is read as a number of different training '
        "episodes.",
        LEGEND,
        "Separation is of the first seed alone, accuracy of all.",
        training_text(rows, scored),
    )
    return Table(f"{labels} labels of 100", header, tuple(lines), notes)


def _alignment_specs(profile: Profile) -> Specs:
    """Return three specs of ``imagenet`` at the largest size: nothing else is run."""
    wanted = [
        pair_cell(profile, _ALIGNMENT_LABELS, pair, max(profile.sizes)) for pair in PAIRS
    ]
    cells = specs(profile)
    return {cell: cells[cell] for cell in wanted}


def _draw_alignment(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one table of alignments, ours beside the paper's."""
    lines = []
    for pair in PAIRS:
        cell = pair_cell(profile, _ALIGNMENT_LABELS, pair, max(profile.sizes))
        measures = rows[cell]["measures"] if cell in rows else {}
        line = [" and ".join(NAMES[side] for side in pair)]
        printed = _PUBLISHED_ALIGNMENTS[pair]
        for measure, value in zip(_ALIGNMENT_MEASURES, printed, strict=True):
            line += [estimate_text(measures.get(measure)), f"{value:.3f}"]
        lines.append(tuple(line))
    header = ("pair", "mutual kNN", "paper", "cycle kNN", "paper", "LCS", "paper")
    notes = (
        "Ten nearest neighbours among 100 points: by chance the first is 0.10, the second "
        "0.65. LCS is a share of ten. The paper does not print its number of neighbours. "
        "Models are those of the first seed.",
    )
    return [Table("Alignment of representations", header, tuple(lines), notes)]


ARTEFACT = Artefact(
    "imagenet",
    "Accuracy and separation against training data",
    "E2E is ahead of the Transformer baseline where training data are few and level where "
    "they are many; the baseline jumps near 1,200 training datasets, together with its "
    "separation; both are above Eig+ICL; alignment grows with data.",
    specs,
    draw,
)
ALIGNMENT = Artefact(
    "alignment",
    "Alignment of representations",
    "At 5,000 datasets and 3% labels all three pairs are about equally aligned, E2E with "
    "the eigenvectors most.",
    _alignment_specs,
    _draw_alignment,
)
