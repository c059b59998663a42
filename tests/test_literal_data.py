"""Data as the paper has them: what it leaves open runs in both readings, under own keys."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers import run_command, text_of
from icssl._util.random import generator_for
from icssl.bench.spec import Scores
from icssl.episodes import manifolds
from icssl.episodes.data_config import DataConfig, source_named
from icssl.episodes.feature_tables import FeatureSpec
from icssl.episodes.labels import majority_rate
from icssl.episodes.manifolds import MANIFOLDS, Torus
from icssl.episodes.synthetic import ManifoldSpec
from icssl.evaluation.predictors import check_request, predictors_named, training_config
from icssl.methods.simple import bayes_ceiling
from icssl.training.config import TrainConfig, config_from, with_data_options

# Every field that came after the first rows, with a value that is not its default.
LATER = {
    "test_threshold": 0.5,
    "s_min": 0.1,
    "factors": ("torus", "cone"),
    "ball_share": 0.744,
    "roll_halves": True,
    "share_classes": True,
    "shuffle_frames": False,
    "pixel_scale": 0.001,
}


def draw(config, b=4, seed=0):
    return config.build().draw(b, generator=generator_for(seed, "literal"))


@pytest.mark.parametrize("name", LATER)
def test_later_fields_are_in_the_key_only_where_they_change_something(name):
    plain = DataConfig(("product",))
    changed = replace(plain, **{name: LATER[name]})
    assert not {*LATER} & {*plain.to_dict()}
    assert changed.to_dict()[name] == LATER[name]
    assert Scores("svc_rbf", plain, 3).key != Scores("svc_rbf", changed, 3).key
    trained = TrainConfig(data=changed)
    assert config_from(trained.to_dict()) == trained
    assert config_from(TrainConfig(data=plain).to_dict()).data == plain
    assert TrainConfig(data=plain).to_dict(complete=True)["data"][name] == getattr(
        plain, name
    )


def test_a_sixth_manifold_does_not_change_the_product(monkeypatch):
    config = DataConfig(("product",), n=20)
    before, key = draw(config), Scores("svc_rbf", config, 3).key

    class Sixth(Torus):
        name = "sixth"

    monkeypatch.setitem(MANIFOLDS, "sixth", Sixth)
    assert len(manifolds.MANIFOLDS) == 6
    after = draw(config)
    assert torch.equal(before.x, after.x)
    assert after.x.shape[-1] == 15
    assert Scores("svc_rbf", config, 3).key == key
    six = replace(config, factors=tuple(MANIFOLDS))
    assert draw(six).x.shape[-1] == 18
    assert Scores("svc_rbf", six, 3).key != key


def test_the_needle_has_its_angle_and_no_tip():
    config = DataConfig(("cone",), half_angle=0.1, s_min=0.1, rotation="none", n=500)
    x = draw(config).x
    spread = x.amax(dim=1) - x.amin(dim=1)
    # Of a cone with s in [0.1, 1]: at most 2 sin(0.1) wide, 0.9 cos(0.1) high.
    ratio = spread[:, 0] / spread[:, 2]
    assert ((ratio > 0.19) & (ratio < 0.23)).all()


def test_classes_can_be_divided_by_the_first_coordinate():
    """Low s, on the cone: near the apex, which is the lower part in space."""
    config = DataConfig(("cone",), threshold="coordinate", rotation="none")
    episode = draw(config)
    for x, y in zip(episode.x, episode.y, strict=True):
        assert x[y == 1, 2].max() <= x[y == 0, 2].min()
    assert (majority_rate(episode.y, 2) == 0.5).all()


def test_the_larger_class_can_have_a_chosen_share():
    for threshold in ("median", "coordinate"):
        config = DataConfig(("sphere",), threshold=threshold, ball_share=0.744)
        assert (draw(config).y.sum(dim=1) == 74).all()
    product = DataConfig(("product",), ball_share=0.744, distances=True)
    episode = draw(product, b=20)
    # Some point of the context has exactly the points of class 1 nearest to it.
    nearest = episode.distances.argsort(dim=-1).argsort(dim=-1) < 74
    assert (nearest.long() == episode.y[:, None]).all(dim=-1).any(dim=-1).all()


def test_the_ceiling_knows_the_share():
    """Against a loop over centres; and the method takes the share from the data."""
    data = DataConfig(("torus",), n=12, ball_share=0.75, distances=True)
    spec = source_named("torus", data, labels=3)
    episode = spec.draw(5, generator=generator_for(0, "ceiling"))
    result = bayes_ceiling(episode, share=0.75)
    for i in range(5):
        balls = [
            torch.zeros(12).scatter(0, row.argsort()[:9], 1.0)
            for row in episode.distances[i]
        ]
        possible = [
            ball for ball in balls if (ball == episode.y[i])[episode.labelled[i]].all()
        ]
        torch.testing.assert_close(result[i, :, 1], torch.stack(possible).mean(dim=0))
    (method,) = predictors_named("bayes_ceiling", data)
    assert torch.equal(method(episode), result)
    assert str(method) == "BayesCeilingOfShare(radius=None, share=0.75)"


def test_the_vote_at_a_share_is_the_published_column():
    """The printed product column .663 at three labels, by arithmetic: share .744."""
    episode = draw(DataConfig(("product",), ball_share=0.744), b=4000)
    generator = generator_for(0, "vote")
    labelled = torch.rand(episode.y.shape, generator=generator).topk(3, dim=1).indices
    vote = (episode.y.gather(1, labelled).sum(dim=1) >= 2).long()
    right = (episode.y == vote[:, None]).double().mean().item()
    assert right == pytest.approx(0.663, abs=0.01)


def test_id_and_ood_can_have_different_rules():
    """The mixture that the paper's columns show: balanced in, a radius of .5 out."""
    config = DataConfig(("torus",), test_threshold=0.5)
    assert (majority_rate(draw(config).y, 2) == 0.5).all()
    test = replace(config, split="test")
    assert majority_rate(draw(test, b=500).y, 2).mean() > 0.95
    assert test.class_rule == 0.5
    assert training_config("e2e_icl", config).data.test_threshold == ""
    (ceiling,) = predictors_named("bayes_ceiling", config)
    assert ceiling.radius == 0.5


def test_the_roll_has_no_ball_where_it_is_told():
    by_t = DataConfig(("swiss_roll",), threshold=0.5, roll_halves=True)
    assert torch.equal(draw(by_t).y, draw(DataConfig(("swiss_roll",))).y)
    ball = draw(replace(by_t, roll_halves=False))
    assert not torch.equal(ball.y, draw(by_t).y)
    sphere = DataConfig(("sphere",), threshold=0.5)
    assert torch.equal(draw(replace(sphere, roll_halves=True)).y, draw(sphere).y)


def test_frames_in_order_and_the_pixel_factor(tmp_path):
    frames = np.arange(100, dtype=np.uint8)[:, None, None]
    frames = np.broadcast_to(frames, (100, 32, 32))
    np.save(tmp_path / "manifold-0000.npy", frames)
    config = DataConfig((str(tmp_path),), shuffle_frames=False, pixel_scale=0.001)
    episode = draw(config, b=2)
    expected = torch.arange(100.0) / 255 * 0.001
    torch.testing.assert_close(episode.x[0, :, 0], expected)
    assert episode.y[0].tolist() == [0] * 50 + [1] * 50
    shuffled = draw(replace(config, shuffle_frames=True), b=2)
    assert not torch.equal(shuffled.x[0], episode.x[0])


def test_shared_classes_share_no_row(tmp_path):
    path = tmp_path / "table.npz"
    rows = np.arange(240.0)[:, None]
    np.savez(path, x=rows, y=np.arange(240) % 2)
    data = DataConfig((str(path),), share_classes=True)
    seen = {}
    for split in ("train", "test"):
        spec = replace(data, split=split).build()
        assert spec.classes() == [0, 1]
        episode = spec.draw(50, generator=generator_for(0, split))
        seen[split] = {*episode.x.flatten().tolist()}
        assert len(seen[split]) == 120
    assert not seen["train"] & seen["test"]
    with pytest.raises(ValueError, match="has 60 rows for train, an episode needs 100"):
        FeatureSpec(path, per_class=100, share_classes=True)
    with pytest.raises(ValueError, match="has 2 classes, and an episode needs 3"):
        FeatureSpec(path, n_classes=3, share_classes=True)


@pytest.mark.parametrize(
    ("sources", "changes", "parts"),
    [
        ("product", {"threshold": "coordinate"}, ["'coordinate'", "'product'"]),
        ("product", {"threshold": "published"}, ["'published'", "'product'"]),
        ("sphere", {"ball_share": 0.7, "threshold": 0.5}, ["ball_share=0.7", "=0.5"]),
        ("sphere", {"ball_share": 0.7, "n_classes": 3}, ["ball_share=0.7", "n_classes=3"]),
        ("sphere", {"threshold": 0.5, "n_classes": 3}, ["threshold=0.5", "n_classes=3"]),
        ("sphere", {"threshold": "coordinate", "n_classes": 3}, ["'coordinate'", "=3"]),
        ("sphere", {"ball_share": 1.0}, ["ball_share", "in (0, 1)", "got 1.0"]),
        ("sphere", {"ball_share": 0.001}, ["leave points of n = 100 to both"]),
        ("cone", {"s_min": 1.0}, ["s_min must be in [0, 1), got 1.0"]),
        ("digits", {"threshold": 0.5}, ["threshold=0.5", "geodesic", "digits"]),
        ("digits", {"test_threshold": 0.5}, ["test_threshold=0.5", "digits"]),
        ("images", {"ball_share": 0.7}, ["ball_share=0.7", "images"]),
        ("product", {"factors": ("torus", "disc")}, ["unknown factor 'disc'"]),
    ],
)
def test_options_that_exclude_each_other_are_both_named(sources, changes, parts):
    every_part = "".join(f"(?=.*{re.escape(part)})" for part in parts)
    with pytest.raises(ValueError, match=every_part):
        DataConfig((sources,), **changes).build()


def test_a_manifold_without_a_published_radius_is_refused(monkeypatch):
    class Bare(Torus):
        name = "bare"
        threshold = None

    monkeypatch.setitem(MANIFOLDS, "bare", Bare)
    with pytest.raises(ValueError, match="'published' and source='bare' exclude"):
        ManifoldSpec("bare", threshold="published")


@pytest.mark.parametrize(
    ("source", "rule"), [("sphere", "coordinate"), ("swiss_roll", "median")]
)
def test_classes_by_a_coordinate_have_no_ceiling(source, rule):
    data = DataConfig((source,), threshold=rule)
    with pytest.raises(ValueError, match=f"ceiling of '{source}' with threshold='{rule}'"):
        check_request(["bayes_ceiling"], data, [3])


def test_options_reach_the_command_line(tmp_path):
    options = with_data_options(DataConfig(("product",)), ["factors=torus,cone", "n=20"])
    assert (options.factors, options.n) == (("torus", "cone"), 20)
    with pytest.raises(ValueError, match="sources cannot be an option"):
        with_data_options(options, ["sources=torus"])
    output = tmp_path / "episode.safetensors"
    result = run_command(
        *("sample", "product", "-o", output, "-O", "ball_share=0.744"),
        *("-O", "factors=torus,cone"),
    )
    assert result.exit_code == 0
    assert "6 coordinates" in text_of(result)
    assert "largest class 0.74" in text_of(result)
    wrong = run_command("sample", "cone", "-o", output, "-O", "half_angel=0.1")
    assert wrong.exit_code == 2
    assert "Did you mean 'half_angle'" in text_of(wrong)
    result = run_command(
        *("evaluate", "majority", "--data", "torus", "--labels", "3", "--episodes", "20"),
        *("-O", "test_threshold=0.5"),
    )
    assert result.exit_code == 0
    assert "0.97" in text_of(result)
