"""Artefact ``imagenet``: accuracy, separation and alignment against training episodes."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.curves import add_legend, plot_curve, style_of, tidy
from icssl.bench.paper.runs import data_config, scores, title_of, trainings
from icssl.bench.paper.tables import LEGEND, accuracy_text, seen_text
from icssl.bench.probes import EIG, Alignment
from icssl.bench.render import Item, Table, save_picture
from icssl.training.config import TrainConfig

DIMENSIONS = {"digits": 64}  # of other features: 1280
BUDGETS = (3, 39)
METHODS = (("e2e_icl", "rbf"), ("transformer", ""), ("orig_icl", "rbf"), ("eig_icl", "rbf"))
PAIRS = (("e2e_icl", "transformer"), (EIG, "e2e_icl"), (EIG, "transformer"))
MEASURES = {
    "accuracy": "accuracy",
    "separation_second": "separation",
    "mutual_knn": "mutual-kNN with the eigenvectors",
}
_LOOKED_INTO = (*PAIRS, (EIG, "orig_icl"))


def trained_on(
    profile: Profile, method: str, kernel: str, size: int, labels: int
) -> tuple[TrainConfig, ...]:
    """Models that see so many different episodes, with this number of labels."""
    # Small sets need no large batches, but what learns a representation more of them.
    overrides = [f"batch={min(32, profile.batch)}"]
    if method == "e2e_icl":
        overrides.append(f"steps={profile.encoder_steps}")
    if method == "transformer":
        overrides.append(f"steps={profile.hard_steps}")
        overrides.append(f"model.d={DIMENSIONS.get(profile.features, 1280)}")
    return trainings(
        profile,
        method,
        (profile.features,),
        kernel=kernel,
        size=size,
        labels=(labels,),
        overrides=tuple(overrides),
    )


def specs(profile: Profile) -> Specs:
    """Every method at every size and both budgets, with what its representation is."""
    found: Specs = {}
    for labels in BUDGETS:
        for size in profile.sizes:
            models = {
                method: trained_on(profile, method, kernel, size, labels)
                for method, kernel in METHODS
            }
            for method, kernel in METHODS:
                cell = Cell(profile.features, labels, method, kernel, size=size)
                found[cell] = scores(profile, cell, models[method])
            for pair in _LOOKED_INTO:
                cell = Cell(profile.features, labels, "|".join(pair), "rbf", size=size)
                sides = [EIG if side == EIG else models[side][0] for side in pair]
                data = data_config(profile.features)
                found[cell] = Alignment(sides[0], sides[1], data, labels, profile.episodes)
    return found


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """A figure and a table a label budget."""
    items: list[Item] = []
    for labels in BUDGETS:
        figure = _figure(profile, rows, labels)
        title = f"{_data(profile)}, {labels} labels of 100"
        items.append(save_picture(figure, title, folder / f"imagenet-{labels}"))
        items.append(table(profile, rows, labels))
    return items


def _data(profile: Profile) -> str:
    if profile.features == "digits":
        return "Digits (a stand-in for ImageNet100)"
    return "CIFAR-10 features (a stand-in for ImageNet100)"


def value(rows: Rows, cell: Cell, measure: str) -> tuple[float, float] | None:
    """Mean and half-width of a measure of a method, where it has been made."""
    if measure == "accuracy":
        row = rows.get(cell)
        found = None if row is None else row["metrics"]["accuracy"]
        return None if found is None else (found["mean"], found["half_width"])
    if cell.method == "eig_icl":  # what represents points there are the eigenvectors
        own = measure == "separation_second"
        return measured(rows, cell, f"{EIG}|e2e_icl", "separation_first") if own else None
    return measured(rows, cell, f"{EIG}|{cell.method}", measure)


def _improving(rows: Rows, cell: Cell, measure: str) -> bool:
    """Whether the model behind a measure was; true eigenvectors have none."""
    if measure != "accuracy" and cell.method == "eig_icl":
        return False
    pair = cell._replace(method=f"{EIG}|{cell.method}", kernel="rbf")
    row = rows.get(cell if measure == "accuracy" or "|" in cell.method else pair, {})
    return bool(row.get("undertrained"))


def measured(rows: Rows, cell: Cell, pair: str, measure: str) -> tuple[float, float] | None:
    """The same of two representations, as in ``"e2e_icl|transformer"``."""
    row = rows.get(cell._replace(method=pair, kernel="rbf"))
    found = None if row is None else row["measures"][measure]
    return None if found is None else (found["mean"], found["half_width"])


def _figure(profile: Profile, rows: Rows, labels: int) -> Figure:
    figure = Figure(figsize=(8.25, 3.2), layout="constrained")
    cells = [Cell(profile.features, labels, "", size=size) for size in profile.sizes]
    panels = figure.subplots(1, 3)
    for axes, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        for method, kernel in METHODS:
            own = [cell._replace(method=method, kernel=kernel) for cell in cells]
            curve = [
                (value(rows, cell, measure), _improving(rows, cell, measure))
                for cell in own
            ]
            name = title_of(Cell("", 0, method))
            _plot(axes, profile, curve, name, **style_of(method))
        tidy(axes, "", "different training episodes", title, profile.sizes)
    pair = "|".join(PAIRS[0])
    between = [cell._replace(method=pair, kernel="rbf") for cell in cells]
    curve = [
        (measured(rows, cell, pair, "mutual_knn"), _improving(rows, cell, "mutual_knn"))
        for cell in between
    ]
    name = "Orig+E2E-ICL with the Transformer baseline"
    style = {"color": "0.4", "marker": "v", "linestyle": "--"}
    _plot(panels[2], profile, curve, name, **style)
    add_legend(figure)
    figure.suptitle(f"{_data(profile)}, {labels} labels of 100", fontsize=9)
    return figure


def _plot(
    axes: Axes,
    profile: Profile,
    curve: list[tuple[tuple[float, float] | None, bool]],
    name: str,
    **style: Any,
) -> None:
    sized = zip(profile.sizes, curve, strict=True)
    known = [(size, found, improving) for size, (found, improving) in sized if found]
    points = [(size, *found) for size, found, _ in known]
    plot_curve(axes, points, [improving for *_, improving in known], name, **style)


def _scored(rows: Rows) -> list[Cell]:
    """Cells with a method in them; the others look into two representations."""
    return [cell for cell in rows if "|" not in cell.method]


def table(profile: Profile, rows: Rows, labels: int) -> Table:
    """Accuracy and separation at every size."""
    lines = []
    for method, kernel in METHODS:
        cells = [
            Cell(profile.features, labels, method, kernel, size=s) for s in profile.sizes
        ]
        name = title_of(cells[0]._replace(kernel=""))
        lines.append((name, *(accuracy_text(rows.get(cell)) for cell in cells)))
        found = [value(rows, cell, "separation_second") for cell in cells]
        if any(found):
            texts = ["" if v is None else f"{v[0]:.3f} ± {v[1]:.3f}" for v in found]
            lines.append((f"{name}, separation", *texts))
    header = ("method", *(f"{size:,} episodes" for size in profile.sizes))
    notes = (
        f"{_data(profile)}: two of its classes an episode, none of them seen in training. "
        'A "dataset size" of the paper is read as a number of different training episodes.',
        LEGEND,
        "Separation is of the first seed alone, accuracy of all.",
        seen_text(rows, [cell for cell in _scored(rows) if cell.labels == labels]),
    )
    return Table(f"{labels} labels of 100", header, tuple(lines), notes)


ARTEFACT = Artefact(
    "imagenet",
    "Accuracy and separation against training data",
    "E2E is ahead of the Transformer baseline where training data are few and level where "
    "they are many; the baseline jumps near 1,200 training datasets, together with its "
    "separation; both are above Eig+ICL; alignment grows with data.",
    specs,
    draw,
)
