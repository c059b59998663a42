"""Rows in a file, keys of specs, the runner, probes of models, and what rows become."""

import base64
import json
import math
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from bench_helpers import FEW, FIRST, OTHER, SECOND, SPHERE, toy_specs, without_time
from helpers import bottom_eigenvectors, drawn_colours, principal_angle, toy_config
from icssl import ICSSLTransformer, ModelConfig
from icssl.bench import batches, probes, runner, work
from icssl.bench.batches import AT_ONCE, Training, batches_of, train_batch
from icssl.bench.probes import EIG, Alignment, Mechanism
from icssl.bench.render import Picture, Table, save_picture, write_page
from icssl.bench.runner import run_missing
from icssl.bench.spec import TEST_SEED, Scores, Spec, accuracies_of
from icssl.bench.store import Store, read_runs
from icssl.episodes.data_config import DataConfig
from icssl.episodes.stream import EpisodeStream
from icssl.evaluation import scoring as evaluation
from icssl.evaluation.metrics import METRIC_NAMES, accuracy, separation_score
from icssl.evaluation.predictors import ModelMethod
from icssl.evaluation.representations import ALIGNMENTS
from icssl.evaluation.scoring import evaluate
from icssl.methods import BASELINES
from icssl.training.config import TrainConfig
from icssl.training.loop import OutOfMemoryError, train


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "new folder" / "rows.jsonl")


# --- The file of rows


def test_rows_are_read_back_as_they_were_appended(store):
    rows = [{"key": "b", "value": [1, 2.5, None]}, {"key": "a", "text": "größe\u2028點"}]
    for row in rows:
        assert row["key"] not in store
        store.append(row)
        assert store[row["key"]] == row
    again = Store(store.path)
    assert list(again) == list(store) == rows
    assert len(again) == 2
    assert "c" not in again


def test_a_line_torn_anywhere_is_dropped_and_later_rows_are_whole(store):
    rows = [{"key": name, "value": i} for i, name in enumerate("abc")]
    for row in rows:
        store.append(row)
    whole = store.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last + 1, len(whole)):
        store.path.write_bytes(whole[:end])
        torn = Store(store.path)
        # Where only the end of the line is missing, the row is there.
        kept = rows if end == len(whole) - 1 else rows[:2]
        assert list(torn) == kept
        torn.append({"key": "d"})
        torn.append({"key": "e"})
        assert list(Store(store.path)) == [*kept, {"key": "d"}, {"key": "e"}]


@pytest.mark.parametrize("broken", ['{"key":"b","va', "[1]", '{"value":1}', "", "3"])
def test_a_broken_line_in_the_middle_is_named(store, broken):
    for name in "ac":
        store.append({"key": name})
    first, last = store.path.read_text().splitlines()
    store.path.write_text(f"{first}\n{broken}\n{last}\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2, is no row"):
        Store(store.path)


def test_of_one_key_the_later_row_counts(store):
    store.append({"key": "a", "value": 1})
    store.append({"key": "b", "value": 2})
    store.append({"key": "a", "value": 3})
    assert len(store.path.read_text().splitlines()) == 3  # nothing was written over
    for each in (store, Store(store.path)):
        assert len(each) == 2
        assert each["a"]["value"] == 3


# --- Keys of specs

OTHER_DATA = {
    "sources": ("torus",),
    "split": "test",
    "n": 30,
    "n_classes": 3,
    "train_classes": 5,
    "placement": "covering",
    "threshold": 0.5,
    "measure": "area",
    "rotation": "full",
    "half_angle": 0.4,
    "factor_distance": "scaled",
    "eigenvectors": 3,
    "distances": True,
    "episodes": 9,
    "test_threshold": 0.4,
    "s_min": 0.1,
    "factors": ("sphere", "torus"),
    "ball_share": 0.3,
    "roll_halves": True,
    "share_classes": True,
    "shuffle_frames": False,
    "pixel_scale": 0.001,
}
OTHER_TRAINING = {
    "model": ModelConfig.preset("orig_icl", gamma=2.0),
    "data": DataConfig(("sphere",), n=21),
    "labels": (3, 6),
    "steps": 6,
    "batch": 5,
    "seed": 3,
    "learning_rate": 3e-3,
    "warmup": 0.1,
    "final_rate": 0.02,
    "weight_decay": 0.1,
    "clip": 2.0,
    "laplacian_weight": 0.1,
    "eigenmap_weight": 0.1,
    "gamma_rate": 0.2,
}
STAGED = toy_config("e2e_icl", "steps=5")  # the weights of the loss need stages


def variants(spec):
    """Specs that differ in one field of any depth each."""
    for name, value in OTHER_DATA.items():
        yield replace(spec, data=replace(spec.data, **{name: value}))
    for name, value in OTHER_TRAINING.items():
        changed = replace(STAGED, **{name: value})
        if isinstance(spec, Alignment):
            yield replace(spec, first=changed)
            yield replace(spec, second=changed)
        else:
            yield replace(spec, trainings=(changed,))
    yield replace(spec, labels=5)
    yield replace(spec, labels=0.3)
    yield replace(spec, episodes=5)
    yield replace(spec, seed=8)


BASES = [
    Scores("e2e_icl", SPHERE, 3, (STAGED,), **FEW),
    Alignment(STAGED, STAGED, SPHERE, 3, episodes=4),
    Mechanism((STAGED,), SPHERE, 3, episodes=4),
]


def test_every_field_of_data_and_training_has_another_value_here():
    assert set(OTHER_DATA) == {field.name for field in fields(DataConfig)}
    assert set(OTHER_TRAINING) == {field.name for field in fields(TrainConfig)}


@pytest.mark.parametrize("spec", BASES, ids=lambda spec: type(spec).__name__)
def test_any_other_field_is_another_key(spec):
    assert isinstance(spec, Spec)
    others = [*variants(spec)]
    if isinstance(spec, Alignment):
        others += [replace(spec, first=EIG), replace(spec, second=EIG)]
    else:
        others += [replace(spec, trainings=(STAGED, FIRST)), replace(spec, trainings=())]
    others += [replace(spec, iterations=9)] if isinstance(spec, Mechanism) else []
    others += [replace(spec, method="paper")] if isinstance(spec, Scores) else []
    keys = [each.key for each in (spec, *others)]
    assert len(set(keys)) == len(keys) > 30


def test_tuning_is_part_of_the_key_of_what_is_tuned_alone():
    tuned, trained = Scores("svc_rbf", SPHERE, 3), Scores("orig_icl", SPHERE, 3, (OTHER,))
    assert replace(tuned, tuning=5).key != tuned.key
    assert replace(trained, tuning=5).key == trained.key


def test_kinds_of_specs_share_no_key():
    assert len({spec.key for spec in BASES}) == len(BASES)


def test_equal_specs_share_a_key():
    for one, other in zip(toy_specs(), toy_specs(), strict=True):
        assert one is not other
        assert one.key == other.key
    assert len({spec.key for spec in toy_specs()}) == len(toy_specs())


def test_keys_are_those_of_another_process():
    code = "from bench_helpers import toy_specs; print(*(spec.key for spec in toy_specs()))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONHASHSEED": "12", "PYTHONPATH": path}
    printed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout.split()
    assert printed == [spec.key for spec in toy_specs()]


def test_a_spec_is_described_in_plain_values():
    for spec in (*toy_specs(), *BASES):
        text = json.dumps(spec.describe(), sort_keys=True)
        assert json.loads(text)["data"]["sources"] == ["sphere"]


# --- The runner


def test_what_is_there_is_not_run_again(store, monkeypatch):
    assert run_missing(toy_specs(), store) == len(toy_specs()) == len(store)
    before = store.path.read_bytes()
    monkeypatch.setattr(batches, "train_batch", pytest.fail)
    assert run_missing(toy_specs(), store) == 0
    assert run_missing(toy_specs(), Store(store.path)) == 0
    assert store.path.read_bytes() == before


@pytest.mark.parametrize("number", [1, 5])
def test_a_row_that_was_deleted_is_run_alone_and_comes_out_the_same(store, number):
    run_missing(toy_specs(), store)
    rows = {row["key"]: row for row in store}
    lost = toy_specs()[number].key
    lines = store.path.read_text().splitlines(keepends=True)
    store.path.write_text("".join(line for line in lines if lost not in line))
    told = []
    again = Store(store.path)
    assert run_missing(toy_specs(), again, report=told.append) == 1
    assert {progress.total for progress in told} == {1}
    assert without_time(again[lost]) == without_time(rows[lost])


def counted_training(monkeypatch):
    """Configurations in the order in which they are trained, call by call."""
    calls = []

    def counting(configs, **options):
        calls.append(list(configs))
        return train(configs, **options)

    monkeypatch.setattr(batches, "train", counting)
    return calls


def test_a_model_that_several_specs_need_is_trained_once(store, monkeypatch):
    calls = counted_training(monkeypatch)
    run_missing(toy_specs(), store)
    assert sorted(map(len, calls)) == [1, 1, 1]
    assert {config for call in calls for config in call} == {FIRST, SECOND, OTHER}


def test_models_of_one_spec_are_in_one_batch_if_they_fit(monkeypatch):
    monkeypatch.setitem(AT_ONCE, "cpu", 4)
    seeds = [[replace(FIRST, seed=3 * i + seed) for seed in range(3)] for i in range(3)]
    specs = [Scores("transformer", SPHERE, 3, tuple(three)) for three in seeds]
    found = batches_of(specs, "cpu")
    assert [batch.configs for batch in found] == [tuple(three) for three in seeds]
    monkeypatch.setitem(AT_ONCE, "cpu", 2)  # too few for one spec
    assert [len(b.configs) for b in batches_of(specs[:1], "cpu")] == [2, 1]


def test_models_trained_at_once_give_the_rows_of_models_trained_alone(
    store, tmp_path, monkeypatch
):
    run_missing(toy_specs(), store)
    monkeypatch.setitem(AT_ONCE, "cpu", 8)
    calls = counted_training(monkeypatch)
    together = Store(tmp_path / "together.jsonl")
    run_missing(toy_specs(), together)
    assert sorted(map(len, calls)) == [1, 2]
    for spec in toy_specs()[:4]:
        one, other = store[spec.key], together[spec.key]
        assert one["accuracies"] == pytest.approx(other["accuracies"], abs=1e-3)
        assert one["held_out_loss"] == pytest.approx(other["held_out_loss"], abs=1e-3)
        assert one["slope"] == pytest.approx(other["slope"], abs=1e-2)


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_every_spec_is_run_once_and_after_its_models(monkeypatch, at_once):
    monkeypatch.setitem(AT_ONCE, "cpu", at_once)
    wide = toy_config("orig_icl", "steps=5", "data.sources=product")  # of another shape
    given = [*toy_specs(), Scores("orig_icl", SPHERE, 3, (wide, OTHER))]
    found = batches_of([*given, *toy_specs()], "cpu")
    ran = [spec for batch in found for spec in batch.specs]
    assert {spec.key for spec in ran} == {spec.key for spec in given}
    assert len(ran) == len(given)
    trained = []
    for batch in found:
        assert len(batch.configs) <= at_once
        assert len({config.model for config in batch.configs}) <= 1
        assert len({config.data.sources for config in batch.configs}) <= 1
        trained += batch.configs
        assert all(config in trained for spec in batch.specs for config in spec.trainings)
    assert len(trained) == 4


def test_without_time_nothing_is_started_and_another_run_completes(store):
    told = []
    assert run_missing(toy_specs(), store, minutes=0, report=told.append) == 0
    assert told == []
    assert run_missing(toy_specs(), store) == len(toy_specs())


def test_nothing_more_is_started_after_so_many_minutes(store, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(work, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    told = []

    def report(progress):
        told.append(progress)
        clock.now += 60  # every piece of work takes a minute

    run_missing(toy_specs(), store, minutes=2.5, report=report)
    assert len(told) == 3  # begun after 0, 1 and 2 minutes
    assert told[0].seconds_left is None
    assert told[1].seconds_left > 0
    assert [p.done for p in told] == sorted(p.done for p in told)
    assert {p.total for p in told} == {len(toy_specs())}
    assert 0 < len(store) < len(toy_specs())
    run_missing(toy_specs(), store, report=report)
    assert len(store) == len(toy_specs())


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_an_interrupted_run_keeps_its_rows_and_goes_on(store, tmp_path, stop):
    told = []

    def interrupt(progress):
        told.append(progress)
        if len(told) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_missing(toy_specs(), store, report=interrupt)
    kept = Store(store.path)
    assert len(kept) == told[-1].done
    run_missing(toy_specs(), kept)
    straight = Store(tmp_path / "straight.jsonl")
    run_missing(toy_specs(), straight)
    wanted = {row["key"]: without_time(row) for row in Store(straight.path)}
    assert {row["key"]: without_time(row) for row in Store(store.path)} == wanted


def test_classical_methods_in_processes_of_their_own_give_the_same_rows(store, tmp_path):
    run_missing(toy_specs(), store, workers=2)
    alone = Store(tmp_path / "alone.jsonl")
    run_missing(toy_specs(), alone)
    wanted = {row["key"]: without_time(row) for row in alone}
    assert {row["key"]: without_time(row) for row in store} == wanted
    assert run_missing(toy_specs(), store, workers=2) == 0


def test_what_other_processes_had_begun_is_stored_when_a_run_is_interrupted(store):
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_missing(toy_specs(), store, workers=1, report=interrupt)
    kept = Store(store.path)
    before = len(kept)
    assert all(not row["spec"]["trainings"] for row in kept)
    assert run_missing(toy_specs(), kept, workers=1) == len(toy_specs()) - before


def test_without_time_no_other_process_is_started(store, monkeypatch):
    monkeypatch.setattr(runner, "Pool", pytest.fail)
    assert run_missing(toy_specs(), store, workers=2, minutes=0) == 0


def test_an_error_in_another_process_is_raised_here(store):
    broken = Scores("no_such_method", SPHERE, 3, (), **FEW)
    with pytest.raises((KeyError, ValueError), match="no_such_method"):
        run_missing([broken], store, workers=1)
    assert len(store) == 0


def test_models_of_the_runner_are_those_of_train():
    found = train_batch([FIRST], "cpu")
    (model,) = train([FIRST])
    torch.testing.assert_close(
        found[FIRST].model.state_dict(), model.state_dict(), rtol=0, atol=0
    )


def test_every_run_that_adds_rows_says_how_long_it_took(store):
    run_missing(toy_specs()[-2:], store)
    run_missing(toy_specs()[-2:], store)  # nothing to do, nothing to say
    run_missing(toy_specs()[-3:], store)
    lines = read_runs(store)
    assert [line["rows"] for line in lines] == [2, 1]
    assert all(line["seconds"] > 0 and line["device"] for line in lines)


def test_a_model_that_does_not_stay_finite_costs_its_own_rows_alone(store, monkeypatch):
    """In a batch of two, the other one is trained and measured all the same."""
    # The rate may differ within a batch, what the gradient is clipped to may not.
    ruined = replace(FIRST, learning_rate=1e30)
    wanted = [
        Scores("transformer", SPHERE, 3, (config,), **FEW) for config in (ruined, SECOND)
    ]
    monkeypatch.setitem(AT_ONCE, "cpu", 2)
    assert len(batches_of(wanted, "cpu")) == 1
    with pytest.warns(RuntimeWarning, match="not finite"):
        assert run_missing(wanted, store) == 1
    assert wanted[1].key in store


def test_training_an_encoder_leaves_the_precision_of_the_process_as_it_was():
    before = torch.get_float32_matmul_precision()
    config = toy_config("e2e_encoder", "steps=1")
    found = train_batch([config], "cpu")
    assert torch.get_float32_matmul_precision() == before
    (model,) = train([config])
    torch.testing.assert_close(found[config].model.state_dict(), model.state_dict())


def test_rows_are_those_of_evaluate(store):
    run_missing(toy_specs(), store)
    models = [ModelMethod(train([config])[0]) for config in (FIRST, SECOND)]
    methods = {
        "both": models,
        "first": models[0],
        "second": models[1],
        "1-NN": BASELINES["nearest_neighbour"],
    }
    rows = evaluate(methods, SPHERE, [3, 5], seed=TEST_SEED, **FEW)
    direct = {(row.method, row.labels): row for row in rows}
    wanted = {
        0: direct["both", 3],
        1: direct["both", 5],
        2: direct["first", 3],
        6: direct["1-NN", 3],
    }
    for number, row in wanted.items():
        stored = store[toy_specs()[number].key]
        assert set(stored["metrics"]) == set(METRIC_NAMES)
        for name, estimate in row.metrics.items():
            assert stored["metrics"][name]["mean"] == pytest.approx(estimate.mean, abs=1e-5)
        for name, values in row.values.items():
            half_width = row.metrics[name].half_width
            assert stored["metrics"][name]["half_width"] == pytest.approx(
                half_width, abs=1e-5
            )
            assert not values.isnan().any()
        torch.testing.assert_close(
            accuracies_of(stored), row.accuracies.double(), rtol=0, atol=1e-4
        )
        assert stored["majority_rate"] == row.majority_rate
        assert stored["settings"] == row.settings
    seeds = [direct[name, 3].metrics["accuracy"].mean for name in ("first", "second")]
    assert store[toy_specs()[0].key]["seeds"] == pytest.approx(seeds, abs=1e-5)
    assert seeds[0] != seeds[1]


def test_a_row_says_where_it_comes_from(store):
    run_missing(toy_specs(), store)
    for spec in toy_specs():
        row = store[spec.key]
        assert row["spec"] == json.loads(json.dumps(spec.describe()))
        assert row["torch"] == torch.__version__
        assert row["device"].endswith("CPU")
        assert row["seconds"] >= 0
        assert ("undertrained" in row) == bool(spec.trainings)
    assert store[toy_specs()[0].key]["episodes_seen"] == 2 * 5 * 4


@pytest.mark.parametrize(
    ("slope", "undertrained"), [(-1.0, True), (-0.06, True), (-0.04, False), (0.3, False)]
)
def test_a_loss_that_still_falls_is_undertrained(model, slope, undertrained):
    assert Training(model, 0.5, slope).undertrained == undertrained


@pytest.fixture(scope="module")
def model():
    return ICSSLTransformer(ModelConfig.preset("orig_icl"))


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("sources", ["torus", "torus,cone"])
def test_slope_is_that_of_the_loss_on_held_out_episodes(sources, at_once):
    configs = [
        toy_config("orig_icl", "steps=10", f"data.sources={sources}", f"seed={seed}")
        for seed in range(1 + at_once)
    ]
    configs = [replace(config, labels=(8, 3, 5)) for config in configs]
    weights = {}
    train(configs, observe={8: lambda step, w: weights.update({step: w.clone()})})
    found = train_batch(configs, "cpu")
    for i, config in enumerate(configs):
        late = ICSSLTransformer(config.model)
        torch.nn.utils.vector_to_parameters(weights[8][i], late.parameters())
        names = sources.split(",")
        losses = []
        for model in (late, found[config].model):
            each = []
            for name in names:
                data = DataConfig((name,), n=20)
                count = 8 // len(names)
                stream = EpisodeStream(data.build(), count, config.seed, "held-out")
                episode = stream.at(0, 5)  # the middle budget
                hidden = ~episode.labelled
                with torch.no_grad():
                    logits = model(episode)
                each.append(cross_entropy(logits[hidden], episode.y[hidden]))
            losses.append(torch.stack(each).mean().item())
        assert found[config].held_out == pytest.approx(losses[1], abs=1e-5)
        slope = (losses[1] - losses[0]) / math.log(10 / 8)
        assert abs(slope) > 1e-4
        assert found[config].slope == pytest.approx(slope, abs=1e-4)


def test_one_step_has_no_slope():
    config = toy_config("orig_icl", "steps=1")
    assert train_batch([config], "cpu")[config].slope == 0


# --- Rows of different specs are of the same episodes


@pytest.mark.parametrize(
    "source", ["sphere", "cone", "swiss_roll", "product", "digits", "images"]
)
def test_ground_truth_does_not_change_the_episodes(source, tmp_path, monkeypatch):
    monkeypatch.setenv("ICSSL_HOME", str(tmp_path))
    data = DataConfig((source,), split="test")
    plain = EpisodeStream(data.build(), 3, 7, "test").at(0, 5)
    changes = [{"eigenvectors": 4}, {"eigenvectors": 12}]
    if source not in ("digits", "images"):  # only manifolds have geodesic distances
        changes += [{"distances": True}, {"eigenvectors": 4, "distances": True}]
    for change in changes:
        other = EpisodeStream(replace(data, **change).build(), 3, 7, "test").at(0, 5)
        assert torch.equal(other.x, plain.x)
        assert torch.equal(other.y, plain.y)
        assert torch.equal(other.labelled, plain.labelled)
        assert (other.features is not None) == ("eigenvectors" in change)


def test_every_method_of_a_suite_is_scored_on_the_same_episodes(store, monkeypatch):
    """Whatever it reads: distances, few eigenvectors, many, nothing but the points."""
    eig = toy_config("eig_icl", "steps=1", "model.k=6", "data.episodes=4")
    seen = []
    summarise = evaluation.summarise

    def spy(each, episode):
        seen.append(episode)
        return summarise(each, episode)

    monkeypatch.setattr(evaluation, "summarise", spy)
    wanted = [
        Scores("bayes_ceiling", SPHERE, 3, **FEW),
        Scores("eig_lr", SPHERE, 3, **FEW),
        Scores("majority", SPHERE, 3, **FEW),
        Scores("eig_icl", SPHERE, 3, (eig,), **FEW),
        Scores("orig_icl", SPHERE, 3, (OTHER,), **FEW),
    ]
    assert run_missing(wanted, store) == len(wanted)
    assert len(seen) == len(wanted)
    assert {e.distances is None for e in seen} == {e.features is None for e in seen}
    first, *others = seen
    for other in others:
        assert torch.equal(other.x, first.x)
        assert torch.equal(other.y, first.y)
        assert torch.equal(other.labelled, first.labelled)


def test_test_episodes_do_not_depend_on_the_device(device):
    """Models are scored on a GPU and classical methods on the CPU: they must be paired."""
    here = evaluation._draw(SPHERE, "test", 3, TEST_SEED, "cpu", 5)
    there = evaluation._draw(SPHERE, "test", 3, TEST_SEED, device, 5)
    assert torch.equal(here.x, there.x.cpu())
    assert torch.equal(here.labelled, there.labelled.cpu())
    spec = Alignment(EIG, FIRST, SPHERE, 5, episodes=3)
    assert torch.equal(probes._test_episodes(spec, device).x.cpu(), here.x)


def test_no_device_is_asked_for_random_numbers():
    """The same without a GPU: a device that has no generator gets its episodes too."""
    assert evaluation._draw(SPHERE, "test", 3, 7, "meta", 5).x.is_meta
    spec = Alignment(EIG, FIRST, SPHERE, 5, episodes=3)
    assert probes._test_episodes(spec, "meta").x.is_meta


# --- Probes


@pytest.fixture(scope="module")
def staged():
    return train([STAGED])[0]


@pytest.fixture(scope="module")
def episode():
    """The test episodes of a probe with 3 labels, drawn by hand."""
    data = DataConfig(("sphere",), n=20, eigenvectors=4)
    return EpisodeStream(data.build(), 4, TEST_SEED, "test").at(0, 3)


@pytest.mark.parametrize("sides", ["both", "truth first", "truth second"])
def test_alignment_is_that_of_the_representations(staged, episode, sides):
    (other,) = train([FIRST])
    with torch.no_grad():
        features = {
            STAGED: staged.features(episode),
            FIRST: other.features(episode),
            EIG: episode.features,
        }
    pair = {
        "both": (STAGED, FIRST),
        "truth first": (EIG, STAGED),
        "truth second": (FIRST, EIG),
    }[sides]
    spec = Alignment(*pair, SPHERE, 3, episodes=4)
    assert spec.trainings == tuple(side for side in pair if side != EIG)
    models = {STAGED: staged, FIRST: other}
    found = spec.measure([models[c] for c in spec.trainings], "cpu")["measures"]
    hidden = [~row for row in episode.labelled]
    first, second = (
        torch.stack([f[h] for f, h in zip(features[side], hidden, strict=True)])
        for side in pair
    )
    y = torch.stack([row[h] for row, h in zip(episode.y, hidden, strict=True)])
    for name, align in ALIGNMENTS.items():
        values = align(first, second)
        assert found[name]["mean"] == pytest.approx(values.mean().item(), abs=1e-5)
    for name, side in (("separation_first", first), ("separation_second", second)):
        wanted = separation_score(side, y).mean().item()
        assert found[name]["mean"] == pytest.approx(wanted, abs=1e-5)
    assert found["separation_first"] != found["separation_second"]


def test_models_of_several_seeds_are_compared_one_by_one(staged):
    """And measures are averaged: here against specs of one seed each."""
    seeds = (FIRST, SECOND)
    models = train(list(seeds))
    pairs = {"beside": (STAGED, STAGED), "truth": EIG}
    trained = {"beside": [staged, staged], "truth": []}
    for name, side in pairs.items():
        spec = Alignment(side, seeds, SPHERE, 3, episodes=4)
        assert len(spec.trainings) == len(trained[name]) + 2
        found = spec.measure([*trained[name], *models], "cpu")["measures"]
        single = [
            Alignment(EIG if side == EIG else STAGED, config, SPHERE, 3, episodes=4)
            for config in seeds
        ]
        each = [
            s.measure([*trained[name][:1], model], "cpu")["measures"]
            for s, model in zip(single, models, strict=True)
        ]
        assert len({spec.key, *(s.key for s in single)}) == 3
        for measure, values in found.items():
            means = [row[measure]["mean"] for row in each]
            assert values["seeds"] == pytest.approx(means, abs=1e-5)
            assert values["mean"] == pytest.approx(sum(means) / 2, abs=2e-5)


def test_sides_of_an_alignment_have_as_many_models():
    with pytest.raises(ValueError, match="one by one, got sides of 2 and 1 models"):
        Alignment((FIRST, SECOND), STAGED, SPHERE, 3)


def mechanism_of(model, iterations=2):
    return Mechanism((STAGED,), SPHERE, 3, episodes=4, iterations=iterations).measure(
        [model], "cpu"
    )


def test_weights_of_the_lemmas_have_their_bandwidth():
    config = ModelConfig.constructed(k=2, iterations=3, sigma=0.7)
    model = ICSSLTransformer(config)
    (stage1,) = mechanism_of(model)["stage1"]
    assert stage1["bandwidth"] == [[pytest.approx(0.7, abs=1e-12)]]
    assert stage1["attracts"] == [[True]]
    assert (stage1["mix"], stage1["skip"]) == ([[-1.0]], [0.0])
    with torch.no_grad():
        model.laplacian.key_scale.fill_(4.0)
        model.laplacian.query_scale.fill_(-0.25 * 0.04)
    (stage1,) = mechanism_of(model)["stage1"]
    assert stage1["bandwidth"] == [[pytest.approx(5.0, abs=1e-12)]]
    assert stage1["attracts"] == [[False]]


def test_angles_after_every_layer_are_those_to_eigenvectors(staged, episode):
    found = mechanism_of(staged)
    config = staged.config
    (stage1,), (stage2,) = found["stage1"], found["stage2"]
    shape = torch.tensor(stage1["bandwidth"]).shape
    assert shape == (config.laplacian_layers, config.laplacian_heads)
    assert len(stage1["skip"]) == config.laplacian_layers
    layers = config.eigenmap_layers * config.layer_loops * config.stage_loops
    assert len(stage2["to_operator"]) == len(stage2["to_truth"]) == layers
    with torch.no_grad():
        trace = staged.trace(episode)
    applied = config.laplacian_layers * config.layer_loops * config.stage_loops
    r = trace[f"laplacian.{applied - 1}.R"].double()
    for layer in (0, layers - 1):
        f = trace[f"eigenmap.{layer}.F"].double()
        for kind, truth in (
            ("to_operator", bottom_eigenvectors(r, 4)),
            ("to_truth", episode.features.double()),
        ):
            each = [principal_angle(a, b) for a, b in zip(f, truth, strict=True)]
            wanted = torch.stack(each).mean().item()
            assert stage2[kind][layer] == pytest.approx(wanted, abs=1e-4)


def test_accuracies_of_trained_and_constructed_weights(staged, episode):
    found = mechanism_of(staged, iterations=20)
    built = ICSSLTransformer(ModelConfig.constructed(k=2, iterations=20))
    with torch.no_grad():
        for model, stored, dtype in (
            (staged, found["trained"][0], torch.float32),
            (built, found["constructed"], torch.float64),
        ):
            given = episode.to(dtype=dtype)
            wanted = accuracy(model(given).softmax(dim=-1), given).mean().item()
            assert stored["mean"] == pytest.approx(wanted, abs=1e-5)


def test_expectation_of_the_head_beside_the_exact_one(generator):
    exact = ICSSLTransformer(ModelConfig.preset("free"))
    assert mechanism_of(exact)["stage3"] == [None]
    config = ModelConfig.preset("free", steps=2, embedding="learned", expectation="mlp")
    model = ICSSLTransformer(config)
    (found,) = mechanism_of(model)["stage3"]
    w = model.head.class_embeddings(2).detach().double()
    apart = (w[1] - w[0]).norm()
    along = w @ (w[1] - w[0]) / apart
    # Of two classes, the expectation is the mean of the two, weighted by a sigmoid.
    f = torch.tensor(found["f"], dtype=torch.float64)
    share = torch.sigmoid(f * (along[1] - along[0]))
    wanted = along[0] + share * (along[1] - along[0])
    torch.testing.assert_close(
        torch.tensor(found["exact"], dtype=torch.float64), wanted, rtol=1e-4, atol=1e-5
    )
    assert len(found["mlp"]) == len(found["f"]) == 25
    assert found["mlp"] != pytest.approx(found["exact"], abs=1e-3)


# --- Tables and pictures

TABLE = Table(
    "A & B",
    ("method", "50% of <n>", "kept_a"),
    (("RBF & linear", "0.9 ± 0.1", "→ #1"), ("**best**", "", "x_1")),
    ("First of all.", "Then a > b."),
)


def test_a_table_in_markdown():
    assert TABLE.markdown().splitlines() == [
        "**A & B**",
        "",
        "First of all.",
        "",
        "Then a > b.",
        "",
        "| method | 50% of <n> | kept_a |",
        "|---|---|---|",
        "| RBF & linear | 0.9 ± 0.1 | → #1 |",
        "| **best** |  | x_1 |",
    ]


def test_a_table_in_latex_escapes_what_latex_would_read():
    lines = TABLE.latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert lines[2] == r"method & 50\% of <n> & kept\_a \\"
    assert lines[4] == r"RBF \& linear & 0.9 $\pm$ 0.1 & $\to$ \#1 \\"
    assert lines[5] == r"best &  & x\_1 \\"
    assert lines[-1] == r"\end{tabular}"


def test_a_table_in_html_escapes_what_html_would_read():
    text = TABLE.html()
    assert "<h3>A &amp; B</h3><p>First of all.</p><p>Then a &gt; b.</p>" in text
    assert "<th>50% of &lt;n&gt;</th>" in text
    assert text.count("<tr>") == 3
    assert text.count("<td>") == 6


def figure():
    drawn = Figure(figsize=(2, 2))
    axes = drawn.add_subplot()
    axes.plot([0, 1], [0, 1], "o-")
    axes.fill_between([0, 1], [0, 1], [1, 1])
    axes.set_title("seed 0")
    return drawn


def test_the_same_figure_is_the_same_files(tmp_path):
    for name in ("a", "b"):
        picture = save_picture(figure(), "A title", tmp_path / name / "new" / "curve")
        assert picture.path == tmp_path / name / "new" / "curve.png"
    for suffix in ("png", "svg"):
        one, other = (
            (tmp_path / name / "new" / f"curve.{suffix}").read_bytes() for name in "ab"
        )
        assert one == other
        assert len(one) > 1000
    assert "#1f77b4" in drawn_colours(picture.path)  # matplotlib's first colour


def test_a_picture_of_a_page_is_a_file_beside_it_and_of_the_report_inside_it(tmp_path):
    picture = save_picture(figure(), 'The "curve"', tmp_path / "curve")
    assert picture.markdown() == '![The "curve"](curve.png)'
    head, data = picture.html().split("data:image/png;base64,")
    assert 'alt="The &quot;curve&quot;"' in head
    assert base64.b64decode(data.split('"')[0]) == picture.path.read_bytes()


def test_a_page_has_its_tables_in_latex_beside_it(tmp_path):
    picture = Picture("P", tmp_path / "p.png")
    write_page("Title", "Text.", [picture, TABLE], tmp_path / "new" / "page.md")
    page = (tmp_path / "new" / "page.md").read_text()
    assert page.startswith("# Title\n\nText.\n\n![P](p.png)\n\n**A & B**\n")
    assert (tmp_path / "new" / "page.tex").read_text() == f"% A & B\n{TABLE.latex()}\n"
    write_page("Title", "Text.", [picture], tmp_path / "only.md")
    assert not (tmp_path / "only.tex").exists()


def test_models_that_do_not_fit_at_once_are_trained_in_smaller_groups(monkeypatch):
    configs = [replace(TrainConfig(), seed=seed) for seed in range(5)]
    trained = {c: Training(ICSSLTransformer(ModelConfig()), c.seed, 0.0) for c in configs}
    sizes = []

    def train_few(some, device):  # a machine whose memory holds two models
        sizes.append(len(some))
        if len(some) > 2:
            raise OutOfMemoryError("these do not fit")
        return {config: trained[config] for config in some}

    monkeypatch.setattr(batches, "train_batch", train_few)
    assert batches.train_all(configs, "cpu") == trained
    assert sizes == [5, 2, 3, 1, 2]


def test_a_single_model_that_does_not_fit_is_an_error(monkeypatch):
    def train_none(some, device):
        raise OutOfMemoryError("this does not fit")

    monkeypatch.setattr(batches, "train_batch", train_none)
    with pytest.raises(OutOfMemoryError, match="does not fit"):
        batches.train_all([TrainConfig()], "cpu")
