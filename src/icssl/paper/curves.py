"""Curves as figures draw them: a method has the same colour and marker in all of them."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from icssl.baselines import BASELINES
from icssl.paper.artefact import Cell, Rows
from icssl.paper.runs import title_of

# Okabe and Ito's colours without the yellow, which is hard to see on paper. What works on
# eigenvectors is green, what works on coordinates pink; classical methods are dashed.
STYLES: dict[str, tuple[str, str]] = {
    "e2e_icl": ("#0072b2", "o"),
    "e2e_wide": ("#56b4e9", "s"),
    "e2e_encoder": ("#d55e00", "o"),
    "transformer": ("#e69f00", "s"),
    "eig_icl": ("#009e73", "^"),
    "eig_lr": ("#009e73", "v"),
    "orig_icl": ("#cc79a7", "D"),
    "orig_rbf_lr": ("#cc79a7", "P"),
    "svc_rbf": ("#000000", "x"),
    "label_spreading": ("#777777", "*"),
    "bayes_ceiling": ("#000000", ""),
}
TICKS = (3, 5, 10, 20, 21, 39, 40, 80)  # of those budgets that a panel has
IMPROVING = "still improving: no verdict"
Point = tuple[float, float, float]  # x, mean, half-width


def plot_curve(
    axes: Axes, points: Sequence[Point], improving: Sequence[bool], name: str, **style: Any
) -> None:
    """A curve with intervals; open markers where models were still improving."""
    if not points:
        return
    x, y, error = zip(*points, strict=True)
    size, colour = 3.5, style["color"]
    axes.errorbar(
        x, y, yerr=error, label=name, markersize=size, capsize=1.5, elinewidth=1, **style
    )
    still = [point[:2] for point, is_open in zip(points, improving, strict=True) if is_open]
    if still:
        axes.plot(
            *zip(*still, strict=True),
            linestyle="none",
            marker=style["marker"],
            markersize=size,
            color=colour,
            markerfacecolor="white",
            zorder=3,
        )


def style_of(method: str, again: bool = False) -> dict[str, Any]:
    """Colour, marker and line of a method; ``again`` of its second curve in a panel."""
    colour, marker = STYLES[method]
    line = ":" if method == "bayes_ceiling" else ("--" if method in BASELINES else "-")
    style = {"color": colour, "marker": marker, "linestyle": "-." if again else line}
    # Wider, for on most sources it lies under the curve of the encoder head.
    return {**style, "linewidth": 2.2 if method == "transformer" else 1.1}


def add_legend(figure: Figure, *, beside: bool = False, columns: int = 3) -> None:
    """Every name once, below the panels or beside the only one."""
    found: dict[str, Any] = {}
    improving = False
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        found |= dict(zip(names, handles, strict=True))
        improving |= any(line.get_markerfacecolor() == "white" for line in axes.lines)
    if not found:
        return
    if improving:
        found[IMPROVING] = Line2D(
            [], [], linestyle="none", marker="o", color="black", markerfacecolor="white"
        )
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside right upper" if beside else "outside lower center",
        ncols=1 if beside else columns,
        fontsize=7,
    )


def tidy(axes: Axes, title: str, xlabel: str, ylabel: str, ticks: Sequence[float]) -> None:
    """Letters that can be read in print, and a logarithmic axis with plain numbers."""
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.tick_params(labelsize=7)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(xlabel, fontsize=8)
    axes.set_ylabel(ylabel, fontsize=8)
    axes.grid(alpha=0.3)


def draw_curves(
    rows: Rows,
    panels: Sequence[tuple[str, Sequence[Cell]]],
    xlabel: str,
    *,
    one_scale: bool = False,
) -> Figure:
    """A panel a title, with a curve for each method, kernel and setting of its cells."""
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    alone = len(panels) == 1
    size = (6.8, 3.2) if alone else (2.75 * columns, 2.3 * lines + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=one_scale).flatten()
    for axes, (title, cells) in zip(grid, panels, strict=False):
        curves: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell in rows:
                curves.setdefault(title_of(cell), []).append(cell)
        drawn: set[str] = set()
        for name, own in curves.items():
            values = [rows[cell]["metrics"]["accuracy"] for cell in own]
            points = [
                (cell.labels, value["mean"], value["half_width"])
                for cell, value in zip(own, values, strict=True)
            ]
            improving = [bool(rows[cell].get("undertrained")) for cell in own]
            style = style_of(own[0].method, again=own[0].method in drawn)
            plot_curve(axes, points, improving, name, **style)
            drawn.add(own[0].method)
        labels = {cell.labels for cell in cells}
        tidy(axes, title, xlabel, "accuracy", [tick for tick in TICKS if tick in labels])
    for axes in grid[len(panels) :]:
        axes.axis("off")
    add_legend(figure, beside=alone, columns=columns)
    return figure
