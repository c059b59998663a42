"""Training: the loss, AdamW, many models at once, every mode, resuming, failing."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from torch import nn
from torch.nn.functional import cross_entropy
from torch.overrides import TorchFunctionMode

from helpers import F64, random_episode, run_of, toy, toy_config
from icssl import Episode, ModelConfig
from icssl._util.random import generator_for
from icssl.episodes.data_config import DataConfig
from icssl.episodes.labels import label_count
from icssl.episodes.stream import FiniteSource, make_dataset
from icssl.episodes.synthetic import ManifoldSpec
from icssl.model.build import build_model, load_model
from icssl.training.checkpoint import load_checkpoint
from icssl.training.config import load_config
from icssl.training.group import (
    SHARED,
    Group,
    Objective,
    episode_drawer,
    label_budget,
    laplacian_loss,
    subspace_loss,
)
from icssl.training.loop import EventWriter, NonFiniteLossError, Progress, train
from icssl.training.presets import PRESETS
from icssl.training.step import (
    BETAS,
    EPSILON,
    AdamState,
    Step,
    adamw_step_,
    clip_gradients,
    schedule,
)
from plain import plain_logits

# After twenty steps of float32, each of which builds on the rounding of those before.
TWENTY_STEPS = {"rtol": 1e-4, "atol": 1e-4}
# The ridge that keeps a singular problem solvable, times the condition of a random one.
RIDGE = 1e-10

FEW_LAYERS = ["model.eigenmap_layers=1", "model.stage_loops=1", "model.laplacian_heads=2"]


# The loss


class FixedLogits(nn.Module):
    """A model that answers the same whatever it is asked."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, episode):
        return self.logits


def partly_known(generator, **options):
    """An episode whose classes are not known for some points that are not labelled."""
    episode = random_episode(generator, c=3, **options)
    unknown = torch.rand(episode.y.shape, generator=generator) < 0.3
    y = torch.where(~episode.labelled & unknown, -1, episode.y)
    return Episode(episode.x, y, episode.labelled, n_classes=3)


def test_loss_is_cross_entropy_of_unlabelled_points_that_are_known(generator):
    episode = partly_known(generator)
    logits = torch.randn(2, 12, 3, generator=generator, dtype=torch.float64)
    loss, accuracy = Objective(FixedLogits(logits))(episode)
    scored = [
        (b, i)
        for b in range(2)
        for i in range(12)
        if not episode.labelled[b, i] and episode.y[b, i] != -1
    ]
    chosen = torch.stack([logits[place] for place in scored])
    y = torch.stack([episode.y[place] for place in scored])
    torch.testing.assert_close(loss, cross_entropy(chosen, y), **F64)
    assert accuracy.item() == pytest.approx((chosen.argmax(dim=1) == y).float().mean())


def test_logits_of_other_points_do_not_matter(generator):
    episode = partly_known(generator)
    logits = torch.randn(2, 12, 3, generator=generator, dtype=torch.float64)
    other = episode.labelled | (episode.y == -1)
    changed = torch.where(other[..., None], 100 * logits.flip(-1), logits)
    expected = Objective(FixedLogits(logits))(episode)
    assert Objective(FixedLogits(changed))(episode) == expected


def test_nothing_to_score_is_no_loss():
    episode = Episode(torch.rand(1, 4, 2), torch.zeros(1, 4).long(), torch.ones(1, 4) > 0)
    loss, accuracy = Objective(FixedLogits(torch.zeros(1, 4, 2)))(episode)
    assert (loss.item(), accuracy.item()) == (0, 0)


def test_laplacian_loss_is_the_squared_frobenius_distance(generator):
    r, truth = torch.randn(2, 3, 7, 7, generator=generator, dtype=torch.float64)
    total = 0.0
    for b in range(3):
        for i in range(7):
            for j in range(7):
                total += (r[b, i, j].item() - truth[b, i, j].item()) ** 2
    assert laplacian_loss(r, truth).item() == pytest.approx(total / 3, rel=1e-12)


def orthonormal(generator, n, k, b=2):
    return torch.linalg.qr(torch.randn(b, n, k, generator=generator, dtype=torch.float64)).Q


def test_subspace_loss_is_free_of_basis_and_sign(generator):
    truth = orthonormal(generator, 15, 4)
    basis = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    for same in (truth, -truth, truth.flip(-1), truth @ basis, 1e-3 * truth @ basis):
        assert subspace_loss(same, truth).item() == pytest.approx(0, abs=RIDGE)


def test_subspace_loss_of_orthogonal_spans_is_one(generator):
    both = orthonormal(generator, 15, 8)
    assert subspace_loss(both[..., :4], both[..., 4:]).item() == pytest.approx(1)


@pytest.mark.parametrize("k", [2, 4, 6])
def test_subspace_loss_is_what_the_principal_angles_miss(generator, k):
    phi = torch.randn(3, 15, k, generator=generator, dtype=torch.float64)
    truth = orthonormal(generator, 15, 4, b=3)
    seen = [
        np.square(np.cos(subspace_angles(a.numpy(), v.numpy()))).sum() / 4
        for a, v in zip(phi, truth, strict=True)
    ]
    expected = 1 - np.mean(seen)
    assert subspace_loss(phi, truth).item() == pytest.approx(expected, abs=RIDGE)


def test_subspace_loss_of_dependent_columns_is_finite(generator):
    column = torch.randn(1, 15, 1, generator=generator)
    phi = column.repeat(1, 1, 4).requires_grad_()
    loss = subspace_loss(phi, orthonormal(generator, 15, 4, b=1).float())
    loss.backward()
    assert 0 < loss.item() <= 1
    assert phi.grad.isfinite().all()


def test_the_terms_of_the_loss_add_up(generator):
    model = build_model(ModelConfig(eigenmap_layers=2)).double()
    episode = random_episode(generator, k=4)
    truth = torch.randn(2, 12, 12, generator=generator, dtype=torch.float64)
    episode = Episode(**episode.tensors() | {"laplacian": truth}, n_classes=2)
    operator, phi, logits = model.stages(episode)
    unlabelled = ~episode.labelled
    expected = cross_entropy(logits[unlabelled], episode.y[unlabelled])
    expected = expected + 0.3 * laplacian_loss(operator.dense(), truth)
    expected = expected + 0.7 * subspace_loss(phi, episode.features)
    torch.testing.assert_close(Objective(model, 0.3, 0.7)(episode)[0], expected)


@pytest.mark.parametrize("preset", ["e2e_icl", "orig_icl", "transformer"])
def test_without_weights_no_ground_truth_is_needed(preset):
    config = toy_config(preset)
    episodes = episode_drawer([config], "cpu")(0)
    assert episodes.laplacian is None
    assert episodes.features is None
    group = Group([config])
    assert group.losses(group.fresh_weights(), episodes)[0].isfinite().all()


# AdamW


def test_adamw_equals_that_of_torch(generator):
    rows, steps = 3, 20
    rates = torch.tensor([1e-3, 1e-2, 0.3], dtype=torch.float64)
    decays = torch.tensor([0.0, 0.1, 0.5], dtype=torch.float64)
    start, *gradients = torch.randn(
        steps + 1, rows, 7, generator=generator, dtype=torch.float64
    )
    state = AdamState.fresh(start)
    for grad in gradients:
        adamw_step_(state, grad, torch.ones(rows, dtype=torch.bool), rates, decays)
    for i in range(rows):
        weights = start[i].clone().requires_grad_()
        optimiser = torch.optim.AdamW(
            [weights], rates[i].item(), BETAS, EPSILON, decays[i].item()
        )
        for grad in gradients:
            weights.grad = grad[i].clone()
            optimiser.step()
        torch.testing.assert_close(state.weights[i], weights.detach(), **F64)
    assert state.steps.tolist() == [steps] * rows


@pytest.mark.parametrize("most", [0.1, 1.0, 100.0])
def test_clipping_equals_that_of_torch(generator, most):
    grad = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    grad = grad * torch.tensor([[1e-3], [1.0], [1e3]])
    shorter, lengths = clip_gradients(grad, most)
    for i in range(3):
        weights = torch.zeros(7, dtype=torch.float64, requires_grad=True)
        weights.grad = grad[i].clone()
        length = nn.utils.clip_grad_norm_([weights], most)
        torch.testing.assert_close(shorter[i], weights.grad, **F64)
        torch.testing.assert_close(lengths[i], length, **F64)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_a_failed_row_stands_still_for_good_and_others_go_on(generator, wrong):
    rates, decays = torch.full((2,), 0.1), torch.full((2,), 0.1)
    start = torch.randn(2, 5, generator=generator)
    gradients = torch.randn(4, 2, 5, generator=generator)
    state, healthy = AdamState.fresh(start), AdamState.fresh(start[1:])
    for number, grad in enumerate(gradients):
        if number == 1:
            kept = {name: tensor[0].clone() for name, tensor in state.tensors().items()}
            grad[0, 3] = wrong
        adamw_step_(state, grad, grad.isfinite().all(dim=1), rates, decays)
        adamw_step_(healthy, grad[1:], torch.tensor([True]), rates[1:], decays[1:])
    for name, tensor in state.tensors().items():
        assert torch.equal(tensor[0], kept[name]), name
        assert torch.equal(tensor[1], healthy.tensors()[name][0]), name
    assert state.alive.tolist() == [False, True]
    assert state.steps.tolist() == [1, 4]


def test_schedule_rises_in_a_line_and_falls_as_a_cosine():
    weights = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([weights], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 80, eta_min=0.1)
    shares = [schedule(step, 100, 20, 0.1) for step in range(101)]
    assert shares[:20] == pytest.approx([(i + 1) / 20 for i in range(20)])
    for share in shares[20:]:
        assert share == pytest.approx(reference.get_last_lr()[0])
        optimiser.step()
        reference.step()
    assert shares[20] == 1
    assert shares[100] == pytest.approx(0.1)


@pytest.mark.parametrize("warmup", [0, 5])
def test_schedule_of_a_run_that_is_all_one_thing(warmup):
    """No warm-up, or nothing else: shares stay in (0, 1] and divide by no zero."""
    shares = [schedule(step, 5, warmup, 0.0) for step in range(5)]
    assert max(shares) == 1
    assert min(shares) > 0


# What is drawn


def test_a_step_draws_one_of_the_budgets_and_all_come_over_time():
    config = toy_config("e2e_icl", "labels=3,5,0.5")
    drawn = [label_budget(config, step) for step in range(60)]
    assert set(drawn) == {3, 5, 0.5}
    assert drawn == [label_budget(config, step) for step in range(60)]
    assert drawn != [label_budget(replace(config, seed=1), step) for step in range(60)]
    draw = episode_drawer([config], "cpu")
    for step in range(6):
        count = label_count(drawn[step], 20)
        assert (draw(step).labelled.sum(dim=-1) == count).all()


def test_episodes_of_a_model_do_not_depend_on_company():
    configs = [
        toy_config("e2e_icl", "seed=1"),
        toy_config("e2e_icl", "seed=2", "labels=7"),
        toy_config("e2e_icl", "seed=1", "data.sources=torus"),
        toy_config("e2e_icl", "seed=1", "learning_rate=0.5"),
    ]
    together = episode_drawer(configs, "cpu")
    for i, config in enumerate(configs):
        alone = episode_drawer([config], "cpu")
        for step in (3, 0):
            for name, tensor in alone(step).tensors().items():
                assert torch.equal(getattr(together(step), name)[i], tensor[0]), name
    drawn = together(0).x
    assert torch.equal(drawn[0], drawn[3])
    assert not torch.equal(drawn[0], drawn[1])


def rows_of(x):
    return {tuple(row.flatten().tolist()) for row in x}


def test_a_finite_source_has_so_many_episodes_with_labels_drawn_anew():
    spec = ManifoldSpec(n=12)
    source = FiniteSource(spec, 5, seed=3)
    batches = [
        source.draw(4, generator=generator_for(0, "train", step), labels=4)
        for step in range(20)
    ]
    made = make_dataset(spec, 5, seed=3)
    classes = {tuple(x.flatten().tolist()): y for x, y in zip(made.x, made.y, strict=True)}
    assert set().union(*(rows_of(batch.x) for batch in batches)) == set(classes)
    labelled = {}
    for batch in batches:
        assert (batch.labelled.sum(dim=1) == 4).all()
        for i in range(4):
            key = tuple(batch.x[i].flatten().tolist())
            assert torch.equal(batch.y[i], classes[key])
            labelled.setdefault(key, set()).add(tuple(batch.labelled[i].tolist()))
    assert min(len(choices) for choices in labelled.values()) > 5


def test_a_finite_source_covers_every_class_if_asked():
    generator = generator_for(0, "train")
    config = DataConfig(n=20, n_classes=3, placement="covering", episodes=4)
    batch = config.build(seed=2).draw(64, generator=generator, labels=3)
    for y, labelled in zip(batch.y, batch.labelled, strict=True):
        assert set(y[labelled].tolist()) == set(y.tolist())
    plain = replace(config, placement="random").build(seed=2)
    batch = plain.draw(64, generator=generator, labels=3)
    shown = [len(set(y[m].tolist())) for y, m in zip(batch.y, batch.labelled, strict=True)]
    assert min(shown) < 3


CANNOT_TAKE = {
    "coordinates": (
        "transformer",
        ["data.sources=product"],
        "takes 3 coordinates, got 15",
    ),
    "one source of two": (
        "transformer",
        ["data.sources=sphere,product"],
        "takes 3 coordinates, got 15",
    ),
    "classes": ("orig_icl", ["data.n_classes=3"], "has 2 classes, got 3"),
    "k > n": ("e2e_icl", ["model.k=30"], "k = 30, n = 20"),
    "source": ("e2e_icl", ["data.sources=klein"], "unknown source 'klein'"),
    "spec": ("e2e_icl", ["data.measure=volume"], "unknown measure 'volume'"),
    "fewest labels": (
        "e2e_icl",
        ["data.placement=covering", "labels=9,1"],
        "covering 2 classes needs at least as many labels, got 1",
    ),
    "shapes of a finite set": (
        "e2e_icl",
        ["data.sources=sphere,product", "data.episodes=8"],
        "agree in points, coordinates and classes",
    ),
}


@pytest.mark.parametrize(
    ("preset", "overrides", "message"), CANNOT_TAKE.values(), ids=CANNOT_TAKE.keys()
)
def test_what_the_model_cannot_take_fails_before_the_first_step(
    tmp_path, preset, overrides, message
):
    reports = []
    config = toy_config(preset, *overrides)
    with pytest.raises(ValueError, match=re.escape(message)):
        train([config], output=tmp_path / "run", report=reports.append)
    assert reports == []
    assert not (tmp_path / "run").exists()


def test_models_trained_together_need_episodes_of_one_shape():
    config = toy_config("e2e_icl", "data.sources=sphere,product", *FEW_LAYERS)
    train([config])
    with pytest.raises(ValueError, match=r"got \[\(20, 3, 2\), \(20, 15, 2\)\]"):
        train([config, replace(config, seed=1)])


# Groups


OTHER_VALUES = {
    "model": ModelConfig(k=3),
    "steps": 7,
    "batch": 5,
    "warmup": 0.5,
    "final_rate": 0.5,
    "clip": 0.5,
    "laplacian_weight": 0.5,
    "eigenmap_weight": 0.5,
}


def test_every_shared_field_has_its_test():
    assert set(OTHER_VALUES) == set(SHARED)


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_members_of_a_group_must_agree(name):
    config = toy_config()
    other = replace(config, **{name: OTHER_VALUES[name]})
    with pytest.raises(ValueError, match=f"must have the same {name}, got") as caught:
        Group([config, other])
    for value in (getattr(config, name), OTHER_VALUES[name]):
        assert repr(value) in str(caught.value)


def test_initial_weights_depend_on_a_seed_alone():
    configs = [toy_config("e2e_icl", f"seed={seed}") for seed in (0, 1, 0)]
    group = Group(configs)
    torch.manual_seed(5)
    weights = group.fresh_weights()
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))  # torch's own generator was left alone
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(Group(configs[1:2]).fresh_weights()[0], weights[1])


def test_a_row_is_a_model(generator):
    group = Group([toy_config("e2e_encoder")] * 2)
    weights = torch.randn(group.fresh_weights().shape, generator=generator)
    for row, model in zip(weights, group.models_of(weights), strict=True):
        flat = torch.cat([p.detach().flatten() for p in model.parameters()])
        assert torch.equal(flat, row)
        assert not model.training


# Steps, in every mode


@pytest.mark.parametrize("preset", PRESETS)
def test_a_small_step_lowers_the_loss(preset):
    # Unscaled points are so small that a step of 1e-4 in every weight is a large one.
    rate = 1e-5 if preset == "transformer_unscaled" else 1e-4
    group = Group([toy_config(preset, f"learning_rate={rate}", "batch=8")])
    episodes = episode_drawer(group.configs, "cpu")(0)
    state = AdamState.fresh(group.fresh_weights())
    step = Step(group, state)
    step(0, episodes)
    after, _ = group.losses(state.weights, episodes)
    assert after.item() < step.loss.item()


def plain_run(config, logits_of, device="cpu"):
    """The same by ``torch.optim`` and a loop, as a script would write it."""
    group = Group([config])
    (model,) = group.models_of(group.fresh_weights())
    model.to(device)
    rates = {"head.log_gamma": config.gamma_rate or config.learning_rate}
    groups = [
        {"params": [weight], "highest": rates.get(name, config.learning_rate)}
        for name, weight in model.named_parameters()
    ]
    optimiser = torch.optim.AdamW(
        groups, config.learning_rate, BETAS, EPSILON, config.weight_decay
    )
    draw, losses = episode_drawer([config], device), []
    warmup = round(config.warmup * config.steps)
    for number in range(config.steps):
        share = (number + 1) / warmup
        if number >= warmup:
            angle = math.pi * (number - warmup) / (config.steps - warmup)
            low = config.final_rate
            share = low + (1 - low) * (1 + math.cos(angle)) / 2
        for part in optimiser.param_groups:
            part["lr"] = share * part["highest"]
        episode = draw(number)[0]
        unlabelled = ~episode.labelled
        logits = logits_of(model, episode)
        loss = cross_entropy(logits[unlabelled], episode.y[unlabelled])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimiser.step()
        losses.append(loss.detach().cpu())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return torch.stack(losses)[None], weights[None].cpu()


def assert_same_run(run, expected):
    torch.testing.assert_close(run[0], expected[0], **TWENTY_STEPS)
    torch.testing.assert_close(run[1], expected[1], **TWENTY_STEPS)


# Short gradients are cut, rates rise and fall, and weights decay: every part has a say.
TWENTY = ["steps=20", "warmup=0.2", "clip=0.05", "weight_decay=0.1"]
STAGED = ["e2e_icl", "e2e_encoder", "paper"]


def twenty_steps_of(preset):
    return toy_config(preset, *TWENTY, *(FEW_LAYERS if preset in STAGED else []))


PLAIN = {
    "e2e_icl": plain_logits,
    "e2e_encoder": lambda model, episode: model(episode, backend="dense"),
    "paper": lambda model, episode: model(episode, backend="dense"),
    "orig_icl": lambda model, episode: model(episode, backend="dense"),
    "transformer": lambda model, episode: model(episode),
}


@pytest.mark.parametrize("preset", PLAIN)
def test_twenty_steps_equal_a_plain_loop(device, preset):
    config = twenty_steps_of(preset)
    run = run_of([config], device=device)
    assert_same_run(run, plain_run(config, PLAIN[preset], device))
    moved = run[1] - Group([config]).fresh_weights()
    assert moved.abs().max() > 50 * TWENTY_STEPS["atol"]  # there was something to miss


@pytest.mark.parametrize("preset", ["e2e_icl", "transformer"])
def test_models_trained_at_once_equal_each_alone(device, preset):
    config = twenty_steps_of(preset)
    configs = [
        config,
        replace(config, seed=1, learning_rate=config.learning_rate / 2, labels=(8,)),
        replace(config, weight_decay=0, data=replace(config.data, sources=("torus",))),
    ]
    losses, weights = run_of(configs, device=device)
    for i, one in enumerate(configs):
        alone = run_of([one], device=device)
        assert_same_run((losses[i : i + 1], weights[i : i + 1]), alone)


@pytest.mark.gpu
@pytest.mark.parametrize("models", [1, 3])
def test_a_graph_equals_eager(models):
    config = twenty_steps_of("e2e_icl")
    configs = [replace(config, seed=seed) for seed in range(models)]
    assert_same_run(run_of(configs, "graph", "cuda"), run_of(configs, device="cuda"))


@pytest.mark.gpu
def test_a_graph_takes_more_coordinates_than_points():
    """What is done to such points is part of the graph of a step."""
    overrides = ["data.sources=product", "data.n=12", "labels=[3, 5]", "steps=5", "batch=4"]
    configs = [load_config("e2e_icl", [*overrides, f"seed={seed}"]) for seed in range(2)]
    assert_same_run(run_of(configs, "graph", "cuda"), run_of(configs, device="cuda"))


def test_a_graph_needs_a_gpu():
    with pytest.raises(ValueError, match="mode='graph' needs a GPU, got device cpu"):
        train([toy_config()], mode="graph")


BAD_ARGUMENTS = {
    "mode": ({"mode": "grph"}, "Did you mean 'graph'?"),
    "device": ({"device": "gpu"}, "device 'gpu' cannot be used here"),
    "checkpoints": ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
    "none": ({"configs": []}, "train needs at least one configuration, got none"),
}


@pytest.mark.parametrize(
    ("arguments", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys()
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        train(**({"configs": [toy_config()]} | arguments))


def test_progress_tells_of_every_model():
    reports = []
    config = toy_config("e2e_icl", "steps=3")
    train(
        [config, replace(config, seed=1)],
        checkpoint_every=1,
        deterministic=True,
        report=reports.append,
    )
    assert not torch.are_deterministic_algorithms_enabled()
    losses, _ = run_of([config, replace(config, seed=1)])
    assert [report.step for report in reports] == [1, 2, 3]
    for report, expected in zip(reports, losses.T, strict=True):
        assert report.loss == tuple(expected.tolist())
        assert all(0 <= share <= 1 for share in report.accuracy)
        assert min(report.gradient) > 0
        assert report.episodes_per_second > 0
        assert report.seconds_left >= 0
    assert reports[-1].seconds_left == 0


def test_weights_are_shown_after_the_steps_that_were_asked_for():
    config = toy_config("e2e_icl", "steps=5", *FEW_LAYERS)
    configs = [config, replace(config, seed=1)]
    seen = {}

    def observe(step, weights):
        seen[step] = weights.clone()

    models = train(configs, observe={2: observe, 5: observe, 9: pytest.fail})
    group = Group(configs)
    state = AdamState.fresh(group.fresh_weights())
    step, draw, after = Step(group, state, "eager"), episode_drawer(configs, "cpu"), {}
    for number in range(5):
        step(number, draw(number))
        after[number + 1] = state.weights.clone()
    assert list(seen) == [2, 5]
    for number, weights in seen.items():
        assert torch.equal(weights, after[number])
    for model, row, alone in zip(models, seen[5], train(configs), strict=True):
        vector = nn.utils.parameters_to_vector(model.parameters())
        assert torch.equal(vector, row)
        assert torch.equal(vector, nn.utils.parameters_to_vector(alone.parameters()))


def test_a_resumed_run_shows_the_steps_that_it_makes(tmp_path):
    configs, seen = [toy_config("orig_icl")], []
    with pytest.raises(KeyboardInterrupt):
        train(configs, output=tmp_path, report=stop_at(1, KeyboardInterrupt))
    every = {step: lambda step, weights: seen.append(step) for step in range(1, 7)}
    train(configs, output=tmp_path, resume=True, observe=every)
    assert seen == [2, 3, 4, 5, 6]


# Runs that stop and go on


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def stop_at(step, error):
    def report(progress):
        if progress.step == step:
            raise error

    return report


def bytes_of(folder):
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix == ".safetensors"
    }


def seeds_of(config, count):
    return [replace(config, seed=seed) for seed in range(count)]


@pytest.mark.parametrize(
    ("preset", "error", "models"),
    [
        ("e2e_icl", KeyboardInterrupt, 1),
        ("e2e_icl", Killed, 1),
        ("e2e_icl", KeyboardInterrupt, 3),
        ("eig_icl", Killed, 3),
    ],
)
def test_a_run_that_is_stopped_and_resumed_ends_with_the_same_bits(
    tmp_path, preset, error, models
):
    layers = FEW_LAYERS if preset in STAGED else []
    configs = seeds_of(toy_config(preset, *layers), models)
    whole = {"output": tmp_path / "whole", "checkpoint_every": 3}
    expected = train(configs, **whole)
    stopped = {"output": tmp_path / "stopped", "checkpoint_every": 1}
    with pytest.raises(error):
        train(configs, **stopped, report=stop_at(4, error))
    # A kill at step 4 comes before its checkpoint, Ctrl-C waits for it.
    step, _ = load_checkpoint(tmp_path / "stopped", configs, "cpu")
    assert step == (4 if error is KeyboardInterrupt else 3)
    resumed = train(configs, **stopped, resume=True)
    assert bytes_of(tmp_path / "stopped") == bytes_of(tmp_path / "whole")
    for model, reference in zip(resumed, expected, strict=True):
        for one, other in zip(model.parameters(), reference.parameters(), strict=True):
            assert torch.equal(one, other)


def test_a_resumed_run_ends_with_the_same_bits_on_every_device(tmp_path, device):
    configs = seeds_of(toy_config("e2e_icl", *FEW_LAYERS), 2)
    options = {"device": device, "deterministic": True, "checkpoint_every": 1}
    train(configs, output=tmp_path / "whole", **options)
    killed = tmp_path / "killed"
    with pytest.raises(Killed):
        train(configs, output=killed, **options, report=stop_at(4, Killed))
    train(configs, output=killed, **options, resume=True)
    assert bytes_of(killed) == bytes_of(tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    config, reports = toy_config("e2e_icl", *FEW_LAYERS), []
    (model,) = train([config], output=tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (again,) = train([config], output=tmp_path, resume=True, report=reports.append)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert reports == []
    for one, other in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_resuming_where_nothing_is_begins(tmp_path):
    config = toy_config("e2e_icl", *FEW_LAYERS)
    train([config], output=tmp_path / "a", resume=True)
    train([config], output=tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


class CtrlC(TorchFunctionMode):
    """Sends a real SIGINT when a tensor is copied for the given times."""

    def __init__(self, *times):
        super().__init__()
        self.times, self.copies = times, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.copy_:
            self.copies += 1
            if self.copies in self.times:
                signal.raise_signal(signal.SIGINT)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def usual_ctrl_c():
    """As in a terminal: where tests run in the background, the signal is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


COPIES_OF_A_STEP = 7  # four of the optimiser's state, and loss, accuracy and length


@pytest.mark.parametrize("copy", range(1, COPIES_OF_A_STEP + 1))
def test_ctrl_c_in_the_midst_of_a_step_saves_no_half_step(tmp_path, copy, usual_ctrl_c):
    config = toy_config("orig_icl")
    train([config], output=tmp_path / "whole")
    with CtrlC(2 * COPIES_OF_A_STEP + copy), pytest.raises(KeyboardInterrupt):
        train([config], output=tmp_path / "stopped")
    step, state = load_checkpoint(tmp_path / "stopped", [config], "cpu")
    assert step == state.steps.item() == 3
    train([config], output=tmp_path / "stopped", resume=True)
    assert bytes_of(tmp_path / "stopped") == bytes_of(tmp_path / "whole")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_stops_at_once_and_saves_nothing(tmp_path, usual_ctrl_c):
    first = 2 * COPIES_OF_A_STEP + 1
    with CtrlC(first, first + 1), pytest.raises(KeyboardInterrupt):
        train([toy_config("orig_icl")], output=tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_training_outside_the_main_thread(tmp_path):
    config = toy_config("orig_icl")
    thread = threading.Thread(
        target=train, args=([config],), kwargs={"output": tmp_path / "a"}
    )
    thread.start()
    thread.join()
    train([config], output=tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_kill_9_and_resume_ends_with_the_same_bits(tmp_path):
    overrides = toy("e2e_icl", "steps=40", *FEW_LAYERS)
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "icssl", "train", "e2e_icl", *overrides]
    command += ["--output", str(folder), "--checkpoint-every", "2", "--no-tensorboard"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=one_thread, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (folder / "checkpoint.safetensors").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    config = load_config("e2e_icl", overrides)
    step, _ = load_checkpoint(folder, [config], "cpu")
    assert 0 < step < 40
    subprocess.run([*command, "--resume"], env=one_thread, check=True, capture_output=True)
    train([config], output=tmp_path / "whole", checkpoint_every=30)
    for name, content in bytes_of(tmp_path / "whole").items():
        assert (folder / name).read_bytes() == content, name


# Losses that are not finite

# Every step multiplies the weights by -10; soon the exponential of one is infinite.
TOO_MUCH = ["weight_decay=1100", "warmup=0", "final_rate=1", "steps=20"]
TOO_MUCH += ["model.step_size=1", "gamma_rate=0"]


def first_failure(config):
    """The step that fails, counted from one, and the weights before it."""
    group = Group([config])
    state = AdamState.fresh(group.fresh_weights())
    step, draw = Step(group, state), episode_drawer([config], "cpu")
    for number in range(config.steps):
        before = state.weights.clone()
        step(number, draw(number))
        if not (step.loss.isfinite().all() and step.length.isfinite().all()):
            return number + 1, before[0]
    raise AssertionError("every loss was finite")


@pytest.mark.parametrize("checkpoint_every", [1, 500])
def test_a_loss_that_is_not_finite_leaves_the_last_good_model(tmp_path, checkpoint_every):
    config = toy_config("orig_icl", *TOO_MUCH)
    failed, before = first_failure(config)
    assert failed > 2
    with pytest.raises(NonFiniteLossError, match=f"at step {failed} of the model") as error:
        train([config], output=tmp_path, checkpoint_every=checkpoint_every)
    path = tmp_path / "last-good" / "model.safetensors"
    assert str(path) in str(error.value)
    model = load_model(path)
    kept = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(kept, before)
    assert kept.isfinite().all()
    if checkpoint_every == 1:
        step, state = load_checkpoint(tmp_path, [config], "cpu")
        assert step == failed - 1
        assert torch.equal(state.weights[0], before)


def test_a_gradient_that_is_not_finite_is_a_failure_too(tmp_path):
    """Also where the loss is, and at the first step: the initial weights are kept."""
    config = toy_config("e2e_icl", "laplacian_weight=1e28", *FEW_LAYERS)
    group = Group([config])
    step = Step(group, AdamState.fresh(group.fresh_weights()))
    step(0, episode_drawer([config], "cpu")(0))
    assert step.loss.isfinite().all()
    assert not step.length.isfinite().any()
    with pytest.raises(NonFiniteLossError, match="its gradient was not finite at step 1 "):
        train([config], output=tmp_path)
    model = load_model(tmp_path / "last-good" / "model.safetensors")
    kept = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(kept, group.fresh_weights()[0])


def test_of_several_models_the_one_that_fails_is_named(tmp_path):
    sound = toy_config("orig_icl", *TOO_MUCH, "weight_decay=0")
    doomed = toy_config("orig_icl", *TOO_MUCH, "seed=5")
    failed, _ = first_failure(doomed)
    with pytest.raises(NonFiniteLossError, match=f"at step {failed} .* seed 5") as error:
        train([sound, doomed], output=tmp_path)
    assert "learning_rate" in str(error.value)
    about = json.loads((tmp_path / "last-good" / "model.json").read_text())
    assert (about["seed"], about["step"]) == (5, failed - 1)


def test_without_a_folder_a_failure_saves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NonFiniteLossError, match=r"with seed 0\. A lower"):
        train([toy_config("orig_icl", *TOO_MUCH)])
    assert list(tmp_path.iterdir()) == []


# Events for TensorBoard


def scalars(folder):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}


@pytest.mark.parametrize("models", [1, 2])
def test_events_can_be_read_back(tmp_path, models):
    pytest.importorskip("tensorboard")
    values = {"loss": 0.5, "accuracy": 0.25, "gradient": 2.0}
    shared = {name: (value,) * models for name, value in values.items()}
    writer = EventWriter(tmp_path / "events")
    for step in (1, 5):
        times = {"episodes_per_second": 64.0, "seconds_left": 1.0}
        writer(Progress(step=step, steps=9, **times, **shared))
    found = scalars(tmp_path / "events")
    endings = [""] if models == 1 else ["/0", "/1"]
    wanted = {f"{name}{ending}" for name in values for ending in endings}
    assert set(found) == wanted | {"episodes_per_second"}
    for name, value in values.items():
        read = [(e.step, e.value) for e in found[f"{name}{endings[-1]}"]]
        assert read == [(1, value), (5, value)]


def test_a_resumed_run_has_one_event_a_step(tmp_path):
    """Those after the last checkpoint are made again, those before it are kept."""
    pytest.importorskip("tensorboard")
    config = toy_config("e2e_icl", *FEW_LAYERS)
    stop = stop_at(4, Killed)
    writer = EventWriter(tmp_path / "events")

    def report(progress):
        writer(progress)
        stop(progress)

    with pytest.raises(Killed):
        train([config], output=tmp_path, checkpoint_every=1, report=report)
    time.sleep(1.1)  # files are named by the second in which they begin
    again = EventWriter(tmp_path / "events")
    train([config], output=tmp_path, checkpoint_every=1, report=again, resume=True)
    losses, _ = run_of([config])
    read = scalars(tmp_path / "events")["loss"]
    assert [event.step for event in read] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal([e.value for e in read], losses[0].numpy())


def test_training_leaves_the_process_as_it_was():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        train([replace(toy_config("orig_icl"), steps=1)])
        assert torch.equal(torch.random.get_rng_state(), before)
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_train_does_not_overwrite_a_run(tmp_path):
    config = replace(toy_config("orig_icl"), steps=1)
    train([config], output=tmp_path)
    with pytest.raises(ValueError, match="holds a run already"):
        train([config], output=tmp_path)
