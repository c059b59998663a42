"""Pictures of a report, as SVG that needs no other file and follows the page's colours."""

import html
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from icssl._util.colours import plane_coordinates
from icssl._util.errors import printable
from icssl._util.percent import percent
from icssl.app.labelling import Labelling
from icssl.app.tally import NAME

MOST_POINTS = 5_000  # drawn: more only hide each other, and make the page heavy
_COLOURS, _SYMBOLS = 7, 5  # that tell 35 classes apart
_WIDTH, _HEIGHT, _EDGE = 900, 480, 24
_BINS = 20
_BASE, _TALL = 170, 150  # where the bars of a histogram stand, and the highest of them


def symbol_path(code: int, x: float, y: float, size: float) -> str:
    """Return a symbol of SVG at a place, by class: not only colours tell classes apart.

    The page of ``icssl explore`` has the same five in the same order.
    """
    r = size
    kind = code % _SYMBOLS
    if kind == 0:
        return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    if kind == 1:
        side = 1.8 * r
        return f"M{x - side / 2:.1f} {y - side / 2:.1f}h{side:.1f}v{side:.1f}h{-side:.1f}z"
    if kind == 2:
        d = 1.3 * r
        return f"M{x:.1f} {y - d:.1f}l{d:.1f} {d:.1f}l{-d:.1f} {d:.1f}l{-d:.1f} {-d:.1f}z"
    arm = 0.45 * r
    long = 1.1 * r - arm
    if kind == 3:
        return (
            f"M{x - arm:.1f} {y - arm - long:.1f}h{2 * arm:.1f}v{long:.1f}h{long:.1f}"
            f"v{2 * arm:.1f}h{-long:.1f}v{long:.1f}h{-2 * arm:.1f}v{-long:.1f}h{-long:.1f}"
            f"v{-2 * arm:.1f}h{long:.1f}z"
        )
    # A cross that stands on two feet: four arms, each by its two sides and its end.
    steps = [(long, -long), (arm, arm), (-long, long), (long, long), (-arm, arm)]
    steps += [(-long, -long), (-long, long), (-arm, -arm), (long, -long)]
    steps += [(-long, -long), (arm, -arm)]
    return f"M{x:.1f} {y - arm:.1f}" + "".join(f"l{a:.1f} {b:.1f}" for a, b in steps) + "z"


def colour_of(code: int) -> str:
    """Return the colour of a class, a variable of the style sheet."""
    return f"var(--c{code % _COLOURS})"


def key_of(code: int) -> str:
    """Return the symbol of a class in its colour, to stand before its name."""
    path = symbol_path(code, 8, 8, 5)
    return (
        "<svg class='key' viewBox='0 0 16 16' aria-hidden='true'>"
        f"<path d='{path}' fill='{colour_of(code)}'/></svg>"
    )


def embedding_svg(labelling: Labelling) -> str:
    """Draw rows in the embedding, filling the frame; each names itself under the mouse."""
    rows = _rows_to_draw(labelling)
    points = _in_frame(plane_coordinates(np.asarray(labelling.embedding, float)))[rows]
    is_labelled = labelling.given_codes[rows] >= 0
    order = np.argsort(is_labelled, kind="stable")  # labelled rows on top
    marks = "".join(_marks(labelling, rows[order], points[order]))
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='rows in the "
        f"embedding, coloured by class'>{marks}</svg>"
    )


def _marks(labelling: Labelling, rows: ndarray, points: ndarray) -> Iterator[str]:
    for row, (x, y) in zip(rows, points, strict=True):
        code, given = int(labelling.codes[row]), labelling.given_codes[row] >= 0
        name = html.escape(printable(labelling.labels[row], NAME))
        said = "has this label" if given else percent(labelling.probability[row])
        outline = " stroke='var(--text)' stroke-width='2.5'" if given else " opacity='0.8'"
        path = symbol_path(code, x, y, 8 if given else 4.5)
        yield (
            f"<path class='p' d='{path}' fill='{colour_of(code)}'{outline}>"
            f"<title>row {row}: {name}, {said}</title></path>"
        )


def _rows_to_draw(labelling: Labelling) -> ndarray:
    """Return all rows, or labelled rows and others evenly spread over a long table."""
    rows = np.arange(len(labelling.given_codes))
    spread = rows[:: max(1, -(-len(rows) // MOST_POINTS))]
    return np.union1d(spread, rows[labelling.given_codes >= 0][:MOST_POINTS])


def _in_frame(points: Float[ndarray, "n 2"]) -> Float[ndarray, "n 2"]:
    """Return points in the units of the picture."""
    low, high = points.min(axis=0), points.max(axis=0)
    share = (points - low) / np.where(high > low, high - low, 1.0)
    share = np.where(high > low, share, 0.5)
    size = np.array([_WIDTH, _HEIGHT]) - 2 * _EDGE
    return _EDGE + np.column_stack([share[:, 0], 1 - share[:, 1]]) * size


def confidence_counts(labelling: Labelling) -> list[int]:
    """Return how many rows get their class with which probability, from chance to one."""
    values = labelling.probability[labelling.unlabelled_rows]
    chance = 1 / len(labelling.classes)
    return np.histogram(values, bins=_BINS, range=(chance, 1))[0].tolist()


def confidence_svg(labelling: Labelling) -> str:
    """Draw these counts as bars; the page has the words, which a phone would shrink."""
    counts, chance = confidence_counts(labelling), 1 / len(labelling.classes)
    width, top = (_WIDTH - 2 * _EDGE) / _BINS, max(1, *counts)
    bars = []
    for place, count in enumerate(counts):
        tall = count / top * _TALL
        low, high = (chance + (1 - chance) * (place + i) / _BINS for i in (0, 1))
        bars.append(
            f"<rect class='p' x='{_EDGE + place * width + 1:.1f}' "
            f"y='{_BASE - tall:.1f}' width='{width - 2:.1f}' height='{tall:.1f}' "
            f"fill='var(--accent)'><title>{count:,} rows from {low:.0%} to {high:.0%}"
            "</title></rect>"
        )
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_BASE + 10}' class='bars' "
        "preserveAspectRatio='none' role='img' aria-label='histogram of the "
        f"probability of the label'>{''.join(bars)}</svg>"
    )
