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
from icssl.tables.column_reading import KINDS

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
                    html.Div(id="busy", role="status"),  # see assets/page.js
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
                [
                    _radio("theme", THEMES, start.theme, "Theme", "inline"),
                    html.P(
                        "Everything runs on this machine; nothing is sent elsewhere. The "
                        "address of this page has all settings, but no table of yours: "
                        "copy it to keep or share them."
                    ),
                ]
            ),
        ],
    )


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    caption: str = "",
    *,
    numbers: Sequence[int] = (),
) -> html.Div:
    """Return a table that scrolls sideways where the window is narrow.

    Parameters
    ----------
    header, rows : sequence
        The cells.
    caption : str
        What stands above it.
    numbers : sequence of int
        Rows of a person's table, one per line, that a click on the line selects.
    """
    head = html.Tr([html.Th(cell, scope="col") for cell in header])
    clickable: list[dict[str, Any]] = [
        {"data-row": str(number), "tabIndex": 0, "className": "selectable"}
        for number in numbers
    ] or [{} for _ in rows]
    body = [
        html.Tr([html.Td(cell) for cell in row], **options)
        for row, options in zip(rows, clickable, strict=True)
    ]
    # A span, so that it wraps to the window where the table is wider (see style.css).
    parts = [html.Caption(html.Span(caption))] if caption else []
    return html.Div(
        html.Table([*parts, html.Thead(head), html.Tbody(body)]), className="scroll"
    )


def _cloud_controls(start: State) -> list[Any]:
    # A selected point has no least value: Dash would keep the button "-" off after a click.
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
            "Selected point", _number("point", start.point, None, MOST_POINTS - 1), "point"
        ),
    ]


def _play(start: State) -> list[Any]:
    """Return the first screen: score and picture above, and what a click gives."""
    return [
        html.Div(id="play-scores", **_live("polite")),
        html.P("Click a point to label it; click it again to remove the label."),
        _radio("brush", {}, start.brush, "A click gives a point its class", "inline"),
        html.Div(
            className="two",
            children=[
                _graph("play_cloud", "ICSSLClassifier"),
                html.Div(
                    [
                        html.H2(id="rival-title"),
                        _plot("rival-cloud", "The same points by another method"),
                    ]
                ),
            ],
        ),
        html.Div(id="play-note", className="note", **_live("polite")),
        html.Div(
            className="controls",
            children=[
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
        html.P(
            "The model trains nothing: each click is one new reading of all points.",
            className="small",
        ),
    ]


def _inside(start: State) -> list[Any]:
    return [
        html.P(
            "This is another model than on Play: the paper's own (ICSSLTransformer), with "
            "its three stages, layer by layer, on the same points and labels: walks (which "
            "point attends to which), the eigenmap, and descent on the labels. Its answers "
            "can differ from those of ICSSLClassifier. Click a point to see the model from "
            "its position."
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
            "ICSSLClassifier's logit of a point is a sum over the labelled points, so what "
            "each of them adds is known exactly. Click a point, or set its number."
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
    """Return the way of a person with a table: file, labels, answer, and what next."""
    return [
        html.H2("1. Your file"),
        dcc.Upload(
            id="upload",
            className="drop",
            max_size=MOST_BYTES,  # otherwise the browser reads all of it, and some crash
            children=html.Button(
                "Drop a table here, or press to choose one", className="wide"
            ),
        ),
        html.P(
            f"CSV and Excel files and others, up to {MOST_BYTES // 2**20} MB and "
            f"{MOST_ROWS:,} rows. Rows to label have an empty cell in the column of "
            "labels. The file stays on this machine.",
            id="about-files",
            className="small",
        ),
        html.Div(id="data-controls", children=_file_controls()),
        html.Div(id="data-note", className="note", **_live("polite")),
        html.Div(id="data-answer", hidden=True, children=_answer()),
    ]


def _file_controls() -> list[Any]:
    """Return what can be set before a table is labelled."""
    start = State()
    texts = {
        "separator": ("Separator", "found out; or , ; tab"),
        "encoding": ("Encoding", "found out; or utf-8, cp1252 ..."),
        "decimal": ("Decimal mark", "found out; or . ,"),
        "missing": ("Texts for no value", "?; unknown"),
        "types": ("Types of columns", "zip=category; age=number"),
        "drop": ("Columns to leave out", "id; notes"),
        "relabel": ("Labels to rename", "Yes=yes; No=no"),
    }
    fields = [
        _field(
            title,
            dcc.Input(
                id=name,
                type="text",
                value=getattr(start, name),
                placeholder=hint,
                debounce=True,
            ),
            name,
        )
        for name, (title, hint) in texts.items()
    ]
    target = dcc.Dropdown(id="target", options=[], clearable=False)
    return [
        html.Div(_field("Column of labels", target, "target"), className="controls"),
        html.Details(
            [
                html.Summary(
                    [
                        "How the file is read",
                        html.Span(": types, columns to leave out, labels to rename"),
                    ]
                ),
                html.Div(fields, className="controls"),
                html.P(
                    f"Types are {', '.join(KINDS)}. Put semicolons between several texts, "
                    "types or columns.",
                    className="small",
                ),
            ],
            id="reading",
        ),
    ]


def _answer() -> list[Any]:
    """Return the answer: picture and selected row side by side, then what comes next."""
    give = [
        _field("Selected row", _number("row", None, None, 10**9), "row"),
        _field(
            "Its label",
            dcc.Dropdown(id="mark-label", options=[], clearable=False),
            "mark-label",
        ),
        _field(
            "or a new class",
            dcc.Input(id="mark-new", type="text", value=""),
            "mark-new",
        ),
        html.Div(
            [
                _button("mark", "Label the row"),
                _button("unmark", "Remove all labels given on this page"),
            ],
            className="buttons",
        ),
    ]
    return [
        html.Div(
            className="two",
            children=[
                _graph("data_cloud", "2. The answer: your rows by class"),
                html.Div(
                    [
                        html.H2("3. A row, and why"),
                        html.Div(id="data-selected", **_live("polite")),
                        html.Div(give, className="controls"),
                    ],
                    id="data-row",
                ),
            ],
        ),
        html.Div(id="data-doubts", **_live("polite")),
        html.H2("4. What to label next"),
        html.Div(id="data-next"),
        html.H2("5. Take it with you"),
        html.Div([_button("download", "Download the labelled file")]),
        dcc.Download(id="file"),
        html.H2("More about the answer"),
        html.Div(id="data-tables"),
    ]


def _live(how: str) -> dict[str, Any]:
    """Return attributes that let a screen reader read an element when it changes."""
    return {"aria-live": how, "role": "status" if how == "polite" else "alert"}


def _button(name: str, text: str) -> html.Button:
    return html.Button(text, id=name, n_clicks=0)


def _number(
    name: str, value: float | None, least: float | None, most: float, step: float = 1
) -> Any:
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
