"""Artefact ``sample-efficiency``: accuracy against the number of training episodes."""

from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.curves import add_legend, plot_cells, style_of, tidy
from icssl.bench.paper.table_cells import (
    LEGEND,
    REFERENCES,
    accuracy_text,
    classical,
    scores,
    title_of,
    trainings,
)
from icssl.bench.render import Item, Table, save_picture
from icssl.training.config import TrainConfig

_SOURCE = "cylinder"
_LABELS = (3, 21)
_METHODS = (("e2e_icl", "rbf"), ("e2e_encoder", ""), ("transformer", ""))
# Parts of the steps that label-curves trains for: the last one has its rows already.
_PARTS = (16, 8, 4, 2, 1)
_REPEATED_PART = 4  # models that see the same episodes again train for a quarter

_Curve = list[tuple[int, Cell]]  # training episodes, and the cell at the first budget


def _lengths(steps: int) -> list[int]:
    """Return numbers of training steps, from a sixteenth of the whole to all of them."""
    return sorted({max(1, steps // part) for part in _PARTS})


def _runs_by_cell(
    profile: Profile, method: str, kernel: str
) -> dict[Cell, tuple[TrainConfig, ...]]:
    """Return runs of growing length, then runs on growing sets of episodes.

    They are keyed by the cell of the first number of labels.
    """
    whole = trainings(profile, method, (_SOURCE,), kernel=kernel)
    steps = whole[0].steps
    runs = {}
    for length in _lengths(steps):
        cell = Cell(_SOURCE, _LABELS[0], method, kernel, steps=length)
        runs[cell] = tuple(replace(config, steps=length) for config in whole)
    length = max(1, steps // _REPEATED_PART)
    for size in profile.sizes:
        again = trainings(profile, method, (_SOURCE,), kernel=kernel, size=size)
        cell = Cell(_SOURCE, _LABELS[0], method, kernel, size=size, steps=length)
        runs[cell] = tuple(replace(config, steps=length) for config in again)
    return runs


def specs(profile: Profile) -> Specs:
    """Return models that see more and more episodes, and references that see none."""
    cells: Specs = {}
    for method, kernel in _METHODS:
        for first, runs in _runs_by_cell(profile, method, kernel).items():
            for labels in _LABELS:
                cell = first._replace(labels=labels)
                cells[cell] = scores(profile, cell, runs)
    return cells | classical(profile, _SOURCE, _LABELS, methods=REFERENCES)


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw a figure and a table for each of the two ways to count episodes."""
    cells = [cell for cell in specs(profile) if cell.steps and cell.labels == _LABELS[0]]
    fresh = [(cell.steps * profile.batch, cell) for cell in cells if not cell.size]
    again = [(cell.size, cell) for cell in cells if cell.size]
    draws = {title_of(cell): f"{cell.steps * profile.batch:,}" for _, cell in again}
    in_all = ", ".join(f"{count} by {name}" for name, count in draws.items())
    about = {
        "once": (fresh, "Every training episode is seen once."),
        "again": (
            again,
            "Training episodes are drawn from a set of this size, each time with new "
            f"labels: {in_all}.",
        ),
    }
    items: list[Item] = []
    for name, (curve, note) in about.items():
        title = f"The {_SOURCE}: training episodes seen {name}"
        figure = _figure(rows, curve)
        items.append(save_picture(figure, title, folder / f"sample-efficiency-{name}"))
        items.append(_table(rows, curve, title, note))
    return items


def _figure(rows: Rows, curve: _Curve) -> Figure:
    figure = Figure(figsize=(6.8, 3.4), layout="constrained")
    for axes, labels in zip(figure.subplots(1, len(_LABELS)), _LABELS, strict=True):
        for method, kernel in _METHODS:
            points = [
                (float(count), cell._replace(labels=labels))
                for count, cell in curve
                if cell.method == method
            ]
            name = title_of(Cell(_SOURCE, labels, method, kernel))
            plot_cells(axes, rows, points, name, **style_of(method))
        counts = sorted({count for count, _ in curve})
        for method in REFERENCES:
            # What is not trained on episodes is level: a line without intervals.
            reference = rows.get(Cell(_SOURCE, labels, method))
            if reference is not None:
                mean = reference["metrics"]["accuracy"]["mean"]
                style = style_of(method) | {"marker": ""}
                name = title_of(Cell(_SOURCE, labels, method))
                axes.plot([counts[0], counts[-1]], [mean, mean], label=name, **style)
        title = f"{labels} labels of 100"
        ticks = [10**power for power in range(7) if counts[0] <= 10**power <= counts[-1]]
        tidy(axes, title, "training episodes", "accuracy", ticks)
    add_legend(figure)
    return figure


def _table(rows: Rows, curve: _Curve, title: str, note: str) -> Table:
    cells = [(title_of(cell), f"{count:,}", cell) for count, cell in curve]
    references = [Cell(_SOURCE, _LABELS[0], method) for method in REFERENCES]
    cells += [(title_of(cell), "", cell) for cell in references]
    lines = [
        (
            name,
            count,
            *(accuracy_text(rows.get(cell._replace(labels=m))) for m in _LABELS),
        )
        for name, count, cell in cells
    ]
    header = ("method", "training episodes", *(f"{labels} labels" for labels in _LABELS))
    return Table(title, header, tuple(lines), (note, LEGEND))


ARTEFACT = Artefact(
    "sample-efficiency",
    "Accuracy against training episodes (beyond the paper)",
    "Nothing on surfaces: its curves against training data are of ImageNet100 (artefact "
    "imagenet).",
    specs,
    draw,
)
