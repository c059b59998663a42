"""Artefacts ``imagenet`` and ``alignment``: what is learned on features of pictures.

The first shows accuracy, separation and alignment against the number of training episodes,
the second how alike three representations are at the largest number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.curves import add_legend, plot_curve, style_of, tidy
from icssl.bench.paper.statistics import measure_of
from icssl.bench.paper.table_cells import (
    LEGEND,
    accuracy_text,
    data_config,
    scores,
    title_of,
    training_text,
    trainings,
    with_model,
)
from icssl.bench.probes import EIG, Alignment
from icssl.bench.render import Item, Table, save_picture
from icssl.training.config import TrainConfig

METHODS = (("e2e_icl", "rbf"), ("transformer", ""), ("orig_icl", "rbf"), ("eig_icl", "rbf"))
PAIRS = (("e2e_icl", "transformer"), (EIG, "e2e_icl"), (EIG, "transformer"))

_BUDGETS = (3, 39)
_PANELS = {
    "accuracy": "accuracy",
    "separation_second": "separation",
    "mutual_knn": "mutual-kNN with the eigenvectors",
}
PROBED_PAIRS = (*PAIRS, (EIG, "orig_icl"))

# The paper's table of alignments, at 3% labels and 5,000 datasets.
ALIGNMENT_LABELS = 3
# The printed cycle is below what chance gives to the authors' measure of that name, so it
# is read as the share of neighbours; the other stands beside it.
ALIGNMENT_MEASURES = {
    "mutual_knn": "mutual kNN",
    "cycle_share_knn": "cycle kNN, share",
    "lcs_knn": "LCS",
}
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


def dimension(features: str) -> int:
    """Return the number of columns of a table of features, which need not be here."""
    return 64 if features == "digits" else 1280


def _trainings_on_features(
    profile: Profile, method: str, kernel: str, size: int, labels: int
) -> tuple[TrainConfig, ...]:
    """Return runs that see so many different episodes, with this number of labels."""
    runs = trainings(
        profile, method, (profile.features,), kernel=kernel, size=size, labels=(labels,)
    )
    # Small sets need no large batches, but what learns a representation more of them.
    runs = tuple(replace(config, batch=min(32, profile.batch)) for config in runs)
    if method == "e2e_icl":
        return tuple(replace(config, steps=profile.encoder_steps) for config in runs)
    if method == "transformer":
        longer = [replace(config, steps=profile.hard_steps) for config in runs]
        return tuple(with_model(config, d=dimension(profile.features)) for config in longer)
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
            for pair in PROBED_PAIRS:
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
        figure = draw_figure(profile, rows, labels)
        title = f"{data_title(profile)}, {labels} labels of 100"
        items.append(save_picture(figure, title, folder / f"imagenet-{labels}"))
        items.append(draw_table(profile, rows, labels, profile.sizes, _NOTES))
    return items


def data_title(profile: Profile) -> str:
    """Return the table of features, and what it stands in for."""
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


def _value(measure: Mapping[str, Any]) -> _Value:
    estimate = measure_of(measure)
    return estimate.mean, estimate.half_width


def _is_improving(rows: Rows, cell: Cell, measure: str) -> bool:
    """Whether the model behind a measure was; true eigenvectors have none."""
    if measure != "accuracy" and not cell.beside:
        if cell.method == "eig_icl":
            return False
        cell = _beside_eigenvectors(cell)
    return bool(rows.get(cell, {}).get("undertrained"))


def draw_figure(
    profile: Profile, rows: Rows, labels: int, title: Callable[[Cell], str] = title_of
) -> Figure:
    """Return accuracy, separation and mutual kNN against the number of episodes."""
    figure = Figure(figsize=(8.25, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, (measure, panel) in zip(panels, _PANELS.items(), strict=True):
        for method, kernel in METHODS:
            cells = _curve(profile, labels, method, kernel)
            values = [method_value(rows, cell, measure) for cell in cells]
            improving = [_is_improving(rows, cell, measure) for cell in cells]
            name = title(Cell("", 0, method))
            _plot(axes, profile, values, improving, name, **style_of(method))
        tidy(axes, "", "different training episodes", panel, profile.sizes)
    pairs = [pair_cell(profile, labels, PAIRS[0], size) for size in profile.sizes]
    values = [_pair_value(rows, cell, "mutual_knn") for cell in pairs]
    improving = [_is_improving(rows, cell, "mutual_knn") for cell in pairs]
    name = " with ".join(title(Cell("", 0, side)) for side in PAIRS[0])
    style = {"color": "0.4", "marker": "v", "linestyle": "--"}
    _plot(panels[2], profile, values, improving, name, **style)
    add_legend(figure)
    figure.suptitle(f"{data_title(profile)}, {labels} labels of 100", fontsize=9)
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


def _lines_of_method(rows: Rows, cells: Sequence[Cell], name: str) -> list[tuple[str, ...]]:
    """Return accuracies of a method, and below them separations where any is stored."""
    lines = [(name, *(accuracy_text(rows.get(cell)) for cell in cells))]
    values = [method_value(rows, cell, "separation_second") for cell in cells]
    if any(values):
        texts = ["" if v is None else f"{v[0]:.3f} ± {v[1]:.3f}" for v in values]
        lines.append((f"{name}, separation", *texts))
    return lines


def draw_table(
    profile: Profile,
    rows: Rows,
    labels: int,
    sizes: Sequence[int],
    notes: tuple[str, str],
    title: Callable[[Cell], str] = title_of,
) -> Table:
    """Return accuracy and separation at these sizes; notes on the data and the seeds."""
    lines: list[tuple[str, ...]] = []
    for method, kernel in METHODS:
        cells = [Cell(profile.features, labels, method, kernel, size=s) for s in sizes]
        lines += _lines_of_method(rows, cells, title(cells[0]._replace(kernel="")))
    header = ("method", *(f"{size:,} episodes" for size in sizes))
    scored = [cell for cell in rows if cell.labels == labels and not cell.beside]
    about, seeds = notes
    titles = {method: title(Cell("", 0, method)) for method, _ in METHODS}
    trained = training_text(rows, [c for c in scored if c.method in titles], titles)
    text = (f"{data_title(profile)}: {about}", LEGEND, seeds, trained)
    return Table(f"{labels} labels of 100", header, tuple(lines), text)


_NOTES = (
    'two of its classes per episode, none of them seen in training. A "dataset size" of '
    "the paper is read as a number of different training episodes.",
    "Separation is of the first seed alone, accuracy of all.",
)


def _alignment_specs(profile: Profile) -> Specs:
    """Return three specs of ``imagenet`` at the largest size: nothing else is run."""
    wanted = [
        pair_cell(profile, ALIGNMENT_LABELS, pair, max(profile.sizes)) for pair in PAIRS
    ]
    cells = specs(profile)
    return {cell: cells[cell] for cell in wanted}


def _draw_alignment(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one table of alignments, ours beside the paper's."""
    return [alignment_table(profile, rows, "Models are those of the first seed.")]


def alignment_table(
    profile: Profile, rows: Rows, note: str, title: Callable[[Cell], str] = title_of
) -> Table:
    """Return the three measures of the three pairs, each beside the paper's number."""
    lines = []
    for pair in PAIRS:
        cell = pair_cell(profile, ALIGNMENT_LABELS, pair, max(profile.sizes))
        measures = rows[cell]["measures"] if cell in rows else {}
        names = ["Eig" if side == EIG else title(Cell("", 0, side)) for side in pair]
        line = [" and ".join(names)]
        printed = _PUBLISHED_ALIGNMENTS[pair]
        for measure, value in zip(ALIGNMENT_MEASURES, printed, strict=True):
            line += [_measure_text(measures, measure), f"{value:.3f}"]
        lines.append((*line, _measure_text(measures, "cycle_knn")))
    named = [name for title in ALIGNMENT_MEASURES.values() for name in (title, "paper")]
    notes = (
        "Ten nearest neighbours among 100 points; LCS is a share of ten. By chance mutual "
        "kNN and the share of cycles are 0.10. The printed cycle is read as that share: "
        "how many of the ten nearest in the second space have the point among theirs in "
        "the first. The last column is the measure of that name in its authors' code, "
        "whether any of them has; by chance it is 0.65. The paper does not print its "
        f"number of neighbours. {note}",
    )
    header = ("pair", *named, "cycle kNN, any")
    return Table("Alignment of representations", header, tuple(lines), notes)


def _measure_text(measures: Mapping[str, Any], name: str) -> str:
    """Return a measure as text; rows stored before it was added have none."""
    return str(measure_of(measures[name])) if name in measures else ""


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
