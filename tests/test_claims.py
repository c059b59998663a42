"""The paper's statements: how rows judge them, and what the paper's own tables say."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch

from bench_helpers import (
    TOY_PROFILE,
    WITH_SPECS,
    aligned,
    made_up,
    published_rows,
    row_with,
)
from icssl.bench.paper import imagenet_published, judges, printed, verdicts
from icssl.bench.paper.artefact import PROFILES, Cell
from icssl.bench.paper.as_published import specs as as_published_specs
from icssl.bench.paper.catalogue import ARTEFACTS, specs_of
from icssl.bench.paper.claims import (
    claims_markdown,
    claims_table,
    headline,
    imbalance,
    judge_claims,
)
from icssl.bench.paper.nested import nested_table
from icssl.bench.paper.params import parameter_counts
from icssl.bench.paper.statements import CLAIMS
from icssl.bench.paper.statistics import (
    dead_seeds,
    difference_of,
    level_of,
    mean_difference,
    mean_of,
    rank_correlation,
    two_way,
)
from icssl.bench.paper.verdicts import (
    ARTEFACT,
    DIRECTION,
    INCONCLUSIVE,
    NOT,
    NOT_RUN,
    REPRODUCED,
    Contrast,
    Finding,
    Pair,
    judge_contrast,
    tally,
    verdict_of,
)
from icssl.bench.probes import EIG, Alignment
from icssl.bench.spec import Scores
from icssl.bench.store import Store
from icssl.episodes.data_config import DataConfig
from icssl.episodes.labels import majority_rate
from icssl.episodes.stream import EpisodeStream
from icssl.evaluation.metrics import Estimate

pytestmark = pytest.mark.usefixtures("elsewhere")


# --- Intervals over seeds and episodes


def test_the_interval_covers_new_seeds_and_new_episodes():
    """Of 300 worlds with seeds and episodes of their own, about 95% hold the truth."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    held, narrow = 0, 0
    for _ in range(300):
        seeds = 0.04 * normal(5, 1)
        table = 0.8 + seeds + 0.1 * normal(1, 80) + 0.05 * normal(5, 80)
        found = two_way([table.mean(dim=1).tolist()], table.mean(dim=0))
        held += found.low < 0.8 < found.high
        alone = two_way([], table.mean(dim=0))  # for these seeds only
        narrow += alone.low < 0.8 < alone.high
    assert 0.92 < held / 300 < 0.995
    assert narrow / 300 < 0.85


def test_the_interval_is_that_of_students_formula():
    """In a layout that adds up, its two parts are the textbook's."""
    seeds = [0.78, 0.80, 0.81, 0.83]
    episodes = torch.linspace(0.6, 1.0, 200, dtype=torch.float64)
    found = two_way([seeds], episodes)
    of_seeds = 3.182 * torch.tensor(seeds).std().item() / 2
    of_episodes = 1.96 * episodes.std().item() / 200**0.5
    assert found.half_width == pytest.approx(math.hypot(of_seeds, of_episodes), rel=0.06)
    assert found.mean == pytest.approx(0.8)
    assert two_way([seeds], episodes) == found  # no randomness between calls
    assert two_way([[0.8]], episodes).half_width == pytest.approx(of_episodes, rel=0.06)


def test_rows_that_share_models_vary_together():
    """Two budgets of the same seeds are no second sample of seeds."""
    row = row_with(0.8, spread=0.0) | {"seeds": [0.7, 0.8, 0.9]}
    both = mean_difference([(row, None), (row, None)])
    assert both.half_width == pytest.approx(level_of(row).half_width)
    apart = mean_of([level_of(row), level_of(row)])
    assert apart.half_width == pytest.approx(both.half_width / 2**0.5)


def test_differences_are_paired_only_on_the_same_episodes():
    first, second = row_with(0.9, spread=0.1), row_with(0.7, spread=0.1)
    assert difference_of(first, second).half_width == pytest.approx(0, abs=1e-12)
    about = {"labels": 3, "episodes": 3, "seed": 7}
    one = first | {"spec": {**about, "data": {"threshold": 0.5}}}
    other = second | {"spec": {**about, "data": {"threshold": "median"}}}
    found = difference_of(one, other)
    wide = math.hypot(level_of(first).half_width, level_of(second).half_width)
    assert found.half_width == pytest.approx(wide)
    assert found.mean == pytest.approx(0.2)


def test_dead_seeds_are_those_that_are_no_better_than_a_guess():
    row = row_with(0.6) | {"seeds": [0.49, 0.52, 0.53], "episodes_seen": 3}
    assert dead_seeds(row) == 2
    assert dead_seeds(row | {"majority_rate": 0.9}) is None  # a vote may be right there
    assert dead_seeds(row_with(0.5)) is None  # nothing was trained


# --- Verdicts


@pytest.mark.parametrize(
    ("mean", "half_width", "least", "verdict"),
    [
        (0.05, 0.01, 0.0, REPRODUCED),
        (0.05, 0.01, 0.06, REPRODUCED),  # the size lies within the interval
        (0.05, 0.01, 0.08, DIRECTION),
        (0.005, 0.01, 0.0, INCONCLUSIVE),
        (0.005, 0.01, 0.03, NOT),  # smaller than said, and perhaps nothing
        (0.005, 0.06, 0.03, INCONCLUSIVE),
        (-0.05, 0.01, 0.0, NOT),
        (-0.02, 0.01, -0.05, REPRODUCED),  # at most five behind
        (-0.05, 0.01, -0.05, INCONCLUSIVE),
        (-0.08, 0.01, -0.05, NOT),
    ],
)
def test_verdicts_by_interval_and_size(mean, half_width, least, verdict):
    assert verdict_of(Estimate(mean, half_width, 9), least) == verdict


@pytest.mark.parametrize(
    ("level", "verdict"), [(0.9, REPRODUCED), (0.92, INCONCLUSIVE), (0.94, NOT)]
)
def test_a_level_is_reached_by_the_mean_and_left_open_by_the_interval(level, verdict):
    assert verdict_of(Estimate(0.9, 0.03, 9), level, is_level=True) == verdict
    # The noisier a score is, the less it shows.
    assert verdict_of(Estimate(0.7, 0.2, 9), 0.89, is_level=True) == INCONCLUSIVE


OURS, THEIRS = Cell("torus", 3, "e2e_icl", "rbf"), Cell("torus", 3, "eig_icl", "rbf")
VOTE = Cell("torus", 3, "label_vote")


def judged(rows, *, second=THEIRS, least=0.0, nulls=("label_vote",)):
    contrast = Contrast("made up", (Pair("here", OURS, second),), least, nulls)
    return judge_contrast(contrast, {"made up": rows})


def test_a_null_model_explains_what_it_also_reaches():
    rows = {OURS: row_with(0.9, spread=0), THEIRS: row_with(0.8, spread=0)}
    assert judged(rows).verdict == REPRODUCED
    far = judged(rows | {VOTE: row_with(0.7, spread=0)})
    assert (far.verdict, far.null) == (REPRODUCED, "Vote of the labels: -10.0 ± 0.0")
    near = judged(rows | {VOTE: row_with(0.89, spread=0)})
    assert (near.verdict, near.null) == (ARTEFACT, "Vote of the labels: +9.0 ± 0.0")
    level = judged(rows | {VOTE: row_with(0.89, spread=0)}, second=None, least=0.9)
    assert (level.verdict, level.null) == (ARTEFACT, "Vote of the labels: 0.890 ± 0.000")
    # What was not reproduced needs no explanation.
    below = {OURS: rows[THEIRS], THEIRS: rows[OURS], VOTE: row_with(0.89)}
    assert judged(below).verdict == NOT


def test_the_null_model_takes_both_places_where_one_method_is_compared_with_itself():
    """Out of distribution minus in distribution: the gain of a vote."""
    outside = OURS._replace(setting="ood", threshold=0.5)
    rows = {outside: row_with(0.95, spread=0), OURS: row_with(0.75, spread=0)}
    rows |= {VOTE._replace(threshold=0.5): row_with(0.93, spread=0)}
    rows |= {VOTE: row_with(0.5, spread=0)}
    pairs = (Pair("here", outside, OURS),)
    contrast = Contrast("made up", pairs, 0.03, ("label_vote",))
    found = judge_contrast(contrast, {"made up": rows})
    assert found.verdict == ARTEFACT
    assert found.null == "Vote of the labels: +43.0 ± 0.0"


def test_a_dead_seed_leaves_a_failure_open_and_a_success_as_it_is():
    dead = row_with(0.7, spread=0) | {"seeds": [0.9, 0.5], "episodes_seen": 9}
    found = judged({OURS: dead, THEIRS: row_with(0.8, spread=0)})
    assert found.verdict == INCONCLUSIVE
    assert found.ours.endswith("1 of 2 seeds learned nothing")
    assert judged({OURS: dead, THEIRS: row_with(0.3, spread=0)}).verdict != NOT
    # A rival that failed to train can only help: it excuses nothing.
    rival = row_with(0.88, spread=0) | {"seeds": [*[0.9] * 19, 0.5], "episodes_seen": 9}
    found = judged({OURS: row_with(0.6, spread=0), THEIRS: rival})
    assert found.verdict == NOT
    assert found.ours.endswith("1 of 20 seeds learned nothing")


def test_a_seed_is_judged_where_the_task_is_easiest():
    """At three labels a model may be no better than a guess, and have learned."""
    hard, easy = OURS, OURS._replace(labels=39)
    rows = {
        hard: row_with(0.5, spread=0) | {"seeds": [0.5, 0.5], "episodes_seen": 9},
        easy: row_with(0.8, spread=0) | {"seeds": [0.8, 0.8], "episodes_seen": 9},
        THEIRS: row_with(0.9, spread=0),
        THEIRS._replace(labels=39): row_with(0.9, spread=0),
    }
    pairs = (Pair("3", hard, THEIRS), Pair("39", easy, THEIRS._replace(labels=39)))
    found = judge_contrast(Contrast("made up", pairs), {"made up": rows})
    assert found.verdict == NOT
    assert "learned nothing" not in found.ours


def test_a_wide_interval_lets_no_null_model_explain():
    wide = row_with(0.9, spread=0.4)
    rows = {OURS: wide, VOTE: row_with(0.86, spread=0)}
    assert judged(rows, second=None, least=0.5).verdict == REPRODUCED
    rows[VOTE] = row_with(0.885, spread=0)
    assert judged(rows, second=None, least=0.5).verdict == ARTEFACT


def test_a_constant_does_not_win_a_statement_by_the_rule_of_the_classes():
    """Uneven classes out of distribution, even ones in it: the larger class gains much."""
    claim = next(c for c in CLAIMS if "competitive" in c.says)
    rows = {}
    for cell in as_published_specs(PROFILES["full"]):
        constant = 0.94 if cell.threshold == 0.5 else 0.5
        rows[cell] = row_with(constant, spread=0)
        for name in ("label_vote", "free_head_eig_linear"):
            null = Cell(cell.source, cell.labels, name, threshold=cell.threshold)
            rows[null] = row_with(constant, spread=0)
    found = claim.published(PROFILES["full"], {"as-published": rows})
    assert found.verdict == ARTEFACT


@pytest.mark.parametrize(
    ("theirs", "verdict"), [(1500, REPRODUCED), (2500, NOT), (400, NOT)]
)
def test_a_baseline_is_matched_in_scale_within_a_factor_of_two(
    monkeypatch, theirs, verdict
):
    counts = {"paper": 1000, "transformer": theirs}
    monkeypatch.setattr(judges, "published_parameters", counts.__getitem__)
    assert judges.scale_matched(TOY_PROFILE, {}).verdict == verdict


def test_a_difference_that_is_said_to_be_small():
    judge = judges.within("made up", [Pair("here", OURS, THEIRS)], (-0.02, 0.02))
    for gap, verdict in ((0.01, REPRODUCED), (-0.01, REPRODUCED), (-0.05, NOT)):
        rows = {OURS: row_with(0.8 + gap, spread=0), THEIRS: row_with(0.8, spread=0)}
        assert judge(TOY_PROFILE, {"made up": rows}).verdict == verdict
    assert judge(TOY_PROFILE, {"made up": {}}).verdict == NOT_RUN


def test_a_difference_between_two_bounds():
    """Behind, but not far; null models are shown and explain nothing."""
    bounds = (-0.05, 0.0)
    judge = judges.within("made up", [Pair("here", OURS, THEIRS)], bounds, ("label_vote",))
    gaps = ((-0.03, REPRODUCED), (0.0, INCONCLUSIVE), (0.03, NOT), (-0.08, NOT))
    for gap, verdict in gaps:
        rows = {OURS: row_with(0.8 + gap, spread=0), THEIRS: row_with(0.8, spread=0)}
        rows |= {VOTE: row_with(0.77, spread=0)}
        found = judge(TOY_PROFILE, {"made up": rows})
        assert found.verdict == verdict
        assert found.null == "Vote of the labels: -3.0 ± 0.0"


def test_a_dead_seed_excuses_only_the_side_that_it_lowers():
    judge = judges.within("made up", [Pair("here", OURS, THEIRS)], (-0.05, 0.0))
    dead = row_with(0.7, spread=0) | {"seeds": [0.9] * 99 + [0.5], "episodes_seen": 9}
    well = row_with(0.8, spread=0) | {"seeds": [0.8] * 100, "episodes_seen": 9}
    for rows, verdict in (
        ({OURS: well, THEIRS: dead}, INCONCLUSIVE),
        ({OURS: dead, THEIRS: well}, INCONCLUSIVE),
        ({OURS: dead | {"seeds": [0.7] * 100}, THEIRS: well}, NOT),
    ):
        assert judge(TOY_PROFILE, {"made up": rows}).verdict == verdict


def gains_of(rbf, linear, spread=0.0):
    deep = {k: Cell("product", 3, "e2e_icl", k, size=2) for k in ("rbf", "linear")}
    rows = {}
    for kernel, gain in (("rbf", rbf), ("linear", linear)):
        rows[deep[kernel]] = row_with(0.7 + gain, spread=spread)
        rows[deep[kernel]._replace(size=1)] = row_with(0.7, spread=0)
    pairs = {k: [Pair("3", cell, cell._replace(size=1))] for k, cell in deep.items()}
    judge = judges.gains_more("made up", pairs["rbf"], pairs["linear"])
    return judge(TOY_PROFILE, {"made up": rows})


def test_one_gain_is_larger_than_another():
    found = gains_of(0.05, 0.01)
    assert found.verdict == REPRODUCED
    assert found.ours.startswith("difference of gains +4.0 ± 0.0 points")
    assert "rbf: +5.0 ± 0.0, linear: +1.0 ± 0.0" in found.ours
    assert gains_of(0.01, 0.05).verdict == NOT
    # Episodes on which all four vary alike say nothing about the difference.
    assert gains_of(0.05, 0.01, spread=0.2).verdict == REPRODUCED


def test_the_rank_correlation_is_scipys():
    from scipy.stats import spearmanr

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(12, generator=generator)
    y = x + 0.3 * torch.rand(12, generator=generator)
    y[3] = y[4]  # with a tie
    found = rank_correlation(x.tolist(), y.tolist())
    assert math.tanh(found.mean) == pytest.approx(spearmanr(x, y).statistic, abs=1e-6)
    assert rank_correlation(list(range(5)), list(range(5))).low > 0
    assert rank_correlation(list(range(9)), list(range(9, 0, -1))).high < 0
    assert rank_correlation([1, 2, 3], [1, 2, 3]).low == -math.inf


@pytest.mark.parametrize("factor", [1, -1])
def test_separation_is_compared_with_accuracy(factor):
    rows = {}
    for cell, spec in full_specs("imagenet").items():
        accuracy = 0.5 + cell.size / 1e4
        if isinstance(spec, Alignment):
            rows[cell] = aligned(0.2, 0.3 + factor * cell.size / 1e4)
        else:
            rows[cell] = row_with(accuracy)
    judge = judges.separation_follows_accuracy
    found = judge(PROFILES["full"], {"imagenet": rows})
    assert found.verdict == (REPRODUCED if factor == 1 else NOT)
    assert "over 12 models" in found.ours
    assert judge(PROFILES["full"], {"imagenet": {}}).verdict == NOT_RUN


# --- All statements


@cache
def full_specs(name):
    return specs_of(ARTEFACTS[name], PROFILES["full"])


@cache
def narrow(mean, majority):
    return row_with(mean, majority=majority, spread=0.001)


def world(accuracy, grows=True):
    """Rows of every artefact of the full profile, in which this is the accuracy."""
    found = {}
    for name in WITH_SPECS:
        rows = {}
        for cell, spec in full_specs(name).items():
            if isinstance(spec, Alignment):
                value = 0.2 + (1 if grows else -1) * cell.size / 1e5
                near = {("eig", "e2e_icl"): 0.05, ("e2e_icl", "transformer"): 0.09}
                is_e2e = cell.beside == "e2e_icl"
                jump = 0.2 * (is_e2e or (grows and cell.size >= 1200))
                value += near.get((cell.method, cell.beside), 0.0) * (1 if grows else -1)
                rows[cell] = aligned(value, 0.3 + jump)
            elif isinstance(spec, Scores):
                rows[cell] = narrow(accuracy(name, cell), 0.5)
        found[name] = rows
    return found


def as_the_paper_says(name, cell):
    """Accuracies for which every statement is true."""
    if cell.method in ("label_vote", "position_vote") or "free_head" in cell.method:
        return 0.5
    if cell.source == "images":
        both = {"torus", "swiss_roll"} <= set(cell.trained_on)
        ours = 0.99 if cell.setting == "id" else (0.9 if both else 0.8)
        if cell.setting == "ood" and cell.labels >= 39:
            ours += 0.05
        return ours if cell.method == "e2e_icl" else 0.6
    if name.startswith("imagenet"):
        late = cell.size >= 1200
        return {"e2e_icl": 0.9, "transformer": 0.9 if late else 0.6}.get(cell.method, 0.5)
    if name == "depth" or (name == "as-published" and cell.size):
        return 0.71 if cell.size >= 2 and cell.kernel == "rbf" else 0.7
    if cell.method == "e2e_icl":
        outside = {"cylinder": 0.04, "swiss_roll": -0.04, "cone": -0.04}
        outside = outside.get(cell.source, 0.02)
        return 0.95 + outside * (cell.setting == "ood") - 0.02 * (cell.kernel == "linear")
    return {"eig_icl": 0.83, "orig_rbf_lr": 0.6, "orig_rbf_lr_10": 0.6}.get(
        cell.method, 0.75
    )


def as_nobody_says(name, cell):
    """Accuracies for which none of them is."""
    if cell.source == "images":
        both = {"torus", "swiss_roll"} <= set(cell.trained_on)
        fewer = 0.1 * (cell.labels >= 39)
        return 0.4 - fewer if both else (0.5 - fewer if cell.method == "e2e_icl" else 0.7)
    if name.startswith("imagenet"):
        return {"e2e_icl": 0.5, "transformer": 0.6}.get(cell.method, 0.7)
    if name == "depth" or (name == "as-published" and cell.size):
        return 0.6 + 0.05 * (cell.kernel == "linear") if cell.size >= 2 else 0.7
    if cell.method == "e2e_icl":
        high = cell.source in ("swiss_roll", "cone")
        outside = 0.05 if high else -0.2
        return 0.6 + outside * (cell.setting == "ood") + 0.05 * (cell.kernel == "linear")
    return {"orig_rbf_lr": 0.9, "orig_rbf_lr_10": 0.9}.get(cell.method, 0.8)


NO_ROWS_NEEDED = [c.says for c in CLAIMS if c.by_proof]


def verdicts_in(found):
    answers = judge_claims(PROFILES["full"], found)
    return {
        (claim.says, column): finding.verdict
        for claim, *both in answers
        for column, finding in zip(("published", "fair"), both, strict=True)
        if claim.says not in NO_ROWS_NEEDED
    }


def test_verdicts_where_the_paper_is_right_and_where_it_is_not():
    assert set(verdicts_in(world(as_the_paper_says)).values()) == {REPRODUCED}
    wrong = verdicts_in(world(as_nobody_says, grows=False))
    jump = (
        "The Transformer baseline jumps near 1,200 training datasets, its separation with"
    )
    left = {k for k, v in wrong.items() if v != NOT}
    # A flat curve has no jump anywhere.
    assert left == {(f"{jump} it.", column) for column in ("published", "fair")}
    assert {wrong[key] for key in left} == {INCONCLUSIVE}


def test_features_are_judged_by_the_rows_of_each_protocol():
    """Literal rows have several seeds, over which measures are averaged."""
    name = imagenet_published.NAME
    rows = {}
    for cell, spec in full_specs(name).items():
        row = aligned(0.2) if isinstance(spec, Alignment) else narrow(0.5, 0.5)
        if (cell.method, cell.beside) == (EIG, "e2e_icl"):
            row = aligned(0.3)
        for measure in row.get("measures", ()):
            mean = row["measures"][measure]["mean"]
            seeds = [mean - 0.02, mean, mean + 0.02]
            row["measures"][measure] = row["measures"][measure] | {"seeds": seeds}
        rows[cell] = row
    claims = {claim.says: claim for claim in CLAIMS}
    claim = claims["E2E is closer to the eigenvectors than the baseline is."]
    evidence = {name: rows, "imagenet": {}}
    found = claim.published(PROFILES["full"], evidence)
    assert found.verdict == REPRODUCED
    # Student's interval of three seeds, .02 * 4.303 / sqrt(3), once for each side.
    assert "mean +0.100 ± 0.070, mean of 3 seeds" in found.ours
    assert claim.fair(PROFILES["full"], evidence).verdict == NOT_RUN


def test_the_page_says_its_own_sizes(tmp_path):
    """Of its profile and of its models, whatever they are."""
    profile = replace(TOY_PROFILE, tuning=17, episodes=23)
    store = Store(tmp_path / "rows.jsonl")
    for cell, spec in specs_of(ARTEFACTS["as-published"], profile).items():
        if cell.method == "label_vote":
            store.append(made_up(spec, 0.7))
    page = claims_markdown(profile, store)
    for words in ("chosen on 17 training episodes", "; 23 test episodes."):
        assert words in page
    counts = {c.model: c.parameters for c in parameter_counts() if c.stage == "total"}
    assert f"our variant of the model, which has {counts['free']:,} weights" in page
    assert f"has {counts['paper']:,}, and the paper counts 10,852" in page


def test_no_verdict_without_rows():
    nothing = verdicts_in({name: {} for name in WITH_SPECS})
    assert set(nothing.values()) == {NOT_RUN}


def test_what_the_lemmas_and_the_theorem_say_is_computed(monkeypatch):
    from icssl.bench.paper import theory

    proofs = [c for c in CLAIMS if c.about.startswith("theory")]
    found = [c.published(TOY_PROFILE, {}) for c in proofs]
    assert [f.verdict for f in found] == [REPRODUCED] * 3
    monkeypatch.setattr(theory, "right_normalised_laplacian", lambda affinity: affinity)
    theory._lemma1.cache_clear()
    assert theory.lemma1(TOY_PROFILE, {}).verdict == NOT
    theory._lemma1.cache_clear()


def test_a_curve_that_falls_first_has_no_transition():
    def accuracy(name, cell):
        low = {2500: 0.65}.get(cell.size, 0.7)
        return 0.9 if cell.size == 5000 else low

    found = judges.transition(PROFILES["full"], world(accuracy))
    assert found.verdict == INCONCLUSIVE


def test_statements_are_counted_and_stand_ins_apart():
    text = tally([REPRODUCED, NOT, NOT], [REPRODUCED, NOT, DIRECTION], 2)
    assert text == (
        "Of 5 statements, 3 can be tested here. As published: reproduced 1, not reproduced "
        "2. Under a fair protocol they survive: yes 1, in direction only 1, no 1. The 2 "
        "others need data that are not public here, and are tested on stand-ins."
    )
    answers = [(claim, Finding(""), Finding("")) for claim in CLAIMS]
    here = sum(not claim.stand_in for claim in CLAIMS)
    assert f"{here} can be tested here. As published: not run {here}." in headline(answers)


def test_models_that_are_worse_than_what_they_contain_are_listed():
    deep, flat = (Cell("product", 3, "e2e_icl", "rbf", size=depth) for depth in (2, 1))
    rows = {deep: row_with(0.6, spread=0.001), flat: row_with(0.7, spread=0.001)}
    eig = Cell("torus", 3, "eig_icl", "rbf")
    head = Cell("torus", 3, "free_head_eig_rbf")
    curves = {eig: row_with(0.7, spread=0), head: row_with(0.702, spread=0)}
    table = nested_table({"depth": rows, "label-curves": curves})
    assert "In 1 of 2 comparisons a model is worse" in table.notes[0]
    assert table.rows[0][-1].startswith("-10.0")
    assert nested_table({"depth": {}}).rows == ()


def test_heads_on_features_are_compared_where_they_are_nested():
    """The literal head sees raw points; the number that varies is of training episodes."""
    rows = {}
    for method, null in (("orig_icl", "free_head_rbf"), ("eig_icl", "free_head_eig_rbf")):
        rows[Cell("digits", 3, method, "rbf", size=1200)] = row_with(0.6, spread=0.001)
        rows[Cell("digits", 3, null)] = row_with(0.7, spread=0.001)
    titles = [line[3] for line in nested_table({"imagenet": rows}).rows]
    assert titles == [
        f"{name} (RBF), 1,200 training episodes" for name in ("Orig+ICL", "Eig+ICL")
    ]
    assert len(nested_table({imagenet_published.NAME: rows}).rows) == 1


# --- What is explained by arithmetic, and what the paper's tables say


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
    assert printed.printed_cylinder_margin().startswith(
        shown(e2e, on_cylinder("eig_icl", "id"))
    )
    outside = on_cylinder("e2e_icl", "ood")
    assert printed.printed_outside_cylinder().startswith(shown(outside, e2e))
    gain = [
        values["id-ood", "torus", "rbf", "e2e_icl", "ood", m]
        - values["id-ood", "torus", "rbf", "e2e_icl", "id", m]
        for m in ("3", "21", "39")
    ]
    assert f"torus {100 * sum(gain) / 3:+.1f}" in printed.printed_outside_others()
    assert "0.557 / 0.686" in printed.printed_pictures()
    third = values[
        "image-transfer", "cylinder+sphere+torus+swiss_roll", "rbf", "e2e_icl", "ood", "39"
    ]
    assert f"{third:.3f}" in printed.printed_best_sets().split(";")[0]


def test_a_profile_that_is_too_small_judges_nothing_but_proofs(tmp_path):
    """Whatever its rows say, or were there none."""
    store = Store(tmp_path / "rows.jsonl")
    by_proof = [claim.by_proof for claim in CLAIMS]
    quick = claims_table(PROFILES["quick"], store)
    small = [row[5] == verdicts.TOO_SMALL == row[8] for row in quick.rows]
    assert small == [not proof for proof in by_proof]
    toy = claims_table(TOY_PROFILE, store)
    assert [row[5] == NOT_RUN for row in toy.rows] == [not proof for proof in by_proof]
