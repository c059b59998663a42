"""The paper's claims, each judged by rows: the figure, ours, its interval, a verdict."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from icssl.evaluation.metrics import Estimate
from icssl.experiments.render import Table
from icssl.experiments.store import Store
from icssl.paper import alignment, imagenet, label_curves, printed
from icssl.paper.artefact import Cell, Rows
from icssl.paper.image_transfer import CURVE_SET, SETS
from icssl.paper.imbalance import imbalance_markdown
from icssl.paper.profiles import Profile
from icssl.paper.registry import ARTEFACTS, rows_of
from icssl.paper.runs import SURFACES
from icssl.paper.tables import compared

HOLDS, IN_PART, NOT = "holds", "holds in part", "does not hold"
UNTESTED, UNDERTRAINED = "cannot be tested here", "no verdict: undertrained"
NO_ROWS = "no verdict: rows are missing"
LEVEL = 0.02  # two methods are level if the whole interval lies within so much
TOO_SMALL = "no verdict: the profile is too small"

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


def evidence(profile: Profile, store: Store) -> Evidence:
    """Rows of all artefacts."""
    return {name: rows_of(known, profile, store) for name, known in ARTEFACTS.items()}


def by_margin(
    rows: Rows,
    pairs: Sequence[tuple[Cell, Cell]],
    least: float = 0.0,
    *,
    words: str = "",
) -> Finding:
    """The first of each pair above the second, by at least so many points.

    A comparison is won if the difference lies above zero beyond its interval and is at
    least ``least``. The claim holds if all are won, in part if half of them are.
    """
    differences, reached, used = [], 0, []
    for first, second in pairs:
        found = compared(rows, first, second)
        if found is None:
            return _missing()
        difference = found.difference
        differences.append((first.labels, difference))
        used += [first, second]
        reached += difference.low > 0 and difference.mean >= least
    verdict = _verdict(reached, len(pairs))
    text = ", ".join(f"{_points(d)} at {labels}" for labels, d in differences)
    return _finding(rows, used, f"{words}{text}: {reached} of {len(pairs)}", verdict)


def by_level(rows: Rows, cell: Cell, level: float) -> Finding:
    """Accuracy at or above a level, within the interval."""
    if cell not in rows:
        return _missing()
    value = rows[cell]["metrics"]["accuracy"]
    high, low = value["mean"] + value["half_width"], value["mean"] - value["half_width"]
    verdict = HOLDS if low >= level else (IN_PART if high >= level else NOT)
    text = f"{value['mean']:.3f} ± {value['half_width']:.3f} at {cell.labels}"
    return _finding(rows, [cell], text, verdict)


def _verdict(reached: int, of: int) -> str:
    if reached == of:
        return HOLDS
    return IN_PART if 2 * reached >= of else NOT


def _points(difference: Estimate) -> str:
    return f"{100 * difference.mean:+.1f} ± {100 * difference.half_width:.1f} points"


def _finding(rows: Rows, cells: Sequence[Cell], text: str, verdict: str) -> Finding:
    used = [rows[cell] for cell in cells]
    if any(row.get("undertrained") for row in used):
        verdict = UNDERTRAINED
    shares = sorted(
        {f"{row['majority_rate']:.3f}" for row in used if "majority_rate" in row}
    )
    return Finding(text, " to ".join(dict.fromkeys([*shares[:1], *shares[-1:]])), verdict)


def _missing() -> Finding:
    return Finding("", "", NO_ROWS)


def _along(
    source: str, budgets: Sequence[int], method: str, kernel: str = "rbf"
) -> list[Cell]:
    return [Cell(source, labels, method, kernel) for labels in budgets]


def _over_eigenmaps(
    profile: Profile, found: Evidence, source: str, least: float
) -> Finding:
    budgets = label_curves.budgets_of(profile, source)
    pairs = zip(
        _along(source, budgets, "e2e_icl"), _along(source, budgets, "eig_icl"), strict=True
    )
    return by_margin(found["label-curves"], list(pairs), least)


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
    rows = found["label-curves"]
    peers = [
        ("eig_icl", True),
        ("orig_icl", True),
        ("eig_lr", False),
        ("orig_rbf_lr", False),
    ]
    won = total = 0
    used = []
    for source in SURFACES:
        for kernel in ("rbf", "linear"):
            for cell in _along(source, profile.budgets, "e2e_icl", kernel):
                for name, has_kernel in peers:
                    other = Cell(source, cell.labels, name, kernel if has_kernel else "")
                    against = compared(rows, cell, other)
                    if against is None:
                        return _missing()
                    total += 1
                    won += against.verdict == "ahead"
                    used += [cell, other]
    text = f"ahead, beyond the interval, in {won} of {total} comparisons"
    return _finding(rows, used, text, _verdict(won, total))


def rbf_regression(profile: Profile, found: Evidence) -> Finding:
    """Orig+RBF-LR below Eig+ICL and Eig+LR on the cylinder."""
    rows, pairs = found["label-curves"], []
    for labels in profile.budgets:
        flat = Cell("cylinder", labels, "orig_rbf_lr")
        pairs += [(Cell("cylinder", labels, "eig_icl", "rbf"), flat)]
        pairs += [(Cell("cylinder", labels, "eig_lr"), flat)]
    return by_margin(rows, pairs, words="Eig+ICL, then Eig+LR, minus Orig+RBF-LR: ")


def outside_cylinder(profile: Profile, found: Evidence) -> Finding:
    """On the cylinder, trained on the other four 3 points above trained on it."""
    cells = _along("cylinder", profile.budgets, "e2e_icl")
    pairs = [(cell._replace(setting="ood"), cell) for cell in cells]
    return by_margin(found["label-curves"], pairs, 0.03)


def outside_levels(profile: Profile, found: Evidence) -> Finding:
    """Out of distribution at .93 to .97: more than the share of the largest class."""
    rows, parts, above, used = found["id-ood"], [], 0, []
    for source in ("cylinder", "sphere", "torus"):
        cell = Cell(source, 39, "e2e_icl", "rbf", "ood", "0.5")
        if cell not in rows:
            return _missing()
        row = rows[cell]
        value, share = row["metrics"]["accuracy"], row["majority_rate"]
        balanced = row["metrics"]["balanced_accuracy"]["mean"]
        above += value["mean"] - value["half_width"] > share
        parts.append(
            f"{source} {value['mean']:.3f} ± {value['half_width']:.3f} where the largest "
            f"class has {share:.3f} (balanced accuracy {balanced:.3f})"
        )
        used.append(cell)
    return _finding(rows, used, "; ".join(parts), _verdict(above, 3))


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
    cells = {four: Cell("images", 39, "e2e_icl", "rbf", "+".join(four)) for four in SETS}
    both = [four for four in SETS if {"swiss_roll", "torus"} <= set(four)]
    pairs = [
        (cells[one], cells[other]) for one in both for other in SETS if other not in both
    ]
    words = "each of three sets with both, minus each of two without: "
    return by_margin(found["image-transfer"], pairs, words=words)


def few_labels(profile: Profile, found: Evidence) -> Finding:
    """E2E with 3 labelled pictures above other methods with 30."""
    first = Cell("images", 3, "e2e_icl", "rbf", "+".join(CURVE_SET))
    pairs = [
        (first, Cell("images", 30, "eig_icl", "rbf", "+".join(CURVE_SET))),
        (first, Cell("images", 30, "svc_rbf")),
        (first, Cell("images", 30, "label_spreading")),
    ]
    words = "minus Eig+ICL, the SVC and label spreading with 30: "
    return by_margin(found["image-transfer"], pairs, words=words)


def _on_features(profile: Profile, labels: int, method: str, size: int) -> Cell:
    kernel = "" if method == "transformer" else "rbf"
    return Cell(profile.features, labels, method, kernel, size=size)


def transition(profile: Profile, found: Evidence) -> Finding:
    """The baseline's largest gain between two sizes lies around 1,200, with separation."""
    rows, sizes = found["imagenet"], profile.sizes
    cells = [_on_features(profile, 3, "transformer", size) for size in sizes]
    curves = [
        [imagenet.value(rows, cell, measure) for cell in cells]
        for measure in ("accuracy", "separation_second")
    ]
    if any(point is None for curve in curves for point in curve):
        return _missing()
    where = []
    for curve in curves:
        means = [point[0] for point in curve if point is not None]
        gains = [b - a for a, b in pairwise(means)]
        best = max(range(len(gains)), key=gains.__getitem__)
        where.append((sizes[best], sizes[best + 1], gains[best]))
    (low, high, gain), (from_, to, apart) = where
    jumps = gain > 0.05  # a curve without a jump has its largest gain somewhere too
    near = jumps and low <= 1200 <= high
    together = jumps and (low, high) == (from_, to)
    verdict = HOLDS if near and together else (IN_PART if near or together else NOT)
    text = (
        f"largest gain of accuracy {gain:+.3f} from {low:,} to {high:,} episodes, of "
        f"separation {apart:+.3f} from {from_:,} to {to:,}"
    )
    return _finding(rows, cells, text, verdict)


def small_and_large_data(profile: Profile, found: Evidence) -> Finding:
    """E2E ahead of the baseline at the smallest size, within two points at the largest."""
    rows, differences, used = found["imagenet"], [], []
    for size in (min(profile.sizes), max(profile.sizes)):
        pair = [
            _on_features(profile, 3, method, size) for method in ("e2e_icl", "transformer")
        ]
        against = compared(rows, *pair)
        if against is None:
            return _missing()
        differences.append((size, against.difference))
        used += pair
    few, many = (difference for _, difference in differences)
    right = (few.low > 0) + (max(-many.low, many.high) <= LEVEL)
    text = ", ".join(f"{_points(d)} at {size:,} episodes" for size, d in differences)
    return _finding(rows, used, text, _verdict(right, 2))


def above_eigenmaps(profile: Profile, found: Evidence) -> Finding:
    """E2E and the baseline above Eig+ICL on features, at the largest size."""
    size = max(profile.sizes)
    eig = _on_features(profile, 3, "eig_icl", size)
    pairs = [
        (_on_features(profile, 3, name, size), eig) for name in ("e2e_icl", "transformer")
    ]
    return by_margin(found["imagenet"], pairs, words="E2E, then the baseline: ")


def alignment_grows(profile: Profile, found: Evidence) -> Finding:
    """Mutual kNN of all three pairs larger at the largest size than at the smallest."""
    rows, parts, grown, used = found["imagenet"], [], 0, []
    for pair in imagenet.PAIRS:
        ends = []
        for size in (min(profile.sizes), max(profile.sizes)):
            cell = Cell(profile.features, 3, "|".join(pair), "rbf", size=size)
            if cell not in rows:
                return _missing()
            ends.append(rows[cell]["measures"]["mutual_knn"])
            used.append(cell)
        first, last = ends
        apart = math.hypot(first["half_width"], last["half_width"])
        grown += last["mean"] - first["mean"] > apart
        name = " and ".join(alignment.NAMES[side] for side in pair)
        parts.append(f"{name} {first['mean']:.3f} to {last['mean']:.3f} (± {apart:.3f})")
    return _finding(rows, used, "; ".join(parts), _verdict(grown, len(parts)))


def depth_helps(profile: Profile, found: Evidence) -> Finding:
    """Two steps above one on the product, both kernels."""
    pairs = [
        (
            Cell("product", labels, "e2e_icl", kernel, size=2),
            Cell("product", labels, "e2e_icl", kernel, size=1),
        )
        for kernel in ("rbf", "linear")
        for labels in profile.product_budgets
    ]
    return by_margin(found["depth"], pairs, words="RBF, then linear: ")


def rbf_over_linear(profile: Profile, found: Evidence) -> Finding:
    """The RBF kernel above the linear one on the product at depths one and two."""
    pairs = [
        (
            Cell("product", labels, "e2e_icl", "rbf", size=depth),
            Cell("product", labels, "e2e_icl", "linear", size=depth),
        )
        for depth in (1, 2)
        for labels in profile.product_budgets
    ]
    return by_margin(found["depth"], pairs, words="one step, then two: ")


def ablations_lose(profile: Profile, found: Evidence) -> Finding:
    """The full model 10 points or more above both ablations."""
    pairs = [
        (Cell("product", m, "e2e_icl", "rbf"), Cell("product", m, ablated, "rbf"))
        for ablated in ("lap_linear", "lap_pe_1layer")
        for m in profile.product_budgets
    ]
    words = "over the linear Laplacian, then over one layer: "
    return by_margin(found["ablation"], pairs, 0.10, words=words)


PICTURES = "pictures of the shipped generator"
FEATURES = "features of CIFAR-10"
CLAIMS = (
    Claim(
        "On the cylinder, E2E is 5 to 7 points above Eig+ICL.",
        cylinder_margin,
        tables=printed.cylinder_margin,
    ),
    Claim("It reaches about 90% there once 25% of the points have labels.", cylinder_level),
    Claim(
        "On all five manifolds and with both kernels E2E is above the other methods.",
        every_baseline,
        tables=printed.every_baseline,
    ),
    Claim(
        "Orig+RBF-LR is markedly worse than methods that know the manifold.", rbf_regression
    ),
    Claim(
        "On the cylinder, E2E trained on the other four manifolds is 3 to 5 points above "
        "E2E trained on the cylinder.",
        outside_cylinder,
        tables=printed.outside_cylinder,
    ),
    Claim(
        "Out of distribution, E2E reaches .935 on the cylinder, .930 on the sphere and "
        ".970 on the torus.",
        outside_levels,
        tables=printed.outside_levels,
    ),
    Claim("On the product of five, E2E is 8 to 10 points above Eig+ICL.", product_margin),
    Claim(
        "Trained on surfaces, E2E is above 62% with 3 labelled pictures of 100.",
        images_at(3, 0.62),
        PICTURES,
        printed.pictures,
    ),
    Claim(
        "And at 77% with 15 labelled pictures.",
        images_at(15, 0.77),
        PICTURES,
        printed.pictures,
    ),
    Claim(
        "Trained on image manifolds, it is near 100%.",
        images_trained,
        PICTURES,
        printed.pictures_trained,
    ),
    Claim(
        "Sets with both the Swiss roll and the torus transfer best.",
        best_sets,
        PICTURES,
        printed.best_sets,
    ),
    Claim("Three labels beat other methods with ten times as many.", few_labels, PICTURES),
    Claim(
        "The Transformer baseline jumps near 1,200 training datasets, its separation with "
        "it.",
        transition,
        FEATURES,
    ),
    Claim(
        "E2E is ahead of the baseline where training data are few, level where they are "
        "many.",
        small_and_large_data,
        FEATURES,
    ),
    Claim(
        "Both Transformers are above Eig+ICL on ImageNet features.",
        above_eigenmaps,
        FEATURES,
    ),
    Claim(
        "Alignment of the three representations grows with data.", alignment_grows, FEATURES
    ),
    Claim("A head of two layers is above one of one layer.", depth_helps),
    Claim(
        "The RBF kernel is above the linear one.",
        rbf_over_linear,
        tables=printed.rbf_over_linear,
    ),
    Claim(
        "Ablations of stage 1 and of the loops lose 10 to 20 points.",
        ablations_lose,
        tables=printed.ablations,
    ),
)


def claims_table(profile: Profile, store: Store) -> Table:
    """One line a claim."""
    found = evidence(profile, store)
    lines = []
    for claim in CLAIMS:
        finding = claim.judge(profile, found)
        verdict = verdict_of(claim, finding) if profile.judges else TOO_SMALL
        line = (claim.says, claim.tables(), finding.ours, finding.majority, verdict)
        lines.append(line)
    header = ("the paper says", "its own tables", "we find", "largest class", "verdict")
    return Table("Claims and verdicts", header, tuple(lines), (profile.note, RULES))


def verdict_of(claim: Claim, finding: Finding) -> str:
    """A claim about data that cannot be had is not tested by other data."""
    if not claim.stand_in or finding.verdict in (NO_ROWS, UNDERTRAINED):
        return finding.verdict
    return f"{UNTESTED}; with {claim.stand_in}: {finding.verdict}"


RULES = (
    "A claim holds if every comparison it makes comes out beyond the 95% interval and by "
    "the stated margin, in part if at least half do. Intervals are over test episodes, for "
    "these seeds, paired where both sides saw the same episodes, and not corrected for the "
    "number of comparisons. Pictures are of the shipped generator and features of CIFAR-10 "
    "or digits, stand-ins for Stable Diffusion and ImageNet100: a verdict on them is about "
    "the method, not about the paper's own data."
)


def claims_markdown(profile: Profile, store: Store) -> str:
    """The page of claims, with the arithmetic of the class imbalance."""
    table = claims_table(profile, store)
    return f"# Claims of the paper, judged\n\n{table.markdown()}\n\n{imbalance_markdown()}"
