"""The three stages together: presets, invariances, trace, extremes, bad input."""

import dataclasses

import pytest
import torch

from helpers import F32, F64, F64_DEEP, permuted, random_episode, without_gradient
from icssl import BaselineTransformer, Episode, ICSSLTransformer, ModelConfig
from icssl.model import transformer
from icssl.model.inputs import in_few_coordinates, prepare, scale_by_neighbours
from icssl.model.laplacian import LaplacianTransformer
from icssl.model.model_config import PRESETS

N = 100  # the paper's presets are made for 100 points
ORDER_FREE = ["orig_icl", "eig_icl", "free", "encoder"]


# Presets that form R: it is attended to, changed, and all its columns are normalised.
FORM_R = [
    *("paper", "paper_8_32_8", "paper_24"),
    *("paper_lap_linear", "paper_lap_pe_1layer"),
]
FEWER = {"paper_24": {"laplacian_layers": 2, "eigenmap_layers": 2}}  # same code, sooner
MATRIX_FREE = [name for name in PRESETS if name not in FORM_R]
CLOUDS_AND_BACKENDS = [
    *((preset, "dense") for preset in PRESETS),
    *((preset, "matrix_free") for preset in MATRIX_FREE),
]


def build(preset, **changes):
    changes = {**FEWER.get(preset, {}), **changes}
    return ICSSLTransformer(ModelConfig.preset(preset, **changes)).double()


def episode_for(generator, **options):
    return random_episode(generator, **({"n": N, "k": 4, "m": 10} | options))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_gives_logits_and_gradients(generator, preset):
    model, episode = build(preset), episode_for(generator)
    # So close to each other that every head sees neighbours, and columns of length one:
    # where kernels are 1e-100, so are gradients.
    close = Episode(
        episode.x / 10, episode.y, episode.labelled, features=episode.features / N**0.5
    )
    logits = model(close)
    assert logits.shape == (2, N, model.config.n_classes)
    # In one step the printed MLP only ever sees f = 0, which its first weights multiply.
    unread = ["head.mlp.0.weight"] if model.config.expectation == "mlp" else []
    assert without_gradient(model, logits, generator) == unread


@pytest.mark.parametrize("preset", FORM_R)
def test_presets_that_form_r_refuse_to_be_matrix_free(generator, preset):
    with pytest.raises(ValueError, match="attend_to_r needs backend='dense'"):
        build(preset)(episode_for(generator), backend="matrix_free")


@pytest.mark.parametrize("preset", MATRIX_FREE)
def test_backends_agree(generator, preset):
    model, episode = build(preset), episode_for(generator)
    torch.testing.assert_close(
        model(episode, backend="matrix_free"), model(episode), **F64_DEEP
    )


def test_backends_and_devices_agree(generator, device):
    model = ICSSLTransformer(ModelConfig.preset("free"))
    episode = episode_for(generator, dtype=torch.float32)
    expected = model(episode)
    model, episode = model.to(device), episode.to(device)
    torch.testing.assert_close(model(episode).cpu(), expected, **F32)
    free = model(episode, backend="matrix_free")
    torch.testing.assert_close(free.cpu(), expected, **F32)


@pytest.mark.parametrize("preset", ORDER_FREE)
def test_equivariant_to_the_order_of_points(generator, preset):
    model, episode = build(preset), episode_for(generator)
    order = torch.randperm(N, generator=generator)
    expected = model(episode)[:, order]
    torch.testing.assert_close(model(permuted(episode, order)), expected, **F64_DEEP)


@pytest.mark.parametrize("preset", ["free", "encoder", "orig_icl"])
def test_free_of_place_and_unit(generator, preset):
    model, episode = build(preset), episode_for(generator)
    moved = Episode(1e4 * episode.x + 3, episode.y, episode.labelled)
    torch.testing.assert_close(model(moved), model(episode), rtol=1e-5, atol=1e-7)


def test_free_of_the_names_of_classes(generator):
    model, episode = build("free"), episode_for(generator, c=5)
    names = torch.randperm(5, generator=generator)
    renamed = Episode(episode.x, names[episode.y], episode.labelled, n_classes=5)
    torch.testing.assert_close(model(renamed)[..., names], model(episode), **F64)


@pytest.mark.parametrize("n", [2, 3, 7, 150])
def test_free_of_the_number_of_points(generator, n):
    model = build("free", k=2)
    assert model(random_episode(generator, n=n, m=1)).isfinite().all()


@pytest.mark.parametrize("preset", PRESETS)
def test_reads_no_hidden_class(generator, preset):
    model, episode = build(preset), episode_for(generator)
    hidden = torch.where(episode.labelled, episode.y, -1)
    without = Episode(
        episode.x, hidden, episode.labelled, n_classes=2, features=episode.features
    )
    assert torch.equal(model(without), model(episode))


def extremes(generator):
    x = torch.randn(1, N, 3, generator=generator)
    return {
        "tiny": 1e-12 * x,
        "smallest": 1e-38 * x,
        "huge": 1e12 * x,
        "largest": x / x.abs().max() * 3e38,
        "duplicates": x[:, :4].repeat(1, N // 4, 1),
        "one point": x[:, :1].repeat(1, N, 1),
        "zeros": 0 * x,
        "constant coordinate": torch.cat([x[..., :2], torch.ones(1, N, 1)], dim=-1),
        "disconnected": torch.cat([x[:, : N // 2], 1e6 + x[:, N // 2 :]], dim=1),
        "outlier": torch.cat([x[:, 1:], torch.full((1, 1, 3), 1e9)], dim=1),
    }


@pytest.mark.parametrize(("preset", "backend"), CLOUDS_AND_BACKENDS)
def test_extreme_clouds_are_not_errors(generator, preset, backend):
    fewer = FEWER.get(preset, {})
    if backend == "matrix_free":
        fewer = {"eigenmap_layers": 1}  # same code, sooner
    model = ICSSLTransformer(ModelConfig.preset(preset, **fewer))
    y = torch.zeros(1, N, dtype=torch.long)  # labelled points of one class only
    labelled = torch.arange(N)[None] < 3
    features = torch.randn(1, N, 4, generator=generator)
    for name, x in extremes(generator).items():
        logits = model(Episode(x, y, labelled, features=features), backend=backend)
        assert logits.isfinite().all(), name


OTHER_MODELS = {
    "constructed": ModelConfig.constructed(iterations=5),
    "linear mlp": ModelConfig(
        features="coordinates",
        scale="none",
        kernel="linear",
        embedding="learned",
        expectation="mlp",
        steps=5,
    ),
    "softmax": ModelConfig(kernel="softmax", steps=3),
    "attend to r": ModelConfig(attend_to_r=True),
}


@pytest.mark.parametrize("config", OTHER_MODELS.values(), ids=OTHER_MODELS.keys())
def test_extreme_clouds_in_models_beyond_the_presets(generator, config):
    model = ICSSLTransformer(config)
    y = torch.randint(2, (1, N), generator=generator)
    for name, x in extremes(generator).items():
        assert model(Episode(x, y, torch.arange(N)[None] < 3)).isfinite().all(), name


DEGENERATE = ["duplicates", "one point", "zeros", "constant coordinate", "tiny"]


@pytest.mark.parametrize("preset", ["paper", "paper_lap_linear", "free", "encoder"])
def test_degenerate_clouds_leave_gradients_finite(generator, preset):
    """Where distances and column lengths vanish, derivatives must not be 0 / 0."""
    y = torch.randint(2, (1, N), generator=generator)
    labelled = torch.arange(N)[None] < 3
    clouds = extremes(generator)
    for name in DEGENERATE:
        model = ICSSLTransformer(ModelConfig.preset(preset))
        logits = model(Episode(clouds[name], y, labelled))
        torch.nn.functional.cross_entropy(logits[0], y[0]).backward()
        for parameter in model.parameters():
            assert parameter.grad.isfinite().all(), name


def test_baseline_takes_extreme_clouds_too(generator):
    y, labelled = torch.zeros(1, N, dtype=torch.long), torch.arange(N)[None] < 3
    model = BaselineTransformer()
    for name, x in extremes(generator).items():
        assert model(Episode(x, y, labelled)).isfinite().all(), name


def test_full_model_is_no_larger_than_published():
    for preset in ("paper", "free"):
        model = ICSSLTransformer(ModelConfig.preset(preset))
        assert sum(p.numel() for p in model.parameters()) <= 10_852


def test_trace_shows_every_layer(generator):
    model, episode = build("paper_scalars"), episode_for(generator)
    trace = model.trace(episode)
    steps = {"laplacian": 2 * 2 * 2, "eigenmap": 4 * 2 * 2, "head": 1}
    shapes = {
        "walk": (2, 4, N, N),
        "x": (2, N, 3),
        "R": (2, N, N),
        "F": (2, N, 4),
        "f": (2, N, 4),
        "logits": (2, N, 2),
    }
    wanted = {
        f"{stage}.{step}.{what}"
        for stage, names in {
            "laplacian": ["walk", "x", "R"],
            "eigenmap": ["F"],
            "head": ["f", "logits"],
        }.items()
        for step in range(steps[stage])
        for what in names
    }
    assert set(trace) == wanted | {"x", "phi", "logits"}
    for name, value in trace.items():
        if name != "phi":
            assert value.shape == shapes[name.split(".")[-1]], name


def test_trace_is_what_the_model_computed(generator):
    """Each record follows from the ones before it, by the formulas of the stages."""
    model, episode = build("free"), episode_for(generator)
    trace = model.trace(episode)
    assert torch.equal(trace["logits"], model(episode))
    torch.testing.assert_close(trace["phi"], model.features(episode), **F64)
    walk = trace["laplacian.0.walk"]
    torch.testing.assert_close(walk.sum(-1), torch.ones_like(walk[..., 0]), **F64)
    stage = model.laplacian
    mixed = torch.einsum("h,bhij->bij", stage.mix_r[0], walk)
    expected = (1 + stage.skip_r[0]) * torch.eye(N).double() + mixed
    torch.testing.assert_close(trace["laplacian.0.R"], expected, **F64)
    last = stage(trace["x"]).dense()
    torch.testing.assert_close(trace["laplacian.7.R"], last, **F64)
    torch.testing.assert_close(trace["phi"], N**0.5 * trace["eigenmap.15.F"], **F64)
    lengths = trace["eigenmap.3.F"].norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), **F64)
    torch.testing.assert_close(trace["head.0.logits"], trace["logits"], **F64)


def test_constructed_model_labels_blobs_from_one_label_each(generator):
    centres = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]).double()
    y = torch.arange(60) % 3
    # Squares: of normal blobs some point is now and then too far from its own.
    x = centres[y] + 3 * torch.rand(60, 2, generator=generator, dtype=torch.float64)
    episode = Episode.single(x, y, torch.arange(60) < 3)
    model = ICSSLTransformer(
        ModelConfig.constructed(k=3, iterations=300, sigma=1.5, steps=10)
    )
    assert next(model.parameters()).dtype == torch.float64
    assert torch.equal(model(episode).argmax(dim=-1)[0], y)


def test_lemma_start_trains_away_from_the_construction(generator):
    once = {"init": "lemma", "layer_loops": 1, "stage_loops": 1}
    episode = episode_for(generator)
    exact = ICSSLTransformer(ModelConfig.preset("free", noise=0.0, **once))
    x = prepare(episode.x)
    expected = LaplacianTransformer.lemma1(1.0)(x).dense()
    torch.testing.assert_close(exact.laplacian(x).dense(), expected, **F64)
    model = ICSSLTransformer(ModelConfig.preset("free", **once)).double()
    assert 0 < (model.laplacian(x).dense() - expected).abs().max() < 0.5
    assert without_gradient(model, model(episode), generator) == []


def test_gradcheck_of_the_whole_model(generator):
    model = build("free", k=2, laplacian_heads=2, eigenmap_layers=2, eigenmap_heads=1)
    episode = random_episode(generator, b=1, n=6, m=2)
    names = [name for name, _ in model.named_parameters()]

    def logits(*values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, parameters, (episode,))

    assert torch.autograd.gradcheck(logits, tuple(model.parameters()), atol=1e-4)


def test_float64_points_meet_a_float32_model(generator):
    episode = episode_for(generator)
    model = ICSSLTransformer(ModelConfig.preset("free"))
    assert model(episode).dtype == torch.float32


def test_float64_points_beyond_float32_are_shrunk_into_it(generator):
    episode = episode_for(generator)
    huge = Episode(1e50 * episode.x, episode.y, episode.labelled)
    assert ICSSLTransformer(ModelConfig.preset("free"))(huge).isfinite().all()
    assert BaselineTransformer()(huge).isfinite().all()


def test_duplicates_get_equal_answers_from_the_constructed_model(generator):
    """Rounding must not grow between points that are the same."""
    x = torch.randint(0, 2, (1, 60, 2), generator=generator).double()
    episode = Episode(x, (x[..., 0] > 0).long(), torch.arange(60)[None] < 6)
    model = ICSSLTransformer(ModelConfig.constructed(k=2, iterations=300, steps=20))
    logits = model(episode)
    torch.testing.assert_close(model(episode, backend="matrix_free"), logits, **F64_DEEP)
    for corner in x[0].unique(dim=0):
        same = logits[0][(x[0] == corner).all(dim=-1)]
        torch.testing.assert_close(same, same[:1].expand_as(same), **F64_DEEP)


def test_options_of_stage_1_reach_the_model(generator):
    episode = random_episode(generator, n=20)
    changes = {"attend_to_r": True, "learn_r_start": True, "n_points": 20}
    model = build("free", **changes)
    assert without_gradient(model, model(episode), generator) == []
    assert model.laplacian.start.shape == (20, 20)


def test_prepare_centres_and_scales(generator):
    x = 5 + 0.01 * torch.randn(2, 30, 3, generator=generator, dtype=torch.float64)
    prepared = prepare(x)
    torch.testing.assert_close(prepared.mean(dim=1), torch.zeros(2, 3).double(), **F64)
    gaps = (prepared[:, :, None] - prepared[:, None]).norm(dim=-1)
    sixth = gaps.sort(dim=-1).values[..., 6]
    median = sixth.sort(dim=-1).values[:, 14]  # torch's median: the lower of the middle two
    torch.testing.assert_close(median, torch.ones(2).double(), **F64)
    assert torch.equal(prepare(x, centre=False, scale="none"), x)


def test_scaling_in_pieces_changes_nothing(generator):
    x = torch.randn(2, 30, 3, generator=generator)
    whole = scale_by_neighbours(x)
    in_pieces = scale_by_neighbours(x, distances_at_once=7 * 2 * 30)
    torch.testing.assert_close(in_pieces, whole)


BAD_CONFIGS = {
    "preset": (lambda: ModelConfig.preset("papre"), "Did you mean 'paper'?"),
    "features": (lambda: ModelConfig(features="pca"), "unknown features 'pca'"),
    "kernel": (lambda: ModelConfig(kernel="poly"), "unknown kernel 'poly'"),
    "scale": (lambda: ModelConfig(scale="unit"), "unknown scale 'unit'"),
    "layers": (
        lambda: ModelConfig(eigenmap_layers=0),
        "eigenmap_layers must be at least 1",
    ),
    "classes": (lambda: ModelConfig(n_classes=1), "n_classes must be at least 2, got 1"),
    "sigma": (lambda: ModelConfig(sigma=0.0), "sigma must be a positive"),
    "mlp": (lambda: ModelConfig(expectation="mlp"), "needs embedding='learned'"),
    "width": (
        lambda: ModelConfig(head="encoder", width=10),
        "width must be a multiple of encoder_heads, got 10 and 4",
    ),
    "start": (lambda: ModelConfig(start="learned"), "a learned start needs n_points"),
    "loops": (
        lambda: ModelConfig(init="lemma"),
        "layer_loops = stage_loops = 1, got 2 and 2",
    ),
    "k > n": (
        lambda: ModelConfig(start="learned", n_points=8, k=9),
        "k = 9, n = 8",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD_CONFIGS.values(), ids=BAD_CONFIGS.keys())
def test_bad_config_is_refused_when_it_is_built(make, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        make()


def test_unknown_field_of_a_config():
    with pytest.raises(TypeError, match="layres"):
        ModelConfig.preset("paper", layres=3)


BAD_EPISODES = {
    "points": ("paper", {"n": 50}, "built for 100 points, got 50"),
    "classes": ("paper", {"c": 3}, "has 2 classes, got 3"),
    "k > n": ("free", {"n": 3, "m": 1, "k": None}, "k = 4, n = 3"),
    "no eigenvectors": (
        "eig_icl",
        {"k": None},
        "reads 4 columns of episode.features, got 0",
    ),
    "encoder on coordinates": (
        "encoder_on_x",
        {},
        "the encoder head reads k = 4 coordinates, got 3",
    ),
    "few eigenvectors": ("eig_icl", {"k": 2}, "reads 4 columns of episode.features, got 2"),
}


@pytest.mark.parametrize(
    ("preset", "options", "message"), BAD_EPISODES.values(), ids=BAD_EPISODES.keys()
)
def test_an_episode_that_does_not_fit(generator, preset, options, message):
    model = (
        build("encoder", features="coordinates")
        if preset == "encoder_on_x"
        else build(preset)
    )
    with pytest.raises(ValueError, match=message):
        model(episode_for(generator, **options))


PRESET_CHANGES = {
    ("paper", "paper_lap_linear"): {"laplacian_kernel", "sigma"},
    ("paper", "paper_lap_pe_1layer"): {
        "laplacian_layers",
        "eigenmap_layers",
        "layer_loops",
        "stage_loops",
    },
    ("orig_icl", "eig_icl"): {"features", "gamma"},
    ("free", "encoder"): {"head"},
    ("paper_scalars", "free"): {
        *("n_points", "start", "embedding", "centre", "scale", "sigma"),
    },
    ("paper", "paper_scalars"): {
        *("embedding_size", "expectation", "hidden"),
        *("attend_to_r", "move_operator", "normalise", "step_size"),
    },
    ("paper", "paper_8_32_8"): {"embedding_size", "hidden", "n_classes"},
    ("paper", "paper_24"): {"laplacian_layers", "eigenmap_layers", "k", "project_to"},
    ("paper_orig_icl", "paper_eig_icl"): {"features", "centre", "scale", "gamma"},
}


@pytest.mark.parametrize("pair", PRESET_CHANGES)
def test_presets_differ_only_where_they_say(pair):
    one, other = (dataclasses.asdict(ModelConfig.preset(name)) for name in pair)
    assert {key for key in one if one[key] != other[key]} == PRESET_CHANGES[pair]


def test_coordinate_scale_forgets_the_unit_of_each_coordinate(generator):
    x = torch.randn(2, 15, 3, generator=generator, dtype=torch.float64)
    unit = torch.tensor([1e-8, 1.0, 1e9], dtype=torch.float64)
    shift = torch.tensor([0.0, 3.0, -7e9], dtype=torch.float64)
    torch.testing.assert_close(
        prepare(x * unit + shift, scale="coordinate"),
        prepare(x, scale="coordinate"),
        rtol=1e-6,
        atol=1e-8,
    )


def test_coordinate_scale_leaves_constants_constant(generator):
    """Rounding left of a constant by centring must not be blown up to unit size."""
    x = torch.randn(2, 15, 3, generator=generator)
    x[..., 1] = 0.1
    prepared = prepare(x, scale="coordinate")
    assert prepared.isfinite().all()
    assert prepared[..., 1].abs().max() == 0


@pytest.mark.parametrize("preset", ["paper", "free", "encoder"])
def test_more_coordinates_than_points_give_what_the_points_give(
    generator, preset, monkeypatch
):
    changes = {"n_points": 20} if preset == "paper" else {}
    model = build(preset, **changes)
    episode = random_episode(generator, n=20, d=300, k=4, m=6)
    episode.x[:, 1] = episode.x[:, 0]  # a duplicate makes the Gram matrix singular
    episode.x.div_(300**0.5)  # of length one: kernels of long ones show rounding enlarged
    fast = model(episode)
    monkeypatch.setattr(transformer, "in_few_coordinates", lambda points: points)
    torch.testing.assert_close(fast, model(episode), **F64_DEEP)


def test_few_coordinates_keep_all_distances(generator):
    x = torch.randn(3, 20, 300, generator=generator, dtype=torch.float64)
    few = in_few_coordinates(x)
    assert few.shape == (3, 20, 20)
    torch.testing.assert_close(torch.cdist(few, few), torch.cdist(x, x), **F64_DEEP)
    torch.testing.assert_close(few.norm(dim=-1), x.norm(dim=-1), **F64_DEEP)
    assert in_few_coordinates(few) is few
