"""How rows judge a claim: comparisons with intervals, as text, and a verdict."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from icssl.bench.paper.artefact import Cell, Profile, Rows
from icssl.bench.paper.table_cells import (
    compare_cells,
)
from icssl.evaluation.metrics import Estimate

HOLDS, IN_PART, NOT = "holds", "holds in part", "does not hold"
NO_VERDICT, UNTESTED = "no verdict", "cannot be tested here"
UNDERTRAINED = f"{NO_VERDICT}, models were still improving"
NO_ROWS = f"{NO_VERDICT}, rows are missing"
TOO_SMALL = f"{NO_VERDICT}, the profile is too small"
BREAK = "<br>"  # between lines of a cell, in Markdown as in HTML
RULES = (
    "A claim holds if every comparison it makes comes out beyond the 95% interval and by "
    "the stated margin, in part if at least half do. Intervals are over test episodes, for "
    "these seeds, paired where both sides saw the same episodes, and not corrected for the "
    "number of comparisons. Pictures are of the shipped generator and features of CIFAR-10 "
    "or digits, stand-ins for Stable Diffusion and ImageNet100: a verdict on them is about "
    "the method, not about the paper's own data.",
    '"3: +4.8 ± 0.8" reads: with 3 labels, 4.8 points above the other. "2 of 9" after such '
    "a line: so many of its comparisons came out as claimed.",
)

Evidence = Mapping[str, Rows]


@dataclass(frozen=True)
class Finding:
    """The answer of our rows to a claim: text, share of the largest class, verdict."""

    ours: str
    majority: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and how its rows judge it."""

    says: str
    judge: Callable[[Profile, Evidence], Finding]
    stand_in: str = ""  # what it is tested on in place of the paper's own data
    tables: Callable[[], str] = lambda: ""  # what the paper's own tables say about it


class Pair(NamedTuple):
    """One comparison: its place in the text, and the cell that should be above another."""

    place: str
    first: Cell
    second: Cell


def pairs_of(firsts: Sequence[Cell], seconds: Sequence[Cell]) -> list[Pair]:
    """Return comparisons of cells one by one, each placed by its number of labels."""
    both = zip(firsts, seconds, strict=True)
    return [Pair(f"{first.labels:g}", first, second) for first, second in both]


def by_margin(
    rows: Rows, series: Mapping[str, Sequence[Pair]], least: float = 0.0
) -> Finding:
    """Judge whether the first of each pair is above the second, by at least ``least``.

    A comparison is won if the difference lies above zero beyond its interval and is at
    least ``least``. The claim holds if all are won, in part if half of them are. The text
    has one line per series: its name, every difference, and how many were won.
    """
    lines, used, n_won = [], [], 0
    for name, pairs in series.items():
        texts, n_ahead = [], 0
        for place, first, second in pairs:
            comparison = compare_cells(rows, first, second)
            if comparison is None:
                return no_rows()
            difference = comparison.difference
            texts.append(f"{place}: {points_text(difference)}")
            n_ahead += difference.low > 0 and difference.mean >= least
            used += [first, second]
        parts = [name] if name else []
        parts += [f"{', '.join(texts)} points", f"{n_ahead} of {len(pairs)}"]
        lines.append("; ".join(parts))
        n_won += n_ahead
    total = sum(map(len, series.values()))
    if len(series) > 1:
        lines.append(f"in all {n_won} of {total}")
    return finding(rows, used, BREAK.join(lines), verdict_of_share(n_won, total))


def by_level(rows: Rows, cell: Cell, level: float) -> Finding:
    """Judge whether accuracy is at or above a level, within the interval."""
    if cell not in rows:
        return no_rows()
    value = rows[cell]["metrics"]["accuracy"]
    high, low = value["mean"] + value["half_width"], value["mean"] - value["half_width"]
    verdict = HOLDS if low >= level else (IN_PART if high >= level else NOT)
    text = f"{cell.labels:g}: {value['mean']:.3f} ± {value['half_width']:.3f}"
    return finding(rows, [cell], text, verdict)


def verdict_of_share(n_won: int, total: int) -> str:
    """Return the verdict when so many comparisons came out as claimed."""
    if n_won == total:
        return HOLDS
    return IN_PART if 2 * n_won >= total else NOT


def points_text(difference: Estimate) -> str:
    """Return a difference of accuracies in points, with its interval."""
    return f"{100 * difference.mean:+.1f} ± {100 * difference.half_width:.1f}"


def finding(rows: Rows, cells: Sequence[Cell], text: str, verdict: str) -> Finding:
    """Return a verdict from rows, unless one of their models was still improving."""
    used = [rows[cell] for cell in cells]
    if any(row.get("undertrained") for row in used):
        verdict = UNDERTRAINED
    shares = sorted(
        {f"{row['majority_rate']:.3f}" for row in used if "majority_rate" in row}
    )
    return Finding(text, " to ".join(dict.fromkeys([*shares[:1], *shares[-1:]])), verdict)


def no_rows() -> Finding:
    """Return the finding where a row is missing."""
    return Finding("", "", NO_ROWS)


def verdict_text(claim: Claim, answer: Finding) -> str:
    """Return a verdict; other data than the paper's do not test a claim about its data."""
    if not claim.stand_in or answer.verdict in (NO_ROWS, TOO_SMALL):
        return answer.verdict
    return f"{UNTESTED}; with {claim.stand_in}: {answer.verdict}"


def tally(answers: Sequence[tuple[Claim, Finding]]) -> str:
    """Return how many claims have which verdict, those on stand-ins separately."""
    testable = [answer.verdict for claim, answer in answers if not claim.stand_in]
    others = [answer.verdict for claim, answer in answers if claim.stand_in]
    return (
        f"Of {len(answers)} claims, {len(testable)} can be tested here: "
        f"{_counts_text(testable)}. Of the {len(others)} others, with stand-ins for their "
        f"data: {_counts_text(others)}."
    )


def _counts_text(verdicts: Sequence[str]) -> str:
    kinds = (HOLDS, IN_PART, NOT, NO_VERDICT)
    # Two verdicts give their reason after a comma.
    counts = Counter(verdict.partition(",")[0] for verdict in verdicts)
    return ", ".join(f"{kind} {counts[kind]}" for kind in kinds)
