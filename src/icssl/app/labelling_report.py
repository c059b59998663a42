"""A page about a labelled table that needs no other file."""

import html
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import PurePath

import numpy as np

from icssl._util.errors import printable
from icssl._util.percent import percent
from icssl.app.labelling import Labelling, class_rows
from icssl.app.quality import QUESTION, quality_lines
from icssl.app.report_pictures import (
    MOST_POINTS,
    colour_of,
    confidence_counts,
    confidence_svg,
    embedding_svg,
    key_of,
)
from icssl.app.row_notes import (
    RowNote,
    cell_names,
    least_certain,
    reach_in_words,
    row_notes,
)
from icssl.app.tally import CLASS_HEADER, NAME, UNREACHED
from icssl.tables.column_table import COLUMN_HEADER
from icssl.tables.table_warning import text_of

_DOUBTFUL = 0.6  # a probability below which a row is worth a look
_TWO_CLASSES_DOUBTFUL = 0.75
_MOST_CLASSES = 40  # in the table
_MOST_COLUMNS = 200
_LONG_CELL = 24  # characters; such a cell would be squeezed into one word per line
_ON_PAPER = 6  # columns of the table beside a row, as report_style.css prints them
_FEW_LABELS = 5  # per class; with fewer, the probabilities are rough


def report_html(labelling: Labelling) -> str:
    """Return the page: a summary first, then pictures, doubtful rows, and why."""
    # The report goes to other people, whom the folders of this machine do not concern.
    title = html.escape(printable(PurePath(labelling.table.name).name, NAME))
    sections = {
        "How good is it here?": _quality(labelling),
        "Rows": _embedding(labelling),
        "Classes": _classes(labelling),
    }
    if len(labelling.unlabelled_rows):
        checked = row_notes(labelling, least_certain(labelling))
        sections |= {
            "Rows to check first": _rows_to_check(labelling, checked),
            "Rows to label next": _rows_to_label(labelling),
            "Why": _why(labelling, checked),
            "Confidence": _confidence(labelling),
        }
    sections |= {"Columns": _columns(labelling), "How this was made": _how(labelling)}
    named = {name: text for name, text in sections.items() if text}
    links = "".join(f"<a href='#{_anchor(name)}'>{name}</a>" for name in named)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title}: labels</title><style>{_style()}</style></head><body>"
        f"<header><h1>{title}</h1>{_summary(labelling)}</header>",
        _warnings(labelling),
        f"<nav aria-label='Sections'>{links}</nav><main>",
        *(
            f"<section><h2 id='{_anchor(name)}'>{name}</h2>{text}</section>"
            for name, text in named.items()
        ),
    ]
    return "\n".join([*parts, "</main></body></html>"])


def _style() -> str:
    return (files("icssl.app") / "report_style.css").read_text(encoding="utf-8")


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-").rstrip("?")


def _summary(labelling: Labelling) -> str:
    """Return the sentence that a person reads first, and the numbers beside it."""
    rows, new = len(labelling.codes), len(labelling.unlabelled_rows)
    labels, classes = rows - new, len(labelling.classes)
    tiles = [(f"{rows:,}", "rows"), (f"{labels:,}", "came with a label")]
    if not new:
        said = "Every row came with a label."
        return f"<p>{said}</p>{_tiles([*tiles, (f'{classes:,}', 'classes')])}"
    probability = labelling.probability[labelling.unlabelled_rows]
    least = _TWO_CLASSES_DOUBTFUL if classes == 2 else _DOUBTFUL
    doubtful = int((probability < least).sum())
    tiles += [
        (f"{new:,}", "got a label here"),
        *_score_tiles(labelling),
        (html.escape(percent(probability.mean())), "mean probability of these labels"),
        (f"{doubtful:,}", f"of them below {least:.0%}: worth a look"),
    ]
    said = (
        f"{new:,} of {rows:,} rows got one of {classes:,} classes, from {labels:,} rows "
        f"that have a label. {_about_reach(labelling)}"
    )
    if labelling.table.truth is not None:
        hits = (labelling.labels == labelling.table.truth)[labelling.unlabelled_rows]
        said += f" The demo knows the truth: {hits.mean():.3f} of these are right."
    if labels < _FEW_LABELS * classes:
        said += (
            " With so few labels the probabilities are rough: look at the rows below "
            "before you rely on them."
        )
    return f"<p>{said}</p>{_tiles(tiles)}"


def _score_tiles(labelling: Labelling) -> list[tuple[str, str]]:
    score = labelling.score
    if score is None or not score.rows:
        return []
    return [(f"{score.accuracy:.0%}", f"of {score.rows:,} labels predicted when hidden")]


def _about_reach(labelling: Labelling) -> str:
    far = int((labelling.reach[labelling.unlabelled_rows] < UNREACHED).sum())
    if not far:
        return "All rows are like some labelled row."
    verb = "row is" if far == 1 else "rows are"
    return f"{far:,} {verb} hardly like any labelled row (reach below {UNREACHED:g})."


def _tiles(tiles: Iterable[tuple[str, str]]) -> str:
    boxes = (f"<div class='tile'><b>{n}</b><span>{what}</span></div>" for n, what in tiles)
    return f"<div class='tiles'>{''.join(boxes)}</div>"


def _warnings(labelling: Labelling) -> str:
    """Return what was doubtful when the table was read and when its labels were."""
    warnings = (*labelling.warnings, *labelling.table.warnings)
    texts = dict.fromkeys(text_of(warning, "report") for warning in warnings)
    if not texts:
        return ""
    items = "".join(f"<li>{html.escape(printable(text))}</li>" for text in texts)
    return f"<aside class='warnings'><b>Before you rely on this</b><ul>{items}</ul></aside>"


def _embedding(labelling: Labelling) -> str:
    more = len(labelling.codes) > MOST_POINTS
    drawn = f" About {MOST_POINTS:,} of the rows are drawn." if more else ""
    keys = "".join(
        f"<li>{key_of(code)}{html.escape(printable(name, NAME))}</li>"
        for code, name in enumerate(labelling.classes[:_MOST_CLASSES])
    )
    return (
        "<p>Every point is a row; rows that belong together are near each other. Large "
        "points with an outline came with a label. Rows of one class in two places, or of "
        "two colours in one place, are worth a look.</p>"
        f"<figure>{embedding_svg(labelling)}<figcaption>Two principal coordinates of the "
        "features that the model computed. Rows far from all others are drawn nearer, so "
        f"that the others fill the picture.{drawn} A mouse that rests on a point shows the "
        "number of its row; the tables below have the numbers of rows to look at."
        f"</figcaption></figure><ul class='legend'>{keys}</ul>"
    )


def _classes(labelling: Labelling) -> str:
    rows = []
    total = len(labelling.codes)
    counts = np.bincount(labelling.codes, minlength=len(labelling.classes))
    for code, cells in enumerate(class_rows(labelling)[:_MOST_CLASSES]):
        name, given, in_all, mean = cells
        share = _bar(counts[code] / total, colour_of(code))
        rows.append([key_of(code) + html.escape(name), given, f"{share}{in_all}", mean])
    table = _table(CLASS_HEADER, rows)
    more = len(labelling.classes) - _MOST_CLASSES
    return table + (f"<p class='soft'>and {more:,} classes more</p>" if more > 0 else "")


def _rows_to_check(labelling: Labelling, notes: Sequence[RowNote]) -> str:
    return (
        "<p>The rows whose label is least certain. Row 0 is the first below the header.</p>"
        + _note_table(labelling, notes)
    )


def _rows_to_label(labelling: Labelling) -> str:
    if not labelling.suggested:
        return ""
    return (
        "<p>If you can look up more labels, these rows are worth the most, the first most "
        "of all: they are in doubt, or many steps from any labelled row, and far from each "
        "other, so that together they stand for the whole table.</p>"
        + _note_table(labelling, row_notes(labelling, labelling.suggested))
    )


def _note_table(labelling: Labelling, notes: Sequence[RowNote]) -> str:
    header = ("row", "label", "probability", "or else", "like a labelled row")
    rows = [
        [
            f"{note.row}",
            html.escape(note.label),
            f"{_bar(note.probability)}{html.escape(percent(note.probability))}",
            html.escape(f"{note.runner_up} {percent(note.runner_up_probability)}"),
            f"{reach_in_words(note.reach)} ({note.reach:.2f})",
            *map(_cell, note.cells),
        ]
        for note in notes
    ]
    names = cell_names(labelling)
    left = len(names) - _ON_PAPER
    more = "1 more column" if left == 1 else f"{left:,} more columns"
    said = f"<p class='paper soft'>and {more} on the screen</p>"
    return _table((*header, *names), rows, "rows") + (said if left > 0 else "")


def _cell(text: str) -> str:
    """Return a cell of the table; a long one wraps in a box that is wide enough."""
    cell = html.escape(text)
    return f"<span class='long'>{cell}</span>" if len(text) > _LONG_CELL else cell


def _why(labelling: Labelling, notes: Sequence[RowNote]) -> str:
    """Return for each row to check the labelled rows of most weight, in words and bars."""
    if labelling.why is None:
        return ""
    code_of = {printable(name, NAME): code for code, name in enumerate(labelling.classes)}
    parts = [
        "<p>A label is decided by a sum over the labelled rows, so what each of them adds "
        "is exact. To the right, a labelled row speaks for the label; to the left, against "
        "it.</p>"
    ]
    for number, note in enumerate(notes):
        largest = max((abs(value) for *_, value in note.evidence), default=0.0) or 1.0
        bars = "".join(
            f"<span>row {row}: {html.escape(label)}</span>"
            f"<div>{_signed_bar(value / largest, colour_of(code_of.get(label, 0)))}</div>"
            for row, label, value in note.evidence
        )
        parts.append(
            f"<details{' open' * (number < 3)}><summary>Row {note.row}: "
            f"{html.escape(f'{percent(note.probability)} {note.label}, {note.why}')}"
            f"</summary><div class='why'>{bars}</div></details>"
        )
    return "".join(parts)


def _signed_bar(share: float, colour: str) -> str:
    left, width = (50, 50 * share) if share > 0 else (50 + 50 * share, -50 * share)
    style = f"left:{left:.1f}%;width:{width:.1f}%;background:{colour}"
    return f"<i style='{style}'></i>"


def _confidence(labelling: Labelling) -> str:
    chance, most = 1 / len(labelling.classes), max(confidence_counts(labelling))
    return (
        "<p>How many rows got their label with which probability. Rows on the left are "
        f"hardly decided. The highest bar has {most:,} row{'s' * (most != 1)}.</p>"
        f"<figure>{confidence_svg(labelling)}<div class='ends'><span>{chance:.0%} "
        "(chance)</span><span>100%</span></div></figure>"
    )


def _quality(labelling: Labelling) -> str:
    """Return how good the labels are here, as far as labels that were hidden tell."""
    lines = [labelling.unmeasured] if labelling.unmeasured else []
    if labelling.score is not None:
        lines = quality_lines(labelling.score, labelling.baseline)
    # The heading asks the question.
    said = (html.escape(line.removeprefix(QUESTION)) for line in lines)
    return "".join(f"<p>{line}</p>" for line in said)


def _columns(labelling: Labelling) -> str:
    """Return what was understood of every column."""
    table = labelling.table
    if not len(table.columns):
        return ""
    notes = "".join(f"<p>Read as {html.escape(printable(n))}.</p>" for n in table.notes)
    rows = [list(map(_cell, row)) for row in table.columns.rows[:_MOST_COLUMNS]]
    more = len(table.columns) - _MOST_COLUMNS
    last = f"<p class='soft'>and {more:,} columns more</p>" if more > 0 else ""
    return notes + _table(COLUMN_HEADER, rows) + last


def _how(labelling: Labelling) -> str:
    try:
        number = version("icssl")
    except PackageNotFoundError:  # run from a source tree that is not installed
        number = "from a source tree"
    return (
        f"<p>icssl {number}, model: {html.escape(printable(labelling.model))}. The model "
        "was trained on synthetic tables only. It read this table, all rows at once, and "
        "trained nothing; the same table gives the same labels. <i>Probability</i> is that "
        "of the label among the classes that have a label. <i>Like a labelled row</i> (the "
        "column <code>reach</code>) is from 0 to 1: how alike the row is to the labelled "
        "row that is most like it; near 0 the label is hardly more than a guess. A class "
        "without any label can never be predicted.</p>"
    )


def _bar(share: float, colour: str = "var(--accent)") -> str:
    width = f"width:{100 * min(max(share, 0.0), 1.0):.0f}%;background:{colour}"
    return f"<span class='bar' aria-hidden='true'><i style='{width}'></i></span>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], look: str = "") -> str:
    """Return a table; cells are HTML, and the header is text."""
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f"<div class='scroll {look}'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
