"""What a person does on the page, and what it changes in the state."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from icssl.app.explore.clouds import existing_labels, predict_cloud
from icssl.app.explore.state import (
    MOST_CLASSES,
    NO_ROW,
    READING,
    State,
    cloud_of,
    noise_for,
    with_one_label_per_class,
)

# Controls of the page; each sets the field of the state that has its name.
SETTINGS = (
    *("tab", "theme", "source", "n", "noise", "seed", "brush", "colouring", "rival"),
    *("point", "weights", "layer", "target", "row", *READING),
)
SELECTED = ("point", "row")
"""Settings that say which point or row is selected."""

CLOUDS = ("play_cloud", "inside_cloud", "why_cloud", "data_cloud")
_CLOUD_SETTINGS = ("source", "n", "noise", "seed")


def after_setting(state: State, name: str, value: Any) -> State:
    """Return the state after a control was changed.

    An empty field changes nothing. A new cloud gets new labels.
    """
    if name in SELECTED and isinstance(value, int | float) and value < 0:
        value = 0  # the button "-" of the first one
    if value is None or value == getattr(state, name):
        return state
    kind = type(getattr(state, name))
    try:
        changes: dict[str, Any] = {name: kind(value)}
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{name} cannot be {value!r}.") from error
    if name == "source":
        changes["noise"] = noise_for(str(value))
    if name in _CLOUD_SETTINGS:
        changes |= {"labels": (), "point": 0, "brush": -1}
        return with_one_label_per_class(replace(state, **changes))
    if name == "target":
        changes |= {"marks": (), "row": NO_ROW}
    if name == "weights":
        changes["layer"] = 0
    return replace(state, **changes)


def after_click(state: State, graph: str, click: Any) -> State:
    """Return the state after a click on a point.

    On Play the point gets the class of the brush; elsewhere it is selected.
    """
    row = _clicked_point(click)
    if row is None:
        return state
    if graph == "data_cloud":
        return replace(state, row=row)
    state = replace(state, point=row)
    return _with_brush(state) if graph == "play_cloud" else state


def after_button(state: State, name: str, label: str = "") -> State:
    """Return the state after a button; ``label`` is the text in the field beside it."""
    if name == "mark":
        if state.row == NO_ROW:
            raise ValueError("Select a row first: click a point, or a row of a table.")
        return state.with_mark(state.row, label.strip())
    return _AFTER_BUTTON[name](state)


def _with_new_class(state: State) -> State:
    count = min(state.classes + 1, MOST_CLASSES)
    return replace(state, classes=count, brush=count - 1)


def _with_suggestion(state: State) -> State:
    answer = predict_cloud(cloud_of(state), state.labels)
    return state if answer is None else replace(state, point=answer.suggested)


def _with_brush(state: State) -> State:
    """Return the state with the selected point in the class of the brush."""
    cloud = cloud_of(state)
    point = min(state.point, len(cloud.y) - 1)
    code = int(cloud.y[point]) if state.brush < 0 else state.brush
    labels = existing_labels(state.labels, len(cloud.y))
    return replace(state, labels=labels, point=point).with_label(point, code)


def _clicked_point(click: Any) -> int | None:
    """Return the number of the clicked point, which plotly got as ``customdata``."""
    points = click.get("points") if isinstance(click, dict) else None
    for point in points if isinstance(points, list) else []:
        row = point.get("customdata") if isinstance(point, dict) else None
        if type(row) is int and row >= 0:
            return row
    return None


_AFTER_BUTTON: dict[str, Callable[[State], State]] = {
    "label": _with_brush,
    "new_class": _with_new_class,
    "clear": lambda state: replace(state, labels=()),
    "start": with_one_label_per_class,
    "suggest": _with_suggestion,
    "unmark": lambda state: replace(state, marks=()),
}
BUTTONS = (*_AFTER_BUTTON, "mark")
