"""The check that a model is not worse than one that it contains.

A model with more steps can do what one with fewer does; a head that trains gamma can
reach every gamma. Where the larger one is worse, its training fell short, whatever the
loss looked like. A trained head has one gamma for all numbers of labels, and the head
without weights the best for each: where the difference is small, that may be the reason.
"""

from typing import NamedTuple

from icssl.bench.paper import imagenet_published
from icssl.bench.paper.artefact import Cell, Rows
from icssl.bench.paper.statistics import dead_seeds, difference_of
from icssl.bench.paper.table_cells import source_title, title_of
from icssl.bench.paper.verdicts import Evidence, points_text
from icssl.bench.render import Table

_OF_STEPS = ("depth", "as-published")  # tables whose ``size`` is the head's steps
WORSE = 0.005  # a loss of at least so much, beyond its interval, is a failure of training


class _Nested(NamedTuple):
    """Two rows of which the first one's model contains the second one's."""

    artefact: str
    outer: Cell
    inner: Cell


def _pairs(name: str, rows: Rows) -> list[_Nested]:
    """Return every pair of one artefact's rows."""
    found = []
    for cell in rows:
        inner = []
        if name in _OF_STEPS and cell.size in (2, 4):
            inner.append(cell._replace(size=cell.size // 2))
        # A head alone has one number to train, and with the linear kernel none.
        heads = {"orig_icl": "free_head_rbf", "eig_icl": "free_head_eig_rbf"}
        if name == imagenet_published.NAME:
            # Its points are raw, those of the head without weights are scaled.
            del heads["orig_icl"]
        if cell.kernel == "rbf" and cell.method in heads:
            inner.append(cell.on_same_episodes(heads[cell.method]))
        found += [_Nested(name, cell, other) for other in inner if other in rows]
    return found


def nested_table(evidence: Evidence) -> Table:
    """Return the pairs where the larger model is worse, and how many there are in all."""
    lines, total = [], 0
    for name, rows in evidence.items():
        for _, outer, inner in _pairs(name, rows):
            total += 1
            difference = difference_of(rows[outer], rows[inner])
            if difference.high < 0 and difference.mean <= -WORSE:
                about = [name, source_title(outer.source), f"{outer.labels:g}"]
                titles = [_title(name, outer), _title(name, inner)]
                lines.append((*about, *titles, points_text(difference)))
    note = (
        f"In {len(lines)} of {total} comparisons a model is worse than one that it "
        "contains, by half a point or more and beyond the interval over seeds and "
        "episodes: there, training fell short, whatever the loss looked like. A trained "
        "head has one gamma for all numbers of labels, the head without weights the best "
        "for each."
    )
    header = ("table", "source", "labels", "model", "contains", "difference in points")
    notes = (note, _dead_note(evidence))
    return Table("Nested models and dead seeds", header, tuple(lines), notes)


def _title(name: str, cell: Cell) -> str:
    """Return a model with the number that its table varies."""
    if not cell.size:
        return title_of(cell)
    varied = "steps" if name in _OF_STEPS else "training episodes"
    return f"{title_of(cell)}, {cell.size:,} {varied}"


def _dead_note(evidence: Evidence) -> str:
    """Return how many seeds learned nothing, over all models with balanced classes."""
    dead: dict[str, tuple[int, int]] = {}
    for rows in evidence.values():
        for row in rows.values():
            count = dead_seeds(row) if "seeds" in row else None
            if count is not None:
                dead[row.get("key", str(id(row)))] = count, len(row["seeds"])
    seeds = sum(total for _, total in dead.values())
    failed = sum(number for number, _ in dead.values())
    share = f" ({failed / seeds:.1%})" if seeds else ""
    return (
        f"{failed:,} of {seeds:,} scores of single seeds{share} are within two points of "
        "a guess where classes are balanced: those seeds learned nothing there."
    )
