"""Every printed number beside ours, and the artefact that runs the paper's conditions."""

import csv
from pathlib import Path

import pytest
import torch

import icssl.bench.paper
from bench_helpers import TOY_PROFILE, aligned, row_with
from icssl.bench.paper import imagenet, imagenet_published
from icssl.bench.paper.artefact import PROFILES, Cell
from icssl.bench.paper.as_published import (
    FINAL_SEED,
    PRESETS,
    UNEVEN,
    literal_cell,
    literal_data,
)
from icssl.bench.paper.as_published import specs as as_published_specs
from icssl.bench.paper.claims import evidence
from icssl.bench.paper.published import COLUMNS, published_csv, published_lines, summary
from icssl.bench.paper.table_cells import SURFACES, other_surfaces
from icssl.bench.spec import TEST_SEED, Scores
from icssl.bench.store import Store
from icssl.episodes.data_config import DataConfig

ROOT = Path(__file__).parents[1]
FILE = Path(icssl.bench.paper.__file__).parent / "paper_values.csv"
PLACE = ("cylinder", "rbf", "e2e_icl")


def line_of(rows, setting="ood", context="39"):
    lines = published_lines(TOY_PROFILE, {"as-published": rows})
    named = ("data", "kernel", "method", "setting", "context")
    wanted = (*PLACE, setting, context)
    return next(x for x in lines if tuple(x[n] for n in named) == wanted)


def rows_of_cylinder(ours, vote, free):
    """Rows on the cylinder out of distribution at 39 labels, printed as .935."""
    cell = Cell("cylinder", 39, "e2e_icl", "rbf", "ood", 0.5)
    nulls = {"label_vote": vote, "free_head": free}
    rows = {cell: row_with(ours, majority=vote) | {"key": "k"}} if ours else {}
    for name, value in nulls.items():
        place = Cell("cylinder", 39, name, threshold=0.5)
        rows[place] = row_with(value, majority=vote)
    return rows


def test_every_printed_number_has_its_line():
    with FILE.open() as file:
        printed = list(csv.DictReader(file))
    lines = published_lines(TOY_PROFILE, {})
    assert len(lines) == len(printed) == 223
    for line, given in zip(lines, printed, strict=True):
        assert tuple(line) == COLUMNS
        assert (line["published"], line["published_sd"]) == (given["value"], given["sd"])
        assert line["verdict"]
        assert line["reason"] or line["verdict"] == "reproduced"
    of_scores = [x for x in lines if x["metric"] == "accuracy"]
    assert {(x["verdict"], x["reason"]) for x in of_scores if x["data"] != "image"} >= {
        ("not run", "not run")
    }


@pytest.mark.parametrize(
    ("ours", "vote", "free", "verdict", "reason"),
    [
        (0.93, 0.8, 0.8, "reproduced", "within 2.0 points"),
        (0.90, 0.8, 0.8, "not reproduced", "ours is 3.5 points below"),
        (0.98, 0.8, 0.8, "not reproduced", "ours is 4.5 points above"),
        (0.93, 0.934, 0.8, "explained by a null model", "the vote of the labels has 0.934"),
        (None, 0.8, 0.93, "explained by a null model", "the training-free head has 0.930"),
        (None, 0.8, 0.8, "not run", "not run"),
    ],
)
def test_a_number_is_reproduced_or_explained_or_not(ours, vote, free, verdict, reason):
    line = line_of(rows_of_cylinder(ours, vote, free))
    assert line["verdict"] == verdict
    assert line["reason"].startswith(reason)
    assert line["key"] == ("k" if ours else "")
    assert line["as_published"] == (f"{ours:.3f}" if ours else "")


LEFT_OUT = "; 1 of 3 seeds learned nothing in training and are left out, with them it is "
APART = "ours is 14.5 points below; single seeds have 0.500 to 0.940"
REACHED = f"within 2.0 points{LEFT_OUT}0.790"
ONE_LOW = (0.94, 0.5, 0.93)


@pytest.mark.parametrize(
    ("seeds", "share", "losses", "ours", "reason"),
    [
        ((0.90, 0.91, 0.89), 0.5, (0.2, 0.2, 0.2), "0.900", "ours is 3.5 points below"),
        (ONE_LOW, 0.5, (0.2, 0.69, 0.2), "0.935", REACHED),
        # A low score alone leaves no seed out: it must show in training.
        (ONE_LOW, 0.5, (0.2, 0.3, 0.2), "0.790", APART),
        # With uneven classes a guess has a lower loss: the entropy of the shares, .24 here.
        (ONE_LOW, 0.936, (0.1, 0.23, 0.1), "0.935", REACHED),
        ((0.5, 0.5), 0.5, (0.69, 0.7), "0.500", "ours is 43.5 points below"),
    ],
)
def test_seeds_that_learned_nothing_in_training_are_left_out_and_said(
    seeds, share, losses, ours, reason
):
    rows = rows_of_cylinder(0.90, 0.8, 0.8)
    (cell,) = (cell for cell in rows if cell.method == "e2e_icl")
    trained = {"seeds": list(seeds), "held_out_loss": list(losses), "episodes_seen": 1}
    rows[cell] |= trained
    for source in other_surfaces("cylinder"):  # which the model is trained on
        place = Cell(source, 39, "label_vote", threshold=0.5)
        rows[place] = row_with(0.8, majority=share)
    line = line_of(rows)
    assert (line["as_published"], line["reason"]) == (ours, reason)


def test_parameters_that_were_printed_are_met_where_they_can_be():
    lines = published_lines(TOY_PROFILE, {})
    found = {x["method"]: x for x in lines if x["metric"] == "parameters"}
    assert found["transformer"]["as_published"] == "1442178"
    met = {name for name, x in found.items() if x["verdict"] == "reproduced"}
    assert met == {"e2e_icl.head", "orig_icl", "eig_icl", "transformer"}
    assert found["e2e_icl.head"]["as_published"] == "578"  # 576, step size and gamma
    assert found["orig_lr"]["verdict"] == "not testable here"


def test_pictures_are_no_verdict_on_the_papers_own():
    cell = Cell("images", 3, "e2e_icl", "rbf", "id")
    rows = {cell: row_with(0.73) | {"key": "k"}}
    lines = published_lines(TOY_PROFILE, {"as-published": rows})
    found = [x for x in lines if x["artefact"] == "image-transfer" and x["key"] == "k"]
    assert len(found) == 5  # the paper repeats one model in the line of every set
    assert {x["verdict"] for x in found} == {"not testable here"}
    assert all(x["reason"].startswith("pictures of the shipped") for x in found)


def test_alignments_stand_beside_the_print_and_are_no_verdict_on_it():
    """The printed cycle is read as a share; rows from before it have no such measure."""
    pair = imagenet.pair_cell(TOY_PROFILE, 3, ("e2e_icl", "transformer"), 4)
    literal, fair = aligned(0.301) | {"key": "k"}, aligned(0.2) | {"key": "f"}
    literal["measures"]["cycle_share_knn"] = {"mean": 0.28, "half_width": 0.0}
    literal["measures"]["cycle_knn"] = {"mean": 0.8, "half_width": 0.0}
    del fair["measures"]["cycle_share_knn"]
    rows = {"imagenet-as-published": {pair: literal}, "alignment": {pair: fair}}
    lines = {
        (x["method"], x["metric"]): x
        for x in published_lines(TOY_PROFILE, rows)
        if x["artefact"] == "alignment"
    }
    assert len(lines) == 9
    mutual, cycle, lcs = (
        lines["e2e_icl|transformer", metric] for metric in ("mnn", "cycle", "lcs")
    )
    assert [x["as_published"] for x in (mutual, cycle, lcs)] == ["0.301", "0.280", "0.301"]
    assert [x["fair"] for x in (mutual, cycle, lcs)] == ["0.200", "", "0.200"]
    assert "reproduced, within 2.0 points" in mutual["reason"]  # of .302
    assert cycle["reason"].endswith("whether any returns, has 0.800")
    assert "not reproduced, ours is 10.8 points above" in lcs["reason"]  # of .193
    assert {x["verdict"] for x in (mutual, cycle, lcs)} == {"not testable here"}
    assert {x["key"] for x in (mutual, cycle, lcs)} == {"k"}
    assert lines["eig|e2e_icl", "mnn"]["verdict"] == "not run"


def test_literal_models_of_features_are_those_that_are_printed():
    full, quick = PROFILES["full"], PROFILES["quick"]
    specs = imagenet_published.specs(full)
    assert all(spec.data.share_classes for spec in specs.values())
    assert {spec.seed for spec in specs.values()} == {imagenet_published.FEATURES_SEED}
    scores = {cell: s for cell, s in specs.items() if isinstance(s, Scores)}
    assert {len(s.trainings) for s in scores.values()} == {full.literal_seeds}
    seen = {c.steps * c.batch for s in scores.values() for c in s.trainings}
    assert len(seen) == 1  # as many episodes for each trained model
    sizes = {m: sorted({c.size for c in scores if c.labels == m}) for m in (3, 39)}
    assert sizes == {3: [*full.sizes], 39: [max(full.sizes)]}
    baseline = imagenet_published.literal_runs(quick, "transformer", 100, 3)[0].model
    assert (baseline.positions, baseline.d, baseline.scale) == (200, 64, "none")
    ours = imagenet_published.literal_runs(quick, "e2e_icl", 100, 3)[0].model
    assert (ours.expectation, ours.attend_to_r, ours.scale) == ("mlp", True, "none")


def test_bandwidths_begin_as_wide_against_the_cloud_as_on_surfaces():
    """The widths are those of the episodes, of the digits as of the five surfaces."""

    def width(*sources):
        drawn = [
            DataConfig((name,), share_classes=True)
            .build()
            .draw(100, generator=torch.Generator().manual_seed(1))
            .x
            for name in sources
        ]
        around = [x - x.mean(dim=1, keepdim=True) for x in drawn]
        return sum(x.square().sum(-1).mean().sqrt().item() for x in around) / len(drawn)

    digits = width("digits")
    assert digits == pytest.approx(imagenet_published.WIDTHS["digits"], rel=0.05)
    ratio = digits / width(*SURFACES)
    models = {
        method: imagenet_published.literal_runs(PROFILES["quick"], method, 100, 3)[0].model
        for method in ("e2e_icl", "orig_icl", "eig_icl")
    }
    assert models["e2e_icl"].sigma == pytest.approx(0.05 * ratio, rel=0.1)
    assert models["orig_icl"].gamma == pytest.approx(100 / ratio**2, rel=0.2)
    assert models["eig_icl"].gamma == 1  # eigenvectors have a scale of their own


def test_the_committed_file_is_that_of_the_committed_rows():
    full = PROFILES["full"]
    rows = evidence(full, Store(ROOT / "results" / "full" / "rows.jsonl"))
    lines = published_lines(full, rows)
    text = published_csv(lines)
    assert (ROOT / "results" / "full" / "published.csv").read_text() == text
    page = (ROOT / "docs" / "claims.md").read_text()
    assert summary(lines) in page


def test_the_published_conditions_are_those_that_choices_names():
    assert literal_data("cone").half_angle == 0.1
    assert literal_data("sphere").measure == "area"
    assert literal_data("swiss_roll", 0.5).roll_halves
    assert not literal_data("images").shuffle_frames
    assert (literal_data("cone").s_min, literal_data("cone", 0.5).s_min) == (0.0, 0.1)
    uneven = literal_data("product", UNEVEN)
    assert uneven.ball_share == pytest.approx(0.256)
    y = uneven.build().draw(4, generator=torch.Generator()).y
    assert (y == 0).sum(dim=1).tolist() == [74] * 4
    even = literal_data("product")
    assert (even.ball_share, even.factor_distance) == (0.5, "scaled")
    assert literal_cell(Cell("product", 3, "e2e_icl", "rbf")).threshold == UNEVEN
    assert literal_cell(Cell("product", 3, "lap_linear", "rbf")).threshold == "median"
    assert literal_cell(Cell("cone", 3, "e2e_icl", "rbf")).threshold == "published"
    outside = literal_cell(Cell("torus", 3.0, "e2e_icl", "rbf", "ood"))
    assert (outside.threshold, outside.labels) == (0.5, 3)


def test_every_printed_accuracy_has_a_spec_with_five_seeds_on_unseen_episodes():
    full = PROFILES["full"]
    specs = as_published_specs(full)
    trained = {cell: spec for cell, spec in specs.items() if spec.trainings}
    for cell, spec in trained.items():
        assert len(spec.trainings) == 5
        assert spec.method == PRESETS[cell.method]
        literal = spec.trainings[0]
        others = cell.trained_on or other_surfaces(cell.source)
        assert literal.data.sources == ((cell.source,) if cell.setting == "id" else others)
        if literal.model.features == "eigenmap":
            assert literal.model.expectation == "mlp"
            assert literal.model.attend_to_r
        weights = (literal.laplacian_weight, literal.eigenmap_weight)
        assert weights == ((1.0, 1.0) if cell.method == "paper_combined" else (0.0, 0.0))
    assert {spec.seed for spec in specs.values()} == {FINAL_SEED} != {TEST_SEED}
    missing = [
        x
        for x in published_lines(
            full, {"as-published": {c: row_with(0.5) | {"key": "k"} for c in specs}}
        )
        if x["metric"] == "accuracy" and not x["as_published"]
    ]
    assert missing == []
