"""The layout of the page."""

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from icssl.app.explore.clouds import SOURCES
from icssl.app.explore.state import (
    COLOURINGS,
    FEWEST_POINTS,
    MOST_NOISE,
    MOST_POINTS,
    RIVALS,
    TABS,
    THEMES,
    WEIGHTS,
    State,
)
from icssl.app.explore.uploads import MOST_BYTES, MOST_ROWS

_GRAPH: Any = {"displayModeBar": False, "scrollZoom": False}


def page() -> html.Div:
    """Return the whole page; callbacks fill in what changes."""
    start = State()
    return html.Div(
        id="page",
        className="page theme-auto",
        children=[
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="state"),
            dcc.Store(id="dropped"),  # name and size of a file: see assets/dropped.js
            html.Header(
                [
                    html.H1("icssl explore"),
                    _radio("tab", TABS, start.tab, "Pages", "tabs"),
                    _radio("theme", THEMES, start.theme, "Theme", "inline"),
                ]
            ),
            html.Div(id="message", className="message", **_live("assertive")),
            html.Main(
                [
                    html.Section(_cloud_controls(start), id="cloud-controls"),
                    html.Section(_play(start), id="panel-play"),
                    html.Section(_inside(start), id="panel-inside"),
                    html.Section(_why(), id="panel-why"),
                    html.Section(_data(), id="panel-data"),
                ]
            ),
            html.Footer(
                "Everything runs on this machine; nothing is sent elsewhere. The address "
                "of this page contains all settings: copy it to keep or share them."
            ),
        ],
    )


def table(
    header: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = ""
) -> html.Div:
    """Return a table that scrolls sideways where the window is narrow."""
    head = html.Tr([html.Th(cell, scope="col") for cell in header])
    body = [html.Tr([html.Td(cell) for cell in row]) for row in rows]
    parts = [html.Caption(caption)] if caption else []
    return html.Div(
        html.Table([*parts, html.Thead(head), html.Tbody(body)]), className="scroll"
    )


def _cloud_controls(start: State) -> list[Any]:
    return [
        _field(
            "Source",
            dcc.Dropdown(
                id="source",
                options=[{"label": text, "value": name} for name, text in SOURCES.items()],
                value=start.source,
                clearable=False,
                searchable=False,
            ),
            "source",
        ),
        _field("Points", _number("n", start.n, FEWEST_POINTS, MOST_POINTS), "n"),
        _field("Noise", _number("noise", start.noise, 0, MOST_NOISE, 0.05), "noise"),
        _field("Seed", _number("seed", start.seed, 0, 2**31 - 1), "seed"),
        _field(
            "Selected point", _number("point", start.point, 0, MOST_POINTS - 1), "point"
        ),
    ]


def _play(start: State) -> list[Any]:
    return [
        html.P(
            "Click a point to label it; click it again to remove the label. Or choose its "
            "number above and press the button."
        ),
        html.Div(
            className="controls",
            children=[
                _radio("brush", {}, start.brush, "A click gives the class", "inline"),
                html.Div(
                    [
                        _button("label", "Label the selected point"),
                        _button("suggest", "Select the point worth labelling next"),
                        _button("new_class", "New class"),
                        _button("start", "One label per class"),
                        _button("clear", "Clear labels"),
                    ],
                    className="buttons",
                ),
                _radio("colouring", COLOURINGS, start.colouring, "Colours show", "inline"),
                _radio("rival", RIVALS, start.rival, "Compare with", "inline"),
            ],
        ),
        html.Div(id="play-note", className="note", **_live("polite")),
        html.Div(
            className="two",
            children=[
                _graph("play_cloud", "ICSSL"),
                html.Div(
                    [
                        html.H2(id="rival-title"),
                        _plot("rival-cloud", "The same points by another method"),
                    ]
                ),
            ],
        ),
        html.Div(id="play-scores"),
    ]


def _inside(start: State) -> list[Any]:
    return [
        html.P(
            "See the paper's three stages, layer by layer, on the points and labels of "
            "Play: walks (which point attends to which), the eigenmap, and descent on the "
            "labels. Click a point to see the model from its position."
        ),
        html.Div(
            className="controls",
            children=[
                _radio("weights", WEIGHTS, start.weights, "Weights", "inline"),
                html.Div(
                    [
                        html.Label("Layer", htmlFor="layer"),
                        dcc.Slider(
                            id="layer",
                            min=0,
                            max=27,
                            step=1,
                            value=start.layer,
                            marks={},
                            updatemode="drag",
                            allow_direct_input=False,
                        ),
                    ],
                    className="slider",
                ),
            ],
        ),
        html.Div(id="inside-note", className="note", **_live("polite")),
        html.Div(
            className="two",
            children=[
                html.Div(
                    [
                        html.H2(id="inside-title"),
                        _plot("inside_cloud", "Points at this layer"),
                    ]
                ),
                _graph("inside-angles", "Angle of the features to true eigenvectors"),
            ],
        ),
    ]


def _why() -> list[Any]:
    return [
        html.P(
            "The classifier's logit of a point is a sum over the labelled points, so what "
            "each of them adds is known exactly. Click a point, or choose its number above."
        ),
        html.Div(id="why-note", className="note", **_live("polite")),
        html.Div(
            className="two",
            children=[
                _graph("why_cloud", "Labelled points, as large as what they add"),
                html.Div(
                    [
                        html.H2(id="why-title"),
                        _plot("why-bars", "What each labelled point adds"),
                    ]
                ),
            ],
        ),
        html.Div(id="why-table"),
    ]


def _data() -> list[Any]:
    return [
        dcc.Upload(
            id="upload",
            className="drop",
            max_size=MOST_BYTES,  # otherwise the browser reads all of it, and some crash
            children=html.Button(
                "Drop a CSV or Parquet file here, or press to choose one", className="wide"
            ),
        ),
        html.P(
            f"The file can have up to {MOST_BYTES // 2**20} MB and {MOST_ROWS:,} rows. "
            "Rows without a label have an empty cell in the column of labels. The file "
            "stays on this machine.",
            className="small",
        ),
        html.Div(
            id="data-controls",
            className="controls",
            children=[
                _field(
                    "Column of labels",
                    dcc.Dropdown(id="target", options=[], clearable=False),
                    "target",
                ),
                _field("Selected row", _number("row", 0, 0, 10**9), "row"),
                _field(
                    "Its label",
                    dcc.Input(id="mark-label", type="text", value="", list="known-labels"),
                    "mark-label",
                ),
                html.Datalist(id="known-labels"),
                html.Div(
                    [
                        _button("mark", "Label the row and run again"),
                        _button("unmark", "Remove labels given here"),
                        _button("download", "Download the labelled file"),
                    ],
                    className="buttons",
                ),
                dcc.Download(id="file"),
            ],
        ),
        html.Div(id="data-note", className="note", **_live("polite")),
        html.Div(_graph("data_cloud", "Rows in the embedding"), id="data-picture"),
        html.Div(id="data-tables"),
    ]


def _live(how: str) -> dict[str, Any]:
    """Return attributes that let a screen reader read an element when it changes."""
    return {"aria-live": how, "role": "status" if how == "polite" else "alert"}


def _button(name: str, text: str) -> html.Button:
    return html.Button(text, id=name, n_clicks=0)


def _number(name: str, value: float, least: float, most: float, step: float = 1) -> Any:
    return dcc.Input(
        id=name, type="number", value=value, min=least, max=most, step=step, debounce=True
    )


def _field(text: str, control: Any, name: str) -> html.Div:
    return html.Div([html.Label(text, htmlFor=name), control], className="field")


def _radio(
    name: str, options: dict[str, str], value: str | int, title: str, look: str
) -> html.Fieldset:
    """Return native radio buttons, which arrow keys can select."""
    choices = [{"label": text, "value": key} for key, text in options.items()]
    return html.Fieldset(
        [html.Legend(title), dcc.RadioItems(id=name, options=choices, value=value)],
        className=f"choice {look}",
    )


def _plot(name: str, about: str) -> html.Div:
    """Return a plot with a description for screen readers; a note has its numbers."""
    graph = dcc.Graph(id=name, config=_GRAPH, responsive=True, style={"height": "100%"})
    spoken: dict[str, Any] = {"role": "group", "aria-label": about}
    return html.Div(graph, className="figure", **spoken)


def _graph(name: str, title: str) -> html.Div:
    return html.Div([html.H2(title), _plot(name, title)])
