"""A page about a labelled table that needs no other file."""

import base64
import html
import warnings
from collections.abc import Iterable
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure

from icssl._util.errors import printable
from icssl.app.labelling import (
    CLASS_HEADER,
    NAME,
    UNREACHED,
    Labelling,
    class_rows,
    summary_lines,
)
from icssl.bench.plots import COLOURS, add_legend, principal_coordinates, scatter_points
from icssl.bench.render import Table

_LEAST_CERTAIN = 10  # rows shown
MOST_POINTS = 20_000  # drawn: more only hide each other
_PREVIEW = 6  # columns of the table that are shown beside a row

_STYLE = """
body { font-family: sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; margin: 1rem 0; }
th, td { border: 1px solid #ccc; padding: 0.2rem 0.5rem; text-align: left; }
th { background: #f3f3f3; } img { max-width: 100%; }
"""


def report_html(labelling: Labelling) -> str:
    """Return the page: counts, embedding, confidence, doubtful rows, what to label."""
    title = html.escape(printable(labelling.table.name))
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>",
        *(f"<p>{html.escape(line)}</p>" for line in summary_lines(labelling)),
        Table("Classes", CLASS_HEADER, class_rows(labelling)).html(),
        "<h3>Embedding</h3><p>Every point is a row, in two principal coordinates of the "
        "features that the model computed; stars had a label. Rows of a colour in two "
        "places, or two colours in one place, are worth a look.</p>",
        _picture(_draw_embedding(labelling), "embedding coloured by class"),
    ]
    if len(labelling.unlabelled_rows):
        parts += [
            "<h3>Confidence</h3><p>Probability of the label, over rows that came without "
            "one.</p>",
            _picture(_draw_confidence(labelling), "histogram of confidence"),
            _row_table("The least certain rows", labelling, least_certain(labelling)),
            _row_table("The rows worth labelling", labelling, labelling.suggested),
        ]
    return "\n".join([*parts, "</html>"])


def least_certain(labelling: Labelling) -> list[int]:
    """Return the rows without a label whose likeliest class is least likely, in order."""
    rows = labelling.unlabelled_rows
    order = np.argsort(labelling.probability[rows], kind="stable")[:_LEAST_CERTAIN]
    return [int(row) for row in rows[order]]


def row_table(
    labelling: Labelling, rows: Iterable[int]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return header and lines: rows, their two likeliest classes, and their first cells."""
    header = ("row", "label", "probability", "runner-up", "its probability", "reach")
    lines = [(*_verdict(labelling, row), *_preview(labelling, row)) for row in rows]
    return (*header, *_preview_names(labelling)), tuple(lines)


def _row_table(title: str, labelling: Labelling, rows: Iterable[int]) -> str:
    note = (
        "Rows are counted from 0. With a reach below "
        f"{UNREACHED:g}, labelled rows say hardly anything about a row; with more, a "
        "probability near that of the runner-up means that labelled rows disagree."
    )
    return Table(title, *row_table(labelling, rows), (note,)).html()


def _verdict(labelling: Labelling, row: int) -> tuple[str, ...]:
    distribution = labelling.distributions[row]
    second = int(np.argsort(-distribution, kind="stable")[1])
    return (
        f"{row}",
        printable(labelling.labels[row], NAME),
        f"{labelling.probability[row]:.3f}",
        printable(labelling.classes[second], NAME),
        f"{distribution[second]:.3f}",
        f"{labelling.reach[row]:.3g}",
    )


def _preview_names(labelling: Labelling) -> tuple[str, ...]:
    features = labelling.table.features
    names = getattr(features, "columns", range(features.shape[1]))
    return tuple(printable(name, NAME) for name in names[:_PREVIEW])


def _preview(labelling: Labelling, row: int) -> tuple[str, ...]:
    table = labelling.table
    columns = range(min(_PREVIEW, table.features.shape[1]))
    return tuple(printable(table.shown_cell(row, column), NAME) for column in columns)


def _draw_embedding(labelling: Labelling) -> Figure:
    points = np.asarray(labelling.embedding, dtype=np.float64)
    if points.shape[1] < 2:
        points = np.column_stack([points, np.zeros(len(points))])
    rows = _rows_to_draw(labelling)
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    is_labelled = labelling.given_codes[rows] >= 0
    places = principal_coordinates(points)[rows]
    scatter_points(axes, places, labelling.codes[rows], is_labelled)
    legend = {
        name: axes.scatter([], [], c=colour, s=14)
        for name, colour in zip(labelling.classes.tolist(), COLOURS, strict=False)
    }
    more = len(labelling.classes) - len(legend)
    title = f"colours repeat: {more} classes more" if more else None
    add_legend(figure, legend, loc="outside right upper", title=title)
    return figure


def _rows_to_draw(labelling: Labelling) -> np.ndarray:
    """Return all rows, or labelled rows and others evenly spread over a long table."""
    rows = np.arange(len(labelling.given_codes))
    spread = rows[:: max(1, -(-len(rows) // MOST_POINTS))]
    return np.union1d(spread, rows[labelling.given_codes >= 0][:MOST_POINTS])


def _draw_confidence(labelling: Labelling) -> Figure:
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.add_subplot()
    confidence = labelling.probability[labelling.unlabelled_rows]
    axes.hist(confidence, bins=20, range=(0, 1), color=COLOURS[0], edgecolor="white")
    axes.axvline(1 / len(labelling.classes), color="grey", linestyle=":", label="chance")
    axes.set_xlabel("probability of the label")
    axes.set_ylabel("rows")
    axes.legend(fontsize=8)
    return figure


def _picture(figure: Figure, name: str) -> str:
    """Return the figure as text, so that the page needs no other file."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        # A name in letters that the font lacks is drawn as boxes; tables have it whole.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, dpi=110, format="png")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<figure><img alt="{name}" src="data:image/png;base64,{data}"></figure>'
