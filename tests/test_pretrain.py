"""Pretraining of the classifier's weights: resumed, refused, by members and by command."""

import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers import run_command, text_of
from icssl import ICSSLClassifier
from icssl._util.random import generator_for
from icssl.classifier.context_features import features_of_tables
from icssl.classifier.kernels import (
    DIFFUSED,
    GEOMETRIES,
    GRAPHS,
    KERNELS,
    Kernel,
    graphs_of_geometry,
    kernels_of,
)
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.classifier.pretraining import members as members_file
from icssl.classifier.pretraining import train as pretrain_file
from icssl.classifier.pretraining.members import member_config, pretrain_members
from icssl.classifier.pretraining.synthetic_tables import TaskSpec
from icssl.classifier.pretraining.tasks import encode_tables
from icssl.classifier.pretraining.train import (
    PretrainConfig,
    draw_task,
    features_of_task,
    loss_of,
    pretrain,
)
from icssl.classifier.weights import RELEASED, load_context_model

SMALL = TaskSpec(points=(20, 30), columns=(2, 5), classes=(2, 3), most_numbers=200)
TOY = PretrainConfig(
    model=ContextConfig(k=4, steps=3, width=8, embedding=4, members=2),
    tasks=SMALL,
    steps=5,
    batch=2,
    draws=2,
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
    for name in ("gates.0.weigh.0.weight", "gates.1.head.2.bias", "gates.0.names"):
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
    other = draw_task(config, "held out", step, "cpu")
    assert torch.equal(task.x, again.x)
    assert torch.equal(task.labelled, again.labelled)
    assert task.x.shape != other.x.shape or not torch.equal(task.x, other.x)
    n = task.x.shape[1] + task.new_x.shape[1]
    assert 20 <= n <= 30
    assert 0 < task.new_x.shape[1] <= n // 6
    assert task.y.shape == task.labelled.shape == task.x.shape[:2]
    assert (task.labelled.sum(1) > 0).all()
    assert max(task.y.max(), task.new_y.max()) < task.n_classes


@pytest.mark.parametrize("step", range(5))
def test_every_table_comes_several_times_each_with_other_labels(step):
    config = replace(TOY, batch=3, draws=4)
    task = draw_task(config, "pretrain", step, "cpu")
    generator = generator_for(config.seed, "pretrain", step)
    tables = SMALL.draw_tables(3, generator=generator)
    n = task.x.shape[1]
    context, new, units = encode_tables(
        tables.cells[:, :n], tables.cells[:, n:], tables.is_category
    )
    for i in range(12):
        torch.testing.assert_close(task.x[i], context[i // 4], rtol=0, atol=0)
        torch.testing.assert_close(task.new_x[i], new[i // 4], rtol=0, atol=0)
        assert torch.equal(task.units.factors[i], units.factors[i // 4])
        assert torch.equal(task.y[i], tables.y[i // 4, :n])
    assert len({tuple(row.tolist()) for row in task.labelled[:4]}) > 1
    part = task.part(slice(1, 2))
    assert torch.equal(part.x, task.x[4:8])
    assert torch.equal(part.units.numbers, task.units.numbers[4:8])


def test_every_way_to_see_a_context_has_its_turn():
    task = draw_task(TOY, "pretrain", 0, "cpu")
    seen = [features_of_task(task, TOY, step) for step in range(60)]
    names = [features.kernels.kernels for features in seen]
    counts = {names_of: names.count(names_of) for names_of in set(names)}
    assert max(counts, key=counts.get) == KERNELS
    expected = {KERNELS, tuple(Kernel(GRAPHS[0], form) for form in DIFFUSED)}  # a graph
    for geometry in GEOMETRIES:
        own = graphs_of_geometry(geometry)
        expected |= {kernels_of(own[:1]), _by_geometry(own)}
    assert set(names) == expected
    for features in seen:  # what is not there is not offered
        has_common = any(k.graph.geometry == "common" for k in features.kernels.kernels)
        assert has_common or not features.inputs.offered[:, 1].any()


def _by_geometry(graphs):
    return kernels_of(sorted(graphs, key=lambda g: g.geometry != graphs[0].geometry))


# The loss


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
    fitted = model.fit_features(seen)
    own, new = fitted.predict_context().logits, fitted.predict_new(task.new_x).logits
    shares = fitted.shares.log()
    losses, new_losses = [], []
    for i in range(len(task.x)):  # contexts count alike, however many labels they have
        losses.append(
            torch.stack(
                [
                    -(own[i, j] + shares[i]).log_softmax(0)[task.y[i, j]]
                    for j in range(task.x.shape[1])
                    if not task.labelled[i, j]
                ]
            ).mean()
        )
        new_losses += [
            -(new[i, j] + shares[i]).log_softmax(0)[task.new_y[i, j]]
            for j in range(task.new_x.shape[1])
        ]
    expected = torch.stack(losses).mean() + 0.3 * torch.stack(new_losses).mean()
    torch.testing.assert_close(loss_of(model, seen, task), expected)
    wrong = task._replace(y=torch.where(task.labelled, 0, task.y))
    torch.testing.assert_close(loss_of(model, seen, wrong), expected)


def test_the_loss_reaches_every_weight():
    """Also those that say how much counts of labels and shares of classes are trusted."""
    model = toy_model(1)
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(3):
        task = draw_task(TOY, "pretrain", step, "cpu")
        labels = (task.y, task.labelled, task.n_classes)
        units = task.units
        seen = features_of_tables(task.x, *labels, GRAPHS, 4, units=units, draws=2)
        model.zero_grad()
        loss_of(model, seen, task).backward()
        for name, p in model.named_parameters():
            total[name] += p.grad.abs()
    idle = [name for name, size in total.items() if not size.max() > 1e-7]
    assert idle == ["gates.0.weigh.4.bias"]  # a softmax does not see what all have alike
    assert (total["gates.0.confidence.4.bias"] > 1e-7).all()


# Members, each in a process of its own

MEMBERS = replace(TOY, steps=3)


@pytest.fixture(scope="module")
def member_states():
    """What each member ends with if it is trained by itself, in this process."""
    return [state_of(pretrain(member_config(MEMBERS, i))) for i in range(2)]


def assert_joined(model, member_states):
    found = state_of(model)
    for i, expected in enumerate(member_states):
        for name, tensor in expected.items():
            joined = found[name.replace("gates.0.", f"gates.{i}.")]
            # A process may sum on another number of threads.
            torch.testing.assert_close(joined, tensor, rtol=1e-5, atol=1e-6)


def test_members_have_tables_and_seeds_of_their_own():
    first, second = (member_config(replace(MEMBERS, seed=3), i) for i in range(2))
    assert (first.seed, second.seed) == (6, 7)
    assert first.model.members == second.model.members == 1
    assert replace(first, seed=7) == second


def test_members_are_joined_and_go_on_where_they_stopped(tmp_path, clock, member_states):
    """One member has made two of three steps before; the other has not begun."""
    first = tmp_path / "member-0.safetensors"
    started = member_config(MEMBERS, 0)
    assert pretrain(started, checkpoint=first, minutes=1.5, report=clock) is None
    told = []
    model = pretrain_members(MEMBERS, tmp_path, report=told.append)
    assert_joined(model, member_states)
    assert not model.training
    assert told[-1].step == 3
    steps = [progress.step for progress in told]
    assert steps == sorted(set(steps))
    again = pretrain_members(MEMBERS, tmp_path)  # nothing is left to do
    assert_same(state_of(again), state_of(model))


def test_members_without_time_are_not_joined(tmp_path):
    assert pretrain_members(MEMBERS, tmp_path, minutes=0) is None
    written = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert written == ["member-0.safetensors", "member-1.safetensors"]


def test_a_member_of_another_run_is_refused_before_any_is_trained(tmp_path):
    pretrain(member_config(TOY, 1), checkpoint=tmp_path / "member-1.safetensors", minutes=0)
    with pytest.raises(ValueError, match=r"member-1\.safetensors is of another run"):
        pretrain_members(MEMBERS, tmp_path)
    assert not (tmp_path / "member-0.safetensors").exists()


def test_a_member_that_fails_is_named(tmp_path, capfd):
    with pytest.raises(RuntimeError, match="training of member 0 ended with an error"):
        pretrain_members(MEMBERS, tmp_path, device="no such device")
    assert "no such device" in capfd.readouterr().err


# The command


run = partial(run_command, "pretrain")


@pytest.fixture
def small_recipe(monkeypatch):
    """The command's own recipe, on small tables."""
    small = partial(PretrainConfig, model=TOY.model, tasks=SMALL)
    monkeypatch.setattr(pretrain_file, "PretrainConfig", small)


@pytest.fixture
def small_members(monkeypatch):
    """The same where members are trained in processes, which know only the real recipe."""

    def small(config, *arguments, **options):
        model = replace(TOY.model, members=config.model.members)
        config = replace(config, model=model, tasks=SMALL)
        return pretrain_members(config, *arguments, **options)

    monkeypatch.setattr(members_file, "pretrain_members", small)


def test_the_command_writes_weights_that_the_classifier_reads(tmp_path, small_members):
    sizes = ("--steps", "2", "--batch", "1", "--draws", "2", "--members", "2")
    result = run(*sizes, "-o", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    path = tmp_path / "new" / RELEASED
    assert RELEASED in re.sub(r"\s", "", result.output)
    assert load_context_model(path).config == TOY.model
    X = np.random.default_rng(0).normal(size=(20, 2))
    found = ICSSLClassifier(model=path).fit(X, [0, 1] + [-1] * 18)
    assert found.label_distributions_.shape == (20, 2)


def test_the_command_goes_on_where_it_stopped(tmp_path, small_recipe):
    options = ("--steps", "2", "--batch", "1", "--members", "1", "-o")
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
    options = ("--steps", "1", "--batch", "1", "--members", "1")
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
