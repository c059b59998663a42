"""Heads of the gate, shares of classes and corrections, each against a plain reference."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from helpers import F64, F64_DEEP
from icssl.classifier import corrections
from icssl.classifier import kernels as kernels_file
from icssl.classifier.context_features import features_of_graphs, features_of_tables
from icssl.classifier.corrections import correct_gate, guard_shares
from icssl.classifier.descent import (
    descend,
    descend_in_heads,
    estimate_shares,
    guess_shares,
)
from icssl.classifier.gate import (
    FEATURES,
    HEADS,
    UNEVENNESS,
    GateInputs,
    GateOutput,
    head_members,
)
from icssl.classifier.geometry import Units
from icssl.classifier.graphs import Backend
from icssl.classifier.kernels import (
    DIFFUSED,
    GEOMETRIES,
    GRAPHS,
    KERNELS,
    graphs_of_geometry,
    kernels_of,
)
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.tables.units import UNIT_NUMBERS

EACH, COMMON, LINEAR = (HEADS.index(name) for name in ("each", "common", "linear"))


def random_model(members=2):
    """Weights far from where training starts, so that everything has a part."""
    model = ContextModel(ContextConfig(width=16, embedding=4, members=members))
    with torch.no_grad():
        for p in model.gates.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model.double().eval().requires_grad_(False)


def context(generator, b=2, n=40, d=3, c=3, m=7):
    """Random rows and classes; ``m`` labelled rows, each class among them."""
    x = torch.randn(b, n, d, generator=generator, dtype=torch.float64)
    y = torch.randint(c, (b, n), generator=generator)
    labelled = torch.zeros(b, n, dtype=torch.bool)
    for i in range(b):
        order = torch.randperm(n, generator=generator)[:m]
        y[i, order[:c]] = torch.arange(c)
        labelled[i, order] = True
    return x, y, labelled, c


def units_of(generator, b=2, d=3):
    """Units of tables whose columns can be read in either scale."""
    factors = 0.3 + 2 * torch.rand(b, d, generator=generator, dtype=torch.float64)
    numbers = torch.rand(b, UNIT_NUMBERS, generator=generator, dtype=torch.float64)
    return Units(factors, numbers, torch.ones(b, 2, dtype=torch.bool))


# Which kernels belong to a head


def test_heads_have_the_kernels_of_their_geometry_and_white_ones():
    found = head_members(KERNELS)
    for head, members in zip(HEADS, found.tolist(), strict=True):
        for kernel, is_member in zip(KERNELS, members, strict=True):
            if head == "linear":
                expected = kernel.form == "linear"
            else:
                expected = kernel.graph.geometry == head or kernel.graph.view == "white"
            assert is_member is expected, (head, str(kernel))
    assert (found[:2].any(dim=0)).all()


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        (graphs_of_geometry("each"), [True, False, True]),
        (graphs_of_geometry("each")[:1], [True, False, True]),
        (graphs_of_geometry("common")[:1], [False, True, True]),
        (GRAPHS[1:2], [True, False, False]),  # diffusion alone has no linear kernel
    ],
)
def test_a_head_without_kernels_of_its_own_has_none(graphs, expected):
    """White kernels, which both geometries share, are not enough for the common one."""
    assert head_members(kernels_of(graphs)).any(dim=1).tolist() == expected


# Which heads are used


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_head_that_is_not_offered_has_no_weight_at_all(generator, geometry):
    model = random_model()
    units = units_of(generator).restrict_to(geometry)
    fitted = model.fit(*context(generator), units=units)
    other = EACH if geometry == "common" else COMMON
    assert (fitted.weights[:, other] == 0).all()
    assert (fitted.coefficients[:, other] == 0).all()
    own = COMMON if geometry == "common" else EACH
    assert (fitted.weights[:, [own, LINEAR]] > 0).all()
    sums = fitted.weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), **F64)


def test_kernels_of_other_heads_have_no_weight_in_a_head(generator):
    fitted = random_model().fit(*context(generator), units=units_of(generator))
    members = head_members(KERNELS)
    assert (fitted.mixture[:, ~members] == 0).all()
    assert (fitted.mixture[:, members] > 0).all()
    sums = fitted.mixture.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), **F64)
    assert (fitted.weights > 0).all()


def test_a_given_graph_is_read_by_the_first_head_alone(generator):
    x, y, labelled, c = context(generator)
    w = (-torch.cdist(x, x).square()).exp() * (1 - torch.eye(40).double())
    features = features_of_graphs(w, y, labelled, c, 48)
    assert features.inputs.offered.tolist() == [[True, False, False]] * 2
    fitted = random_model().fit_features(features)
    assert fitted.weights.tolist() == [[1.0, 0.0, 0.0]] * 2


def test_both_geometries_decide_what_is_predicted(generator):
    """Another scale of the columns changes logits through the common head alone."""
    model, case, units = random_model(), context(generator), units_of(generator)
    other = Units(units.factors.flip(-1), units.numbers, units.offered)
    logits = [
        model.fit(*case, units=given).predict_context().logits for given in (units, other)
    ]
    assert (logits[0] - logits[1]).abs().max() > 1e-4
    logits = [
        model.fit(*case, graphs_of_geometry("each"), units=given.restrict_to("each"))
        .predict_context()
        .logits
        for given in (units, other)
    ]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)


def test_logits_are_the_weighted_sum_of_what_every_head_says(generator):
    """By the formula: kernels centred, mixed and multiplied with a descent per head."""
    model, case, units = random_model(), context(generator), units_of(generator)
    features = features_of_tables(*case, GRAPHS, 48, units=units)
    fitted = model.fit_features(features)
    values = fitted.centred.context
    normed = (values.kernels - fitted.centred.centre) / fitted.centred.trace
    gram = features.gram.whole
    reach, contact = values.reach[..., None], values.contact[..., None]
    expected = torch.zeros_like(fitted.predict_context().logits)
    for h in range(len(HEADS)):
        mixture = fitted.mixture[:, h, :, None, None]
        among = (mixture * gram).sum(1) + 1
        amplitude = _amplitude(model, features, h)[:, None, None]
        found = descend(
            amplitude * among, features.target, features.kernels.valid, model.config.steps
        )
        to_rows = amplitude * ((mixture * normed).sum(1) + 1) * contact
        expected += fitted.weights[:, h, None, None] * (to_rows @ found)
    factor = (fitted.sharpness[:, None] + fitted.slope[:, None] * reach).exp()
    torch.testing.assert_close(
        fitted.predict_context().logits, expected * factor, **F64_DEEP
    )


def _amplitude(model, features, head):
    kernels = features.kernels.kernels
    places, members = list(range(len(kernels))), head_members(kernels)
    logs = [gate(features.inputs, places, members)[2][:, head] for gate in model.gates]
    return torch.stack(logs).mean(0).exp()


def test_descent_in_heads_is_one_descent_after_the_other(generator):
    points = torch.randn(2, 3, 6, 4, generator=generator, dtype=torch.float64)
    kernels = points @ points.mT / 4 + torch.eye(6)
    y = torch.tensor([[0, 1, 2, 0, 1, 2], [0, 0, 1, 1, 2, 0]])
    target = torch.nn.functional.one_hot(y, 3).double()
    valid = torch.ones(2, 6, dtype=torch.bool)
    valid[1, 5] = False
    target = target * valid[..., None]
    weight = 0.5 + torch.rand(2, 6, generator=generator, dtype=torch.float64)
    for row_weight in (None, weight):
        found = descend_in_heads(kernels, target, valid, 7, row_weight)
        assert found.shape == (2, 3, 6, 3)
        for h in range(3):
            expected = descend(kernels[:, h], target, valid, 7, row_weight)
            torch.testing.assert_close(found[:, h], expected, **F64)


# Both geometries, whatever way they are computed


def assert_same_predictions(found, expected, new):
    for one, other in (
        (found.predict_context(parts=True), expected.predict_context(parts=True)),
        (found.predict_new(new, parts=True), expected.predict_new(new, parts=True)),
    ):
        for part, whole in zip(one, other, strict=True):
            torch.testing.assert_close(part, whole, **F64_DEEP)
    torch.testing.assert_close(found.shares, expected.shares, **F64_DEEP)


def test_backends_agree_in_both_geometries(generator):
    model, case, units = random_model(), context(generator, b=1), units_of(generator, b=1)
    new = torch.randn(1, 6, 3, generator=generator, dtype=torch.float64)
    dense, exact, sparse = (
        model.fit(*case, backend=backend, units=units)
        for backend in (Backend("dense"), Backend("exact"), Backend("sparse", 40))
    )
    assert (dense.weights > 0.01).all()
    assert_same_predictions(exact, dense, new)
    assert_same_predictions(sparse, dense, new)


def test_in_pieces_both_geometries_are_the_same(generator, monkeypatch):
    model, case, units = random_model(), context(generator), units_of(generator)
    new = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    whole = model.fit(*case, units=units)
    nine_rows = 2 * 7 * len(KERNELS) * 9
    monkeypatch.setattr(kernels_file, "MOST_KERNEL_VALUES", nine_rows)
    pieces = model.fit(*case, units=units)
    assert pieces.centred.context is None
    assert_same_predictions(pieces, whole, new)


def test_a_context_of_two_geometries_does_not_depend_on_the_batch(generator):
    """One table offers both, the other only that in which each column has its scale."""
    model, (x, y, labelled, c) = random_model(), context(generator)
    units = units_of(generator)
    units.offered[1, 1] = False
    new = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    together = model.fit(x, y, labelled, c, units=units)
    for i in range(2):
        one = slice(i, i + 1)
        alone = model.fit(x[one], y[one], labelled[one], c, units=units.some(one))
        torch.testing.assert_close(together.weights[one], alone.weights, **F64_DEEP)
        for found, expected in (
            (together.predict_context(), alone.predict_context()),
            (together.predict_new(new), alone.predict_new(new[one])),
        ):
            torch.testing.assert_close(found.logits[one], expected.logits, **F64_DEEP)


@pytest.mark.parametrize("draws", [2, 3])
def test_draws_of_one_table_are_contexts_of_their_own(generator, draws):
    """What does not depend on labels is made once; the result is as if it were not."""
    x, _, _, c = context(generator, b=2)
    units = units_of(generator).repeat(draws)
    x = x.repeat_interleave(draws, dim=0)
    _, y, labelled, _ = context(generator, b=2 * draws)
    shared, separate = (
        features_of_tables(x, y, labelled, c, GRAPHS, 48, units=units, draws=times)
        for times in (draws, 1)
    )
    for name in ("evidence", "graphs", "context", "offered"):
        found, expected = (getattr(one.inputs, name) for one in (shared, separate))
        torch.testing.assert_close(found, expected, **F64_DEEP)
    model = random_model()
    new = torch.randn(2 * draws, 5, 3, generator=generator, dtype=torch.float64)
    found, expected = (model.fit_features(one) for one in (shared, separate))
    assert_same_predictions(found, expected, new)


# Shares of classes


def em_by_loop(logits, counted, guess, strength, rounds):
    """Expectation and maximisation for one context, row by row, as a textbook has it."""
    shares = guess.copy()
    for _ in range(rounds):
        expected = np.zeros(len(guess))
        for row, counts in zip(logits, counted, strict=True):
            if counts:
                p = shares * np.exp(row)
                expected += p / p.sum() / counted.sum()
        shares = (strength * guess + expected) / (strength + 1)
    return shares


def shares_case(generator, rows=30):
    logits = 2 * torch.randn(2, rows, 3, generator=generator, dtype=torch.float64)
    logits[..., 0] += 1
    unlabelled = (torch.arange(rows) % 5 > 0).double().expand(2, -1)
    guess = torch.tensor([[0.5, 0.3, 0.2], [1 / 3] * 3], dtype=torch.float64)
    return logits, unlabelled, guess


def test_shares_are_those_of_a_plain_loop(generator):
    logits, unlabelled, guess = shares_case(generator)
    strength = torch.tensor([[0.3], [2.0]]).double()
    found = estimate_shares(logits, unlabelled, guess, strength)
    for i in range(2):
        case = (logits[i].numpy(), unlabelled[i].numpy(), guess[i].numpy())
        expected = em_by_loop(*case, strength[i].item(), 10)
        np.testing.assert_allclose(found[i], expected, **F64)


def test_shares_are_near_the_largest_posterior(generator):
    """With a strong prior ten rounds have converged: there the gradient vanishes."""
    logits, unlabelled, guess = shares_case(generator)
    strength = torch.full((2, 1), 3.0).double()
    found = estimate_shares(logits, unlabelled, guess, strength).requires_grad_()
    likelihood = (logits.softmax(-1) @ found[..., None])[..., 0].log()
    count = unlabelled.sum(-1, keepdim=True)
    posterior = (unlabelled * likelihood / count).sum(-1, keepdim=True)
    posterior = posterior + strength * (guess * found.log()).sum(-1, keepdim=True)
    (gradient,) = torch.autograd.grad(posterior.sum(), found)
    # On the simplex all entries of the gradient are the same at the maximum.
    spread = gradient - gradient.mean(-1, keepdim=True)
    assert spread.abs().max() < 1e-5


def test_a_strong_prior_gives_the_guess_and_a_weak_one_what_is_predicted(generator):
    logits, unlabelled, guess = shares_case(generator)
    strong = torch.full((2, 1), 1e9).double()
    found = estimate_shares(logits, unlabelled, guess, strong)
    torch.testing.assert_close(found, guess, rtol=0, atol=1e-8)
    classes = torch.tensor([0, 1, 1, 1, 2, 2] * 5).expand(2, -1)
    certain = 200 * torch.nn.functional.one_hot(classes, 3).double()
    found = estimate_shares(certain, unlabelled, guess, 0 * strong)
    for i in range(2):
        counted = classes[i][unlabelled[i] > 0]
        expected = torch.bincount(counted, minlength=3).double() / len(counted)
        torch.testing.assert_close(found[i], expected, **F64)


def test_shares_without_rows_that_count_are_the_guess(generator):
    logits, _, guess = shares_case(generator)
    strength = torch.ones(2, 1).double()
    found = estimate_shares(logits, torch.zeros(2, 30).double(), guess, strength)
    torch.testing.assert_close(found, guess, **F64)


def test_the_guess_is_between_equal_shares_and_those_of_the_labels():
    counts = torch.tensor([[3.0, 1.0, 0.0]]).double()
    for trust, expected in ((0.0, [1, 1, 1]), (1.0, [4, 2, 1]), (0.5, [2.5, 1.5, 1])):
        found = guess_shares(counts, torch.tensor([[trust]]).double())
        wanted = torch.tensor([expected]).double() / sum(expected)
        torch.testing.assert_close(found, wanted, **F64)


def test_shares_of_a_context_are_those_of_its_own_logits(generator):
    """In training, where nothing corrects them."""
    model = random_model().train()
    x, y, labelled, c = context(generator)
    features = features_of_tables(x, y, labelled, c, GRAPHS, 48)
    weight = 0.5 + torch.rand(2, 7, generator=generator, dtype=torch.float64)
    fitted = model.fit_features(features, row_weight=weight)
    kernels = features.kernels.kernels
    said = [
        gate(features.inputs, range(len(kernels)), head_members(kernels))[3]
        for gate in model.gates
    ]
    strength, trust = torch.stack(said).mean(0)[:, 2:].split(1, dim=-1)
    logits = fitted.predict_context().logits
    for i in range(2):
        counts = np.zeros(c)
        for place, label in enumerate(y[i][labelled[i]].tolist()):
            counts[label] += float(weight[i, place])
        guess = counts / (1 + math.exp(-float(trust[i]))) + 1
        rows = (~labelled[i]).double().numpy()
        expected = em_by_loop(
            logits[i].numpy(), rows, guess / guess.sum(), math.exp(float(strength[i])), 10
        )
        np.testing.assert_allclose(fitted.shares[i], expected, **F64_DEEP)
    found = fitted.log_probabilities(fitted.predict_context())
    expected = softmax(logits[0].numpy() + np.log(fitted.shares[0].numpy()), axis=1)
    np.testing.assert_allclose(found[0].exp(), expected, **F64_DEEP)


# Corrections


def said(b=1, weights=(0.5, 0.3, 0.2)):
    """What a gate could say of contexts."""
    one = torch.ones(b, 1).double()
    share = torch.tensor(1 / len(KERNELS), dtype=torch.float64)
    mixture = share.expand(b, 3, len(KERNELS))
    heads = torch.tensor([weights] * b).double()
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
    return GateInputs(found, graphs, torch.zeros(1, 12).double(), offered)


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
        evidence=inputs.evidence[:, :count], graphs=inputs.graphs[:, :count]
    )
    gate = said(weights=(1.0, 0.0, 0.0))
    gate = gate._replace(mixture=gate.mixture[..., :count])
    found = correct_gate(gate, inputs, kernels, torch.ones(1, 1).double())
    assert torch.equal(found.weights, gate.weights)


@pytest.mark.parametrize("labels", [1.0, 4.0, 10.0])
def test_few_labels_make_surer_and_many_loosen_the_prior(labels):
    gate, inputs = said(), evidence(0.4)
    found = correct_gate(gate, inputs, KERNELS, torch.full((1, 1), labels).double())
    constant, by_labels, by_agreement = corrections._SHARPEN
    more = constant + by_labels * math.log(labels) + by_agreement * (0.4 - 0.25)
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


@pytest.mark.parametrize(
    ("inside", "beyond", "factor"), [(1.0, 0.5, 21.0), (0.9, 0.5, 1.0), (1.0, 0.99, 1.0)]
)
def test_a_graph_with_as_many_parts_as_classes_weighs_more(inside, beyond, factor):
    """One eigenvalue per class is one, and later ones are not: parts are classes."""
    place = GRAPHS.index(next(graph for graph in GRAPHS if graph.view == "half"))
    inputs, gate = evidence(1.0), said()
    clear = [
        kernel.graph == GRAPHS[place] and kernel.form.startswith("relaxed")
        for kernel in KERNELS
    ]
    for i, kernel in enumerate(KERNELS):
        if kernel.graph == GRAPHS[place]:
            inputs.graphs[0, i] = torch.tensor([0.0, inside, beyond])
    found = correct_gate(gate, inputs, KERNELS, torch.ones(1, 1).double()).mixture[0]
    torch.testing.assert_close(found.sum(-1), torch.ones(3).double(), **F64)
    raised, others = found[:, clear], found[:, [not one for one in clear]]
    ratio = raised[:, :1] / others[:, :1]
    np.testing.assert_allclose(ratio, np.full((3, 1), factor), rtol=0.2)
    torch.testing.assert_close(others, others[:, :1].expand_as(others), **F64)


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
