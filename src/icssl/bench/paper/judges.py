"""What each statement of the paper compares: from rows to a finding."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from icssl.bench.paper import imagenet
from icssl.bench.paper.artefact import Cell, Profile, Rows
from icssl.bench.paper.image_transfer import CURVE_SET, SETS, transfer_cell
from icssl.bench.paper.params import published_parameters
from icssl.bench.paper.statistics import (
    difference_of,
    difference_of_gains,
    mean_of,
    measure_of,
    rank_correlation,
)
from icssl.bench.paper.table_cells import SURFACES, source_title
from icssl.bench.paper.verdicts import (
    BREAK,
    DIRECTION,
    INCONCLUSIVE,
    NOT,
    NOT_RUN,
    REPRODUCED,
    Contrast,
    Evidence,
    Finding,
    Judge,
    Pair,
    contrast_mean,
    dead_text,
    judge_contrast,
    points_text,
    verdict_of,
)
from icssl.bench.probes import EIG
from icssl.evaluation.metrics import Estimate
from icssl.evaluation.predictors import METHODS

_MATCHED = 2  # times as many parameters are still matched in scale
FAIR = imagenet.ARTEFACT.name  # the table on features, unless another one is named
_SIDES = {"e2e_icl": "E2E", "transformer": "the baseline", EIG: "eigenvectors"}
_JUMP = 0.05  # a curve without a jump has its largest gain somewhere too


def over(
    artefact: str, pairs: Iterable[Pair], least: float = 0.0, nulls: Sequence[str] = ()
) -> Judge:
    """Return the judge of one comparison, see :class:`Contrast`."""
    contrast = Contrast(artefact, tuple(pairs), least, tuple(nulls))

    def judge(profile: Profile, evidence: Evidence) -> Finding:
        return judge_contrast(contrast, evidence)

    return judge


def within(
    artefact: str,
    pairs: Iterable[Pair],
    bounds: tuple[float, float],
    nulls: Sequence[str] = (),
) -> Judge:
    """Return the judge of a difference that is said to lie between two bounds.

    Null models are shown and explain nothing: without training there is no difference of
    training, so they lie within the bounds by themselves.
    """
    contrast = Contrast(artefact, tuple(pairs), nulls=tuple(nulls))

    def judge(profile: Profile, evidence: Evidence) -> Finding:
        found = judge_contrast(contrast, evidence)
        if found.verdict == NOT_RUN:
            return found
        rows = evidence[artefact]
        verdict = _verdict_within(rows, contrast.pairs, bounds)
        return Finding(found.ours, found.null, verdict)

    return judge


def _verdict_within(rows: Rows, pairs: Sequence[Pair], bounds: tuple[float, float]) -> str:
    """Return the verdict on a mean difference by two bounds, and by seeds that failed."""
    mean = contrast_mean(rows, pairs)
    if bounds[0] < mean.low and mean.high < bounds[1]:
        return REPRODUCED
    if mean.high >= bounds[0] and mean.low <= bounds[1]:
        return INCONCLUSIVE
    # Dead seeds of the side that is too low may be all that carries it out of the bounds.
    lower = [p.first if mean.high < bounds[0] else p.second for p in pairs]
    failed = dead_text(rows, [cell for cell in lower if cell is not None])
    return INCONCLUSIVE if failed else NOT


def gains_more(artefact: str, pairs: Sequence[Pair], others: Sequence[Pair]) -> Judge:
    """Return the judge of whether one mean difference is larger than another one."""

    def judge(profile: Profile, evidence: Evidence) -> Finding:
        rows = evidence.get(artefact, {})
        both = (*pairs, *others)
        if any(cell not in rows for pair in both for cell in pair[1:]):
            return Finding("")
        gains = [
            [(rows[pair.first], rows[pair.second]) for pair in each if pair.second]
            for each in (pairs, others)
        ]
        found = difference_of_gains(*gains)
        verdict = verdict_of(found, 0.0)
        if verdict == NOT and dead_text(rows, [pair.first for pair in pairs]):
            verdict = INCONCLUSIVE
        texts = [
            f"{each[0].first.kernel}: {points_text(contrast_mean(rows, each))}"
            for each in (pairs, others)
        ]
        text = f"difference of gains {points_text(found)} points{BREAK}{', '.join(texts)}"
        if dead := dead_text(rows, [cell for pair in both for cell in pair[1:] if cell]):
            text += f"{BREAK}{dead} seeds learned nothing"
        return Finding(text, "", verdict)

    return judge


# --- Pictures


def on_pictures(labels: int) -> list[Pair]:
    """Return the level of E2E on pictures, trained on the surfaces of the curve."""
    cell = transfer_cell(labels, "e2e_icl", "rbf", CURVE_SET)
    return [Pair(f"pictures {labels}", cell)]


def pictures_against(cells: Iterable[Cell], method: str) -> list[Pair]:
    """Return cells on pictures against a method that is trained on none."""
    return [Pair(f"{c.labels:g}", c, Cell("images", c.labels, method)) for c in cells]


def above_eig(cells: Iterable[Cell]) -> list[Pair]:
    """Return cells on pictures against Eig+ICL, trained on the same."""
    return [
        Pair(f"{c.setting} {c.labels:g}", c, c._replace(method="eig_icl")) for c in cells
    ]


def more_labels(cells: Sequence[Cell]) -> list[Pair]:
    """Return the cell of most labels against that of fewest."""
    return [Pair(f"{cells[-1].labels:g} minus {cells[0].labels:g}", cells[-1], cells[0])]


def best_sets() -> list[Pair]:
    """Return sets with both the Swiss roll and the torus against those that lack one."""
    cells = {_left_out(four): transfer_cell(39, "e2e_icl", "rbf", four) for four in SETS}
    lacking = ("swiss roll", "torus")
    return [
        Pair(f"all but {name}, minus all but {other}", cell, cells[other])
        for name, cell in cells.items()
        if name not in lacking
        for other in lacking
    ]


def _left_out(four: Sequence[str]) -> str:
    (left_out,) = set(SURFACES) - set(four)
    return source_title(left_out)


def few_labels(rivals: Sequence[str]) -> list[Pair]:
    """Return E2E with 3 labelled pictures against others with 30."""
    ours = transfer_cell(3, "e2e_icl", "rbf", CURVE_SET)
    return [Pair(METHODS[name], ours, Cell("images", 30, name)) for name in rivals]


# --- Parameters


def scale_matched(profile: Profile, evidence: Evidence) -> Finding:
    """Judge by the paper's own count whether the baseline is as large as E2E."""
    ours = published_parameters("paper")
    theirs = published_parameters("transformer")
    text = f"{theirs:,} parameters against {ours:,}: {theirs / ours:.0f} times as many"
    matched = 1 / _MATCHED <= theirs / ours <= _MATCHED
    return Finding(text, "", REPRODUCED if matched else NOT)


# --- Features of pictures


def _on_features(profile: Profile, method: str, size: int) -> Cell:
    kernel = "" if method == "transformer" else "rbf"
    return Cell(profile.features, 3, method, kernel, size=size)


def few_data(profile: Profile, evidence: Evidence, artefact: str = FAIR) -> Finding:
    """Judge whether E2E is ahead of the baseline at the smallest size."""
    size = min(profile.sizes)
    cells = [_on_features(profile, name, size) for name in ("e2e_icl", "transformer")]
    return over(artefact, [Pair(f"{size:,} episodes", *cells)])(profile, evidence)


def above_eigenmaps(profile: Profile, evidence: Evidence, artefact: str = FAIR) -> Finding:
    """Judge E2E and the baseline over Eig+ICL on features, at the largest size."""
    size = max(profile.sizes)
    eig = _on_features(profile, "eig_icl", size)
    pairs = [
        Pair(_SIDES[name], _on_features(profile, name, size), eig)
        for name in ("e2e_icl", "transformer")
    ]
    return over(artefact, pairs)(profile, evidence)


class _Gain(NamedTuple):
    """The largest rise of a curve, and the two sizes between which it lies."""

    low: int
    high: int
    by: Estimate


def _largest(sizes: Sequence[int], gains: Sequence[Estimate]) -> _Gain:
    place = max(range(len(gains)), key=lambda i: gains[i].mean)
    return _Gain(sizes[place], sizes[place + 1], gains[place])


def transition(profile: Profile, evidence: Evidence, artefact: str = FAIR) -> Finding:
    """Judge whether the baseline gains most around 1,200 episodes, in separation too.

    A fall before the largest gain says that it is seeds, and no transition.
    """
    rows, sizes = evidence.get(artefact, {}), profile.sizes
    cells = [_on_features(profile, "transformer", size) for size in sizes]
    separations = [imagenet.method_value(rows, cell, "separation_second") for cell in cells]
    if any(cell not in rows for cell in cells) or None in separations:
        return Finding("")
    rises = [difference_of(rows[last], rows[first]) for first, last in pairwise(cells)]
    accuracy = _largest(sizes, rises)
    points = [point for point in separations if point]
    # Rows have no separation of single episodes, so this interval is not paired.
    separation = _largest(
        sizes,
        [
            Estimate(last[0] - first[0], math.hypot(first[1], last[1]), profile.episodes)
            for first, last in pairwise(points)
        ],
    )
    jumps = accuracy.by.mean > _JUMP and accuracy.by.low > 0
    near = jumps and accuracy.low <= 1200 <= accuracy.high
    together = jumps and separation.by.low > 0 and accuracy[:2] == separation[:2]
    falls = any(rise.high < 0 for rise in rises)
    verdict = REPRODUCED if near and together else (DIRECTION if near else NOT)
    text = (
        f"largest gain of accuracy {points_text(accuracy.by)} points from "
        f"{accuracy.low:,} to {accuracy.high:,} episodes{BREAK}of separation "
        f"{separation.by.mean:+.3f} ± {separation.by.half_width:.3f} from "
        f"{separation.low:,} to {separation.high:,} ({_seeds_text(rows)})"
    )
    return Finding(text, "", INCONCLUSIVE if falls or not jumps else verdict)


def separation_follows_accuracy(
    profile: Profile, evidence: Evidence, artefact: str = FAIR
) -> Finding:
    """Judge whether separation and accuracy rank models and sizes alike.

    Where separation is stored for the first seed, accuracy is of the first seed too. The
    interval takes the points for independent, which those of one curve are not.
    """
    rows = evidence.get(artefact, {})
    cells = [
        _on_features(profile, method, size)
        for method in ("e2e_icl", "transformer")
        for size in profile.sizes
    ]
    separations = [imagenet.method_value(rows, cell, "separation_second") for cell in cells]
    if any(cell not in rows for cell in cells) or None in separations:
        return Finding("")
    chosen = slice(1) if _seeds_text(rows) == _FIRST else slice(None)
    accuracies = [fmean(rows[cell]["seeds"][chosen]) for cell in cells]
    found = rank_correlation(accuracies, [point[0] for point in separations if point])
    low, high = math.tanh(found.low), math.tanh(found.high)
    text = (
        f"rank correlation {math.tanh(found.mean):.2f} ({low:.2f} to {high:.2f}) over "
        f"{found.count} models ({_seeds_text(rows)})"
    )
    return Finding(text, "", verdict_of(found, 0.0))


_FIRST = "first seed"


def _seeds_text(rows: Rows) -> str:
    """Return of how many seeds the stored measures of representations are."""
    measures = [row["measures"]["mutual_knn"] for row in rows.values() if "measures" in row]
    counts = [len(measure.get("seeds", ())) for measure in measures]
    return f"mean of {max(counts)} seeds" if any(counts) else _FIRST


# --- Alignment


def _mutual(rows: Rows, cell: Cell) -> Estimate | None:
    """Return the mutual kNN of a pair of representations."""
    row = rows.get(cell)
    return None if row is None else measure_of(row["measures"]["mutual_knn"])


def _of_alignments(first: Estimate, second: Estimate) -> Estimate:
    half_width = math.hypot(first.half_width, second.half_width)
    return Estimate(first.mean - second.mean, half_width, 0)


def _compared(rows: Rows, pairs: Sequence[tuple[str, Cell, Cell]]) -> Finding:
    """Judge the mean of differences between alignments."""
    texts, differences = [], []
    for name, first, second in pairs:
        a, b = _mutual(rows, first), _mutual(rows, second)
        if a is None or b is None:
            return Finding("")
        differences.append(_of_alignments(a, b))
        texts.append(f"{name} {a.mean:.3f} against {b.mean:.3f}")
    mean = mean_of(differences)
    verdict = verdict_of(mean, 0.0)
    text = f"mean {mean.mean:+.3f} ± {mean.half_width:.3f}, {_seeds_text(rows)}"
    return Finding(BREAK.join([text, *texts]), "", verdict)


def alignment_grows(profile: Profile, evidence: Evidence, artefact: str = FAIR) -> Finding:
    """Judge whether mutual kNN of all three pairs grows from smallest to largest size."""
    pairs = []
    for pair in imagenet.PAIRS:
        name = " and ".join(_SIDES[side] for side in pair)
        first, last = (
            imagenet.pair_cell(profile, 3, pair, size)
            for size in (min(profile.sizes), max(profile.sizes))
        )
        pairs.append((name, last, first))
    return _compared(evidence.get(artefact, {}), pairs)


def _at_largest(profile: Profile, pair: tuple[str, str]) -> Cell:
    return imagenet.pair_cell(profile, 3, pair, max(profile.sizes))


def closer_to_eigenvectors(
    profile: Profile, evidence: Evidence, artefact: str = FAIR
) -> Finding:
    """Judge the alignment of E2E with eigenvectors over that of the baseline."""
    ours, theirs = (
        _at_largest(profile, (EIG, name)) for name in ("e2e_icl", "transformer")
    )
    pairs = [("E2E and the baseline to eigenvectors:", ours, theirs)]
    return _compared(evidence.get(artefact, {}), pairs)


def closer_to_each_other(
    profile: Profile, evidence: Evidence, artefact: str = FAIR
) -> Finding:
    """Judge the alignment of E2E with the baseline over that with the eigenvectors."""
    both = _at_largest(profile, ("e2e_icl", "transformer"))
    eig = _at_largest(profile, (EIG, "e2e_icl"))
    pairs = [("E2E to the baseline, and to eigenvectors:", both, eig)]
    return _compared(evidence.get(artefact, {}), pairs)
