"""What each claim of the paper compares: one function per claim, from rows to a finding."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from icssl.bench.paper import curves as label_curves
from icssl.bench.paper import imagenet
from icssl.bench.paper.artefact import Cell, Profile
from icssl.bench.paper.image_transfer import CURVE_SET, SETS, transfer_cell
from icssl.bench.paper.table_cells import (
    KERNELS,
    SURFACES,
    compare_cells,
    source_title,
)
from icssl.bench.paper.verdicts import (
    BREAK,
    HOLDS,
    IN_PART,
    NOT,
    Evidence,
    Finding,
    Pair,
    by_level,
    by_margin,
    finding,
    no_rows,
    pairs_of,
    points_text,
    verdict_of_share,
)
from icssl.evaluation.metrics import Estimate
from icssl.evaluation.predictors import METHODS

_LEVEL = 0.02  # two methods are level if the whole interval lies within so much
_JUMP = 0.05  # a curve without a jump has its largest gain somewhere too
_PEERS = (("eig_icl", True), ("orig_icl", True), ("eig_lr", False), ("orig_rbf_lr", False))


def _along(
    source: str, budgets: Sequence[int], method: str, kernel: str = "rbf"
) -> list[Cell]:
    return [Cell(source, labels, method, kernel) for labels in budgets]


def _over_eigenmaps(
    profile: Profile, evidence: Evidence, source: str, least: float
) -> Finding:
    budgets = label_curves.budgets_of(profile, source)
    ours, eig = (_along(source, budgets, method) for method in ("e2e_icl", "eig_icl"))
    return by_margin(evidence["label-curves"], {"": pairs_of(ours, eig)}, least)


def cylinder_margin(profile: Profile, evidence: Evidence) -> Finding:
    """Judge E2E over Eig+ICL on the cylinder."""
    return _over_eigenmaps(profile, evidence, "cylinder", 0.05)


def product_margin(profile: Profile, evidence: Evidence) -> Finding:
    """Judge E2E over Eig+ICL on the product."""
    return _over_eigenmaps(profile, evidence, "product", 0.08)


def cylinder_level(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether E2E reaches 90% on the cylinder with a quarter of the labels."""
    labels = min((m for m in profile.budgets if m >= 25), default=max(profile.budgets))
    return by_level(
        evidence["label-curves"], Cell("cylinder", labels, "e2e_icl", "rbf"), 0.9
    )


def every_baseline(profile: Profile, evidence: Evidence) -> Finding:
    """Judge E2E over every other method of the paper on all manifolds, both kernels."""
    rows, used = evidence["label-curves"], []
    won: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for source in SURFACES:
        for kernel in KERNELS:
            for cell in _along(source, profile.budgets, "e2e_icl", kernel):
                for name, has_kernel in _PEERS:
                    other = Cell(source, cell.labels, name, kernel if has_kernel else "")
                    against = compare_cells(rows, cell, other)
                    if against is None:
                        return no_rows()
                    total[name] += 1
                    won[name] += against.verdict == "ahead"
                    used += [cell, other]
    lines = [f"above {METHODS[name]}; {won[name]} of {total[name]}" for name, _ in _PEERS]
    lines.append(f"in all {won.total()} of {total.total()}")
    verdict = verdict_of_share(won.total(), total.total())
    return finding(rows, used, BREAK.join(lines), verdict)


def rbf_regression(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether Orig+RBF-LR is below Eig+ICL and Eig+LR on the cylinder."""
    flat = _along("cylinder", profile.budgets, "orig_rbf_lr", "")
    series = {
        f"{METHODS[method]} minus Orig+RBF-LR": pairs_of(
            _along("cylinder", profile.budgets, method, kernel), flat
        )
        for method, kernel in (("eig_icl", "rbf"), ("eig_lr", ""))
    }
    return by_margin(evidence["label-curves"], series)


def outside_cylinder(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether training on the other four manifolds gains 3 points on the cylinder."""
    inside = _along("cylinder", profile.budgets, "e2e_icl")
    outside = [cell._replace(setting="ood") for cell in inside]
    return by_margin(evidence["label-curves"], {"": pairs_of(outside, inside)}, 0.03)


def outside_levels(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether E2E is above the largest class out of distribution, at radius 0.5."""
    rows, lines, above, used = evidence["id-ood"], [], 0, []
    for source in ("cylinder", "sphere", "torus"):
        cell = Cell(source, 39, "e2e_icl", "rbf", "ood", 0.5)
        if cell not in rows:
            return no_rows()
        row = rows[cell]
        value, share = row["metrics"]["accuracy"], row["majority_rate"]
        balanced = row["metrics"]["balanced_accuracy"]["mean"]
        above += value["mean"] - value["half_width"] > share
        lines.append(
            f"{source} {value['mean']:.3f} ± {value['half_width']:.3f} where the largest "
            f"class has {share:.3f} (balanced accuracy {balanced:.3f})"
        )
        used.append(cell)
    lines.append(f"above the largest class in {above} of 3")
    return finding(rows, used, BREAK.join(lines), verdict_of_share(above, 3))


def images_at(labels: int, level: float) -> Callable[[Profile, Evidence], Finding]:
    """Return a judge of zero-shot accuracy on image manifolds at a number of labels."""

    def judge(profile: Profile, evidence: Evidence) -> Finding:
        cell = transfer_cell(labels, "e2e_icl", "rbf", CURVE_SET)
        return by_level(evidence["image-transfer"], cell, level)

    return judge


def images_trained(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether E2E is near 100% when it is trained on image manifolds."""
    return by_level(evidence["image-transfer"], Cell("images", 39, "e2e_icl", "rbf"), 0.98)


def best_sets(profile: Profile, evidence: Evidence) -> Finding:
    """Judge sets with both the Swiss roll and the torus over those that lack one."""
    cells = {_all_but(four): transfer_cell(39, "e2e_icl", "rbf", four) for four in SETS}
    lacking = ("all but swiss roll", "all but torus")
    series = {
        f"39 labels, {name}, minus": [Pair(other, cell, cells[other]) for other in lacking]
        for name, cell in cells.items()
        if name not in lacking
    }
    return by_margin(evidence["image-transfer"], series)


def _all_but(four: Sequence[str]) -> str:
    (left_out,) = set(SURFACES) - set(four)
    return f"all but {source_title(left_out)}"


def few_labels(profile: Profile, evidence: Evidence) -> Finding:
    """Judge E2E with 3 labelled pictures over other methods with 30."""
    ours = transfer_cell(3, "e2e_icl", "rbf", CURVE_SET)
    others = [ours._replace(labels=30, method="eig_icl")]
    others += [Cell("images", 30, name) for name in ("svc_rbf", "label_spreading")]
    pairs = [Pair(METHODS[other.method], ours, other) for other in others]
    return by_margin(evidence["image-transfer"], {"3 labels, minus others with 30": pairs})


def _on_features(profile: Profile, labels: int, method: str, size: int) -> Cell:
    kernel = "" if method == "transformer" else "rbf"
    return Cell(profile.features, labels, method, kernel, size=size)


class _Gain(NamedTuple):
    """The largest rise of a curve, and the two sizes between which it lies."""

    low: int
    high: int
    by: Estimate


def _largest(sizes: Sequence[int], gains: Sequence[Estimate]) -> _Gain:
    place = max(range(len(gains)), key=lambda i: gains[i].mean)
    return _Gain(sizes[place], sizes[place + 1], gains[place])


def transition(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether the baseline gains most around 1,200 episodes, in separation too."""
    rows, sizes = evidence["imagenet"], profile.sizes
    cells = [_on_features(profile, 3, "transformer", size) for size in sizes]
    separations = [imagenet.method_value(rows, cell, "separation_second") for cell in cells]
    rises = [compare_cells(rows, last, first) for first, last in pairwise(cells)]
    if any(point is None for point in (*separations, *rises)):
        return no_rows()
    accuracy = _largest(sizes, [rise.difference for rise in rises if rise])
    # Rows have no separation of single episodes, so this interval is not paired.
    steps = pairwise(point for point in separations if point)
    separation = _largest(
        sizes,
        [
            Estimate(last[0] - first[0], math.hypot(first[1], last[1]), profile.episodes)
            for first, last in steps
        ],
    )
    jumps = accuracy.by.mean > _JUMP and accuracy.by.low > 0
    near = jumps and accuracy.low <= 1200 <= accuracy.high
    together = jumps and separation.by.low > 0 and accuracy[:2] == separation[:2]
    verdict = HOLDS if near and together else (IN_PART if near or together else NOT)
    text = (
        f"largest gain of accuracy {points_text(accuracy.by)} points from "
        f"{accuracy.low:,} to {accuracy.high:,} episodes{BREAK}of separation "
        f"{separation.by.mean:+.3f} ± {separation.by.half_width:.3f} from "
        f"{separation.low:,} to {separation.high:,} (first seed)"
    )
    return finding(rows, cells, text, verdict)


def small_and_large_data(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether E2E is ahead of the baseline at the smallest size, and level last."""
    rows, differences, used = evidence["imagenet"], [], []
    sizes = (min(profile.sizes), max(profile.sizes))
    for size in sizes:
        pair = [
            _on_features(profile, 3, method, size) for method in ("e2e_icl", "transformer")
        ]
        against = compare_cells(rows, *pair)
        if against is None:
            return no_rows()
        differences.append(against.difference)
        used += pair
    few, many = differences
    right = (few.low > 0) + (max(-many.low, many.high) <= _LEVEL)
    ends = zip(sizes, differences, strict=True)
    texts = [f"{size:,} episodes: {points_text(difference)}" for size, difference in ends]
    return finding(rows, used, f"{', '.join(texts)} points", verdict_of_share(right, 2))


def above_eigenmaps(profile: Profile, evidence: Evidence) -> Finding:
    """Judge E2E and the baseline over Eig+ICL on features, at the largest size."""
    size = max(profile.sizes)
    eig = _on_features(profile, 3, "eig_icl", size)
    pairs = [
        Pair(METHODS[name], _on_features(profile, 3, name, size), eig)
        for name in ("e2e_icl", "transformer")
    ]
    return by_margin(evidence["imagenet"], {f"3 labels, {size:,} episodes": pairs})


def alignment_grows(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether mutual kNN of all three pairs grows from smallest to largest size."""
    rows, lines, grown, used = evidence["imagenet"], [], 0, []
    for pair in imagenet.PAIRS:
        ends = []
        for size in (min(profile.sizes), max(profile.sizes)):
            cell = imagenet.pair_cell(profile, 3, pair, size)
            if cell not in rows:
                return no_rows()
            ends.append(rows[cell]["measures"]["mutual_knn"])
            used.append(cell)
        first, last = ends
        half_width = math.hypot(first["half_width"], last["half_width"])
        grown += last["mean"] - first["mean"] > half_width
        name = " and ".join(imagenet.NAMES[side] for side in pair)
        lines.append(
            f"{name} {first['mean']:.3f} to {last['mean']:.3f} (± {half_width:.3f})"
        )
    verdict = verdict_of_share(grown, len(lines))
    lines.append(f"grown in {grown} of {len(imagenet.PAIRS)}")
    return finding(rows, used, BREAK.join(lines), verdict)


def _at_depth(profile: Profile, kernel: str, depth: int) -> list[Cell]:
    cells = _along("product", profile.product_budgets, "e2e_icl", kernel)
    return [cell._replace(size=depth) for cell in cells]


def depth_helps(profile: Profile, evidence: Evidence) -> Finding:
    """Judge two steps over one on the product, both kernels."""
    series = {
        f"{kernel.replace('rbf', 'RBF')} kernel": pairs_of(
            _at_depth(profile, kernel, 2), _at_depth(profile, kernel, 1)
        )
        for kernel in KERNELS
    }
    return by_margin(evidence["depth"], series)


def rbf_over_linear(profile: Profile, evidence: Evidence) -> Finding:
    """Judge the RBF kernel over the linear one on the product at depths one and two."""
    series = {
        name: pairs_of(
            _at_depth(profile, "rbf", depth), _at_depth(profile, "linear", depth)
        )
        for depth, name in ((1, "one step"), (2, "two steps"))
    }
    return by_margin(evidence["depth"], series)


def ablations_lose(profile: Profile, evidence: Evidence) -> Finding:
    """Judge whether the full model is 10 points or more above both ablations."""
    full = _along("product", profile.product_budgets, "e2e_icl")
    names = {"lap_linear": "a linear Laplacian", "lap_pe_1layer": "one layer per stage"}
    series = {
        f"over {name}": pairs_of(full, [c._replace(method=method) for c in full])
        for method, name in names.items()
    }
    return by_margin(evidence["ablation"], series, 0.10)
