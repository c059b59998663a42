"""Training configurations: presets, TOML files, overrides, and what is refused."""

import dataclasses
import re

import pytest
import torch

from icssl import BaselineConfig, ModelConfig
from icssl.episodes.data_config import EIGENVECTORS, DataConfig
from icssl.training.config import (
    PRESETS,
    TrainConfig,
    config_from,
    differences,
    load_config,
)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_survives_as_plain_values(preset):
    config = load_config(preset)
    assert config_from(config.to_dict()) == config
    kind = BaselineConfig if preset.startswith("transformer") else ModelConfig
    assert isinstance(config.model, kind)


OVERRIDES = {
    "model.k=12": lambda c: c.model.k == 12,
    "data.sources=torus,sphere": lambda c: c.data.sources == ("torus", "sphere"),
    "data.sources=torus": lambda c: c.data.sources == ("torus",),
    'data.sources=["torus", "cone"]': lambda c: c.data.sources == ("torus", "cone"),
    "labels=3,10": lambda c: c.labels == (3, 10),
    "labels=7": lambda c: c.labels == (7,),
    "labels=0.1,20": lambda c: c.labels == (0.1, 20),
    "learning_rate=3e-3": lambda c: c.learning_rate == 0.003,
    "steps = 12": lambda c: c.steps == 12,
    "model.laplacian_kernel=linear": lambda c: c.model.laplacian_kernel == "linear",
    "model.centre=false": lambda c: c.model.centre is False,
    "data.threshold=0.5": lambda c: c.data.threshold == 0.5,
    "data.threshold=published": lambda c: c.data.threshold == "published",
    "data.n_classes=3": lambda c: c.data.n_classes == 3,
    "data.measure=area": lambda c: c.data.measure == "area",
    "weight_decay=1": lambda c: c.weight_decay == 1,
}


@pytest.mark.parametrize(("override", "holds"), OVERRIDES.items(), ids=OVERRIDES.keys())
def test_an_override_sets_its_field_and_no_other(override, holds):
    plain, changed = load_config("e2e_icl"), load_config("e2e_icl", [override])
    assert holds(changed)
    assert not holds(plain)
    field = override.partition("=")[0].strip()
    lines = differences(plain.to_dict(), changed.to_dict())
    assert [line.partition(":")[0] for line in lines] == [field]


def test_overrides_keep_the_rest_of_a_preset():
    config = load_config("eig_icl", ["data.sources=torus", "model.gamma=2"])
    assert config.data.episodes == PRESETS["eig_icl"]["data"]["episodes"]
    assert config.model == ModelConfig.preset("eig_icl", gamma=2, step_size=16)


def test_the_last_override_wins():
    assert load_config("e2e_icl", ["steps=3", "steps=4"]).steps == 4


def test_a_file_holds_fields_and_tables(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'preset = "eig_icl"\nsteps = 7\nlabels = [3, 0.5]\n'
        '[model]\nk = 3\n[data]\nsources = "cone"\nn = 30\n'
    )
    config = load_config(str(path), ["steps=8"])
    assert (config.steps, config.labels, config.data.n) == (8, (3, 0.5), 30)
    assert config.data.sources == ("cone",)
    assert config.data.episodes == PRESETS["eig_icl"]["data"]["episodes"]
    assert config.model == ModelConfig.preset("eig_icl", k=3, step_size=16)


def test_an_empty_file_is_the_defaults(tmp_path):
    (tmp_path / "run.toml").write_text("")
    assert load_config(str(tmp_path / "run.toml")) == TrainConfig()


UNKNOWN = {
    "stpes=3": ["unknown field 'stpes'", "Did you mean 'steps'?"],
    "model.heds=3": ["unknown model field 'heds'", "Did you mean 'head'?"],
    "data.sorces=torus": ["unknown data field 'sorces'", "Did you mean 'sources'?"],
    "model.kind=icsl": ["unknown model kind 'icsl'", "Did you mean 'icssl'?"],
    "model.preset=papr": ["unknown preset 'papr'", "Did you mean 'paper'?"],
    "preset=e2e_ilc": ["unknown preset 'e2e_ilc'", "Did you mean 'e2e_icl'?"],
    "model.head=decent": ["unknown head 'decent'", "Did you mean 'descent'?"],
}


@pytest.mark.parametrize(("override", "words"), UNKNOWN.items(), ids=UNKNOWN.keys())
def test_an_unknown_name_meets_the_nearest_known_one(override, words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        load_config("e2e_icl", [override])
    assert words[1] in str(caught.value)


WRONG_KINDS = {
    "steps=many": "steps must be a whole number, got 'many'",
    "steps=3.5": "steps must be a whole number, got 3.5",
    "steps=true": "steps must be a whole number, got True",
    "learning_rate=fast": "learning_rate must be a number, got 'fast'",
    "labels=few": "labels must be a number, got ('few',)",
    "labels=3,few": "labels must be a number, got ('3', 'few')",
    "model=free": "model must be a table, got 'free'",
    "data=torus": "data must be a table, got 'torus'",
    "data.n=many": "data.n must be a whole number, got 'many'",
    "data.sources=5": "data.sources must be a word, got (5,)",
    "data.distances=no": "data.distances must be true or false, got 'no'",
    "data.threshold=true": "data.threshold must be a word or a number, got True",
    "model.centre=no": "model.centre must be true or false, got 'no'",
    "model.sigma=wide": "model.sigma must be a number, got 'wide'",
    "model.k=2.5": "model.k must be a whole number, got 2.5",
    "model.n_points=all": "model.n_points must be a whole number, got 'all'",
}


@pytest.mark.parametrize(
    ("override", "message"), WRONG_KINDS.items(), ids=WRONG_KINDS.keys()
)
def test_a_value_of_the_wrong_kind(override, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_config("e2e_icl", [override])


BAD_VALUES = {
    "steps=0": "steps must be at least 1, got 0",
    "batch=0": "batch must be at least 1, got 0",
    "seed=-1": "seed must be at least 0, got -1",
    "warmup=2": "warmup is a share, at most 1, got 2",
    "warmup=-0.1": "warmup must be at least 0",
    "final_rate=1.5": "final_rate is a share, at most 1, got 1.5",
    "learning_rate=0": "learning_rate must be a positive, finite number, got 0",
    "learning_rate=nan": "learning_rate must be a positive, finite number, got nan",
    "clip=-1": "clip must be a positive, finite number, got -1",
    "weight_decay=-1": "weight_decay must be at least 0, got -1",
    "labels=[]": "labels must name at least one budget, got none",
    "labels=0": "the number of labels must be from 1 to n - 1 = 99, got 0",
    "labels=3,200": "the number of labels must be from 1 to n - 1 = 99, got 200",
    "labels=1.0": "a fraction of labels must be in (0, 1), got 1.0",
    "data.n=20": "the number of labels must be from 1 to n - 1 = 19, got 21",
    "data.episodes=-1": "episodes must be at least 0, got -1",
    "data.sources=[]": "sources must name at least one source, got none",
    "model.k=0": "k must be at least 1, got 0",
    "steps": "an override is KEY=VALUE, such as model.k=12, got 'steps'",
    "=3": "unknown field ''",
}


@pytest.mark.parametrize(("override", "message"), BAD_VALUES.items(), ids=BAD_VALUES.keys())
def test_a_bad_value_is_refused_with_what_was_given(override, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_config("e2e_icl", [override])


def test_a_field_that_has_no_fields():
    with pytest.raises(ValueError, match="'steps' has no fields"):
        load_config("e2e_icl", ["steps=3", "steps.k=3"])


@pytest.mark.parametrize("content", [b"steps = = 3", b"\xff\xfe\x00", b"[model"])
def test_a_file_that_is_no_toml_is_refused_by_name(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} is no TOML"):
        load_config(str(path))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.toml does not exist.*e2e_icl"):
        load_config(str(tmp_path / "gone.toml"))


def test_neither_preset_nor_file():
    with pytest.raises(ValueError, match=r"\.toml.*Did you mean 'e2e_icl'\?"):
        load_config("e2e_ilc")


@pytest.mark.parametrize("weight", ["laplacian_weight", "eigenmap_weight"])
@pytest.mark.parametrize("preset", ["orig_icl", "eig_icl", "transformer"])
def test_a_model_without_stages_has_no_losses_of_stages(preset, weight):
    with pytest.raises(ValueError, match=r"need a model with stages 1 and 2"):
        load_config(preset, [f"{weight}=0.5"])


GROUND_TRUTH = {
    ("e2e_icl", "steps=9"): 0,
    ("e2e_icl", "laplacian_weight=0.1"): EIGENVECTORS,
    ("e2e_icl", "eigenmap_weight=0.1"): EIGENVECTORS,
    ("e2e_icl", "data.eigenvectors=6"): 6,
    ("eig_icl", "model.k=3"): 3,
    ("orig_icl", "steps=9"): 0,
    ("transformer", "steps=9"): 0,
}


@pytest.mark.parametrize(("given", "count"), GROUND_TRUTH.items())
def test_ground_truth_is_computed_only_where_it_is_read(given, count):
    preset, override = given
    config = load_config(preset, [override])
    episodes = config.episodes_config()
    assert episodes.eigenvectors == count
    assert dataclasses.replace(episodes, eigenvectors=0) == dataclasses.replace(
        config.data, eigenvectors=0
    )


def test_differences_name_fields_and_both_values():
    one = TrainConfig(steps=5, data=DataConfig(sources=("torus",)))
    other = TrainConfig(steps=6, data=DataConfig(sources=("cone",)))
    assert differences(one.to_dict(), one.to_dict()) == []
    assert differences(one.to_dict(), other.to_dict()) == [
        "data.sources: ('torus',) in the checkpoint, ('cone',) given",
        "steps: 5 in the checkpoint, 6 given",
    ]


@pytest.mark.parametrize("labels", ["100", "200", "0.999"])
def test_budgets_must_leave_points_to_predict(labels):
    """One message for what is too much, so that nobody is sent from one to the next."""
    with pytest.raises(ValueError, match=r"from 1 to n - 1 = 99, got .* left to predict"):
        load_config("e2e_icl", [f"labels={labels}"])


def test_small_episodes_can_be_drawn():
    """A source has its own number of labels, which those who train do not use."""
    source = load_config("e2e_icl", ["data.n=6", "labels=3"]).data.build()
    episode = source.draw(1, generator=torch.Generator(), labels=3)
    assert episode.labelled.sum() == 3


def test_no_model_is_trained_on_the_test_split():
    with pytest.raises(ValueError, match="split must be 'train' here, got 'test'"):
        load_config("e2e_icl", ["data.split=test"])


def test_a_finite_mixture_has_as_many_episodes_of_each_source():
    source = DataConfig(("sphere", "torus"), n=20, episodes=9).build()
    assert [part.size for part in source.sources] == [5, 5]
    assert {part.source.source for part in source.sources} == {"sphere", "torus"}


# --- Options without effect


VOID = {
    ("orig_icl", "model.attend_to_r=true"): "attend_to_r=True and model.features='coord",
    ("orig_icl", "model.k=8"): "model.k=8 and model.features='coordinates'",
    ("eig_icl", "model.scale=none"): "model.scale='none' and model.features='eigenvect",
    ("eig_icl", "model.laplacian_layers=3"): "model.laplacian_layers=3 and model.features=",
    ("e2e_encoder", "model.kernel=linear"): "kernel='linear' and model.head='encoder'",
    ("e2e_encoder", "model.gamma=2"): "model.gamma=2 and model.head='encoder'",
    ("e2e_icl", "model.width=32"): "model.width=32 and model.head='descent'",
    ("e2e_icl", "model.distance_bias=none"): "model.distance_bias='none' and model.head",
    ("e2e_icl", "model.hidden=8"): "model.hidden=8 and model.expectation='exact'",
    ("e2e_icl", "model.embedding_size=8"): "embedding_size=8 and model.embedding='simplex'",
    ("e2e_icl", "model.n_points=50"): "model.n_points=50 and model.start='waves'",
    ("e2e_icl", "model.noise=0.5"): "model.noise=0.5 and model.init='random'",
    ("paper_linear", "model.gamma=2"): "model.gamma=2 and model.kernel='linear'",
    ("e2e_icl", "data.half_angle=0.1"): "half_angle=0.1 and sources=sphere",
    ("e2e_icl", "data.roll_halves=true"): "roll_halves=True and sources=sphere",
    ("e2e_icl", "data.factor_distance=scaled"): "factor_distance='scaled' and sources=",
    ("e2e_icl", "data.pixel_scale=0.1"): "pixel_scale=0.1 and sources=sphere",
    ("e2e_icl", "data.train_classes=2"): "train_classes=2 and sources=sphere",
    ("e2e_icl", "data.test_threshold=0.5"): "data.test_threshold=0.5 and training",
}


@pytest.mark.parametrize(("given", "message"), VOID.items(), ids=" ".join)
def test_an_option_without_effect_is_refused_with_what_excludes_it(given, message):
    preset, override = given
    with pytest.raises(ValueError, match=r"exclude each other: .* Leave \S+ out") as caught:
        load_config(preset, [override])
    assert message in str(caught.value)


EFFECTIVE = {
    "orig_icl": ["model.attend_to_r=false", "model.gamma=2", "model.scale=none"],
    "e2e_encoder": ["model.kernel=rbf", "model.width=32", "model.sigma=2"],
    "paper": ["model.n_points=50", "data.n=50", "model.hidden=8"],
    "eig_icl": ["gamma_rate=0", "model.head=encoder", "model.width=32"],
    "e2e_icl": ["data.sources=product", "data.half_angle=0.1", "data.n=50"],
    "transformer": ["data.sources=digits", "data.train_classes=2", "data.n_classes=3"],
}


@pytest.mark.parametrize(("preset", "given"), EFFECTIVE.items(), ids=EFFECTIVE)
def test_what_has_an_effect_or_is_the_default_is_taken(preset, given):
    load_config(preset, given)


def test_a_head_of_ones_own_may_read_any_option():
    load_config("e2e_icl", ["model.head=mine:Head", "model.width=32", "model.gamma=2"])


@pytest.mark.parametrize("preset", PRESETS)
def test_what_show_prints_is_a_configuration(preset, tmp_path):
    """It has every field, also those without effect."""
    from icssl.app.cli.train import _as_toml

    path = tmp_path / "run.toml"
    path.write_text(_as_toml(load_config(preset).to_dict(complete=True)))
    assert load_config(str(path)) == load_config(preset)


def test_what_is_stored_may_hold_options_without_effect():
    values = load_config("e2e_encoder").to_dict()
    values["model"]["gamma"] = 3.0
    assert config_from(values).model.gamma == 3.0


@pytest.mark.parametrize(
    ("preset", "override", "both"),
    [
        ("paper", "data.n=50", "model.n_points=100 and data.n=50 exclude each other"),
        ("paper", "model.n_points=50", "model.n_points=50 and data.n=100 exclude each"),
        ("transformer_positions", "data.n=300", "model.positions=200 and data.n=300 excl"),
    ],
)
def test_a_model_of_one_size_needs_episodes_of_it(preset, override, both):
    with pytest.raises(ValueError, match=re.escape(both)):
        load_config(preset, [override])
    load_config(preset, ["data.sources=images"])  # these have a number of their own
