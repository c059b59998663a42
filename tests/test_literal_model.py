"""The model as printed, against a transcription in the paper's own notation.

In the paper tokens are columns: Z holds the points X above the matrix Psi in stage 1, and
Psi above Phi in stage 2. The transcription knows nothing of operators or sums over heads.
"""

import dataclasses

import pytest
import torch

from helpers import F64, random_episode, without_gradient
from icssl import Episode, ICSSLTransformer, ModelConfig
from icssl.bench.paper.params import parameter_counts
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.build import config_from_dict, config_to_dict
from icssl.model.eigenmap import EigenmapTransformer
from icssl.model.laplacian import LaplacianTransformer
from icssl.model.operator import LaplacianOperator
from icssl.training.config import load_config
from icssl.training.group import Objective

N = 9


def kappa_rbf(u, v):
    """eq. (attention_rbf): normalised over the first index."""
    n = u.shape[1]
    weights = torch.empty(n, n, dtype=u.dtype)
    for i in range(n):
        for j in range(n):
            weights[i, j] = (-(u[:, i] - v[:, j]).square().sum()).exp()
    return weights / weights.sum(dim=0, keepdim=True)


def kappa_linear(u, v):
    return u.T @ v


def block(scalar, size, lower):
    """The block-diagonal matrix of a scalar times the identity, and another matrix."""
    eye = torch.eye(size, dtype=torch.float64)
    return torch.block_diag(scalar * eye, lower)


def printed_stage1(stage, x):
    """eq. (transformer_basic) with the blocks of Lemma 1's section: returns Psi."""
    n, d = x.shape
    eye = torch.eye(n, dtype=torch.float64)
    start = eye if stage.start is None else stage.start.T
    z = torch.cat([x.T, start])
    for layer in stage.order:
        moves = stage.skip_x is not None and layer < len(stage.skip_x)
        skip = block(stage.skip_x[layer] if moves else 0.0, d, stage.skip_r[layer] * eye)
        update = skip @ z
        for h in range(stage.heads):
            on_r = stage.key_scale_r is not None
            b_r = stage.key_scale_r[layer, h] if on_r else 0.0
            c_r = stage.query_scale_r[layer, h] if on_r else 0.0
            first = block(stage.key_scale[layer, h], d, b_r * eye)
            second = block(stage.query_scale[layer, h], d, c_r * eye)
            value = block(
                stage.mix_x[layer, h] if moves else 0.0, d, stage.mix_r[layer, h] * eye
            )
            update = update + value @ z @ kappa_rbf(first @ z, second @ z)
        z = z + update
    return z[d:]


def printed_stage2(stage, psi, start):
    """eq. (transformer_eigmap), all rows normalised: returns Phi."""
    n = psi.shape[0]
    z = torch.cat([psi, start])
    for layer in stage.order:
        moves = stage.skip_r is not None
        skip = block(stage.skip_r[layer] if moves else 0.0, n, stage.skip[layer].T)
        update = skip @ z
        for h in range(stage.heads):
            a = stage.mix_r[layer, h] if moves else 0.0
            value = block(a, n, stage.value[layer, h].T)
            first = block(stage.key_r[layer, h], n, stage.key[layer, h].T)
            second = block(stage.query_r[layer, h], n, stage.query[layer, h].T)
            update = update + value @ z @ kappa_linear(first @ z, second @ z)
        z = z + update
        rows = z if stage.normalised == "all" else z[n:]
        normalised = rows / rows.norm(dim=1, keepdim=True)
        z = normalised if stage.normalised == "all" else torch.cat([z[:n], normalised])
    return z[n:]


def printed_head(head, phi, y, labelled):
    """The update of f and the expectation by the MLP; alpha is divided by m."""
    n, w = phi.shape[1], head.embedding
    f = torch.zeros(w.shape[1], n, dtype=torch.float64)
    where = labelled.nonzero()[:, 0].tolist()
    for alpha in head.step_size:
        delta = torch.zeros_like(f)
        for i in range(n):
            for j in where:
                squared = (phi[:, i] - phi[:, j]).square().sum()
                dot = phi[:, i] @ phi[:, j]
                gamma = None if head.log_gamma is None else head.log_gamma.exp()
                kernel = dot if gamma is None else (-gamma * squared).exp()
                if head.mlp is None:
                    expected = (w @ f[:, j]).softmax(dim=0) @ w
                else:
                    expected = head.mlp(f[:, j])
                delta[:, i] += alpha / len(where) * (w[y[j]] - expected) * kernel
        f = f + delta
    return w @ f


def printed(model, episode):
    """Logits of the first episode, in columns throughout."""
    x = episode.x[0]
    psi = printed_stage1(model.laplacian, x)
    phi = printed_stage2(model.eigenmap, psi, model.eigenmap.start.T)
    # A choice of ours that the paper's gamma and alpha absorb: sqrt(n).
    phi = phi * x.shape[0] ** 0.5
    if model.project is not None:
        phi = model.project.T @ phi
    return printed_head(model.head, phi, episode.y[0], episode.labelled[0]).T


LITERAL = {
    "paper": {},
    "paper, linear head": {"kernel": "linear", "steps": 2},
    "paper, two steps": {"steps": 2},
    "paper, learned start of R": {"learn_r_start": True},
    "paper, exact expectation": {"expectation": "exact"},
    "paper, features normalised": {"normalise": "features"},
    "paper_8_32_8": {},
    "paper_24": {"laplacian_layers": 2, "eigenmap_layers": 2, "k": 6},
    "paper_scalars": {},
}


def literal_model(name, **changes):
    preset = name.split(",")[0]
    config = ModelConfig.preset(
        preset, **{"n_points": N, "sigma": 1.0, **LITERAL[name], **changes}
    )
    return ICSSLTransformer(config).double()


@pytest.mark.parametrize("name", LITERAL)
def test_the_model_is_what_is_printed(generator, name):
    model = literal_model(name)
    with torch.no_grad():
        for parameter in model.parameters():  # no weight may be zero by chance
            parameter.add_(0.05 * torch.randn_like(parameter))
    episode = random_episode(generator, b=1, n=N, m=4)
    expected = printed(model, episode)
    # Sixteen layers deep: a little more than the rounding of one stage in atol.
    for backend in ("dense", "fused"):
        result = model(episode, backend=backend)[0]
        torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("attend_to_r", [True, False])
def test_stage_1_as_printed(generator, attend_to_r):
    stage = LaplacianTransformer(
        2, 2, layer_loops=2, stage_loops=2, attend_to_r=attend_to_r, start_points=N
    ).double()
    with torch.no_grad():
        stage.start.add_(0.1 * torch.randn_like(stage.start))
    x = torch.randn(1, N, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(stage(x).dense()[0], printed_stage1(stage, x[0]).T, **F64)


@pytest.mark.parametrize("normalise", ["features", "all"])
@pytest.mark.parametrize("move_operator", [True, False])
def test_stage_2_as_printed(generator, move_operator, normalise):
    stage = EigenmapTransformer(
        3,
        2,
        2,
        layer_loops=2,
        start="learned",
        start_points=N,
        move_operator=move_operator,
        normalise=normalise,
    ).double()
    r = 0.3 * torch.randn(1, N, N, generator=generator, dtype=torch.float64)
    result = stage(LaplacianOperator([], matrix=r), r[..., :2])
    expected = printed_stage2(stage, r[0].T, stage.start.T)
    torch.testing.assert_close(result[0].T, expected, **F64)


def test_the_head_of_the_model_is_gradient_descent(generator):
    """With the exact expectation: autograd on the labelled cross-entropy, no kernel."""
    model = literal_model("paper, linear head", expectation="exact")
    episode = random_episode(generator, b=1, n=N, m=4)
    _, phi, logits = model.stages(episode)
    labelled, y, w = episode.labelled[0], episode.y[0], model.head.embedding.detach()
    features = phi[0].detach()
    weights = torch.zeros(w.shape[1], features.shape[1], dtype=torch.float64)
    for alpha in model.head.step_size.detach():
        weights.requires_grad_()
        f = features @ weights.T
        loss = torch.nn.functional.cross_entropy((f @ w.T)[labelled], y[labelled])
        (grad,) = torch.autograd.grad(loss, weights)
        weights = (weights - alpha * grad).detach()
    torch.testing.assert_close(logits[0].detach(), features @ weights.T @ w.T, **F64)


def test_with_one_step_the_mlp_says_how_the_classes_are_weighed(generator):
    """It only sees f = 0: two models whose MLPs agree there agree everywhere."""
    model = literal_model("paper")
    episode = random_episode(generator, n=N, m=4)
    before = model(episode)
    with torch.no_grad():
        model.head.mlp[0].weight.add_(1.0)
    torch.testing.assert_close(model(episode), before, **F64)
    with torch.no_grad():
        model.head.mlp[2].bias.add_(1.0)
    assert (model(episode) - before).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["paper", "paper_24", "paper_8_32_8"])
def test_every_weight_of_the_literal_model_is_trained(generator, name):
    model = literal_model(name, steps=2)
    episode = random_episode(generator, n=N, m=4)
    _, _, logits = model.stages(episode)
    assert without_gradient(model, logits, generator) == []


def test_the_combined_loss_trains_all_three_stages():
    config = load_config("paper_combined", ["model.n_points=20", "data.n=20", "labels=3"])
    assert config.laplacian_weight == config.eigenmap_weight == 1
    model = ICSSLTransformer(config.model)
    objective = Objective(model, 1.0, 1.0)
    data = dataclasses.replace(config.episodes_config(), episodes=0)
    episode = data.build().draw(2, generator=torch.Generator().manual_seed(0), labels=3)
    combined, _ = objective(episode)
    alone, _ = Objective(model)(episode)
    by_stage = [Objective(model, *weights)(episode)[0] for weights in ((1, 0), (0, 1))]
    total = alone + sum(loss - alone for loss in by_stage)
    torch.testing.assert_close(combined, total, rtol=1e-4, atol=1e-4)
    assert combined > alone


def test_counts_beside_those_printed():
    counts = {(c.model, c.stage): c for c in parameter_counts()}
    # The paper prints the head of its own model, and of the others the total alone.
    for key in (
        ("paper", "head"),
        ("paper_8_32_8", "head"),
        ("paper_24", "head"),
        ("paper_orig_icl", "total"),
        ("paper_eig_icl", "total"),
    ):
        assert counts[key].parameters == 576 + 2, key  # with step size and gamma
        assert counts[key].published == 576, key
    baseline = counts["transformer_positions", "total"]
    assert baseline.parameters == baseline.published == 1_442_178
    by_model = {}
    for count in counts.values():
        by_model.setdefault(count.model, []).append(count)
    for name, listed in by_model.items():
        parts = sum(c.parameters for c in listed if c.stage != "total")
        assert parts == counts[name, "total"].parameters
    consistent = {
        key: count.published
        for key, count in counts.items()
        if count.note.startswith("consistent with")
    }
    assert consistent == {
        ("paper_24", "laplacian"): 2_592,
        ("paper_24", "eigenmap"): 7_684,
        ("paper_24", "total"): 10_852,
        ("transformer_positions", "total"): 1_442_178,
    }


def test_positions_tell_points_apart_and_are_limited():
    config = BaselineConfig(positions=12, feature_norm=True, width=16, feed_forward=32)
    model = BaselineTransformer(config).eval()
    x = torch.zeros(1, 12, 3)
    episode = Episode(x, torch.zeros(1, 12).long(), torch.arange(12)[None] < 3)
    logits = model(episode)[0]
    assert (logits[3:] - logits[3]).abs().max() > 1e-4  # equal points, other places
    long = Episode(
        torch.zeros(1, 13, 3), torch.zeros(1, 13).long(), torch.arange(13)[None] < 3
    )
    with pytest.raises(ValueError, match="has 12 positions, got 13 points"):
        model(long)


def test_later_fields_are_stated_only_where_they_change_something():
    old = config_to_dict(ModelConfig.preset("paper_scalars"))
    assert not {"move_operator", "normalise", "project_to"} & {*old}
    new = config_to_dict(ModelConfig.preset("paper_24"))
    assert (new["move_operator"], new["normalise"], new["project_to"]) == (True, "all", 4)
    for config in (ModelConfig.preset("paper_24"), BaselineConfig(positions=100)):
        assert config_from_dict(config_to_dict(config)) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"init": "lemma", "normalise": "all", "layer_loops": 1, "stage_loops": 1},
            "init='lemma' and normalise='all' exclude",
        ),
        (
            {"scale_operator": True, "normalise": "all"},
            "scale_operator=True and normalise='all' exclude",
        ),
        (
            {"scale_operator": True, "move_operator": True},
            "scale_operator=True and move_operator=True exclude",
        ),
        ({"project_to": 5}, "project_to must be from 0 to k = 4, got 5"),
        (
            {"features": "coordinates", "project_to": 2},
            "project_to=2 and features='coordinates' exclude",
        ),
        (
            {"features": "eigenvectors", "normalise": "all"},
            "features='eigenvectors' exclude",
        ),
        ({"normalise": "none"}, "unknown normalise 'none'"),
    ],
)
def test_options_that_exclude_each_other(changes, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**changes)


def test_what_changes_r_is_dense(generator):
    model = literal_model("paper", attend_to_r=False)
    with pytest.raises(ValueError, match="move_operator and normalise='all' form R"):
        model(random_episode(generator, n=N), backend="matrix_free")
    with pytest.raises(ValueError, match="Lemma 2 and normalise='all' exclude"):
        model.eigenmap.start_from_lemma2()
