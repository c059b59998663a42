"""The paper's claims: how rows judge them, and what the paper's own tables say."""

import re
from functools import cache

import pytest

from bench_helpers import TOY_PROFILE, WITH_SPECS, aligned, published_rows, row_with
from icssl.bench.paper import claims, judges, verdicts
from icssl.bench.paper.artefact import PROFILES, Cell
from icssl.bench.paper.catalogue import ARTEFACTS
from icssl.bench.paper.claims import CLAIMS, claims_table, imbalance
from icssl.bench.paper.verdicts import BREAK, Finding, Pair, by_level, by_margin, tally
from icssl.bench.probes import Alignment
from icssl.bench.spec import Scores
from icssl.bench.store import Store
from icssl.episodes.data_config import DataConfig
from icssl.episodes.labels import majority_rate
from icssl.episodes.stream import EpisodeStream

pytestmark = pytest.mark.usefixtures("elsewhere")

A, B, C = (Cell("torus", labels, "e2e_icl") for labels in (3, 5, 10))
OTHER = {cell: cell._replace(method="eig_icl") for cell in (A, B, C)}
PAIRS = [Pair(f"{cell.labels}", cell, OTHER[cell]) for cell in (A, B, C)]


def apart(*differences, spread=0.0):
    """Rows whose pairs differ by so much on average, and not the same in every episode."""
    rows = {}
    for cell, difference in zip((A, B, C), differences, strict=True):
        rows[OTHER[cell]] = row_with(0.7, majority=0.6)
        rows[cell] = row_with(0.7 + difference, spread=0.01 + spread)
    return rows


MARGINS = {
    "all ahead": (apart(0.05, 0.1, 0.2), 0.0, verdicts.HOLDS),
    "by the margin": (apart(0.05, 0.1, 0.2), 0.05, verdicts.HOLDS),
    "by less than the margin": (apart(0.05, 0.1, 0.2), 0.08, verdicts.IN_PART),
    "by far less": (apart(0.05, 0.1, 0.2), 0.3, verdicts.NOT),
    "margin within the interval": (
        apart(0.05, 0.1, 0.2, spread=0.01),
        0.06,
        verdicts.IN_PART,
    ),
    "most ahead": (apart(0.05, 0.0, 0.2), 0.0, verdicts.IN_PART),
    "one ahead": (apart(0.05, 0.0, -0.2), 0.0, verdicts.NOT),
    "level": (apart(0.0, 0.0, 0.0), 0.0, verdicts.NOT),
    "ahead within the interval": (apart(0.01, 0.02, 0.01, spread=0.1), 0.0, verdicts.NOT),
    "behind": (apart(-0.05, -0.1, -0.2), 0.0, verdicts.NOT),
}


@pytest.mark.parametrize(("rows", "least", "verdict"), MARGINS.values(), ids=MARGINS.keys())
def test_a_margin_is_judged_by_paired_intervals(rows, least, verdict):
    found = by_margin(rows, {"": PAIRS}, least)
    assert found.verdict == verdict
    means = [
        sum(rows[pair.first]["accuracies"]) - sum(rows[pair.second]["accuracies"])
        for pair in PAIRS
    ]
    texts = [f"{100 * mean / 3:+.1f}" for mean in means]
    assert re.findall(r"([+-][\d.]+) ± ", found.ours) == texts
    assert re.findall(r"(\d+): ", found.ours) == ["3", "5", "10"]
    assert found.majority == "0.500 to 0.600"


def test_every_series_of_a_claim_has_a_line_and_a_count():
    rows = apart(0.05, -0.1, 0.2)
    both = by_margin(rows, {"one": PAIRS[:2], "two": PAIRS[2:]})
    assert both.verdict == verdicts.IN_PART
    assert both.ours.split(BREAK) == [
        "one; 3: +5.0 ± 0.0, 5: -10.0 ± 0.0 points; 1 of 2",
        "two; 10: +20.0 ± 0.0 points; 1 of 1",
        "in all 2 of 3",
    ]


@pytest.mark.parametrize("place", [A, OTHER[C]])
def test_rows_that_are_missing_or_undertrained_support_no_margin(place):
    rows = apart(0.05, 0.1, 0.2)
    tired = rows | {place: rows[place] | {"undertrained": True}}
    assert by_margin(tired, {"": PAIRS}).verdict == verdicts.UNDERTRAINED
    fine = rows | {place: rows[place] | {"undertrained": False}}
    assert by_margin(fine, {"": PAIRS}).verdict == verdicts.HOLDS
    del rows[place]
    assert by_margin(rows, {"": PAIRS}).verdict == verdicts.NO_ROWS


@pytest.mark.parametrize(
    ("level", "verdict"),
    [
        (0.87, verdicts.HOLDS),
        (0.89, verdicts.IN_PART),
        (0.92, verdicts.IN_PART),
        (0.93, verdicts.NOT),
    ],
)
def test_a_level_is_judged_by_its_interval(level, verdict):
    rows = {A: row_with(0.9)}  # ± 0.025
    assert by_level(rows, A, level).verdict == verdict
    assert by_level(rows, A, level).ours == "3: 0.900 ± 0.025"
    assert by_level({}, A, level).verdict == verdicts.NO_ROWS
    tired = {A: row_with(0.9, undertrained=True)}
    assert by_level(tired, A, level).verdict == verdicts.UNDERTRAINED


def as_the_paper_says(name, cell):
    """Accuracies for which every claim is true."""
    if name == "image-transfer":
        both = {"torus", "swiss_roll"} <= set(cell.trained_on)
        ours = 0.99 if cell.setting == "id" else (0.9 if both else 0.8)
        return ours if cell.method == "e2e_icl" else 0.6
    if name == "imagenet":
        late = cell.size >= 1200
        return {"e2e_icl": 0.9, "transformer": 0.9 if late else 0.6}.get(cell.method, 0.5)
    if name == "depth":
        better = 0.05 * (cell.kernel == "rbf") + 0.1 * (cell.size >= 2)
        return 0.7 + better if cell.method == "e2e_icl" else 0.5
    if cell.method == "e2e_icl":
        return 0.96 if cell.setting == "ood" else 0.92
    return {"eig_icl": 0.83, "orig_rbf_lr": 0.6}.get(cell.method, 0.75)


def as_nobody_says(name, cell):
    """Accuracies for which none of them is."""
    if name == "image-transfer":
        both = {"torus", "swiss_roll"} <= set(cell.trained_on)
        return 0.4 if both else (0.5 if cell.method == "e2e_icl" else 0.6)
    if name == "imagenet":
        return {"e2e_icl": 0.5, "transformer": 0.6}.get(cell.method, 0.7)
    if name == "depth":
        worse = 0.05 * (cell.kernel == "rbf") + 0.1 * (cell.size >= 2)
        return 0.7 - worse if cell.method == "e2e_icl" else 0.5
    if cell.method == "e2e_icl":
        return 0.5 if cell.setting == "ood" else 0.6
    return {"orig_rbf_lr": 0.9}.get(cell.method, 0.8)


class Seen(dict):
    """Rows that remember who was looked for."""

    def __init__(self, *given):
        super().__init__(*given)
        self.cells = {}

    def __contains__(self, cell):
        self.cells[cell] = None
        return super().__contains__(cell)

    def get(self, cell, default=None):
        self.cells[cell] = None
        return super().get(cell, default)


@cache
def narrow(mean, majority):
    return row_with(mean, majority=majority, spread=0.001)


@cache
def full_specs(name):
    return ARTEFACTS[name].specs(PROFILES["full"])


def world(accuracy, grows=True, **about):
    """Rows of every artefact of the full profile, in which this is the accuracy."""
    found = {}
    for name in WITH_SPECS:
        rows = {}
        for cell, spec in full_specs(name).items():
            if isinstance(spec, Alignment):
                value = 0.2 + (1 if grows else -1) * cell.size / 1e5
                jump = 0.2 * (cell.size >= 1200) if grows else 0.0
                rows[cell] = aligned(value, 0.3 + jump) | about
            elif isinstance(spec, Scores):
                trained = about if spec.trainings else {}
                share = 0.9 if cell.threshold == 0.5 else 0.5
                rows[cell] = narrow(accuracy(name, cell), share) | trained
        found[name] = Seen(rows)
    return found


def verdicts_in(found):
    """The verdict on every claim, by the name of its judge."""
    return {
        claim.judge.__qualname__: claim.judge(PROFILES["full"], found).verdict
        for claim in CLAIMS
    }


def test_verdicts_where_the_paper_is_right_and_where_it_is_not():
    right = verdicts_in(world(as_the_paper_says))
    assert right == dict.fromkeys(right, verdicts.HOLDS)
    wrong = verdicts_in(world(as_nobody_says, grows=False))
    assert wrong == dict.fromkeys(wrong, verdicts.NOT)


def test_undertrained_models_support_no_verdict():
    found = verdicts_in(world(as_the_paper_says, undertrained=True))
    assert found == dict.fromkeys(found, verdicts.UNDERTRAINED)


MARGIN = {"e2e_icl", "eig_icl"}
COMPARED = [  # the methods of each claim, in order, and how many rows of the full profile
    (MARGIN, 2 * 9),
    ({"e2e_icl"}, 1),
    (MARGIN | {"orig_icl", "eig_lr", "orig_rbf_lr"}, 5 * 9 * (3 * 2 + 2)),
    ({"eig_icl", "eig_lr", "orig_rbf_lr"}, 3 * 9),
    ({"e2e_icl"}, 2 * 9),
    ({"e2e_icl"}, 3),
    (MARGIN, 2 * 7),
    ({"e2e_icl"}, 1),
    ({"e2e_icl"}, 1),
    ({"e2e_icl"}, 1),
    ({"e2e_icl"}, 5),
    (MARGIN | {"svc_rbf", "label_spreading"}, 4),
    ({"transformer", "eig"}, 2 * 6),
    ({"e2e_icl", "transformer"}, 2 * 2),
    (MARGIN | {"transformer"}, 3),
    ({"e2e_icl", "eig"}, 3 * 2),
    ({"e2e_icl"}, 2 * 2 * 7),
    ({"e2e_icl"}, 2 * 2 * 7),
    ({"e2e_icl", "lap_linear", "lap_pe_1layer"}, 3 * 7),
]


@pytest.mark.parametrize("number", range(len(CLAIMS)))
def test_no_verdict_without_all_of_its_rows(number):
    """Every row that a claim looks for is one that its artefact runs, and is needed."""
    judge = CLAIMS[number].judge
    found = world(as_the_paper_says)
    judge(PROFILES["full"], found)
    read = [(name, cell) for name, rows in found.items() for cell in rows.cells]
    assert ({cell.method for _, cell in read}, len(read)) == COMPARED[number]
    for name, cell in {read[0], read[len(read) // 2], read[-1]}:
        kept = dict(found[name])
        del kept[cell]
        assert judge(PROFILES["full"], found | {name: kept}).verdict == verdicts.NO_ROWS


def test_a_curve_that_jumps_elsewhere_holds_in_part():
    """And one that rises evenly has no jump that could be anywhere."""

    def early(name, cell):
        return 0.6 if cell.size < 300 else 0.9

    found = world(early)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.NOT
    for cell in found["imagenet"]:
        if cell.beside:
            jump = 0.2 * (cell.size >= 300)
            found["imagenet"][cell] = aligned(0.2, 0.3 + jump)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.IN_PART
    even = world(lambda name, cell: 0.6 + cell.size / 1e6)
    assert judges.transition(PROFILES["full"], even).verdict == verdicts.NOT


def test_a_jump_within_its_interval_is_none():
    found = world(as_the_paper_says)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.HOLDS
    for cell in found["imagenet"]:
        if cell.method == "transformer":  # the same means, far apart in single episodes
            late = cell.size >= 1200
            found["imagenet"][cell] = row_with(0.6 + 0.3 * late, spread=0.3 - 0.6 * late)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.NOT


def test_a_stand_in_is_named_whatever_it_says():
    (claim,) = [claim for claim in CLAIMS if claim.judge is judges.transition]
    here = "cannot be tested here; with features of CIFAR-10: "
    for verdict in (verdicts.HOLDS, verdicts.NOT, verdicts.UNDERTRAINED):
        assert verdicts.verdict_text(claim, Finding("", "", verdict)) == f"{here}{verdict}"
    assert verdicts.UNDERTRAINED == "no verdict, models were still improving"
    nothing = Finding("", "", verdicts.NO_ROWS)
    assert verdicts.verdict_text(claim, nothing) == verdicts.NO_ROWS


def test_claims_are_counted_by_verdict_and_stand_ins_apart():
    given = [verdicts.HOLDS, verdicts.NOT, verdicts.NOT, verdicts.UNDERTRAINED]
    own = [claim for claim in CLAIMS if not claim.stand_in]
    away = [claim for claim in CLAIMS if claim.stand_in]
    judged = [(own[i], Finding("", "", verdict)) for i, verdict in enumerate(given)]
    judged += [(away[0], Finding("", "", verdicts.IN_PART))]
    assert tally(judged) == (
        "Of 5 claims, 4 can be tested here: holds 1, holds in part 0, does not hold 2, no "
        "verdict 1. Of the 1 others, with stand-ins for their data: holds 0, holds in part "
        "1, does not hold 0, no verdict 0."
    )


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, DataConfig(("sphere",), threshold=0.5, measure="area")),
        (1, DataConfig(("cylinder",), threshold=0.5)),
        (2, DataConfig(("torus",), threshold=0.5)),
    ],
)
def test_the_arithmetic_of_imbalance_is_what_episodes_have(number, data):
    name, _, share, paper = imbalance()[number]
    assert name.startswith(data.sources[0])
    y = EpisodeStream(data.build(), 4000, 0, "imbalance").at(0).y
    measured = majority_rate(y, 2).mean().item()
    assert share == pytest.approx(measured, abs=0.002)
    assert share == pytest.approx(float(paper), abs=0.005)


def test_what_the_papers_own_tables_say_is_read_from_them():
    """Against the file itself, at the places where they differ from its sentences."""
    values = {
        (
            row["artefact"],
            row["data"],
            row["kernel"],
            row["method"],
            row["setting"],
            row["context"],
        ): float(row["value"])
        for artefact in ("id-ood", "image-transfer")
        for row in published_rows(artefact)
    }

    def on_cylinder(method, setting):
        return [
            values["id-ood", "cylinder", "rbf", method, setting, m]
            for m in ("3", "21", "39")
        ]

    def shown(first, second):
        return " / ".join(
            f"{100 * (a - b):+.1f}" for a, b in zip(first, second, strict=True)
        )

    e2e = on_cylinder("e2e_icl", "id")
    assert claims.printed_cylinder_margin().startswith(
        shown(e2e, on_cylinder("eig_icl", "id"))
    )
    outside = on_cylinder("e2e_icl", "ood")
    assert claims.printed_outside_cylinder().startswith(shown(outside, e2e))
    assert "0.557 / 0.686" in claims.printed_pictures()
    third = values[
        "image-transfer", "cylinder+sphere+torus+swiss_roll", "rbf", "e2e_icl", "ood", "39"
    ]
    assert f"{third:.3f}" in claims.printed_best_sets().split(";")[0]


def test_a_profile_that_is_too_small_judges_nothing(tmp_path):
    """Whatever its rows say, or were there none."""
    store = Store(tmp_path / "rows.jsonl")
    table = claims_table(PROFILES["quick"], store)
    assert {row[-1] for row in table.rows} == {verdicts.TOO_SMALL}
    assert {row[-1] for row in claims_table(TOY_PROFILE, store).rows} == {verdicts.NO_ROWS}
