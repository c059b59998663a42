"""Pictures of a fitted classifier. matplotlib is imported when one is drawn."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from icssl._util.colours import COLOURS, plane_coordinates
from icssl._util.errors import printable

if TYPE_CHECKING:
    from icssl.classifier.explanation import Explanation

_LONGEST_NAME = 30  # characters of a name in a picture
_MOST_NAMES = 16  # classes in a legend
_NOTE = "points far from all others are drawn nearer"


def draw_embedding(
    embedding: Float[ndarray, "n k"],
    codes: Int[ndarray, " n"],
    is_labelled: Bool[ndarray, " n"],
    classes: ndarray,
    ax: Any = None,
) -> Any:
    """Draw rows in two principal coordinates, coloured by class; labelled ones as stars."""
    ax, points = _axes(ax), plane_coordinates(embedding)
    colours = np.array([COLOURS[code % len(COLOURS)] for code in range(len(classes))])
    ax.scatter(*points[~is_labelled].T, c=colours[codes[~is_labelled]], s=14)
    _draw_stars(ax, points[is_labelled], colours[codes[is_labelled]])
    shown = [ax.scatter([], [], c=colour, s=14) for colour in colours[:_MOST_NAMES]]
    names = [printable(name, _LONGEST_NAME) for name in classes[: len(shown)]]
    legend = ax.legend(shown, ["name"] * len(shown), fontsize=8, loc="best")
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)  # a dollar sign starts no formula
        text.set_text(name)
    return _finish(ax, "Rows by class; stars have a label")


def draw_reach(
    embedding: Float[ndarray, "n k"],
    reach: Float[ndarray, " n"],
    is_labelled: Bool[ndarray, " n"],
    ax: Any = None,
) -> Any:
    """Draw rows as :func:`draw_embedding` does, coloured by their reach from 0 to 1."""
    ax, points = _axes(ax), plane_coordinates(embedding)
    order = np.argsort(-reach, kind="stable")  # rows out of reach on top
    drawn = ax.scatter(
        *points[order].T, c=reach[order], s=14, cmap="cividis", vmin=0, vmax=1
    )
    _draw_stars(ax, points[is_labelled], COLOURS[5])
    ax.figure.colorbar(drawn, ax=ax, label="reach: likeness to a labelled row")
    return _finish(ax, "Where labels reach; stars have a label")


def draw_evidence(explanation: "Explanation", row: int, most: int, ax: Any = None) -> Any:
    """Draw how much labelled rows speak for the likeliest class of a row, as bars."""
    ax = _axes(ax)
    evidence = explanation.evidence(row)
    order = np.argsort(-np.abs(evidence), kind="stable")[: max(1, most)][::-1]
    codes = explanation.labelled_classes[order]
    ax.barh(
        np.arange(len(order)),
        evidence[order],
        color=[COLOURS[code % len(COLOURS)] for code in codes],
    )
    names = [printable(explanation.classes[code], _LONGEST_NAME) for code in codes]
    rows = explanation.labelled_rows[order]
    ax.set_yticks(np.arange(len(order)))
    labels = [f"row {number}: {name}" for number, name in zip(rows, names, strict=True)]
    ax.set_yticklabels(labels, fontsize=8, parse_math=False)
    ax.axvline(0, color="grey", linewidth=1)
    ax.set_xlabel("speaks against (left) or for the class (right)")
    ax.set_title(explanation.sentence(row), fontsize=10, parse_math=False)
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6, 4.5), layout="constrained")[1]


def _draw_stars(ax: Any, points: ndarray, colours: Any) -> None:
    ax.scatter(*points.T, c=colours, s=130, marker="*", edgecolors="black")


def _finish(ax: Any, title: str) -> Any:
    ax.set(xticks=[], yticks=[], xlabel=_NOTE)
    ax.set_title(title, fontsize=10)
    return ax
