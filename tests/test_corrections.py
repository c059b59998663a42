"""Corrections of what the gate says, each against what it is meant to do."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from heads_helpers import context, random_model, units_of
from helpers import F64
from icssl.classifier.context_features import features_of_tables
from icssl.classifier.corrections import correct_gate, guard_shares
from icssl.classifier.gate import (
    FEATURES,
    HEADS,
    UNEVENNESS,
    GateInputs,
    GateOutput,
    head_members,
)
from icssl.classifier.kernels import (
    DIFFUSED,
    GRAPHS,
    KERNELS,
    kernels_of,
)

EACH, COMMON, LINEAR = (HEADS.index(name) for name in ("each", "common", "linear"))


def said(b=1, weights=(0.5, 0.3, 0.2)):
    """What a gate could say of contexts."""
    one = torch.ones(b, 1).double()
    share = torch.tensor(1 / len(KERNELS), dtype=torch.float64)
    mixture = share.expand(b, 3, len(KERNELS))
    heads = torch.tensor([weights] * b, dtype=torch.float64)
    return GateOutput(mixture, heads, 2 * heads, 0.1 * one, one, 3 * one, 0.5 * one)


def evidence(agreement, linear=0.0, diffused=0.0, hits=0.0):
    """Evidence in which only what corrections read is not zero."""
    found = torch.zeros(1, len(KERNELS), len(FEATURES)).double()
    for place, kernel in enumerate(KERNELS):
        more = linear if kernel.form == "linear" else 0.0
        more = diffused if kernel.form.startswith("relaxed") else more
        found[0, place, FEATURES.index("agreement")] = agreement + more
        if kernel.form.startswith("relaxed"):
            found[0, place, FEATURES.index("hits")] = hits
    graphs = torch.zeros(1, len(KERNELS), 3).double()
    offered = torch.ones(1, 3, dtype=torch.bool)
    clear = torch.zeros(1, len(KERNELS)).double()
    return GateInputs(found, graphs, torch.zeros(1, 12).double(), offered, clear)


def linear_weight(inputs, weights=(0.5, 0.3, 0.2)):
    gate = said(weights=weights)
    found = correct_gate(gate, inputs, KERNELS, torch.ones(1, 1).double()).weights[0]
    assert float(found.sum()) == pytest.approx(1)
    # The other heads keep their ratio.
    assert float(found[EACH] * weights[COMMON]) == pytest.approx(
        float(found[COMMON] * weights[EACH])
    )
    return float(found[LINEAR])


def test_lines_are_trusted_where_kernels_disagree_and_nothing_speaks_for_shapes():
    noisy = evidence(-1.0, diffused=-1.0, hits=-1.0)
    assert linear_weight(noisy) == pytest.approx(0.9, abs=1e-6)
    assert linear_weight(evidence(1.0)) == pytest.approx(0.2)  # kernels agree
    assert linear_weight(evidence(-1.0, diffused=0.5)) == pytest.approx(0.2)
    assert linear_weight(evidence(-1.0, diffused=-1.0, hits=1.0)) == pytest.approx(0.2)


def test_a_correction_never_takes_from_lines_and_gives_nothing_to_what_is_not_offered():
    noisy = evidence(-1.0, diffused=-1.0)
    assert linear_weight(noisy, (0.02, 0.0, 0.98)) == pytest.approx(0.98)
    assert linear_weight(noisy, (0.0, 0.0, 1.0)) == 1.0
    gate = correct_gate(said(weights=(0.8, 0.0, 0.2)), noisy, KERNELS, torch.ones(1, 1))
    assert float(gate.weights[0, COMMON]) == 0.0


def test_without_linear_kernels_weights_stay():
    kernels = kernels_of(GRAPHS[1:2])
    assert {kernel.form for kernel in kernels} == set(DIFFUSED)
    inputs = evidence(-1.0)
    count = len(kernels)
    inputs = inputs._replace(
        evidence=inputs.evidence[:, :count],
        graphs=inputs.graphs[:, :count],
        clear=inputs.clear[:, :count],
    )
    gate = said(weights=(1.0, 0.0, 0.0))
    gate = gate._replace(mixture=gate.mixture[..., :count])
    found = correct_gate(gate, inputs, kernels, torch.ones(1, 1).double())
    assert torch.equal(found.weights, gate.weights)


@pytest.mark.parametrize("labels", [1.0, 4.0, 10.0])
def test_few_labels_make_surer_and_many_loosen_the_prior(labels):
    gate, inputs = said(), evidence(0.4)
    found = correct_gate(gate, inputs, KERNELS, torch.full((1, 1), labels).double())
    more = 0.7 - 0.4 * math.log(labels) + 1.0 * (0.4 - 0.25)
    assert float(found.sharpness) == pytest.approx(0.1 + more)
    assert float(found.strength) == pytest.approx(3 / labels)
    for name in ("mixture", "amplitude", "slope"):
        torch.testing.assert_close(getattr(found, name), getattr(gate, name), **F64)


@pytest.mark.parametrize(("counts", "low", "high"), [((5, 5), 0, 0.02), ((18, 2), 0.9, 1)])
def test_counts_of_labels_are_trusted_where_chance_does_not_explain_them(counts, low, high):
    expected = sum(counts) / 2
    squares = sum((count - expected) ** 2 / expected for count in counts)
    inputs, gate = evidence(0.4), said()
    inputs.context[0, UNEVENNESS] = math.log1p(squares)
    found = correct_gate(gate, inputs, KERNELS, torch.ones(1, 1).double())
    assert low <= float(found.trust / gate.trust) <= high


def test_a_kernel_that_knows_clear_parts_weighs_more_and_so_does_its_head():
    inputs, gate = evidence(1.0), said()
    knows = KERNELS.index((GRAPHS[-1], DIFFUSED[-1]))
    assert KERNELS[knows].graph.geometry == "common"
    members = head_members(KERNELS).double()
    gate = gate._replace(mixture=(members / members.sum(-1, keepdim=True))[None])
    before = correct_gate(gate, inputs, KERNELS, torch.ones(1, 1).double()).weights[0]
    inputs.clear[0, knows] = 1.0
    found = correct_gate(gate, inputs, KERNELS, torch.ones(1, 1).double())
    torch.testing.assert_close(found.mixture.sum(-1), torch.ones(1, 3).double(), **F64)
    for head, name in enumerate(HEADS):
        ratio = found.mixture[0, head] / gate.mixture[0, head]
        others = members[head].bool() & (torch.arange(len(KERNELS)) != knows)
        factor = ratio[knows] / ratio[others][0] if name == "common" else 1.0
        assert float(factor) == pytest.approx(101.0 if name == "common" else 1.0)
        torch.testing.assert_close(
            ratio[others], ratio[others][:1].expand(int(others.sum()))
        )
    mass = float(found.mixture[0, COMMON, knows])
    expected = before.numpy() * (1e-3 + mass * np.array([0, 1, 0]))
    np.testing.assert_allclose(found.weights[0], expected / expected.sum(), **F64)


def test_without_clear_parts_kernels_and_heads_keep_their_weights():
    gate, inputs = said(), evidence(1.0)
    found = correct_gate(gate, inputs, KERNELS, torch.ones(1, 1).double())
    torch.testing.assert_close(found.mixture, gate.mixture, **F64)
    torch.testing.assert_close(found.weights, gate.weights, **F64)


def test_shares_move_only_beyond_a_level_and_no_farther_than_they_were(generator):
    guess = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    shares = torch.tensor([[0.7, 0.28, 0.02]], dtype=torch.float64)
    counted = torch.ones(1, 30).double()
    certain = 100 * torch.nn.functional.one_hot(torch.arange(30) % 3, 3).double()[None]
    unsure = torch.zeros(1, 30, 3).double()
    few, many = torch.ones(1, 1).double(), torch.full((1, 1), 1e6).double()
    found = guard_shares(shares, guess, certain, counted, many)
    # Sure of all rows, only a level of a tenth is left.
    moved = np.log((shares / guess)[0].numpy())
    moved = np.sign(moved) * np.maximum(np.abs(moved) - 0.1, 0)
    np.testing.assert_allclose(found[0], softmax(np.log(guess[0].numpy()) + moved), **F64)
    # Sure of none, with a label per class: the guess stays.
    found = guard_shares(shares, guess, unsure, counted, few)
    torch.testing.assert_close(found, guess, **F64)
    # Rows that do not count do not make sure.
    some = counted * (torch.arange(30) < 10)
    mixed = torch.where(some[..., None] > 0, unsure, certain)
    found = guard_shares(shares, guess, mixed, some, few)
    torch.testing.assert_close(found, guess, **F64)


def test_corrections_are_left_out_while_weights_are_trained(generator):
    model, case, units = random_model(), context(generator), units_of(generator)
    features = features_of_tables(*case, GRAPHS, 48, units=units)
    corrected, plain = model.fit_features(features), model.train().fit_features(features)
    labels_per_class = torch.full((2, 1), 7 / 3, dtype=torch.float64)
    gate = said(b=2)._replace(weights=plain.weights, sharpness=plain.sharpness)
    expected = correct_gate(gate, features.inputs, KERNELS, labels_per_class)
    torch.testing.assert_close(corrected.weights, expected.weights, **F64)
    torch.testing.assert_close(corrected.sharpness, expected.sharpness, **F64)
    assert (corrected.sharpness - plain.sharpness).abs().min() > 1e-3
