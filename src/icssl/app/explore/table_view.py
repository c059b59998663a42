"""What the tab of one's own table shows, as a function of the state."""

from typing import Any

from dash import html

from icssl._util.errors import check_choice
from icssl.app.explore import figures
from icssl.app.explore.clouds import DRAWING_NOTE, plane_coordinates
from icssl.app.explore.layout import table
from icssl.app.explore.state import State
from icssl.app.explore.tables import Upload, Uploads, labelled_table
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
    """A client's table: its rows in the embedding, the doubtful ones, what to label."""
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
        return {**nothing, **_labelled(state, upload)}
    except ValueError as error:
        return {**nothing, "note": str(error)}


def _labelled(state: State, upload: Upload) -> dict[str, Any]:
    check_choice("column of labels", state.target, upload.columns)
    found, warned = labelled_table(upload, state.target, state.marks)
    points = plane_coordinates(found.embedding)
    names = [str(name) for name in found.classes]
    row = min(state.row, len(points) - 1)
    figure = figures.cloud_figure(
        points, found.codes, found.given, names, selected=row, revision=upload.key
    )
    lines = [*summary_lines(found), *warned, _about_row(found, row)]
    if state.marks:
        lines.append(f"{len(state.marks)} of the labels were given on this page.")
    return {
        "cloud": figure,
        "note": [
            *(html.P(line) for line in lines),
            html.P(DRAWING_NOTE.capitalize(), className="small"),
        ],
        "tables": [
            table(CLASS_HEADER, class_rows(found), "Classes"),
            *_row_tables(found),
        ],
        "known": [html.Option(value=name) for name in names],
        "picture": False,
    }


def _row_tables(found: Labelling) -> list[Any]:
    if not len(found.unlabelled):
        return []
    titles = {
        "What to label next, the best first": found.suggested,
        "The least certain rows": least_certain(found),
    }
    return [table(*row_table(found, rows), caption=title) for title, rows in titles.items()]


def _about_row(found: Labelling, row: int) -> str:
    given = "has the label" if found.given[row] >= 0 else "is likeliest"
    return (
        f"Row {row} {given} {str(found.labels[row])!r}, probability "
        f"{found.probability[row]:.3f}, reach {found.reach[row]:.3g}."
    )
