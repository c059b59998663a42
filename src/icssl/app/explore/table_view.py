"""The tab for a person's own table, as a function of the state."""

from collections.abc import Iterable, Sequence
from typing import Any

from dash import html, no_update

from icssl._util.colours import plane_coordinates
from icssl._util.errors import check_choice, error_text, printable
from icssl._util.percent import percent
from icssl.app.explore import figures
from icssl.app.explore.clouds import DRAWING_NOTE
from icssl.app.explore.layout import table
from icssl.app.explore.reading import Reading
from icssl.app.explore.state import NO_ROW, READING, State
from icssl.app.explore.uploads import Upload, Uploads, columns_of, label_upload
from icssl.app.labelling import Labelling, class_rows, summary_lines
from icssl.app.row_notes import (
    RowNote,
    cell_names,
    least_certain,
    reach_in_words,
    row_notes,
)
from icssl.app.tally import CLASS_HEADER
from icssl.tables.column_table import COLUMN_HEADER
from icssl.tables.table_warning import TableWarning, text_of

_EVIDENCE_HEADER = ("labelled row", "its label", "for (+) or against (-) this class")

# What a button beside a warning does, by the setting that it changes.
_ANSWERS = {
    "separator": "Read with the separator {}",
    "encoding": "Read as {}",
    "decimal": "Read with the decimal mark {}",
    "types": "Read {}",
    "missing": "Count {} as no value",
    "drop": "Leave out {}",
    "relabel": "Rename {}",
}
_LONGEST_ANSWER = 60  # characters on a button

OUTPUTS = {
    "cloud": ("data_cloud", "figure"),
    "note": ("data-note", "children"),
    "selected": ("data-selected", "children"),
    "doubts": ("data-doubts", "children"),
    "reading": ("reading", "open"),
    "next": ("data-next", "children"),
    "tables": ("data-tables", "children"),
    "classes": ("mark-label", "options"),
    "class": ("mark-label", "value"),
    "controls": ("data-controls", "hidden"),
    "answer": ("data-answer", "hidden"),
}


def data(state: State, uploads: Uploads, client: str = "") -> dict[str, Any] | None:
    """Return a client's table: its embedding, its doubtful rows, and what to label."""
    if state.tab != "data":
        return None
    nothing: dict[str, Any] = {"cloud": figures.EMPTY, "tables": "", "next": ""}
    nothing |= {"doubts": "", "reading": no_update}
    nothing |= {"selected": "", "classes": [], "class": None}
    nothing |= {"controls": True, "answer": True}
    if not state.table:
        return {**nothing, "note": ""}
    try:
        upload = uploads.get(state.table, client)
    except ValueError as error:
        return {**nothing, "note": error_text(error)}
    nothing["controls"] = False
    if not state.target:
        text = f"{upload.name} was read. Choose its column of labels."
        if len(upload.columns) == 1:
            text = (
                f"{upload.name} has one column: a table needs one for the labels and "
                "others to learn from. If it has more, write what stands between them into "
                "Separator, under How the file is read."
            )
        return {**nothing, "note": text}
    try:
        return {**nothing, **_labelled_table(state, upload)}
    except (ValueError, ImportError) as error:
        return {**nothing, "note": error_text(error), "reading": True}


def target_options(state: State, uploads: Uploads, client: str = "") -> list[str]:
    """Return the columns of the state's table, as far as the client has it."""
    try:
        return columns_of(uploads.get(state.table, client), _reading(state))
    except (ValueError, ImportError):
        return uploads.columns(state.table, client)  # the view says what is wrong


def label_table(state: State, upload: Upload) -> tuple[Labelling, tuple[str, ...]]:
    """Return the table of the state with its labels, and warnings."""
    return label_upload(upload, state.target, state.marks, _reading(state))


def _reading(state: State) -> Reading:
    return Reading(**{name: getattr(state, name) for name in READING})


def _labelled_table(state: State, upload: Upload) -> dict[str, Any]:
    check_choice("column of labels", state.target, columns_of(upload, _reading(state)))
    labelling, warned = label_table(state, upload)
    points = plane_coordinates(labelling.embedding)
    names = [str(name) for name in labelling.classes]
    row = _first_row(labelling) if state.row == NO_ROW else min(state.row, len(points) - 1)
    figure = figures.cloud_figure(
        points,
        labelling.codes,
        labelling.given_codes,
        names,
        selected=row,
        revision=upload.key,
        word="row",
    )
    figure["layout"]["yaxis"].pop("scaleanchor")  # it fills its frame, as in the report
    lines: list[Any] = list(summary_lines(labelling))
    if state.marks:
        was = "1 label was" if len(state.marks) == 1 else f"{len(state.marks)} labels were"
        lines.append(f"{was} given on this page.")
    if warned:
        is_one = len(warned) == 1
        count, them = ("1 warning", "it") if is_one else (f"{len(warned)} warnings", "them")
        lines.append(
            [html.A(count, href="#data-doubts"), f" below the picture: read {them} first."]
        )
    (note,) = row_notes(labelling, [row])
    return {
        "cloud": figure,
        "note": [*map(html.P, lines)],
        "doubts": [
            html.P(DRAWING_NOTE.capitalize(), className="small"),
            *_doubts(labelling, warned),
        ],
        "first_row": row if state.row == NO_ROW else None,
        "selected": _about_row(labelling, note),
        "next": _notes("The most useful first", labelling, "suggested"),
        "tables": [
            *_notes("The least certain rows", labelling, "doubtful"),
            table(CLASS_HEADER, class_rows(labelling), "Classes"),
            table(COLUMN_HEADER, labelling.table.columns.rows, "What was understood"),
        ],
        "classes": names,
        "class": note.label,
        "answer": False,
    }


def _doubts(labelling: Labelling, warned: Sequence[str]) -> list[Any]:
    """Return warnings, each with a button that fills in what the warning proposes."""
    by_text = {text_of(warning, "page"): warning for warning in labelling.warnings}
    return [
        html.P([text, *_answer_button(by_text.get(text))], className="doubt")
        for text in warned
    ]


def _answer_button(warning: Warning | None) -> list[Any]:
    """Return the button that does what a warning proposes (see assets/page.js), if any."""
    if not isinstance(warning, TableWarning) or not warning.field_text:
        return []
    asked: dict[str, Any] = {
        "data-setting": warning.setting,
        "data-value": warning.field_text,
    }
    text = _ANSWERS[warning.setting].format(_answer_text(warning))
    return [" ", html.Button(printable(text, _LONGEST_ANSWER), className="answer", **asked)]


def _answer_text(warning: TableWarning) -> str:
    """Return what a warning proposes, such as "Goudda to Gouda", for its button."""
    if warning.setting not in ("types", "relabel"):
        return ", ".join(warning.values)
    word = "as" if warning.setting == "types" else "to"
    pairs = (value.rpartition("=") for value in warning.values)
    return ", ".join(f"{name} {word} {value}" for name, _, value in pairs)


def _first_row(labelling: Labelling) -> int:
    """Return the row that is shown first: one without a label, if there is any."""
    rows = [*labelling.suggested, *labelling.unlabelled_rows, 0]
    return int(rows[0])


def _about_row(labelling: Labelling, note: RowNote) -> list[Any]:
    """Return what is known of the selected row: its class, why, and its cells."""
    if labelling.given_codes[note.row] >= 0:
        verdict = f"Row {note.row} has the label {note.label!r}."
    else:
        verdict = (
            f"Row {note.row}: {percent(note.probability)} {note.label!r}, {note.why}. It "
            f"could also be {note.runner_up!r} ({percent(note.runner_up_probability)}). "
            f"It is {reach_in_words(note.reach)} like a labelled row ({note.reach:.2f})."
        )
    rows = [(f"row {row}", label, f"{part:+.2f}") for row, label, part in note.evidence]
    return [
        html.P(verdict),
        table(cell_names(labelling), [note.cells]),
        table(_EVIDENCE_HEADER, rows) if rows else "",
    ]


def _notes(title: str, labelling: Labelling, kind: str) -> list[Any]:
    if not len(labelling.unlabelled_rows):
        return [html.P("Every row has a label.")] if kind == "suggested" else []
    rows: Iterable[int] = labelling.suggested
    if kind == "doubtful":
        rows = least_certain(labelling)
    return [_note_table(labelling, list(rows), title)]


def _note_table(labelling: Labelling, rows: Sequence[int], title: str) -> Any:
    """Return a table of rows; a click on one selects it (see assets/page.js)."""
    header = ("row", "label", "probability", "or else", "like a labelled row", "why")
    lines = [
        (
            f"{note.row}",
            note.label,
            percent(note.probability),
            f"{note.runner_up} {percent(note.runner_up_probability)}",
            f"{reach_in_words(note.reach)} ({note.reach:.2f})",
            note.why,
            *note.cells,
        )
        for note in row_notes(labelling, rows)
    ]
    caption = f"{title}. Click a row to select it. Row 0 is the first below the header."
    return table((*header, *cell_names(labelling)), lines, caption, numbers=rows)
