"""Heads of the gate, each against a plain reference."""

import pytest
import torch

from heads_helpers import context, random_model, units_of
from helpers import F64, F64_DEEP
from icssl.classifier import kernels as kernels_file
from icssl.classifier.context_features import features_of_graphs, features_of_tables
from icssl.classifier.descent import (
    descend,
    descend_in_heads,
)
from icssl.classifier.gate import (
    HEADS,
    GateInputs,
    head_members,
)
from icssl.classifier.geometry import Units
from icssl.classifier.graphs import Backend
from icssl.classifier.kernels import (
    GEOMETRIES,
    GRAPHS,
    KERNELS,
    graphs_of_geometry,
    kernels_of,
)

EACH, COMMON, LINEAR = (HEADS.index(name) for name in ("each", "common", "linear"))


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
    for name in GateInputs._fields:
        found, expected = (getattr(one.inputs, name) for one in (shared, separate))
        torch.testing.assert_close(found, expected, **F64_DEEP)
    model = random_model()
    new = torch.randn(2 * draws, 5, 3, generator=generator, dtype=torch.float64)
    found, expected = (model.fit_features(one) for one in (shared, separate))
    assert_same_predictions(found, expected, new)


@pytest.mark.parametrize(("labels", "stride"), [(256, 1), (257, 2), (600, 3)])
def test_every_so_many_labelled_rows_are_in_the_sample(generator, labels, stride):
    case = context(generator, b=1, n=620, m=labels)
    gram = features_of_tables(*case, GRAPHS[:1], 12).gram
    assert gram.stride == stride
    expected = gram.whole[..., ::stride, ::stride]
    torch.testing.assert_close(gram.sample, expected, rtol=0, atol=0)
