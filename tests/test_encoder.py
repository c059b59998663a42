"""The encoder head: standard attention, its distance bias, and its two backends."""

import pytest
import torch

from helpers import F64, F64_DEEP, random_episode, without_gradient
from icssl.model.head import DISTANCE_BIASES, EncoderHead, EncoderLayer


def case(generator, **options):
    episode = random_episode(generator, **({"k": 4, "c": 3, "n": 10} | options))
    return episode.features, episode.y, episode.labelled, episode.x


@pytest.mark.parametrize("distance_bias", DISTANCE_BIASES)
def test_layer_is_attention_with_a_distance_bias(generator, distance_bias):
    """Against torch's own MultiheadAttention, given the bias as a dense additive mask."""
    layer = EncoderLayer(12, 3, distance_bias).double()
    state = torch.randn(2, 7, 12, generator=generator, dtype=torch.float64)
    points = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    reference = torch.nn.MultiheadAttention(12, 3, batch_first=True).double()
    reference.in_proj_weight.data = layer.query_key_value.weight.data
    reference.in_proj_bias.data = layer.query_key_value.bias.data
    reference.out_proj.weight.data = layer.project.weight.data
    reference.out_proj.bias.data = layer.project.bias.data
    bias = torch.zeros(2, 3, 7, 7, dtype=torch.float64)
    if distance_bias == "points":
        gaps = (points[:, :, None] - points[:, None]).square().sum(dim=-1)
        bias = -layer.log_nearness.exp()[:, None, None] * gaps[:, None]
    normed = layer.attention_norm(state)
    read, _ = reference(
        normed, normed, normed, attn_mask=bias.flatten(0, 1), need_weights=False
    )
    expected = state + read
    expected = expected + layer.mlp(expected)
    torch.testing.assert_close(layer(state, points, "dense"), expected, **F64)


@pytest.mark.parametrize("distance_bias", DISTANCE_BIASES)
def test_matrix_free_equals_dense(generator, distance_bias):
    phi, y, labelled, x = case(generator)
    head = EncoderHead(4, 3, width=16, distance_bias=distance_bias).double()
    dense = head(phi, y, labelled, points=x)
    free = head(phi, y, labelled, points=x, backend="matrix_free")
    torch.testing.assert_close(free, dense, **F64_DEEP)


def test_distances_are_between_points_where_they_are_given(generator):
    phi, y, labelled, x = case(generator)
    head = EncoderHead(4, 3, width=16).double()
    by_features = head(phi, y, labelled)
    torch.testing.assert_close(head(phi, y, labelled, points=phi), by_features, **F64)
    assert (head(phi, y, labelled, points=x) - by_features).abs().max() > 1e-3
    # A rigid motion of the points changes no distance.
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    moved = head(phi, y, labelled, points=x @ turn + 5)
    torch.testing.assert_close(moved, head(phi, y, labelled, points=x), **F64_DEEP)


def test_unlabelled_classes_are_not_read_and_order_does_not_matter(generator):
    phi, y, labelled, x = case(generator)
    head = EncoderHead(4, 3, width=16).double()
    logits = head(phi, y, labelled, points=x)
    hidden = torch.where(labelled, y, -1)
    assert torch.equal(head(phi, hidden, labelled, points=x), logits)
    order = torch.randperm(10, generator=generator)
    shuffled = head(phi[:, order], y[:, order], labelled[:, order], points=x[:, order])
    torch.testing.assert_close(shuffled, logits[:, order], **F64_DEEP)


def test_gradcheck_and_gradient_to_every_parameter(generator):
    phi, y, labelled, x = case(generator, b=1, n=5, m=2)
    head = EncoderHead(4, 3, width=6, heads=2, layers=2).double()
    inputs = (phi.requires_grad_(), x.requires_grad_())
    assert torch.autograd.gradcheck(lambda phi, x: head(phi, y, labelled, points=x), inputs)
    y = torch.tensor([[0, 1, 2, 0, 1]])  # every class token in use
    labelled = torch.tensor([[True, True, True, False, False]])
    logits = head(phi, y, labelled, points=x)
    assert without_gradient(head, logits, generator) == []


def test_bad_options():
    with pytest.raises(ValueError, match="width must be a multiple of heads, got 10 and 4"):
        EncoderHead(4, width=10)
    with pytest.raises(ValueError, match="n_classes must be at least 2, got 1"):
        EncoderHead(4, 1)
