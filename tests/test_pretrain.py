"""Pretraining of the classifier's weights: resumed, refused, calibrated, and by command."""

import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from helpers import F64, run_command, text_of
from icssl import ICSSLClassifier
from icssl.classifier.context_features import features_of_tables
from icssl.classifier.kernels import DIFFUSED, GRAPHS, KERNELS, Kernel
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.classifier.pretraining import train as pretrain_file
from icssl.classifier.pretraining.synthetic_tables import TaskSpec, scale_like_encoder
from icssl.classifier.pretraining.train import (
    PretrainConfig,
    calibrate,
    draw_task,
    features_of_task,
    loss_of,
    pretrain,
)
from icssl.classifier.weights import RELEASED, load_context_model
from icssl.tables.columns import ColumnEncoder

SMALL = TaskSpec(points=(20, 30), columns=(2, 5), classes=(2, 3), most_numbers=200)
TOY = PretrainConfig(
    model=ContextConfig(k=4, steps=3, width=8, embedding=4, members=2),
    tasks=SMALL,
    steps=5,
    batch=2,
    calibration_steps=3,
)


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.fixture(scope="module")
def straight():
    """What a run without interruption ends with, and what it told on the way."""
    told = []
    return state_of(pretrain(TOY, report=told.append)), told


@pytest.fixture
def clock(monkeypatch):
    """Time by hand: every step takes a minute."""
    now = SimpleNamespace(seconds=0.0)

    def tick(_):
        now.seconds += 60

    monkeypatch.setattr(
        pretrain_file, "time", SimpleNamespace(monotonic=lambda: now.seconds)
    )
    return tick


@pytest.mark.parametrize("minutes", [1.5, 2.5])
def test_a_resumed_run_is_a_straight_one_bit_for_bit(tmp_path, clock, straight, minutes):
    expected, _ = straight
    checkpoint, runs = tmp_path / "checkpoint.safetensors", 0
    found = None
    while found is None:
        found = pretrain(TOY, checkpoint=checkpoint, minutes=minutes, report=clock)
        runs += 1
    assert runs == {1.5: 3, 2.5: 2}[minutes]
    assert_same(state_of(found), expected)
    again = pretrain(TOY, checkpoint=checkpoint)  # nothing is left to do
    assert_same(state_of(again), expected)


def test_training_moves_the_weights_and_depends_on_the_seed(straight):
    fresh = state_of(pretrain(replace(TOY, steps=1, learning_rate=1e-12)))
    found, other = straight[0], state_of(pretrain(replace(TOY, seed=1)))
    for name in ("gates.0.weigh.0.weight", "gates.1.scale.2.bias", "gates.0.names"):
        assert (found[name] - fresh[name]).abs().max() > 1e-4
        assert (found[name] - other[name]).abs().max() > 1e-4
    assert not torch.equal(found["gates.0.names"], found["gates.1.names"])


def test_without_time_nothing_is_done_and_nothing_is_lost(tmp_path, straight):
    """Not one step: there is nothing of the optimiser to keep yet."""
    checkpoint = tmp_path / "checkpoint.safetensors"
    assert pretrain(TOY, checkpoint=checkpoint, minutes=0) is None
    assert_same(state_of(pretrain(TOY, checkpoint=checkpoint)), straight[0])


def test_a_checkpoint_is_written_every_minute(tmp_path, clock, straight):
    """One that is stopped between two of them goes on from the last."""
    checkpoint = tmp_path / "checkpoint.safetensors"

    def stop(progress):
        clock(progress)
        if progress.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(TOY, checkpoint=checkpoint, report=stop)
    steps = []
    found = pretrain(TOY, checkpoint=checkpoint, report=lambda p: steps.append(p.step))
    assert 1 < steps[0] <= 4
    assert steps[-1] == 5
    assert_same(state_of(found), straight[0])


def test_progress_is_told_after_every_step(straight):
    _, told = straight
    assert [(p.step, p.steps) for p in told] == [(i, 5) for i in range(1, 6)]
    assert all(np.isfinite(p.loss) for p in told)


@pytest.mark.parametrize(
    "other",
    [
        replace(TOY, seed=1),
        replace(TOY, steps=9),
        replace(TOY, tasks=replace(SMALL, kinds=("linear",))),
        replace(TOY, model=replace(TOY.model, k=5)),
    ],
    ids=["seed", "steps", "tasks", "model"],
)
def test_a_checkpoint_of_another_run_is_refused_by_name(tmp_path, clock, other):
    checkpoint = tmp_path / "checkpoint.safetensors"
    pretrain(TOY, checkpoint=checkpoint, minutes=0.5, report=clock)
    before = checkpoint.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is of another run"):
        pretrain(other, checkpoint=checkpoint)
    assert checkpoint.read_bytes() == before


def test_a_torn_checkpoint_is_refused_by_name(tmp_path, clock):
    checkpoint = tmp_path / "checkpoint.safetensors"
    pretrain(TOY, checkpoint=checkpoint, minutes=0.5, report=clock)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is no .* torn"):
        pretrain(TOY, checkpoint=checkpoint)


# Tasks


@pytest.mark.parametrize("step", range(3))
def test_a_task_keeps_new_rows_out_and_all_labels_in(step):
    config = replace(TOY, batch=3)
    task = draw_task(config, "pretrain", step, "cpu")
    again = draw_task(config, "pretrain", step, "cpu")
    other = draw_task(config, "calibrate", step, "cpu")
    assert torch.equal(task.x, again.x)
    assert task.x.shape != other.x.shape or not torch.equal(task.x, other.x)
    n = task.x.shape[1] + task.new_x.shape[1]
    assert 20 <= n <= 30
    assert 0 < task.new_x.shape[1] <= n // 6
    assert task.y.shape == task.labelled.shape == task.x.shape[:2]
    assert (task.labelled.sum(1) > 0).all()
    assert max(task.y.max(), task.new_y.max()) < task.n_classes


def test_columns_are_scaled_as_the_encoder_of_the_classifier_scales_them():
    """By the rows of the context: numbers, 0 and 1, booleans, one-hot codes, constants."""
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(3):
        category = rng.integers(0, 3, size=50)
        columns = {
            "number": 5 + 100 * rng.normal(size=50),
            "heavy tails": rng.normal(size=50) ** 5,
            "rare": (rng.random(50) < 0.1).astype(float),
            "other values": 7.0 * (rng.random(50) < 0.5) - 2,
            "boolean": rng.random(50) < 0.5,
            "constant": np.full(50, 4.0),
            **{f"category {c}": (category == c).astype(int) for c in range(3)},
        }
        tables.append(pd.DataFrame(columns))
    x = torch.tensor(np.stack([table.to_numpy(float) for table in tables]))
    context, new = scale_like_encoder(x[:, :40], x[:, 40:])
    for i, table in enumerate(tables):
        encoder = ColumnEncoder().fit(table[:40])
        np.testing.assert_allclose(context[i], encoder.transform(table[:40]), **F64)
        np.testing.assert_allclose(new[i], encoder.transform(table[40:]), **F64)
    assert abs(float(context[0, :, 4].std(correction=0)) - 1) < 1e-9  # of two values too


def test_tasks_have_columns_as_the_encoder_makes_them():
    """Encoded once more, they stay as they are."""
    for step in range(5):
        task = draw_task(TOY, "pretrain", step, "cpu")
        for table in task.x.double().numpy():
            again = ColumnEncoder().fit_transform(table)
            np.testing.assert_allclose(again, table, rtol=1e-5, atol=1e-5)


def test_every_way_to_see_a_context_has_its_turn():
    task = draw_task(TOY, "pretrain", 0, "cpu")
    names = [features_of_task(task, TOY, step).kernels.kernels for step in range(25)]
    counts = {names_of: names.count(names_of) for names_of in set(names)}
    assert len(counts) == 3
    assert max(counts, key=counts.get) == KERNELS
    shortest = min(counts, key=len)
    assert shortest == tuple(Kernel(GRAPHS[0], form) for form in DIFFUSED)  # a graph alone


# Loss and temperature


def toy_model(members=2, seed=0):
    torch.manual_seed(seed)
    return ContextModel(replace(TOY.model, members=members))


def test_a_member_learns_by_itself():
    task = draw_task(TOY, "pretrain", 0, "cpu")
    seen = features_of_tables(task.x, task.y, task.labelled, task.n_classes, GRAPHS, 4)
    both, single = toy_model(2), [toy_model(1), toy_model(1)]
    for i, model in enumerate(single):
        model.gates[0].load_state_dict(both.gates[i].state_dict())
    loss = loss_of(both, seen, task)
    losses = [loss_of(model, seen, task) for model in single]
    torch.testing.assert_close(loss, (losses[0] + losses[1]) / 2)
    assert abs(losses[0] - losses[1]) > 1e-6
    loss.backward()
    for i, model in enumerate(single):
        losses[i].backward()
        together, alone = both.gates[i].parameters(), model.gates[0].parameters()
        for p, q in zip(together, alone, strict=True):
            torch.testing.assert_close(2 * p.grad, q.grad, rtol=1e-4, atol=1e-7)


def test_loss_is_on_unlabelled_and_on_new_rows():
    task = draw_task(TOY, "pretrain", 0, "cpu")
    seen = features_of_tables(task.x, task.y, task.labelled, task.n_classes, GRAPHS, 4)
    model = toy_model(1)
    reading = model.fit_features(seen)
    own, new = reading.predict_context().logits, reading.predict_new(task.new_x).logits
    losses = [
        -own[i, j].log_softmax(0)[task.y[i, j]]
        for i in range(2)
        for j in range(task.x.shape[1])
        if not task.labelled[i, j]
    ]
    new_losses = [
        -new[i, j].log_softmax(0)[task.new_y[i, j]]
        for i in range(2)
        for j in range(task.new_x.shape[1])
    ]
    expected = torch.stack(losses).mean() + 0.3 * torch.stack(new_losses).mean()
    torch.testing.assert_close(loss_of(model, seen, task), expected)
    wrong = task._replace(y=torch.where(task.labelled, 0, task.y))
    torch.testing.assert_close(loss_of(model, seen, wrong), expected)


def loss_on(model, config, stream, steps):
    """Mean cross-entropy on unlabelled rows of contexts of a stream."""
    losses = []
    for step in range(steps):
        task = draw_task(config, stream, step, "cpu")
        with torch.no_grad():
            logits = model(task.x, task.y, task.labelled, task.n_classes)
        losses.append(cross_entropy(logits[~task.labelled], task.y[~task.labelled]))
    return float(torch.stack(losses).mean())


def test_calibration_lowers_the_loss_on_contexts_it_has_not_seen():
    config = replace(TOY, calibration_steps=8)
    model = toy_model()
    with torch.no_grad():
        for gate in model.gates:
            gate.scale[-1].bias[1] = 2.0  # far too sure
    before = loss_on(model, config, "held out", 8)
    calibrate(model, config, "cpu")
    assert model.calibration.abs().max() > 0.05
    assert loss_on(model, config, "held out", 8) < before - 0.01


def test_calibration_forgets_the_one_before():
    config, model = TOY, toy_model()
    calibrate(model, config, "cpu")
    first = model.calibration.clone()
    calibrate(model, config, "cpu")
    torch.testing.assert_close(model.calibration, first, rtol=1e-3, atol=1e-3)


# The command


run = partial(run_command, "pretrain")


@pytest.fixture
def small_recipe(monkeypatch):
    """The command's own recipe, on small tables."""
    small = partial(PretrainConfig, model=TOY.model, tasks=SMALL, calibration_steps=2)
    monkeypatch.setattr(pretrain_file, "PretrainConfig", small)


def test_the_command_writes_weights_that_the_classifier_reads(tmp_path, small_recipe):
    result = run("--steps", "2", "--batch", "1", "-o", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    path = tmp_path / "new" / RELEASED
    assert RELEASED in re.sub(r"\s", "", result.output)
    assert load_context_model(path).config == TOY.model
    X = np.random.default_rng(0).normal(size=(20, 2))
    found = ICSSLClassifier(model=path).fit(X, [0, 1] + [-1] * 18)
    assert found.label_distributions_.shape == (20, 2)


def test_the_command_goes_on_where_it_stopped(tmp_path, small_recipe):
    options = ("--steps", "2", "--batch", "1", "-o")
    assert run(*options, str(tmp_path / "straight")).exit_code == 0
    result = run(*options, str(tmp_path / "resumed"), "--minutes", "1e-9")
    assert result.exit_code == 0, result.output
    assert "again to go on" in result.output
    assert not (tmp_path / "resumed" / RELEASED).exists()
    assert run(*options, str(tmp_path / "resumed")).exit_code == 0
    straight, resumed = (
        (tmp_path / name / RELEASED).read_bytes() for name in ("straight", "resumed")
    )
    assert straight == resumed


def test_what_the_command_refuses(tmp_path, small_recipe):
    (tmp_path / "file").write_text("")
    options = ("--steps", "1", "--batch", "1")
    for arguments, word in (
        (("--steps", "0"), "--steps"),
        ((*options, "--device", "tpu"), "tpu"),
        ((*options, "-o", str(tmp_path / "file")), "file"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert word in result.output
    assert run(*options, "-o", str(tmp_path / "a")).exit_code == 0
    result = run(*options, "-o", str(tmp_path / "a"), "--seed", "1")
    assert result.exit_code == 2
    assert "another run" in text_of(result)
