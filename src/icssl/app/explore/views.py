"""What the page shows, as functions of the state."""

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from dash import html
from numpy import ndarray
from PIL import Image

from icssl.app.explore import figures
from icssl.app.explore.events import cloud_of
from icssl.app.explore.figures import Figure, class_name
from icssl.app.explore.inside import MOST_SHOWN, Layer, Opened, open_model
from icssl.app.explore.layout import table
from icssl.app.explore.play import (
    ALL_VIEWS_ROWS,
    DRAWN,
    Answer,
    Reason,
    answer,
    codes_of,
    flat_or_solid,
    reasons,
)
from icssl.app.explore.sources import Cloud
from icssl.app.explore.state import RIVALS, TABS, TRUE_CLASS, State

Shown = dict[str, Any]

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
"""Of every view: what it gives, and where on the page that goes."""


def frame(state: State) -> Shown:
    """The page around: theme, tabs, and the classes that a click can give."""
    names = cloud_of(state).classes
    true = {"label": "the true one", "value": TRUE_CLASS}
    others = [
        {"label": class_name(code, names), "value": code}
        for code in range(max(state.classes, len(names)))
    ]
    return {
        "theme": f"page theme-{state.theme}",
        "brushes": [true, *others],
        "controls": state.tab == "data",
        **{tab: tab != state.tab for tab in TABS},
    }


def play(state: State) -> Shown | None:
    """The cloud as the classifier sees it, a rival beside it, and their scores."""
    if state.tab != "play":
        return None
    cloud, points = cloud_of(state), flat_or_solid(cloud_of(state))
    found = answer(cloud, state.labels)
    about = _drawing(state, points)
    if found is None:
        given = codes_of(state.labels, len(cloud.y))
        both = figures.cloud_figure(points, np.full(len(points), -1), given, **about)
        note = "Label points of two classes at least: then the others are predicted."
        nothing = {"title": figures.rival_title(state.rival), "scores": ""}
        return {"cloud": both, "rival": both, "note": note, **nothing}
    beside = figures.rival_codes(found, state.rival, cloud.y)
    return {
        "cloud": _coloured(state, cloud, found, points),
        "rival": figures.cloud_figure(points, beside, found.given, cloud.classes, **about),
        "title": figures.rival_title(state.rival),
        "note": [_about_point(state, cloud, found), *_limits(cloud)],
        "scores": _scores(cloud, found),
    }


def inside(state: State) -> Shown | None:
    """One layer of the paper's model, and the angles of all layers."""
    if state.tab != "inside":
        return None
    cloud = cloud_of(state)
    try:
        opened = {w: open_model(w, cloud, state.labels) for w in ("trained", "constructed")}
    except ValueError as error:
        empty = {
            "cloud": figures.EMPTY,
            "angles": figures.EMPTY,
            "title": "",
            "note": str(error),
        }
        return {**empty, "last": 1, "marks": {}}
    here = opened[state.weights]
    layer = here.layers[min(state.layer, len(here.layers) - 1)]
    number = layer.number if layer.stage == "eigenmap" else None
    return {
        "cloud": _layer_figure(state, cloud, here, layer),
        "angles": figures.angle_figure(opened, number),
        "title": f"{layer.stage.capitalize()}: {layer.name}",
        "note": _about_layer(state, cloud, here, layer),
        "last": len(here.layers) - 1,
        "marks": _stage_marks(here.layers),
    }


def why(state: State) -> Shown | None:
    """What each labelled point adds to the logits of the selected point."""
    if state.tab != "why":
        return None
    cloud, points = cloud_of(state), flat_or_solid(cloud_of(state))
    found = answer(cloud, state.labels)
    if found is None:
        text = "Label points of two classes at least, on the page Play."
        empty = {"cloud": figures.EMPTY, "bars": figures.EMPTY, "title": "", "table": ""}
        return {**empty, "note": text}
    point = _point(state, cloud)
    each = reasons(found, point)
    name = class_name(each[0].code, cloud.classes)
    about = _drawing(state, points)
    return {
        "cloud": figures.reason_cloud(points, each[0], found.given, **about),
        "bars": figures.reason_figure(each[0], found.given, cloud.classes),
        "title": f"Logit of {name!r} at point {point}",
        "note": [
            _about_reason(point, each[0], name, found),
            *_picture(cloud, point),
            *_limits(cloud),
        ],
        "table": _reason_table(cloud, found, each),
    }


def _point(state: State, cloud: Cloud) -> int:
    return min(state.point, len(cloud.y) - 1)


def _drawing(state: State, points: ndarray) -> dict[str, Any]:
    """What all pictures of a cloud share; a new cloud is a new view of it."""
    key = f"{state.source} {state.n} {state.noise} {state.seed}"
    return {"selected": min(state.point, len(points) - 1), "revision": key}


def _coloured(state: State, cloud: Cloud, found: Answer, points: ndarray) -> Figure:
    about = _drawing(state, points)
    if state.colouring == "class":
        return figures.cloud_figure(
            points, found.predicted, found.given, cloud.classes, **about
        )
    values = found.reach if state.colouring == "reach" else found.probability
    return figures.value_figure(
        points,
        values,
        found.given,
        cloud.classes,
        title=state.colouring,
        top=1.0,
        **about,
    )


def _about_point(state: State, cloud: Cloud, found: Answer) -> Any:
    point = _point(state, cloud)
    name = class_name(int(found.predicted[point]), cloud.classes)
    verb = "has the label" if found.given[point] >= 0 else "is predicted"
    truth = class_name(int(cloud.y[point]), cloud.classes)
    text = (
        f"Point {point} {verb} {name!r}, probability {found.probability[point]:.3f}, reach "
        f"{found.reach[point]:.3f}; in truth {truth!r}."
    )
    return html.P([text, *_picture(cloud, point)])


def _limits(cloud: Cloud) -> list[Any]:
    """What the page does otherwise than a person may think."""
    notes = _how_drawn(cloud)
    if len(cloud.y) > ALL_VIEWS_ROWS:
        notes.append(
            f"Above {ALL_VIEWS_ROWS} points the page reads the cloud in one view instead "
            "of five, so that a click is answered soon."
        )
    if len(cloud.y) < cloud.key[1]:
        notes.append(f"The table has {len(cloud.y):,} rows: all are shown.")
    return _small(notes)


def _how_drawn(cloud: Cloud) -> list[str]:
    columns = cloud.x.shape[1]
    return [f"{columns:,} columns: {DRAWN}"] if columns > 3 else []


def _small(notes: Sequence[str]) -> list[Any]:
    return [html.P(note, className="small") for note in notes]


def _scores(cloud: Cloud, found: Answer) -> Any:
    each = {"ICSSL": found.predicted}
    each |= {RIVALS[name]: codes for name, codes in found.rivals.items()}
    rows = [(name, f"{found.accuracy(codes, cloud.y):.3f}") for name, codes in each.items()]
    labels, others = len(found.labelled), int((found.given < 0).sum())
    caption = f"Share right of {others:,} points without a label, from {labels} labels"
    return table(("method", "accuracy"), rows, caption)


def _layer_figure(state: State, cloud: Cloud, here: Opened, layer: Layer) -> Figure:
    points = flat_or_solid(cloud)[here.shown]
    given = codes_of(state.labels, len(cloud.y))[here.shown]
    point = _seat(state, here)
    revision = f"{layer.stage} {_drawing(state, points)['revision']}"
    about: dict[str, Any] = {"selected": point, "revision": revision}
    if layer.stage == "walks":
        made = figures.value_figure(
            points, layer.value[point], given, cloud.classes, title="attention", **about
        )
    elif layer.stage == "eigenmap":
        codes = cloud.y[here.shown]
        features = figures.feature_points(layer)
        about["revision"] = f"{layer.name} {about['revision']}"
        made = figures.cloud_figure(features, codes, given, cloud.classes, **about)
        made["layout"]["yaxis"].pop("scaleanchor")  # features have scales of their own
    else:
        codes = here.classes[layer.value.argmax(axis=1)]
        made = figures.cloud_figure(points, codes, given, cloud.classes, **about)
    return _numbered(made, here.shown)


def _numbered(figure: Figure, shown: ndarray) -> Figure:
    """With the numbers that points have in the whole cloud."""
    for trace in figure["data"]:
        trace["customdata"] = [int(shown[row]) for row in trace["customdata"]]
    return figure


def _seat(state: State, here: Opened) -> int:
    """The place among the shown points of the selected one, or of the nearest number."""
    return int(np.abs(here.shown - state.point).argmin())


def _about_layer(state: State, cloud: Cloud, here: Opened, layer: Layer) -> list[Any]:
    seat = _seat(state, here)
    point = int(here.shown[seat])
    if layer.stage == "walks":
        most = np.argsort(-layer.value[seat], kind="stable")[:5]
        listed = ", ".join(f"{here.shown[i]} ({layer.value[seat, i]:.3f})" for i in most)
        text = f"Point {point} attends most to {listed}; the mean over heads."
    elif layer.stage == "eigenmap":
        place = here.eigenmap_layers.index(layer)
        text = (
            "Two of the four features that every point has by now, in the colours of the "
            f"true classes. Largest angle to true eigenvectors {here.to_truth[place]:.2f} "
            f"rad, to those of the model's own operator {here.to_operator[place]:.2f} rad; "
            "a right angle is 1.57."
        )
    else:
        codes = here.classes[layer.value.argmax(axis=1)]
        others = codes_of(state.labels, len(cloud.y))[here.shown] < 0
        right = float((codes == cloud.y[here.shown])[others].mean())
        logits = ", ".join(
            f"{class_name(int(code), cloud.classes)} {value:+.2f}"
            for code, value in zip(here.classes, layer.value[seat], strict=True)
        )
        text = (
            f"Logits of point {point}: {logits}. Right so far: {right:.3f} of the points."
        )
    notes = [] if layer.stage == "eigenmap" else _how_drawn(cloud)
    if len(here.shown) < len(cloud.y):
        notes.append(f"{MOST_SHOWN} of the points take part.")
    return [html.P(text), *_small(notes)]


def _stage_marks(layers: Sequence[Layer]) -> dict[str, str]:
    """The middle of each stage on the slider, where there is room for its name."""
    places: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        places.setdefault(layer.stage, []).append(place)
    return {str(each[len(each) // 2]): stage for stage, each in places.items()}


def _about_reason(point: int, reason: Reason, name: str, found: Answer) -> Any:
    total = f"{sum(reason.parts):+.3f} from {len(reason.parts)} labelled points"
    text = (
        f"Point {point}: {total} and {reason.base:+.3f} without any make the logit "
        f"{reason.logit:+.3f} of {name!r}, probability {reason.probability:.3f}."
    )
    if found.given[point] >= 0:
        text += " It has a label itself, and keeps that whatever these say."
    return html.P(text)


def _reason_table(cloud: Cloud, found: Answer, each: Sequence[Reason]) -> Any:
    names = [class_name(reason.code, cloud.classes) for reason in each]
    rows = [
        (
            f"point {row} ({class_name(int(found.given[row]), cloud.classes)})",
            *(f"{reason.parts[i]:+.4f}" for reason in each),
        )
        for i, row in enumerate(each[0].labelled)
    ]
    ends = {"base": "base", "logit (their sum)": "logit"}
    for title, name in ends.items():
        rows.append((title, *(f"{getattr(reason, name):+.4f}" for reason in each)))
    rows.append(("probability", *(f"{reason.probability:.4f}" for reason in each)))
    return table(("labelled point", *names), rows, "All contributions, to every class")


def _picture(cloud: Cloud, point: int) -> list[Any]:
    """What the point looks like, where it is a picture."""
    if cloud.pictures is None:
        return []
    pixels = (255 * cloud.pictures[point].clip(0, 1)).astype(np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).resize((64, 64), Image.Resampling.NEAREST).save(buffer, "png")
    encoded = base64.b64encode(buffer.getvalue()).decode()
    source = f"data:image/png;base64,{encoded}"
    return [html.Img(src=source, alt=f"picture of point {point}", className="picture")]
