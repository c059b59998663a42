"""What each claim of the paper compares: one function a claim, from rows to a finding."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from icssl.bench.paper import alignment, imagenet
from icssl.bench.paper import curves as label_curves
from icssl.bench.paper.artefact import Cell, Profile
from icssl.bench.paper.image_transfer import CURVE_SET, SETS
from icssl.bench.paper.runs import KERNELS, SURFACES
from icssl.bench.paper.tables import compared
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
    missing,
    pairs_of,
    points,
    share_of,
)
from icssl.evaluation.metrics import Estimate
from icssl.evaluation.predictors import METHODS

LEVEL = 0.02  # two methods are level if the whole interval lies within so much
JUMP = 0.05  # a curve without a jump has its largest gain somewhere too
PEERS = (("eig_icl", True), ("orig_icl", True), ("eig_lr", False), ("orig_rbf_lr", False))


def _along(
    source: str, budgets: Sequence[int], method: str, kernel: str = "rbf"
) -> list[Cell]:
    return [Cell(source, labels, method, kernel) for labels in budgets]


def _over_eigenmaps(
    profile: Profile, found: Evidence, source: str, least: float
) -> Finding:
    budgets = label_curves.budgets_of(profile, source)
    ours, eig = (_along(source, budgets, method) for method in ("e2e_icl", "eig_icl"))
    return by_margin(found["label-curves"], {"": pairs_of(ours, eig)}, least)


def cylinder_margin(profile: Profile, found: Evidence) -> Finding:
    """E2E over Eig+ICL on the cylinder."""
    return _over_eigenmaps(profile, found, "cylinder", 0.05)


def product_margin(profile: Profile, found: Evidence) -> Finding:
    """E2E over Eig+ICL on the product."""
    return _over_eigenmaps(profile, found, "product", 0.08)


def cylinder_level(profile: Profile, found: Evidence) -> Finding:
    """About 90% on the cylinder from a quarter of the labels on."""
    labels = min((m for m in profile.budgets if m >= 25), default=max(profile.budgets))
    return by_level(found["label-curves"], Cell("cylinder", labels, "e2e_icl", "rbf"), 0.9)


def every_baseline(profile: Profile, found: Evidence) -> Finding:
    """E2E above every other method of the paper on all five manifolds, both kernels."""
    rows, used = found["label-curves"], []
    won: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for source in SURFACES:
        for kernel in KERNELS:
            for cell in _along(source, profile.budgets, "e2e_icl", kernel):
                for name, has_kernel in PEERS:
                    other = Cell(source, cell.labels, name, kernel if has_kernel else "")
                    against = compared(rows, cell, other)
                    if against is None:
                        return missing()
                    total[name] += 1
                    won[name] += against.verdict == "ahead"
                    used += [cell, other]
    lines = [f"above {METHODS[name]}; {won[name]} of {total[name]}" for name, _ in PEERS]
    lines.append(f"in all {won.total()} of {total.total()}")
    verdict = share_of(won.total(), total.total())
    return finding(rows, used, BREAK.join(lines), verdict)


def rbf_regression(profile: Profile, found: Evidence) -> Finding:
    """Orig+RBF-LR below Eig+ICL and Eig+LR on the cylinder."""
    flat = _along("cylinder", profile.budgets, "orig_rbf_lr", "")
    series = {
        f"{METHODS[method]} minus Orig+RBF-LR": pairs_of(
            _along("cylinder", profile.budgets, method, kernel), flat
        )
        for method, kernel in (("eig_icl", "rbf"), ("eig_lr", ""))
    }
    return by_margin(found["label-curves"], series)


def outside_cylinder(profile: Profile, found: Evidence) -> Finding:
    """On the cylinder, trained on the other four 3 points above trained on it."""
    inside = _along("cylinder", profile.budgets, "e2e_icl")
    outside = [cell._replace(setting="ood") for cell in inside]
    return by_margin(found["label-curves"], {"": pairs_of(outside, inside)}, 0.03)


def outside_levels(profile: Profile, found: Evidence) -> Finding:
    """Out of distribution at .93 to .97: more than the share of the largest class."""
    rows, lines, above, used = found["id-ood"], [], 0, []
    for source in ("cylinder", "sphere", "torus"):
        cell = Cell(source, 39, "e2e_icl", "rbf", "ood", "0.5")
        if cell not in rows:
            return missing()
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
    return finding(rows, used, BREAK.join(lines), share_of(above, 3))


def images_at(labels: int, level: float) -> Callable[[Profile, Evidence], Finding]:
    """Zero-shot accuracy on image manifolds at a number of labels."""

    def judge(profile: Profile, found: Evidence) -> Finding:
        cell = Cell("images", labels, "e2e_icl", "rbf", "+".join(CURVE_SET))
        return by_level(found["image-transfer"], cell, level)

    return judge


def images_trained(profile: Profile, found: Evidence) -> Finding:
    """Near 100% when trained on image manifolds."""
    return by_level(found["image-transfer"], Cell("images", 39, "e2e_icl", "rbf"), 0.98)


def best_sets(profile: Profile, found: Evidence) -> Finding:
    """Each set with both the Swiss roll and the torus above each set without one."""
    cells = {
        _all_but(four): Cell("images", 39, "e2e_icl", "rbf", "+".join(four))
        for four in SETS
    }
    lacking = ("all but swiss roll", "all but torus")
    series = {
        f"39 labels, {name}, minus": [Pair(other, cell, cells[other]) for other in lacking]
        for name, cell in cells.items()
        if name not in lacking
    }
    return by_margin(found["image-transfer"], series)


def _all_but(four: Sequence[str]) -> str:
    (left_out,) = set(SURFACES) - set(four)
    return f"all but {left_out.replace('_', ' ')}"


def few_labels(profile: Profile, found: Evidence) -> Finding:
    """E2E with 3 labelled pictures above other methods with 30."""
    ours = Cell("images", 3, "e2e_icl", "rbf", "+".join(CURVE_SET))
    others = [ours._replace(labels=30, method="eig_icl")]
    others += [Cell("images", 30, name) for name in ("svc_rbf", "label_spreading")]
    pairs = [Pair(METHODS[other.method], ours, other) for other in others]
    return by_margin(found["image-transfer"], {"3 labels, minus others with 30": pairs})


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


def transition(profile: Profile, found: Evidence) -> Finding:
    """The baseline's largest gain between two sizes lies around 1,200, with separation."""
    rows, sizes = found["imagenet"], profile.sizes
    cells = [_on_features(profile, 3, "transformer", size) for size in sizes]
    apart = [imagenet.value(rows, cell, "separation_second") for cell in cells]
    rises = [compared(rows, last, first) for first, last in pairwise(cells)]
    if any(point is None for point in (*apart, *rises)):
        return missing()
    accuracy = _largest(sizes, [rise.difference for rise in rises if rise])
    # Rows have no separation of single episodes, so this interval is not paired.
    steps = pairwise(point for point in apart if point)
    separation = _largest(
        sizes,
        [
            Estimate(last[0] - first[0], math.hypot(first[1], last[1]), profile.episodes)
            for first, last in steps
        ],
    )
    jumps = accuracy.by.mean > JUMP and accuracy.by.low > 0
    near = jumps and accuracy.low <= 1200 <= accuracy.high
    together = jumps and separation.by.low > 0 and accuracy[:2] == separation[:2]
    verdict = HOLDS if near and together else (IN_PART if near or together else NOT)
    text = (
        f"largest gain of accuracy {points(accuracy.by)} points from {accuracy.low:,} to "
        f"{accuracy.high:,} episodes{BREAK}of separation {separation.by.mean:+.3f} ± "
        f"{separation.by.half_width:.3f} from {separation.low:,} to {separation.high:,} "
        "(first seed)"
    )
    return finding(rows, cells, text, verdict)


def small_and_large_data(profile: Profile, found: Evidence) -> Finding:
    """E2E ahead of the baseline at the smallest size, within two points at the largest."""
    rows, differences, used = found["imagenet"], [], []
    sizes = (min(profile.sizes), max(profile.sizes))
    for size in sizes:
        pair = [
            _on_features(profile, 3, method, size) for method in ("e2e_icl", "transformer")
        ]
        against = compared(rows, *pair)
        if against is None:
            return missing()
        differences.append(against.difference)
        used += pair
    few, many = differences
    right = (few.low > 0) + (max(-many.low, many.high) <= LEVEL)
    ends = zip(sizes, differences, strict=True)
    texts = [f"{size:,} episodes: {points(difference)}" for size, difference in ends]
    return finding(rows, used, f"{', '.join(texts)} points", share_of(right, 2))


def above_eigenmaps(profile: Profile, found: Evidence) -> Finding:
    """E2E and the baseline above Eig+ICL on features, at the largest size."""
    size = max(profile.sizes)
    eig = _on_features(profile, 3, "eig_icl", size)
    pairs = [
        Pair(METHODS[name], _on_features(profile, 3, name, size), eig)
        for name in ("e2e_icl", "transformer")
    ]
    return by_margin(found["imagenet"], {f"3 labels, {size:,} episodes": pairs})


def alignment_grows(profile: Profile, found: Evidence) -> Finding:
    """Mutual kNN of all three pairs larger at the largest size than at the smallest."""
    rows, lines, grown, used = found["imagenet"], [], 0, []
    for pair in imagenet.PAIRS:
        ends = []
        for size in (min(profile.sizes), max(profile.sizes)):
            cell = Cell(profile.features, 3, "|".join(pair), "rbf", size=size)
            if cell not in rows:
                return missing()
            ends.append(rows[cell]["measures"]["mutual_knn"])
            used.append(cell)
        first, last = ends
        apart = math.hypot(first["half_width"], last["half_width"])
        grown += last["mean"] - first["mean"] > apart
        name = " and ".join(alignment.NAMES[side] for side in pair)
        lines.append(f"{name} {first['mean']:.3f} to {last['mean']:.3f} (± {apart:.3f})")
    verdict = share_of(grown, len(lines))
    lines.append(f"grown in {grown} of {len(imagenet.PAIRS)}")
    return finding(rows, used, BREAK.join(lines), verdict)


def _at_depth(profile: Profile, kernel: str, depth: int) -> list[Cell]:
    cells = _along("product", profile.product_budgets, "e2e_icl", kernel)
    return [cell._replace(size=depth) for cell in cells]


def depth_helps(profile: Profile, found: Evidence) -> Finding:
    """Two steps above one on the product, both kernels."""
    series = {
        f"{kernel.replace('rbf', 'RBF')} kernel": pairs_of(
            _at_depth(profile, kernel, 2), _at_depth(profile, kernel, 1)
        )
        for kernel in KERNELS
    }
    return by_margin(found["depth"], series)


def rbf_over_linear(profile: Profile, found: Evidence) -> Finding:
    """The RBF kernel above the linear one on the product at depths one and two."""
    series = {
        name: pairs_of(
            _at_depth(profile, "rbf", depth), _at_depth(profile, "linear", depth)
        )
        for depth, name in ((1, "one step"), (2, "two steps"))
    }
    return by_margin(found["depth"], series)


def ablations_lose(profile: Profile, found: Evidence) -> Finding:
    """The full model 10 points or more above both ablations."""
    full = _along("product", profile.product_budgets, "e2e_icl")
    names = {"lap_linear": "a linear Laplacian", "lap_pe_1layer": "one layer a stage"}
    series = {
        f"over {name}": pairs_of(full, [c._replace(method=method) for c in full])
        for method, name in names.items()
    }
    return by_margin(found["ablation"], series, 0.10)
