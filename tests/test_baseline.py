"""The Transformer baseline: published sizes, and attention by hand."""

import pytest
import torch

from helpers import F64, F64_DEEP, permuted, random_episode, without_gradient
from icssl import BaselineConfig, BaselineTransformer, Episode


def by_hand(model, episode):
    """Post-norm encoder layers written out: softmax attention, residuals, LayerNorm."""
    token = torch.where(episode.labelled, episode.y, model.config.n_classes)
    state = model.embed(episode.x) + model.label(token)
    heads = model.config.heads
    for layer in model.encoder.layers:
        parts = layer.self_attn.in_proj_weight.mT
        query, key, value = (
            (state @ parts + layer.self_attn.in_proj_bias)
            .unflatten(-1, (3, heads, -1))
            .permute(2, 0, 3, 1, 4)
        )
        weights = (query @ key.mT / key.shape[-1] ** 0.5).softmax(dim=-1)
        read = (weights @ value).transpose(1, 2).flatten(2)
        state = layer.norm1(state + layer.self_attn.out_proj(read))
        state = layer.norm2(state + layer.linear2(layer.linear1(state).relu()))
    return model.classify(model.feature(state))


def test_forward_is_the_encoder_written_out(generator):
    model = BaselineTransformer(BaselineConfig(width=16, feed_forward=32)).double()
    episode = random_episode(generator)
    torch.testing.assert_close(model(episode), by_hand(model, episode), **F64_DEEP)
    model.eval()
    with torch.no_grad():  # torch may take another road here
        torch.testing.assert_close(model(episode), by_hand(model, episode), **F64_DEEP)


def test_sizes_are_the_papers():
    model = BaselineTransformer()
    assert len(model.encoder.layers) == 2
    layer = model.encoder.layers[0]
    assert layer.self_attn.num_heads == 4
    assert layer.linear1.weight.shape == (960, 240)
    assert model.label.weight.shape == (3, 240)
    assert model.feature.weight.shape == (4, 240)
    assert model.classify.weight.shape == (2, 4)


def test_reads_no_hidden_class_and_no_order(generator):
    model = BaselineTransformer(BaselineConfig(width=16, feed_forward=32)).double()
    episode = random_episode(generator)
    logits = model(episode)
    hidden = Episode(
        episode.x, torch.where(episode.labelled, episode.y, -1), episode.labelled
    )
    assert torch.equal(model(hidden), logits)
    order = torch.randperm(12, generator=generator)
    torch.testing.assert_close(model(permuted(episode, order)), logits[:, order], **F64)


def test_gradient_reaches_every_parameter(generator):
    model = BaselineTransformer(BaselineConfig(width=16, feed_forward=32)).double()
    logits = model(random_episode(generator, b=4))
    assert without_gradient(model, logits, generator) == []


def test_scaled_inputs_free_it_of_the_unit(generator):
    model = BaselineTransformer(
        BaselineConfig(width=16, feed_forward=32, centre=True, scale="neighbour")
    ).double()
    episode = random_episode(generator)
    moved = Episode(1e3 * episode.x + 7, episode.y, episode.labelled)
    torch.testing.assert_close(model(moved), model(episode), **F64_DEEP)


def test_bad_input(generator):
    with pytest.raises(ValueError, match="width must be a multiple of heads, got 10 and 4"):
        BaselineConfig(width=10)
    with pytest.raises(ValueError, match=r"unknown scale 'unit'.*'neighbour', 'none'"):
        BaselineConfig(scale="unit")
    model = BaselineTransformer().double()
    with pytest.raises(ValueError, match="takes 3 coordinates, got 2"):
        model(random_episode(generator, d=2))
    with pytest.raises(ValueError, match="has 2 classes, got 3"):
        model(random_episode(generator, c=3))
