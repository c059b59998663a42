"""The tab for a person's own table, as a function of the state."""

from typing import Any

from dash import html

from icssl._util.errors import check_choice
from icssl.app.explore import figures
from icssl.app.explore.clouds import DRAWING_NOTE, plane_coordinates
from icssl.app.explore.layout import table
from icssl.app.explore.state import State
from icssl.app.explore.uploads import Upload, Uploads, label_upload
from icssl.app.labelling import CLASS_HEADER, Labelling, class_rows, summary_lines
from icssl.app.labelling_report import least_certain, row_table

OUTPUTS = {
    "cloud": ("data_cloud", "figure"),
    "note": ("data-note", "children"),
    "tables": ("data-tables", "children"),
    "known": ("known-labels", "children"),
    "controls": ("data-controls", "hidden"),
    "picture": ("data-picture", "hidden"),
}


def data(state: State, uploads: Uploads, client: str = "") -> dict[str, Any] | None:
    """Return a client's table: its embedding, its doubtful rows, and what to label."""
    if state.tab != "data":
        return None
    nothing: dict[str, Any] = {"cloud": figures.EMPTY, "tables": "", "known": []}
    nothing |= {"controls": True, "picture": True}
    if not state.table:
        return {**nothing, "note": ""}
    try:
        upload = uploads.get(state.table, client)
    except ValueError as error:
        return {**nothing, "note": str(error)}
    nothing["controls"] = False
    if not state.target:
        text = f"{upload.name} was read. Choose its column of labels."
        return {**nothing, "note": text}
    try:
        return {**nothing, **_labelled_table(state, upload)}
    except ValueError as error:
        return {**nothing, "note": str(error)}


def _labelled_table(state: State, upload: Upload) -> dict[str, Any]:
    check_choice("column of labels", state.target, upload.columns)
    labelling, warned = label_upload(upload, state.target, state.marks)
    points = plane_coordinates(labelling.embedding)
    names = [str(name) for name in labelling.classes]
    row = min(state.row, len(points) - 1)
    figure = figures.cloud_figure(
        points,
        labelling.codes,
        labelling.given_codes,
        names,
        selected=row,
        revision=upload.key,
    )
    lines = [*summary_lines(labelling), *warned, _about_row(labelling, row)]
    if state.marks:
        lines.append(f"{len(state.marks)} of the labels were given on this page.")
    return {
        "cloud": figure,
        "note": [
            *(html.P(line) for line in lines),
            html.P(DRAWING_NOTE.capitalize(), className="small"),
        ],
        "tables": [
            table(CLASS_HEADER, class_rows(labelling), "Classes"),
            *_row_tables(labelling),
        ],
        "known": [html.Option(value=name) for name in names],
        "picture": False,
    }


def _row_tables(labelling: Labelling) -> list[Any]:
    if not len(labelling.unlabelled_rows):
        return []
    titles = {
        "What to label next, the best first": labelling.suggested,
        "The least certain rows": least_certain(labelling),
    }
    return [
        table(*row_table(labelling, rows), caption=title) for title, rows in titles.items()
    ]


def _about_row(labelling: Labelling, row: int) -> str:
    verb = "has the label" if labelling.given_codes[row] >= 0 else "is likeliest"
    return (
        f"Row {row} {verb} {str(labelling.labels[row])!r}, probability "
        f"{labelling.probability[row]:.3f}, reach {labelling.reach[row]:.3g}."
    )
