"""How rows judge a claim: comparisons with intervals, in words, and a verdict."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from icssl.bench.paper.artefact import Cell, Profile, Rows
from icssl.bench.paper.tables import compared
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
    """What we found: in words and numbers, the share of the largest class, a verdict."""

    ours: str
    majority: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and how its rows judge it."""

    says: str
    judge: Callable[[Profile, Evidence], Finding]
    stand_in: str = ""  # what it is tested on in place of the paper's own data
    tables: Callable[[], str] = lambda: ""  # what the paper's own tables say of it


class Pair(NamedTuple):
    """A comparison: where it stands in the text, and what is to be above what."""

    place: str
    first: Cell
    second: Cell


def pairs_of(firsts: Sequence[Cell], seconds: Sequence[Cell]) -> list[Pair]:
    """Cells one by one, each with its number of labels for a place."""
    both = zip(firsts, seconds, strict=True)
    return [Pair(f"{first.labels:g}", first, second) for first, second in both]


def by_margin(
    rows: Rows, series: Mapping[str, Sequence[Pair]], least: float = 0.0
) -> Finding:
    """The first of each pair above the second, by at least so many points.

    A comparison is won if the difference lies above zero beyond its interval and is at
    least ``least``. The claim holds if all are won, in part if half of them are. Each
    series has a line with its name, every difference, and how many were won.
    """
    lines, won, used = [], [], []
    for name, pairs in series.items():
        texts, ahead = [], 0
        for place, first, second in pairs:
            found = compared(rows, first, second)
            if found is None:
                return missing()
            difference = found.difference
            texts.append(f"{place}: {points(difference)}")
            ahead += difference.low > 0 and difference.mean >= least
            used += [first, second]
        told = [name] if name else []
        told += [f"{', '.join(texts)} points", f"{ahead} of {len(pairs)}"]
        lines.append("; ".join(told))
        won.append(ahead)
    total = sum(map(len, series.values()))
    if len(series) > 1:
        lines.append(f"in all {sum(won)} of {total}")
    return finding(rows, used, BREAK.join(lines), share_of(sum(won), total))


def by_level(rows: Rows, cell: Cell, level: float) -> Finding:
    """Accuracy at or above a level, within the interval."""
    if cell not in rows:
        return missing()
    value = rows[cell]["metrics"]["accuracy"]
    high, low = value["mean"] + value["half_width"], value["mean"] - value["half_width"]
    verdict = HOLDS if low >= level else (IN_PART if high >= level else NOT)
    text = f"{cell.labels:g}: {value['mean']:.3f} ± {value['half_width']:.3f}"
    return finding(rows, [cell], text, verdict)


def share_of(reached: int, of: int) -> str:
    """The verdict when so many comparisons came out as claimed."""
    if reached == of:
        return HOLDS
    return IN_PART if 2 * reached >= of else NOT


def points(difference: Estimate) -> str:
    """A difference of accuracies in points, with its interval."""
    return f"{100 * difference.mean:+.1f} ± {100 * difference.half_width:.1f}"


def finding(rows: Rows, cells: Sequence[Cell], text: str, verdict: str) -> Finding:
    """A verdict from rows, unless one of their models was still improving."""
    used = [rows[cell] for cell in cells]
    if any(row.get("undertrained") for row in used):
        verdict = UNDERTRAINED
    shares = sorted(
        {f"{row['majority_rate']:.3f}" for row in used if "majority_rate" in row}
    )
    return Finding(text, " to ".join(dict.fromkeys([*shares[:1], *shares[-1:]])), verdict)


def missing() -> Finding:
    """What is found where a row is not there."""
    return Finding("", "", NO_ROWS)


def verdict_of(claim: Claim, found: Finding) -> str:
    """A claim about data that cannot be had is not tested by other data."""
    if not claim.stand_in or found.verdict in (NO_ROWS, TOO_SMALL):
        return found.verdict
    return f"{UNTESTED}; with {claim.stand_in}: {found.verdict}"


def tally(judged: Sequence[tuple[Claim, Finding]]) -> str:
    """How many claims came out how, those on stand-ins apart."""
    own = [found.verdict for claim, found in judged if not claim.stand_in]
    others = [found.verdict for claim, found in judged if claim.stand_in]
    return (
        f"Of {len(judged)} claims, {len(own)} can be tested here: {_counts(own)}. Of the "
        f"{len(others)} others, with stand-ins for their data: {_counts(others)}."
    )


def _counts(verdicts: Sequence[str]) -> str:
    kinds = (HOLDS, IN_PART, NOT, NO_VERDICT)
    found = Counter(verdict.partition(",")[0] for verdict in verdicts)
    return ", ".join(f"{kind} {found[kind]}" for kind in kinds)
