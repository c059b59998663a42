"""What the tabs of the page show, as functions of the state."""

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from dash import html
from numpy import ndarray
from PIL import Image

from icssl.app.explore import figures
from icssl.app.explore.class_marks import class_name
from icssl.app.explore.clouds import (
    ALL_VIEWS_ROWS,
    DRAWING_NOTE,
    Answer,
    Cloud,
    Reason,
    drawn_coordinates,
    label_codes,
    predict_cloud,
    reasons,
)
from icssl.app.explore.figures import Figure
from icssl.app.explore.layers import MOST_SHOWN, Layer, LayerTrace, trace_layers
from icssl.app.explore.layout import table
from icssl.app.explore.state import RIVALS, TABS, TRUE_CLASS, WEIGHTS, State, cloud_of

_Contents = dict[str, Any]

# For every view, its contents by name, and the element and property where they go.
OUTPUTS: dict[str, dict[str, tuple[str, str]]] = {
    "frame": {
        "theme": ("page", "className"),
        "brushes": ("brush", "options"),
        "controls": ("cloud-controls", "hidden"),
        **{tab: (f"panel-{tab}", "hidden") for tab in TABS},
    },
    "play": {
        "cloud": ("play_cloud", "figure"),
        "rival": ("rival-cloud", "figure"),
        "title": ("rival-title", "children"),
        "note": ("play-note", "children"),
        "scores": ("play-scores", "children"),
    },
    "inside": {
        "cloud": ("inside_cloud", "figure"),
        "angles": ("inside-angles", "figure"),
        "title": ("inside-title", "children"),
        "note": ("inside-note", "children"),
        "last": ("layer", "max"),
        "marks": ("layer", "marks"),
    },
    "why": {
        "cloud": ("why_cloud", "figure"),
        "bars": ("why-bars", "figure"),
        "title": ("why-title", "children"),
        "note": ("why-note", "children"),
        "table": ("why-table", "children"),
    },
}


def frame(state: State) -> _Contents:
    """Return the frame of the page: theme, tabs, and the classes that a click can give."""
    names = cloud_of(state).classes
    true_class = {"label": "the true one", "value": TRUE_CLASS}
    others = [
        {"label": class_name(code, names), "value": code}
        for code in range(max(state.classes, len(names)))
    ]
    return {
        "theme": f"page theme-{state.theme}",
        "brushes": [true_class, *others],
        "controls": state.tab == "data",
        **{tab: tab != state.tab for tab in TABS},
    }


def play(state: State) -> _Contents | None:
    """Return the cloud as the classifier and another method predict it, and scores."""
    if state.tab != "play":
        return None
    cloud, points = cloud_of(state), drawn_coordinates(cloud_of(state))
    answer = predict_cloud(cloud, state.labels)
    options = _figure_options(state, points)
    if answer is None:
        labels = label_codes(state.labels, len(cloud.y))
        both = figures.cloud_figure(points, np.full(len(points), -1), labels, **options)
        note = "Label points of at least two classes: then the others are predicted."
        empty = {"title": figures.rival_title(state.rival), "scores": ""}
        return {"cloud": both, "rival": both, "note": note, **empty}
    codes = figures.rival_codes(answer, state.rival, cloud.y)
    return {
        "cloud": _play_figure(state, cloud, answer, points),
        "rival": figures.cloud_figure(
            points, codes, answer.labels, cloud.classes, **options
        ),
        "title": figures.rival_title(state.rival),
        "note": [_about_point(state, cloud, answer), *_limits(cloud)],
        "scores": _scores(cloud, answer),
    }


def inside(state: State) -> _Contents | None:
    """Return one layer of the paper's model, and the angles of all layers."""
    if state.tab != "inside":
        return None
    cloud = cloud_of(state)
    try:
        traced = {w: trace_layers(w, cloud, state.labels) for w in WEIGHTS}
    except ValueError as error:
        empty = {
            "cloud": figures.EMPTY,
            "angles": figures.EMPTY,
            "title": "",
            "note": str(error),
        }
        return {**empty, "last": 1, "marks": {}}
    trace = traced[state.weights]
    layer = trace.layers[min(state.layer, len(trace.layers) - 1)]
    number = layer.number if layer.stage == "eigenmap" else None
    return {
        "cloud": _layer_figure(state, cloud, trace, layer),
        "angles": figures.angle_figure(traced, number),
        "title": f"{layer.stage.capitalize()}: {layer.name}",
        "note": _about_layer(state, cloud, trace, layer),
        "last": len(trace.layers) - 1,
        "marks": _stage_marks(trace.layers),
    }


def why(state: State) -> _Contents | None:
    """Return what each labelled point adds to the logits of the selected point."""
    if state.tab != "why":
        return None
    cloud, points = cloud_of(state), drawn_coordinates(cloud_of(state))
    answer = predict_cloud(cloud, state.labels)
    if answer is None:
        text = "Label points of at least two classes on the page Play."
        empty = {"cloud": figures.EMPTY, "bars": figures.EMPTY, "title": "", "table": ""}
        return {**empty, "note": text}
    point = _point(state, cloud)
    by_class = reasons(answer, point)
    likeliest = by_class[0]
    name = class_name(likeliest.code, cloud.classes)
    options = _figure_options(state, points)
    return {
        "cloud": figures.reason_cloud(points, likeliest, answer.labels, **options),
        "bars": figures.reason_figure(likeliest, answer.labels, cloud.classes),
        "title": f"Logit of {name!r} at point {point}",
        "note": [
            _about_reason(point, likeliest, name, answer),
            *_picture(cloud, point),
            *_limits(cloud),
        ],
        "table": _reason_table(cloud, answer, by_class),
    }


VIEWS = {"frame": frame, "play": play, "inside": inside, "why": why}


def _point(state: State, cloud: Cloud) -> int:
    return min(state.point, len(cloud.y) - 1)


def _figure_options(state: State, points: ndarray) -> dict[str, Any]:
    """Return what all pictures of a cloud share; a new cloud resets the camera."""
    key = f"{state.source} {state.n} {state.noise} {state.seed}"
    return {"selected": min(state.point, len(points) - 1), "revision": key}


def _play_figure(state: State, cloud: Cloud, answer: Answer, points: ndarray) -> Figure:
    options = _figure_options(state, points)
    if state.colouring == "class":
        return figures.cloud_figure(
            points, answer.predicted, answer.labels, cloud.classes, **options
        )
    values = answer.reach if state.colouring == "reach" else answer.probability
    return figures.value_figure(
        points,
        values,
        answer.labels,
        cloud.classes,
        title=state.colouring,
        top=1.0,
        **options,
    )


def _about_point(state: State, cloud: Cloud, answer: Answer) -> Any:
    point = _point(state, cloud)
    name = class_name(int(answer.predicted[point]), cloud.classes)
    verb = "has the label" if answer.labels[point] >= 0 else "is predicted"
    truth = class_name(int(cloud.y[point]), cloud.classes)
    text = (
        f"Point {point} {verb} {name!r}, probability {answer.probability[point]:.3f}, "
        f"reach {answer.reach[point]:.3f}; in truth {truth!r}."
    )
    return html.P([text, *_picture(cloud, point)])


def _limits(cloud: Cloud) -> list[Any]:
    """Return notes on what the page does differently from what one may expect."""
    notes = _how_drawn(cloud)
    if len(cloud.y) > ALL_VIEWS_ROWS:
        notes.append(
            f"Above {ALL_VIEWS_ROWS} points the page reads the cloud in one view instead "
            "of five, so that it answers a click soon."
        )
    if len(cloud.y) < cloud.key[1]:
        notes.append(f"The table has {len(cloud.y):,} rows: all are shown.")
    return _small(notes)


def _how_drawn(cloud: Cloud) -> list[str]:
    columns = cloud.x.shape[1]
    return [f"{columns:,} columns: {DRAWING_NOTE}"] if columns > 3 else []


def _small(notes: Sequence[str]) -> list[Any]:
    return [html.P(note, className="small") for note in notes]


def _scores(cloud: Cloud, answer: Answer) -> Any:
    methods = {"ICSSL": answer.predicted}
    methods |= {RIVALS[name]: codes for name, codes in answer.rivals.items()}
    right = [f"{answer.accuracy(codes, cloud.y):.3f}" for codes in methods.values()]
    labels, others = len(answer.labelled_points), int((answer.labels < 0).sum())
    caption = f"Accuracy on {others:,} points without a label, from {labels} labels"
    return table(list(methods), [right], caption)


def _layer_figure(state: State, cloud: Cloud, trace: LayerTrace, layer: Layer) -> Figure:
    points = drawn_coordinates(cloud)[trace.points]
    labels = label_codes(state.labels, len(cloud.y))[trace.points]
    point = _position(state, trace)
    revision = f"{layer.stage} {_figure_options(state, points)['revision']}"
    options: dict[str, Any] = {"selected": point, "revision": revision}
    if layer.stage == "walks":
        figure = figures.value_figure(
            points, layer.value[point], labels, cloud.classes, title="attention", **options
        )
    elif layer.stage == "eigenmap":
        codes = cloud.y[trace.points]
        features = figures.feature_points(layer)
        options["revision"] = f"{layer.name} {options['revision']}"
        figure = figures.cloud_figure(features, codes, labels, cloud.classes, **options)
        figure["layout"]["yaxis"].pop("scaleanchor")  # features have different units
    else:
        codes = trace.classes[layer.value.argmax(axis=1)]
        figure = figures.cloud_figure(points, codes, labels, cloud.classes, **options)
    for series in figure["data"]:  # clicks tell numbers of the whole cloud
        series["customdata"] = [int(trace.points[row]) for row in series["customdata"]]
    return figure


def _position(state: State, trace: LayerTrace) -> int:
    """Return the position of the selected point, or of the nearest number, in the trace."""
    return int(np.abs(trace.points - state.point).argmin())


def _about_layer(state: State, cloud: Cloud, trace: LayerTrace, layer: Layer) -> list[Any]:
    position = _position(state, trace)
    point = int(trace.points[position])
    if layer.stage == "walks":
        most = np.argsort(-layer.value[position], kind="stable")[:5]
        listed = ", ".join(
            f"{trace.points[i]} ({layer.value[position, i]:.3f})" for i in most
        )
        text = f"Point {point} attends most to {listed}, averaged over heads."
    elif layer.stage == "eigenmap":
        place = trace.eigenmap_layers.index(layer)
        text = (
            "The picture shows two of the four features that every point has by now, in "
            "the colours of the true classes. The largest angle is "
            f"{trace.to_truth[place]:.2f} rad to true eigenvectors, and "
            f"{trace.to_operator[place]:.2f} rad to those of the model's own operator; a "
            "right angle is 1.57."
        )
    else:
        codes = trace.classes[layer.value.argmax(axis=1)]
        others = label_codes(state.labels, len(cloud.y))[trace.points] < 0
        right = float((codes == cloud.y[trace.points])[others].mean())
        logits = ", ".join(
            f"{class_name(int(code), cloud.classes)} {value:+.2f}"
            for code, value in zip(trace.classes, layer.value[position], strict=True)
        )
        text = (
            f"Logits of point {point}: {logits}. Accuracy so far, on the points without a "
            f"label: {right:.3f}."
        )
    notes = [] if layer.stage == "eigenmap" else _how_drawn(cloud)
    if len(trace.points) < len(cloud.y):
        notes.append(f"The model reads {MOST_SHOWN} of the points.")
    return [html.P(text), *_small(notes)]


def _stage_marks(layers: Sequence[Layer]) -> dict[str, str]:
    """Return the name of each stage at its middle on the slider, where it has room."""
    places: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        places.setdefault(layer.stage, []).append(place)
    return {str(stops[len(stops) // 2]): stage for stage, stops in places.items()}


def _about_reason(point: int, reason: Reason, name: str, answer: Answer) -> Any:
    total = f"{sum(reason.parts):+.3f} from {len(reason.parts)} labelled points"
    text = (
        f"Point {point}: {total} and the base of {reason.base:+.3f} make the logit "
        f"{reason.logit:+.3f} of {name!r}, probability {reason.probability:.3f}."
    )
    if answer.labels[point] >= 0:
        text += " The point is labelled itself, and keeps its label in any case."
    return html.P(text)


def _reason_table(cloud: Cloud, answer: Answer, by_class: Sequence[Reason]) -> Any:
    names = [class_name(reason.code, cloud.classes) for reason in by_class]
    rows = [
        (
            f"point {row} ({class_name(int(answer.labels[row]), cloud.classes)})",
            *(f"{reason.parts[i]:+.4f}" for reason in by_class),
        )
        for i, row in enumerate(by_class[0].labelled)
    ]
    ends = {"base": "base", "logit (their sum)": "logit"}
    for title, name in ends.items():
        rows.append((title, *(f"{getattr(reason, name):+.4f}" for reason in by_class)))
    rows.append(("probability", *(f"{reason.probability:.4f}" for reason in by_class)))
    return table(("labelled point", *names), rows, "All contributions to every class")


def _picture(cloud: Cloud, point: int) -> list[Any]:
    """Return the picture of a point, where it has one."""
    if cloud.pictures is None:
        return []
    pixels = (255 * cloud.pictures[point].clip(0, 1)).astype(np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).resize((64, 64), Image.Resampling.NEAREST).save(buffer, "png")
    encoded = base64.b64encode(buffer.getvalue()).decode()
    source = f"data:image/png;base64,{encoded}"
    return [html.Img(src=source, alt=f"picture of point {point}", className="picture")]
