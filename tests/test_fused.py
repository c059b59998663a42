"""The backend that mixes the heads as it forms them, against twins that do not."""

import copy
from importlib import import_module

import pytest
import torch

from helpers import random_episode
from icssl import BaselineConfig, ModelConfig
from icssl.episodes.data_config import DataConfig
from icssl.model.attention import attention_matrix
from icssl.model.build import build_model
from icssl.model.eigenmap import EigenmapTransformer
from icssl.model.operator import LaplacianOperator, mixed_walks
from icssl.training.config import TrainConfig
from icssl.training.group import Group, stack_episodes
from plain import plain_logits

# Of the size of what is compared: float64 through a whole model. Gradients of single
# weights differ by many orders of magnitude, so each tensor is measured by its largest.
RELATIVE = 1e-10
# The same in float32: a dozen layers, each of which divides by lengths, cost three digits
# and leave four of the logits and two or three of the gradients.
F32_LOGITS, F32_GRADIENTS = 1e-4, 5e-3

N, D = 20, 6
MANY = 50  # coordinates, more than points
SMALL = {"eigenmap_layers": 2, "laplacian_heads": 3, "eigenmap_heads": 2}
ONE_LAYER = {
    "laplacian_layers": 1,
    "eigenmap_layers": 1,
    "layer_loops": 1,
    "stage_loops": 1,
}
MODELS = {
    "free": ModelConfig.preset("free"),
    "wide": ModelConfig.preset("free", k=12, steps=4, **SMALL),
    "linear head": ModelConfig.preset("free", kernel="linear", steps=2, **SMALL),
    "softmax head": ModelConfig.preset("free", kernel="softmax", **SMALL),
    "linear laplacian": ModelConfig.preset("free", laplacian_kernel="linear", **SMALL),
    "one layer": ModelConfig.preset("free", **ONE_LAYER),
    "one head": ModelConfig.preset("free", **(SMALL | {"laplacian_heads": 1})),
    "learned start": ModelConfig.preset(
        "paper_scalars", n_points=N, learn_r_start=True, sigma=1.0, **SMALL
    ),
    "attend to r": ModelConfig.preset("free", attend_to_r=True, **SMALL),
    # With one step the MLP sees nothing but f = 0, and its first weights get no gradient.
    "as printed": ModelConfig.preset("paper", n_points=N, sigma=1.0, steps=2, **SMALL),
    "scaled operator": ModelConfig.preset("free", scale_operator=True, **SMALL),
    "encoder": ModelConfig.preset("encoder", width=16, **SMALL),
}
BY_LOOPS = ["free", "wide"]  # what benchmarks/plain.py can compute
several_models = pytest.mark.parametrize("name", MODELS)


def episode_for(generator, device="cpu", d=D):
    """Enough labels for both classes to have some: of one class, gradients vanish.

    Points are as far apart with many coordinates as with few: where kernels are 1e-40,
    gradients are nothing but rounding.
    """
    episode = random_episode(generator, n=N, d=d, m=8, k=4, device=device)
    episode.x.mul_((D / d) ** 0.5)
    return episode


def close(value, reference, relative=RELATIVE):
    torch.testing.assert_close(
        value, reference, rtol=0, atol=relative * reference.abs().max().item()
    )


def randomised(config, generator, device="cpu"):
    """A model whose keys and queries differ, as they do once it has been trained."""
    model = build_model(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.05 * noise)
    return model.to(device)


def gradients(model, logits):
    """Of a smooth function of all logits, by name."""
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad((1 + logits).sin().sum(), list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


def assert_same_gradients(model, logits, reference):
    expected = gradients(model, reference)
    for name, grad in gradients(model, logits).items():
        assert expected[name].abs().max() > 0, name
        close(grad, expected[name])


@pytest.mark.parametrize("d", [D, MANY])
@several_models
def test_fused_equals_dense(generator, device, name, d):
    model = randomised(MODELS[name], generator, device)
    episode = episode_for(generator, device, d)
    logits = model(episode, backend="fused")
    dense = model(episode, backend="dense")
    close(logits, dense)
    assert_same_gradients(model, logits, dense)


@pytest.mark.parametrize("name", BY_LOOPS)
def test_fused_equals_loops_over_heads_and_layers(generator, device, name):
    model = randomised(MODELS[name], generator, device)
    episode = episode_for(generator, device)
    logits, loops = model(episode, backend="fused"), plain_logits(model, episode)
    close(logits, loops)
    assert_same_gradients(model, logits, loops)


@pytest.mark.parametrize("d", [D, MANY])
@pytest.mark.parametrize(
    "name",
    [
        *("free", "wide", "one layer", "learned start", "attend to r", "scaled operator"),
        "encoder",
    ],
)
def test_float32_loses_digits_and_nothing_else(generator, device, name, d):
    exact = randomised(MODELS[name], generator, device)
    episode = episode_for(generator, device, d)
    reference = exact(episode)
    model = copy.deepcopy(exact).float()
    logits = model(episode.to(dtype=torch.float32), backend="fused")
    close(logits.double(), reference, F32_LOGITS)
    expected = gradients(exact, reference)
    for parameter, grad in gradients(model, logits).items():
        close(grad.double(), expected[parameter], F32_GRADIENTS)


def random_group(config, generator, *, rows=3, device="cpu", **options):
    """A group, its weights and an episode batch for each model, all in float64."""
    data = DataConfig(n=N)
    train = TrainConfig(model=config, data=data, labels=(4,), batch=2, **options)
    group = Group([train] * rows)
    group.objective.double().to(device)
    models = [randomised(config, generator) for _ in range(rows)]
    weights = [torch.cat([p.detach().flatten() for p in m.parameters()]) for m in models]
    batches = [episode_for(generator, device) for _ in range(rows)]
    if options:
        batches = [with_laplacian(b) for b in batches]
    return group, torch.stack(weights).to(device), stack_episodes(batches)


def with_laplacian(episode):
    values = {**episode.tensors(), "laplacian": torch.cdist(episode.x, episode.x)}
    return type(episode)(**values, n_classes=episode.n_classes)


def losses_and_gradient(group, weights, episodes):
    weights = weights.clone().requires_grad_()
    loss, accuracy = group.losses(weights, episodes)
    return loss, accuracy, torch.autograd.grad(loss.sum(), weights)[0]


def assert_each_as_if_alone(group, weights, episodes, relative=RELATIVE):
    together = losses_and_gradient(group, weights, episodes)
    for i in range(len(weights)):
        alone = losses_and_gradient(group, weights[i : i + 1], episodes[i : i + 1])
        for value, expected in zip(together, alone, strict=True):
            close(value[i], expected[0], relative)


@several_models
def test_many_models_at_once_equal_each_alone(generator, device, name):
    assert_each_as_if_alone(*random_group(MODELS[name], generator, device=device))


@pytest.mark.parametrize("name", ["free", "wide", "encoder"])
def test_many_models_at_once_equal_each_alone_in_float32(generator, device, name):
    group, weights, episodes = random_group(MODELS[name], generator, device=device)
    group.objective.float()
    episodes = episodes.to(dtype=torch.float32)
    assert_each_as_if_alone(group, weights.float(), episodes, F32_GRADIENTS)


@pytest.mark.parametrize("features", ["coordinates", "eigenvectors"])
def test_many_heads_alone_at_once_equal_each_alone(generator, features):
    config = ModelConfig.preset("orig_icl", features=features)
    assert_each_as_if_alone(*random_group(config, generator))


def test_many_transformers_at_once_equal_each_alone(generator, device):
    config = BaselineConfig(d=D, width=8, feed_forward=16, layers=1)
    assert_each_as_if_alone(*random_group(config, generator, device=device))


def test_many_models_with_all_terms_of_the_loss_equal_each_alone(generator, device):
    terms = {"laplacian_weight": 0.3, "eigenmap_weight": 0.7}
    assert_each_as_if_alone(
        *random_group(MODELS["wide"], generator, device=device, **terms)
    )


@pytest.mark.parametrize("n", [7, 37, 100, 130])
@pytest.mark.parametrize("d", [1, 3, 15])
@pytest.mark.parametrize("heads", [1, 3, 4])
@pytest.mark.parametrize("outputs", [1, 2])
def test_mixed_walks_are_sums_of_attention_matrices(device, n, d, heads, outputs):
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape):
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return drawn.to(device).requires_grad_()

    x, query, key, mix = (
        numbers(2, n, d),
        numbers(heads),
        numbers(heads),
        numbers(outputs, heads),
    )
    given = (x, query, key, mix)
    walks = attention_matrix(
        "rbf",
        query[:, None, None] * x[:, None],
        key[:, None, None] * x[:, None],
    )
    expected = torch.einsum("oh,bhij->boij", mix, walks)
    mixed = mixed_walks(*given)
    close(mixed, expected)
    upstream = numbers(*mixed.shape)
    found = torch.autograd.grad(mixed, given, upstream)
    for grad, reference in zip(
        found, torch.autograd.grad(expected, given, upstream), strict=True
    ):
        close(grad, reference)


SIZES = [(n, k) for n in (7, 37, 100, 256, 300) for k in (1, 4, 7, 12, 16, 20) if k <= n]


@pytest.mark.parametrize(("n", "k"), SIZES)
def test_fused_eigenmap_equals_dense(device, n, k):
    """For sizes that kernels of a GPU take and for sizes beyond."""
    torch.manual_seed(0)
    x = torch.randn(2, n, 3, dtype=torch.float64, device=device)
    walk = attention_matrix("rbf", x, x)
    laplacian = (torch.eye(n, device=device) - walk).requires_grad_()
    exact = EigenmapTransformer(k, 2, 2, layer_loops=2, stage_loops=2)
    exact = exact.double().to(device)
    upstream = torch.randn(2, n, k, dtype=torch.float64, device=device)

    def features_and_gradients(stage, r, x, backend):
        f = stage(LaplacianOperator([], matrix=r), x, backend=backend)
        given = (r, *stage.parameters())
        return f, *torch.autograd.grad(f, given, upstream.to(f.dtype))

    expected = features_and_gradients(exact, laplacian, x, "dense")
    found = features_and_gradients(
        copy.deepcopy(exact).float(),
        laplacian.detach().float().requires_grad_(),
        x.float(),
        "fused",
    )
    close(found[0].double(), expected[0], F32_LOGITS)
    for grad, reference in zip(found[1:], expected[1:], strict=True):
        close(grad.double(), reference, F32_GRADIENTS)


SMALLEST_KERNEL = {"layers": 2, "heads": 2, "points": 16, "wide": 16, "block": 16}
WHOLE_NUMBERS = ("n", "per_model", "steps", "layer_loops")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["_forward_kernel", "_backward_kernel"])
@pytest.mark.parametrize("number", ["fp32", "fp64"])
def test_kernels_of_stage_2_take_numbers_of_either_type(name, number):
    """torch.compile passes a Python float to a kernel as float64, Triton as float32."""
    triton = pytest.importorskip("triton")
    hopper = import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernel = getattr(import_module("icssl.model.triton_eigenmap"), name)
    types = dict.fromkeys(kernel.arg_names, "*fp32") | {"shortest": number}
    types |= dict.fromkeys(WHOLE_NUMBERS, "i32")
    types |= dict.fromkeys(SMALLEST_KERNEL, "constexpr")
    source = triton.compiler.ASTSource(kernel, types, constexprs=SMALLEST_KERNEL)
    triton.compile(source, target=hopper)


def extremes(generator):
    x = torch.randn(1, N, 3, generator=generator)
    return {
        "tiny": 1e-12 * x,
        "huge": 1e12 * x,
        "largest": x / x.abs().max() * 3e38,
        "duplicates": x[:, :4].repeat(1, N // 4, 1),
        "one point": x[:, :1].repeat(1, N, 1),
        "outlier": torch.cat([x[:, 1:], torch.full((1, 1, 3), 1e9)], dim=1),
    }


FINITE_GRADIENTS = ["tiny", "duplicates", "one point"]


@pytest.mark.parametrize("name", ["free", "learned start", "linear laplacian"])
def test_extreme_clouds_are_not_errors(generator, device, name):
    """Points far off must not overflow, nor equal ones divide zero by zero."""
    for cloud, x in extremes(generator).items():
        model = build_model(MODELS[name]).to(device)
        episode = random_episode(generator, b=1, n=N, dtype=torch.float32, device=device)
        values = {**episode.tensors(), "x": x.to(device)}
        logits = model(type(episode)(**values, n_classes=2), backend="fused")
        assert logits.isfinite().all(), cloud
        if cloud in FINITE_GRADIENTS:
            for parameter, grad in gradients(model, logits).items():
                assert grad.isfinite().all(), (cloud, parameter)
