"""Figures of the page, as plain values that plotly draws.

Colour-blind people can tell the colours apart, and every class has a symbol too. Only what
is inside a 3-D scene has its own colour: the style sheet colours the rest by the theme.
"""

import zlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl.app.explore.class_marks import (
    PLOT_COLOURS,
    SYMBOLS,
    UNKNOWN,
    colour_of,
    literal_name,
    symbol_of,
)
from icssl.app.explore.clouds import Answer, Reason
from icssl.app.explore.layers import Layer, LayerTrace
from icssl.app.explore.state import RIVALS

Figure = dict[str, Any]

_COLOUR_MAP = "Cividis"  # from dark to bright, for the colour-blind too
_GREY = "#808080"  # inside a scene: readable on white and on black
_LINE = {"width": 1, "color": _GREY}
_MANY = 1_000  # points; more are drawn small and without an outline, or a click takes long
_NAME_SIZE = np.array([0.15, 0.06, 0.06])  # of a written name, as a share of the picture

# The figure that is shown where there is nothing to draw.
EMPTY: Figure = {
    "data": [],
    "layout": {
        "xaxis": {"visible": False},
        "yaxis": {"visible": False},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    },
}


def cloud_figure(
    points: Float[ndarray, "n axes"],
    codes: Int[ndarray, " n"],
    labels: Int[ndarray, " n"],
    names: Sequence[str] = (),
    *,
    selected: int | None = None,
    revision: str = "",
    word: str = "point",
) -> Figure:
    """Draw points by class; labelled ones are large, with the name of their class.

    ``word`` is what a point is called under the mouse.
    """
    shown = np.where(labels >= 0, labels, codes)
    plain = np.unique(shown[labels < 0]).tolist()
    traces = [
        _points(
            points,
            np.flatnonzero((shown == code) & (labels < 0)),
            name=literal_name(int(code), names),
            marker={**_plain_marker(len(points)), "color": colour_of(int(code))},
            symbol=symbol_of(int(code)),
            word=word,
        )
        for code in plain
    ]
    traces += _label_traces(points, labels, names, plain, word)
    return _figure(points, traces, selected, revision)


def value_figure(
    points: Float[ndarray, "n axes"],
    values: Float[ndarray, " n"],
    labels: Int[ndarray, " n"],
    names: Sequence[str] = (),
    *,
    title: str,
    top: float | None = None,
    selected: int | None = None,
    revision: str = "",
) -> Figure:
    """Draw points coloured by a number from 0 to ``top``, with a colour bar."""
    marker = {
        **_plain_marker(len(points)),
        "color": _short(values),
        "colorscale": _COLOUR_MAP,
        "cmin": 0,
        "cmax": float(values.max()) if top is None else top,
        "colorbar": {"title": {"text": title}, "thickness": 12, "len": 0.8},
    }
    trace = _points(points, np.arange(len(points)), title, marker, "circle")
    texts = [f"point {i}: {title} {value:.3g}" for i, value in enumerate(values)]
    trace["hovertext"] = texts
    trace["showlegend"] = False
    return _figure(
        points, [trace, *_label_traces(points, labels, names)], selected, revision
    )


def _plain_marker(points: int) -> dict[str, Any]:
    """Return how a point without a label is drawn, among so many points."""
    return {"size": 7, "line": _LINE} if points <= _MANY else {"size": 5}


def _label_traces(
    points: ndarray,
    labels: ndarray,
    names: Sequence[str],
    in_legend: Collection[int] = (),
    word: str = "point",
) -> list[dict[str, Any]]:
    """Draw labelled points large and outlined, one of each class with its name.

    The legend gets the classes that it lacks: those that no other point has.
    """
    traces, rows_to_name = [], _rows_to_name(points, labels)
    for code in np.unique(labels[labels >= 0]):
        name = literal_name(int(code), names)
        rows = np.flatnonzero(labels == code)
        marker = {"size": 14, "color": colour_of(int(code))}
        marker["line"] = {"width": 2, "color": _GREY}
        symbol, spoken = symbol_of(int(code)), f"{name}, labelled"
        trace = _points(points, rows, spoken, marker, symbol, word)
        is_new = int(code) not in in_legend
        trace |= {"showlegend": is_new, "name": name if is_new else spoken}
        if rows_to_name & set(rows.tolist()):
            words = [name if row in rows_to_name else "" for row in rows.tolist()]
            trace = _with_words(trace, words)
        traces.append(trace)
    return traces


def _rows_to_name(points: Float[ndarray, "n axes"], labels: Int[ndarray, " n"]) -> set[int]:
    """Return one labelled point of each class, where names do not lie on each other."""
    places = points / (np.ptp(points, axis=0).max() or 1.0) / _NAME_SIZE[: points.shape[1]]
    named: list[int] = []
    for code in np.unique(labels[labels >= 0]):
        rows = np.flatnonzero(labels == code)
        between = np.abs(places[rows][:, None] - places[named])
        apart = between.max(axis=2, initial=0).min(axis=1, initial=np.inf)
        best = int(apart.argmax())
        if apart[best] >= 1:
            named.append(int(rows[best]))
    return set(named)


def _with_words(trace: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the trace with words above its points, one text for each.

    They are plain texts: words in a template could contain a template themselves.
    """
    bold = [f"<b>{text}</b>" if text else "" for text in words]
    return {**trace, "mode": "markers+text", "text": bold, "textposition": "top center"}


def _points(
    points: ndarray,
    rows: ndarray,
    name: str,
    marker: dict[str, Any],
    symbol: str,
    word: str = "point",
) -> dict[str, Any]:
    """Return a trace of some points; a click tells the point by ``customdata``.

    Not drawn by WebGL, for which plotly compiles code, and the page lets none be compiled.
    """
    solid = points.shape[1] == 3
    size = marker["size"] * (0.5 if solid else 1)  # points in a scene look larger
    trace = {
        "type": "scatter3d" if solid else "scatter",
        "mode": "markers",
        "name": name,
        "customdata": rows.tolist(),
        "hovertext": [f"{word} {row}: {name}" for row in rows],
        "hoverinfo": "text",
        "marker": {**marker, "size": size, "symbol": symbol},
    }
    if points.shape[1] == 1:
        points = np.column_stack([points, 0 * points])
    for axis, values in zip("xyz", points[rows].T, strict=False):
        trace[axis] = _short(values)
    return trace


def _figure(
    points: ndarray, traces: list[dict[str, Any]], selected: int | None, revision: str
) -> Figure:
    if selected is not None and selected < len(points):
        ring = {"size": 20, "color": "rgba(0,0,0,0)"}
        ring["line"] = {"width": 3, "color": "#d55e00"}
        trace = _points(points, np.array([selected]), "selected", ring, "circle")
        if points.shape[1] == 3:  # a scene draws no ring around nothing
            trace["marker"] |= {"symbol": "circle-open", "color": "#d55e00", "size": 16}
        traces = [*traces, {**trace, "hoverinfo": "skip", "showlegend": False}]
    layout = _layout(revision)
    if points.shape[1] == 3:
        layout["scene"] = {**_scene(points), "uirevision": revision}
    else:
        layout |= {"xaxis": _axis(), "yaxis": _axis()}
        if points.shape[1] == 2:
            layout["yaxis"] |= {"scaleanchor": "x"}
    # Without ids plotly takes a trace for the one that stood at its place before, and
    # words of another table stay away. They become names of elements: letters and digits.
    for number, trace in enumerate(traces):
        identity = f"{revision} {number} {trace['name']}"
        trace["uid"] = f"t{zlib.crc32(identity.encode()):08x}"
    return {"data": traces, "layout": layout}


def _scene(points: Float[ndarray, "n 3"]) -> dict[str, Any]:
    """Return axes of equal scale that end where the points do."""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.05 * float((high - low).max()) or 1.0
    scene: dict[str, Any] = {}
    for axis, first, last in zip("xyz", low - margin, high + margin, strict=True):
        scene[f"{axis}axis"] = {
            "range": [float(first), float(last)],
            "autorange": False,
            "showticklabels": False,
            "title": {"text": ""},
            "gridcolor": _GREY,
            "zeroline": False,
            "showbackground": False,
            "showspikes": False,
        }
    return {**scene, "aspectmode": "data", "camera": {"eye": {"x": 1, "y": -1, "z": 0.8}}}


def angle_figure(traced: dict[str, LayerTrace], number: int | None) -> Figure:
    """Draw angles to eigenvectors against layers, for both sets of weights."""
    traces = []
    for i, (weights, trace) in enumerate(traced.items()):
        layers = [layer.number for layer in trace.eigenmap_layers]
        kinds = {"true graph": trace.to_truth, "own operator": trace.to_operator}
        for kind, angles in kinds.items():
            dash = "solid" if kind == "true graph" else "dot"
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{weights}, {kind}",
                    "x": layers,
                    "y": _short(angles),
                    "line": {"color": PLOT_COLOURS[i], "dash": dash, "width": 2},
                    "marker": {"symbol": SYMBOLS[i], "size": 6},
                }
            )
    layout = _layout("angles")
    layout["xaxis"] = {**_axis("layer of stage 2, counting each loop"), "type": "log"}
    layout["yaxis"] = {**_axis("largest angle (rad)"), "range": [0, 1.62]}
    layout["legend"] = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    layout["xaxis"] |= {"showticklabels": True, "dtick": 1}
    layout["yaxis"] |= {"showticklabels": True}
    if number is not None:
        line = {"color": "#d55e00", "width": 2, "dash": "dash"}
        layout["shapes"] = [
            {
                "type": "line",
                "x0": number,
                "x1": number,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": line,
            }
        ]
    return {"data": traces, "layout": layout}


def feature_points(layer: Layer) -> Float[ndarray, "n 2"]:
    """Return the two features of a layer that vary most."""
    spread = layer.value.std(axis=0)
    widest = np.sort(np.argsort(-spread, kind="stable")[:2])
    return layer.value[:, widest]


def reason_figure(reason: Reason, labels: ndarray, names: Sequence[str] = ()) -> Figure:
    """Draw what each labelled point adds to a logit, the most at the top, and the base."""
    order = np.argsort(np.abs(reason.parts))[-20:]
    rows = [reason.labelled[i] for i in order]
    values = [reason.parts[i] for i in order]
    texts = [
        f"point {row} ({literal_name(int(labels[row]), names)}) {value:+.3f}"
        for row, value in zip(rows, values, strict=True)
    ]
    colours = [colour_of(int(labels[row])) for row in rows]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": _short(np.array([reason.base, *values])),
        "y": [f"base {reason.base:+.3f}", *texts],
        "customdata": [-1, *rows],
        "hoverinfo": "y",
        "marker": {"color": [UNKNOWN, *colours], "line": _LINE},
    }
    layout = _layout("reasons")
    layout["xaxis"] = {**_axis("added to the logit"), "showticklabels": True}
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": _GREY}
    layout["yaxis"] = {"automargin": True, "type": "category", "fixedrange": True}
    layout["margin"]["l"] = 8
    layout["showlegend"] = False
    return {"data": [trace], "layout": layout}


def reason_cloud(
    points: Float[ndarray, "n axes"],
    reason: Reason,
    labels: Int[ndarray, " n"],
    *,
    selected: int,
    revision: str,
) -> Figure:
    """Draw labelled points as large as what they add to the selected point's logit."""
    unlabelled = np.flatnonzero(labels < 0)
    faint = {"size": 5, "color": UNKNOWN, "opacity": 0.5}
    others = _points(points, unlabelled, "no label", faint, "circle")
    traces = [{**others, "showlegend": False}]
    largest = max(map(abs, reason.parts)) or 1.0
    for row, part in zip(reason.labelled, reason.parts, strict=True):
        code = int(labels[row])
        marker = {"size": 8 + 20 * abs(part) / largest, "color": colour_of(code)}
        marker["line"] = {"width": 2, "color": _GREY}
        trace = _points(points, np.array([row]), "labelled", marker, symbol_of(code))
        trace["showlegend"] = False
        traces.append(_with_words(trace, [f"{part:+.2f}"]))
    return _figure(points, traces, selected, revision)


def rival_codes(answer: Answer, rival: str, truth: ndarray) -> Int[ndarray, " n"]:
    """Return what another method predicts, or the truth."""
    return answer.rivals.get(rival, truth)


def rival_title(rival: str) -> str:
    """Return the name of another method, as a title."""
    name = RIVALS[rival]
    return name[0].upper() + name[1:]


def _layout(revision: str) -> dict[str, Any]:
    clear = "rgba(0,0,0,0)"
    return {
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "uirevision": revision,  # a turned scene stays turned
        "hovermode": "closest",
        "clickmode": "event",
        "font": {"color": _GREY, "size": 13},
        # Not in the colour of the class, on some of which no words can be read.
        "hoverlabel": {"bgcolor": "#2b2f36", "bordercolor": _GREY},
        "legend": {
            "orientation": "h",
            "y": -0.02,
            "yanchor": "top",
            "itemsizing": "constant",
        },
    }


def _axis(title: str = "") -> dict[str, Any]:
    return {
        "title": {"text": title},
        "showticklabels": bool(title),
        "gridcolor": "rgba(128,128,128,0.3)",
        "zeroline": False,
        "automargin": True,
    }


def _short(values: ndarray) -> list[float]:
    """Return numbers with few digits: less to send makes the page faster."""
    return [float(f"{value:.4g}") for value in np.asarray(values, dtype=float)]
