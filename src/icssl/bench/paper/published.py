"""``published.csv``: every number that the paper prints, with ours and what explains it."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from statistics import fmean

from icssl.bench.paper import imagenet, imagenet_published
from icssl.bench.paper.artefact import Cell, Profile, Row, Rows, published_cell
from icssl.bench.paper.as_published import literal_cell
from icssl.bench.paper.image_transfer import CURVE_SET
from icssl.bench.paper.null_cells import BEST, VOTE, null_row
from icssl.bench.paper.params import parameter_counts
from icssl.bench.paper.statistics import learned_seeds
from icssl.bench.paper.table_cells import other_surfaces
from icssl.bench.paper.verdicts import (
    ARTEFACT,
    NOT,
    NOT_RUN,
    REPRODUCED,
    UNTESTED,
    Evidence,
)
from icssl.bench.probes import EIG
from icssl.evaluation.metrics import NEAR

_NAMED = ("artefact", "data", "kernel", "method", "setting", "context", "metric")
COLUMNS = (
    *_NAMED,
    "published",
    "published_sd",
    "as_published",
    "fair",
    "label_vote",
    "largest_class",
    "nearest_position",
    "training_free",
    "verdict",
    "reason",
    "key",
)
_MEASURES = {"mnn": "mutual_knn", "cycle": "cycle_share_knn", "lcs": "lcs_knn"}
_FEATURES = "features of CIFAR-10 or digits stand in for ImageNet100"
_STAGES = {"lap": "laplacian", "pe": "eigenmap", "head": "head"}
_MODELS = {"e2e_icl": "paper", "orig_icl": "orig_icl", "eig_icl": "eig_icl"}
_MODELS |= {"transformer": "transformer_positions"}
_SCALARS = 2  # the step size and gamma, which no reading of the printed totals has
Line = dict[str, str]


def published_lines(profile: Profile, evidence: Evidence) -> list[Line]:
    """Return one line per printed number, from stored rows alone."""
    text = (files("icssl.bench.paper") / "paper_values.csv").read_text(encoding="utf-8")
    counts = {(c.model, c.stage): c.parameters for c in parameter_counts()}
    lines = []
    for printed in csv.DictReader(text.splitlines()):
        line = dict.fromkeys(COLUMNS, "") | {name: printed[name] for name in _NAMED}
        line |= {"published": printed["value"], "published_sd": printed["sd"]}
        if printed["metric"] == "parameters":
            line |= _of_parameters(printed, counts)
        elif printed["artefact"] == "alignment":
            line |= _of_alignment(profile, printed, evidence)
        else:
            line |= _of_accuracy(printed, evidence)
        lines.append(line)
    return lines


def published_csv(lines: list[Line]) -> str:
    """Return the lines as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def summary(lines: list[Line]) -> str:
    """Return how many of the printed numbers have which verdict."""
    counts = Counter(line["verdict"] for line in lines)
    kinds = (REPRODUCED, ARTEFACT, NOT, NOT_RUN, UNTESTED)
    parts = [f"{kind} {counts[kind]}" for kind in kinds if counts[kind]]
    testable = [line for line in lines if _is_testable(line)]
    near = sum(line["verdict"] in (REPRODUCED, ARTEFACT) for line in testable)
    return (
        f"Of the {len(lines)} numbers that the paper prints: {', '.join(parts)}. A number "
        "is reproduced within two points or two printed sds, and explained by a null "
        "model that is as near to it; where both are near, it counts as explained. The "
        "printed sds are those of runs that trained: of ours, seeds whose own held-out "
        "loss stayed at that of a guess that knows the shares of the classes are left "
        "out, and the reason says how many. Both together are "
        f"{near} of the {len(testable)} that can be tested here "
        f"({near / len(testable):.0%}). published.csv has them one by one, with ours as "
        "published and under fair conditions, null models, and a reason."
    )


def _is_testable(line: Line) -> bool:
    """Whether a printed number is of data that are here, run or not."""
    return line["verdict"] != UNTESTED and "stand in" not in line["reason"]


def _of_accuracy(printed: Mapping[str, str], evidence: Evidence) -> Line:
    """Return what is stored of a printed accuracy; the text's claims are of one curve."""
    cell = published_cell(printed)
    if printed["artefact"] == "image-text-claims":
        trained_on = CURVE_SET if printed["setting"] == "ood" else ()
        cell = cell._replace(source="images", trained_on=trained_on)
        cell = cell._replace(labels=cell.labels or 39)  # "near 100%" names no number
    literal, ours = literal_cell(cell), evidence.get("as-published", {})
    row = ours.get(literal)
    name = printed["artefact"].replace("image-text-claims", "image-transfer")
    fair = evidence.get(name, {}).get(_fair_cell(cell))
    learned = [] if row is None else learned_seeds(row, _training_shares(ours, literal))
    nulls = (VOTE, "position_vote", BEST)
    vote, position, best = (null_row(ours, literal, method) for method in nulls)
    line = {
        "as_published": "" if row is None else f"{fmean(learned):.3f}",
        "fair": _accuracy(fair),
        "label_vote": _accuracy(vote),
        "largest_class": "" if vote is None else f"{vote['majority_rate']:.3f}",
        "nearest_position": _accuracy(position),
        "training_free": _accuracy(best),
        "key": "" if row is None else row["key"],
    }
    value, sd = float(printed["value"]), float(printed["sd"] or 0)
    verdict, reason = _verdict(value, max(NEAR, 2 * sd), line)
    if verdict in (NOT, REPRODUCED) and row is not None:
        reason += _note_on_seeds(row["seeds"], learned)
    if cell.source == "images":
        reason = f"pictures of the shipped generator stand in: {verdict}, {reason}"
        verdict = UNTESTED if verdict != NOT_RUN else NOT_RUN
    return line | {"verdict": verdict, "reason": reason}


def _fair_cell(cell: Cell) -> Cell:
    """Return the cell of our own tables: one model for all lines of pictures."""
    is_inside = cell.source == "images" and cell.setting == "id"
    return cell._replace(trained_on=()) if is_inside else cell


def _accuracy(row: Row | None) -> str:
    return "" if row is None else f"{row['metrics']['accuracy']['mean']:.3f}"


def _verdict(value: float, near: float, line: Line) -> tuple[str, str]:
    """Return the verdict on a printed accuracy, and the reason."""
    names = {
        "label_vote": "the vote of the labels",
        "largest_class": "the largest class",
        "nearest_position": "the nearest position",
        "training_free": "the training-free head",
    }
    explained = [
        f"{title} has {line[name]}"
        for name, title in names.items()
        if line.get(name) and abs(float(line[name]) - value) <= near
    ]
    if explained:
        return ARTEFACT, " and ".join(explained)
    if not line["as_published"]:
        return NOT_RUN, "not run"
    apart = 100 * (float(line["as_published"]) - value)
    if abs(apart) <= 100 * near:
        return REPRODUCED, f"within {100 * near:.1f} points"
    return NOT, f"ours is {abs(apart):.1f} points {'above' if apart > 0 else 'below'}"


def _training_shares(ours: Rows, literal: Cell) -> list[float]:
    """Return the share of the larger class in each source that a cell's models saw."""
    sources = [literal.source]
    if literal.setting == "ood":
        sources = list(literal.trained_on or other_surfaces(literal.source))
    shares = {
        cell.source: row["majority_rate"]
        for cell, row in ours.items()
        if cell.threshold == literal.threshold
    }
    return [shares[source] for source in sources if source in shares]


def _note_on_seeds(seeds: Sequence[float], learned: Sequence[float]) -> str:
    """Return how many seeds are left out as dead, or else how far apart they are."""
    if dead := len(seeds) - len(learned):
        return (
            f"; {dead} of {len(seeds)} seeds learned nothing in training and are left out, "
            f"with them it is {fmean(seeds):.3f}"
        )
    lowest, highest = min(seeds), max(seeds)
    apart = highest - lowest > 2 * NEAR
    return f"; single seeds have {lowest:.3f} to {highest:.3f}" if apart else ""


def _of_alignment(profile: Profile, printed: Mapping[str, str], evidence: Evidence) -> Line:
    """Return the same measure of our representations, on features that stand in."""
    sides = [EIG if s == "eig" else s for s in printed["method"].split("|")]
    if sides[1] == EIG:
        sides.reverse()
    cell = imagenet.pair_cell(profile, 3, (sides[0], sides[1]), max(profile.sizes))
    names = {"as_published": imagenet_published.NAME, "fair": "alignment"}
    rows = {column: evidence.get(name, {}).get(cell) for column, name in names.items()}
    measure = _MEASURES[printed["metric"]]
    line = {column: _measure_text(row, measure) for column, row in rows.items()}
    row = rows["as_published"] or rows["fair"]
    line["key"] = "" if row is None else row["key"]
    verdict, reason = _verdict(float(printed["value"]), NEAR, line)
    parts = [f"{_FEATURES}: {reason if verdict == NOT_RUN else f'{verdict}, {reason}'}"]
    if measure == "cycle_share_knn":
        parts.append(_OTHER_CYCLE.format(_measure_text(row, "cycle_knn") or "no row"))
    return line | {
        "verdict": NOT_RUN if verdict == NOT_RUN else UNTESTED,
        "reason": "; ".join(parts),
    }


_OTHER_CYCLE = (
    "read as the share of neighbours that a cycle returns from; the measure of that name "
    "in its authors' code, whether any returns, has {}"
)


def _measure_text(row: Row | None, measure: str) -> str:
    """Return a measure of a row; rows stored before it was added have none."""
    value = None if row is None else row["measures"].get(measure)
    return "" if value is None else f"{value['mean']:.3f}"


def _of_parameters(
    printed: Mapping[str, str], counts: Mapping[tuple[str, str], int]
) -> Line:
    """Return the number of weights of the model that stands for it."""
    method, _, part = printed["method"].partition(".")
    model = _MODELS.get(method)
    if model is None:
        reason = "a regression is fitted to each context and has no weights of its own"
        return {"verdict": UNTESTED, "reason": reason}
    literal = f"paper_{model}" if (f"paper_{model}", "total") in counts else model
    ours = counts[literal, _STAGES[part] if part else "total"]
    apart = ours - int(float(printed["value"]))
    reasons = {0: "", _SCALARS: "with the step size and gamma of the head"}
    verdict = REPRODUCED if apart in reasons else NOT
    other = "layers, heads and widths behind the total are not printed"
    reason = reasons.get(apart, other)
    return {"as_published": str(ours), "verdict": verdict, "reason": reason}
