"""Pictures of episodes and of results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy import ndarray

from icssl._util.colours import COLOURS, principal_coordinates
from icssl._util.errors import printable
from icssl._util.files import replacing
from icssl.episodes.episode import Episode
from icssl.episodes.images import SIDE

LEGEND_NAME = 30  # characters of a name in a legend; more would leave no room to draw
PICTURES = (".png", ".svg", ".pdf", ".jpg")


def _colours_of(y: ndarray) -> ndarray:
    """Return one colour per point, that of its class; grey for class -1 (not known)."""
    palette = np.array([*COLOURS, "#999999"])
    return palette[np.where(y < 0, len(COLOURS), y % len(COLOURS))]


def scatter_points(axes: Any, points: ndarray, y: ndarray, labelled: ndarray) -> None:
    """Draw points in 2-D or 3-D in the colour of their class, labelled ones as stars."""
    colours = _colours_of(y)
    in_space = {"depthshade": False} if points.shape[1] == 3 else {}
    star = {"s": 130, "marker": "*", "edgecolors": "black"}
    axes.scatter(*points[~labelled].T, c=colours[~labelled], s=14, **in_space)
    axes.scatter(*points[labelled].T, c=colours[labelled], **star, **in_space)
    axes.set_xticks([])
    axes.set_yticks([])
    if in_space:
        axes.set_zticks([])


def _show_literally(text: Any, value: object) -> None:
    """Set a text of matplotlib to a name in which a dollar sign starts no formula."""
    text.set_parse_math(False)
    text.set_text(printable(value))


def add_legend(figure: Figure, drawn: Mapping[Any, Any], **options: Any) -> None:
    """Add a legend of the drawn objects by their names, whatever the names are.

    Matplotlib itself would leave out names that begin with an underscore.
    """
    legend = figure.legend([*drawn.values()], ["name"] * len(drawn), fontsize=8, **options)
    for text, name in zip(legend.get_texts(), drawn, strict=True):
        _show_literally(text, printable(name, LEGEND_NAME))


def draw_episode(episode: Episode, title: str, path: Path) -> None:
    """Draw the first episode of a batch.

    Images are drawn in a grid, points of up to three coordinates as they are, and other
    points by their two principal coordinates.
    """
    x, y, labelled = (t[0].cpu().numpy() for t in (episode.x, episode.y, episode.labelled))
    if x.shape[1] == SIDE * SIDE:
        figure = image_grid(x, y, labelled)
    else:
        figure = Figure(figsize=(5, 5), layout="constrained")
        if x.shape[1] > 3:
            x = principal_coordinates(x)
            title = f"{title}\n(two principal coordinates)"
        axes = figure.add_subplot(projection="3d" if x.shape[1] == 3 else None)
        if x.shape[1] == 1:
            x = np.column_stack([x, np.zeros(len(x))])
        scatter_points(axes, x, y, labelled)
        if x.shape[1] == 3:
            axes.set_aspect("equal")
    _show_literally(figure.suptitle("", fontsize=11), title)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=110)


def image_grid(x: ndarray, y: ndarray, labelled: ndarray) -> Figure:
    """Draw ten images per row, framed in the colour of their class.

    The frames of labelled images are wide.
    """
    rows = -(-len(x) // 10)
    figure = Figure(figsize=(8, 0.8 * rows + 0.5), layout="constrained")
    colours, top = _colours_of(y), max(x.max(), 1e-12)
    for i, axes in enumerate(figure.subplots(rows, 10).flat):
        axes.set_xticks([])
        axes.set_yticks([])
        if i >= len(x):
            axes.axis("off")
            continue
        axes.imshow(x[i].reshape(SIDE, SIDE), cmap="gray", vmin=0, vmax=top)
        for side in axes.spines.values():
            side.set(color=colours[i], linewidth=5 if labelled[i] else 1.2)
    return figure


def draw_label_curves(rows: Sequence[Mapping[str, Any]], metric: str, path: Path) -> None:
    """Draw a metric against the number of labels: one curve per method, 95% intervals.

    ``rows`` are those of ``icssl evaluate``. The share of the largest class is dotted.
    """
    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    names = list(dict.fromkeys(row["method"] for row in rows))
    markers = "osD^vP*X"
    drawn: dict[str, Any] = {}
    for i, name in enumerate(names):
        curve = [row for row in rows if row["method"] == name]
        values = [row["metrics"][metric] for row in curve]
        drawn[name] = axes.errorbar(
            [row["labels"] for row in curve],
            [value["mean"] for value in values],
            yerr=[value["half_width"] for value in values],
            color=COLOURS[i % len(COLOURS)],
            marker=markers[i % len(markers)],
            linestyle="-" if i < len(COLOURS) else "--",
            markersize=4,
            capsize=2,
        )
    if metric == "accuracy":
        first = [row for row in rows if row["method"] == names[0]]
        labels = [row["labels"] for row in first]
        rates = [row["majority_rate"] for row in first]
        (line,) = axes.plot(labels, rates, color="grey", linestyle=":")
        drawn["largest class"] = line
    axes.set_xticks(sorted({row["labels"] for row in rows}))
    axes.set_xlabel("labelled points per episode")
    axes.set_ylabel(metric.replace("_", " "))
    _show_literally(axes.set_title("", fontsize=11), rows[0]["source"])
    axes.grid(alpha=0.3)
    # Below the axes, so that it covers no curve.
    add_legend(figure, drawn, loc="outside lower center", ncols=3)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=130)
