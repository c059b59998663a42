"""How rows judge a statement: one comparison, its interval, null models, and a verdict.

Every statement has one primary comparison under each protocol, fixed in
:mod:`icssl.bench.paper.statements` before the rows were run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from icssl.bench.paper.artefact import Cell, Profile, Row, Rows
from icssl.bench.paper.statistics import (
    dead_seeds,
    difference_of,
    level_of,
    mean_difference,
    mean_of,
)
from icssl.evaluation.metrics import Estimate, is_explained
from icssl.evaluation.predictors import METHODS

REPRODUCED, DIRECTION = "reproduced", "reproduced in direction"
NOT, ARTEFACT = "not reproduced", "explained by a null model"
INCONCLUSIVE, UNTESTED = "inconclusive", "not testable here"
NOT_RUN, TOO_SMALL = "not run", "the profile is too small"
KINDS = (REPRODUCED, DIRECTION, ARTEFACT, NOT, INCONCLUSIVE, NOT_RUN)
SURVIVES = {
    REPRODUCED: "yes",
    DIRECTION: "in direction only",
    ARTEFACT: "no",
    NOT: "no",
    INCONCLUSIVE: "undecided",
}
BREAK = "<br>"  # between lines of a cell, in Markdown as in HTML
RULES = (
    "Each statement has one primary comparison per protocol, a mean over the cells that "
    "the text names, with a 95% interval over seeds and episodes (a two-way bootstrap). "
    '"Reproduced": the difference is above zero beyond its interval, and the size that '
    'the paper names lies within it or below it. "In direction": above zero, but '
    'smaller. "Explained by a null model": so, but a method of which nothing is trained '
    'comes as far, or within two points. "Not reproduced": below zero, or short of the '
    'size and not above zero. "Inconclusive": the interval leaves it open, or a seed of '
    "the model that the statement praises learned nothing. A statement that names a level "
    "is reproduced where our mean reaches it, and inconclusive where only its interval "
    "does. The best training-free head has its kernel, gamma and features chosen on "
    "{tuning} training episodes for each number of labels, and may read the true "
    "eigenvectors.",
    "As published: the paper's literal model, data, class rules and untuned regressions, "
    "as far as they are printed. Fair: one class rule and the same episodes for all, "
    "scaled points, tuned rivals, our variant of the model, which has {free:,} weights; "
    "the literal one has {paper:,}, and the paper counts {printed:,} without the layers "
    "and heads behind them. Pictures are of the shipped generator and features of CIFAR-10 "
    "or digits, stand-ins for Stable Diffusion and ImageNet100: a verdict on them is about "
    "the method, not about the paper's own data.",
)

Evidence = Mapping[str, Rows]


@dataclass(frozen=True)
class Finding:
    """The answer of our rows to a statement: text, what null models get, verdict."""

    ours: str
    null: str = ""
    verdict: str = NOT_RUN


Judge = Callable[[Profile, Evidence], Finding]


class Pair(NamedTuple):
    """The cell that should be above another one, and its place in the text."""

    place: str
    first: Cell
    second: Cell | None = None


@dataclass(frozen=True)
class Contrast:
    """The mean of the first cells minus the second ones: one number that judges a claim.

    Parameters
    ----------
    artefact : str
        Whose rows are read.
    pairs : tuple of Pair
        What is averaged. Without a second cell, the level of the first.
    least : float
        The size that the paper names: of a difference, or a level. Below zero, how far
        the first may be behind.
    nulls : tuple of str
        Methods that learn nothing; each is put in the place of the first's method.
    """

    artefact: str
    pairs: tuple[Pair, ...]
    least: float = 0.0
    nulls: tuple[str, ...] = ()


def judge_contrast(contrast: Contrast, evidence: Evidence) -> Finding:
    """Return the verdict on one comparison."""
    rows = evidence.get(contrast.artefact, {})
    estimates = _estimates(rows, contrast.pairs)
    if estimates is None:
        return Finding("")
    found = contrast_mean(rows, contrast.pairs)
    is_level = contrast.pairs[0].second is None
    verdict = verdict_of(found, contrast.least, is_level=is_level)
    nulls = _null_estimates(rows, contrast)
    explained = [name for name, e in nulls.items() if is_explained(found.mean - e.mean)]
    if verdict in (REPRODUCED, DIRECTION) and explained:
        verdict = ARTEFACT
    # A dead seed of the other model can only help the statement: it excuses nothing.
    if verdict == NOT and dead_text(rows, [pair.first for pair in contrast.pairs]):
        verdict = INCONCLUSIVE
    both = [cell for pair in contrast.pairs for cell in pair[1:] if cell is not None]
    dead = dead_text(rows, both)
    text = _text(contrast.pairs, estimates, found, is_level)
    if dead:
        text += f"{BREAK}{dead} seeds learned nothing"
    write = _level_text if is_level else points_text
    parts = [f"{METHODS[name]}: {write(e)}" for name, e in nulls.items()]
    return Finding(text, BREAK.join(parts), verdict)


def verdict_of(found: Estimate, least: float, *, is_level: bool = False) -> str:
    """Return the verdict on an estimate, without a look at null models."""
    if is_level or least < 0:  # a level to reach, or how far behind is allowed
        if (found.mean if is_level else found.low) >= least:
            return REPRODUCED
        return NOT if found.high < least else INCONCLUSIVE
    if found.low > 0:
        return REPRODUCED if found.high >= least else DIRECTION
    if found.high < least or found.high < 0:
        return NOT
    return INCONCLUSIVE


def _estimates(rows: Rows, pairs: Sequence[Pair]) -> list[Estimate] | None:
    found = []
    for _, first, second in pairs:
        if first not in rows or (second is not None and second not in rows):
            return None
        row = rows[first]
        found.append(level_of(row) if second is None else difference_of(row, rows[second]))
    return found


def _null_estimates(rows: Rows, contrast: Contrast) -> dict[str, Estimate]:
    """Return the same comparison with null models in place of the method it is about."""
    found = {}
    for name in contrast.nulls:
        pairs = [
            Pair(place, first.on_same_episodes(name), _swapped(second, first.method, name))
            for place, first, second in contrast.pairs
        ]
        estimates = _estimates(rows, pairs)
        if estimates is not None:
            found[name] = contrast_mean(rows, pairs)
    return found


def contrast_mean(rows: Rows, pairs: Sequence[Pair]) -> Estimate:
    """Return the mean over pairs; those of one source share models and points."""
    groups: dict[str, list[tuple[Row, Row | None]]] = {}
    for _, first, second in pairs:
        both = (rows[first], None if second is None else rows[second])
        groups.setdefault(first.source, []).append(both)
    sizes = [len(group) for group in groups.values()]
    assert len(set(sizes)) == 1  # a mean over sources, each with as many pairs
    return mean_of([mean_difference(group) for group in groups.values()])


def _swapped(second: Cell | None, method: str, null: str) -> Cell | None:
    """Return the cell that is subtracted: the null model's, if of the same method."""
    if second is None or second.method != method:
        return second
    return second.on_same_episodes(null)


def dead_text(rows: Rows, cells: Iterable[Cell]) -> str:
    """Return how many seeds of some models learned nothing, as text.

    A model is judged at the most labels of those compared: a seed may be no better than a
    guess where the task is hard, and have learned all the same.
    """
    easiest: dict[Cell, Cell] = {}
    for cell in sorted(cells, key=lambda cell: cell.labels):
        easiest[cell._replace(labels=0)] = cell
    counts = [(dead_seeds(rows[c]), len(rows[c]["seeds"])) for c in easiest.values()]
    dead = sum(n or 0 for n, _ in counts)
    total = sum(seeds for n, seeds in counts if n is not None)
    return f"{dead} of {total}" if dead else ""


def _text(
    pairs: Sequence[Pair], estimates: Sequence[Estimate], found: Estimate, is_level: bool
) -> str:
    write = _level_text if is_level else points_text
    each = [f"{p.place}: {write(e)}" for p, e in zip(pairs, estimates, strict=True)]
    unit = "" if is_level else " points"
    if len(each) == 1:
        return f"{each[0]}{unit}"
    if len(each) > 9:
        return f"mean of {len(each)}: {write(found)}{unit}"
    return f"mean {write(found)}{unit}{BREAK}{', '.join(each)}"


def points_text(difference: Estimate) -> str:
    """Return a difference of accuracies in points, with its interval."""
    return f"{100 * difference.mean:+.1f} ± {100 * difference.half_width:.1f}"


def _level_text(level: Estimate) -> str:
    return f"{level.mean:.3f} ± {level.half_width:.3f}"


def tally(published: Sequence[str], fair: Sequence[str], others: int) -> str:
    """Return how many statements have which verdict, those on stand-ins counted only."""
    survive = Counter(SURVIVES.get(verdict, NOT_RUN) for verdict in fair)
    kinds = ("yes", "in direction only", "no", "undecided", NOT_RUN)
    answers = ", ".join(f"{kind} {survive[kind]}" for kind in kinds if survive[kind])
    return (
        f"Of {len(published) + others} statements, {len(published)} can be tested here. "
        f"As published: {_counts_text(published)}. Under a fair protocol they survive: "
        f"{answers}. The {others} others need data that are not public here, and are "
        "tested on stand-ins."
    )


def _counts_text(verdicts: Sequence[str]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{kind} {counts[kind]}" for kind in KINDS if counts[kind])
