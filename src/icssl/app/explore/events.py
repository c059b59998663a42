"""What a click or a setting makes of the state."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from icssl.app.explore.play import answer, usable
from icssl.app.explore.sources import Cloud, draw_cloud
from icssl.app.explore.state import (
    MOST_CLASSES,
    State,
    cloud_settings,
    with_one_label_a_class,
)

SETTINGS = (
    "tab",
    "theme",
    "source",
    "n",
    "noise",
    "seed",
    "brush",
    "colouring",
    "rival",
    "point",
    "weights",
    "layer",
    "target",
    "row",
)
"""Controls of the page, each with the field of the state that it sets."""

CLOUDS = ("play_cloud", "inside_cloud", "why_cloud", "data_cloud")
_OF_THE_CLOUD = ("source", "n", "noise", "seed")


def cloud_of(state: State) -> Cloud:
    """The cloud that a state shows."""
    return draw_cloud(*cloud_settings(state))


def after_setting(state: State, name: str, value: Any) -> State:
    """A control was moved. An empty field changes nothing; a new cloud has new labels."""
    if value is None or value == getattr(state, name):
        return state
    kind = type(getattr(state, name))
    try:
        changes: dict[str, Any] = {name: kind(value)}
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{name} cannot be {value!r}.") from error
    if name in _OF_THE_CLOUD:
        changes |= {"labels": (), "point": 0, "brush": -1}
        return with_one_label_a_class(replace(state, **changes))
    if name == "target":
        changes |= {"marks": (), "row": 0}
    if name == "weights":
        changes["layer"] = 0
    return replace(state, **changes)


def after_click(state: State, graph: str, click: Any) -> State:
    """A point was clicked: on Play it gets the brush's class, elsewhere it is selected."""
    row = _clicked(click)
    if row is None:
        return state
    if graph == "data_cloud":
        return replace(state, row=row)
    chosen = replace(state, point=row)
    return _labelled(chosen) if graph == "play_cloud" else chosen


def after_button(state: State, name: str, label: str = "") -> State:
    """A button was pressed; ``label`` is what stands in the field for a new label."""
    if name == "mark":
        return state.with_mark(state.row, label.strip())
    return _MADE_BY[name](state)


def _with_new_class(state: State) -> State:
    count = min(state.classes + 1, MOST_CLASSES)
    return replace(state, classes=count, brush=count - 1)


def _with_suggestion(state: State) -> State:
    found = answer(cloud_of(state), state.labels)
    return state if found is None else replace(state, point=found.suggested)


def _labelled(state: State) -> State:
    """The selected point with the class of the brush."""
    cloud = cloud_of(state)
    point = min(state.point, len(cloud.y) - 1)
    code = int(cloud.y[point]) if state.brush < 0 else state.brush
    kept = replace(state, labels=usable(state.labels, len(cloud.y)), point=point)
    return kept.with_label(point, code)


def _clicked(click: Any) -> int | None:
    """The number of the point, which plotly gives back as it got it."""
    points = click.get("points") if isinstance(click, dict) else None
    for point in points if isinstance(points, list) else []:
        row = point.get("customdata") if isinstance(point, dict) else None
        if type(row) is int and row >= 0:
            return row
    return None


_MADE_BY: dict[str, Callable[[State], State]] = {
    "label": _labelled,
    "new_class": _with_new_class,
    "clear": lambda state: replace(state, labels=()),
    "start": with_one_label_a_class,
    "suggest": _with_suggestion,
    "unmark": lambda state: replace(state, marks=()),
}
BUTTONS = (*_MADE_BY, "mark")
"""Those of the page that change the state."""
