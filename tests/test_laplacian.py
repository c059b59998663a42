"""Lemma 1, the graph matrices, and R as an operator."""

import numpy as np
import pytest
import torch

from helpers import F32, F64, without_gradient
from icssl.episodes import ground_truth as graph
from icssl.model.inputs import prepare
from icssl.model.laplacian import LaplacianTransformer
from icssl.model.stage import application_order

VARIANTS = {
    "one layer": {},
    "layers and heads": {"layers": 3, "heads": 4},
    "loops": {"layers": 2, "heads": 2, "layer_loops": 2, "stage_loops": 2},
    "learned start": {"layers": 2, "heads": 2, "start_points": 11},
    "linear": {"layers": 2, "heads": 2, "kernel": "linear", "stage_loops": 2},
}


def points(generator, b=2, n=11, d=3):
    return torch.randn(b, n, d, generator=generator, dtype=torch.float64)


def numpy_graph(x, sigma):
    """Every matrix of Lemma 1 by loops over the paper's formulas."""
    n = len(x)
    a = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            a[i, j] = np.exp(-(1 / sigma**2) * np.sum((x[i] - x[j]) ** 2))
    d = np.zeros((n, n))
    for j in range(n):
        d[j, j] = sum(a[k, j] for k in range(n))
    walk = np.zeros((n, n))
    symmetric = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            walk[i, j] = a[i, j] / d[j, j]
            symmetric[i, j] = (i == j) - a[i, j] / np.sqrt(d[i, i] * d[j, j])
    return {"a": a, "d": d, "walk": walk, "symmetric": symmetric}


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_lemma1_is_the_right_normalised_laplacian(generator, sigma):
    x = points(generator, b=1)
    expected = np.eye(11) - numpy_graph(x[0].numpy(), sigma)["walk"]
    r = LaplacianTransformer.lemma1(sigma)(x).dense()[0]
    np.testing.assert_allclose(r.detach().T, expected, rtol=0, atol=1e-12)


def test_lemma1_follows_the_dtype_of_the_points(generator):
    x = points(generator)
    operator = LaplacianTransformer.lemma1(0.7)(x.float())
    assert operator.dense().dtype == torch.float32
    torch.testing.assert_close(
        operator.dense().double(), LaplacianTransformer.lemma1(0.7)(x).dense(), **F32
    )


def test_every_matrix_of_lemma1(generator):
    x = points(generator, b=1)
    loop = numpy_graph(x[0].numpy(), 0.7)
    a = graph.affinity(x, 0.7)
    close = {"rtol": 0, "atol": 1e-12}
    np.testing.assert_allclose(a[0], loop["a"], **close)
    np.testing.assert_allclose(graph.random_walk(a)[0].T, loop["walk"], **close)
    np.testing.assert_allclose(graph.symmetric_laplacian(a)[0], loop["symmetric"], **close)
    right = graph.right_normalised_laplacian(a)[0].T
    np.testing.assert_allclose(right, np.eye(11) - loop["walk"], **close)


def paper_stage1(stage, x):
    """The paper's eq. (transformer_basic) for one context: Z = [X; R], in columns."""
    n, d = x.shape
    eye = torch.eye(n, dtype=x.dtype)
    z = torch.cat([x.T, eye if stage.start is None else stage.start.T])

    def block(on_x, on_r):
        return torch.block_diag(on_x * torch.eye(d, dtype=x.dtype), on_r * eye)

    zero = torch.zeros((), dtype=x.dtype)
    for layer in stage.order:
        moves = stage.skip_x is not None and layer < len(stage.skip_x)
        update = block(stage.skip_x[layer] if moves else zero, stage.skip_r[layer]) @ z
        for h in range(stage.heads):
            b_r = c_r = zero
            if stage.attend_to_r:
                b_r, c_r = stage.key_scale_r[layer, h], stage.query_scale_r[layer, h]
            u = block(stage.key_scale[layer, h], b_r) @ z
            v = block(stage.query_scale[layer, h], c_r) @ z
            if stage.kernel == "rbf":  # columns sum to one
                kappa = torch.exp(-(u[:, :, None] - v[:, None, :]).square().sum(dim=0))
                kappa = kappa / kappa.sum(dim=0, keepdim=True)
            else:
                kappa = u.T @ v / n
            a = stage.mix_x[layer, h] if moves else zero
            update = update + block(a, stage.mix_r[layer, h]) @ z @ kappa
        z = z + update
    return z[d:].T


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 1},
        {"layers": 3, "heads": 2},
        {"layers": 2, "heads": 3, "layer_loops": 2, "stage_loops": 2},
        {"layers": 2, "heads": 2, "attend_to_r": True},
        {"layers": 2, "heads": 2, "stage_loops": 2, "start_points": 11},
        {"layers": 2, "heads": 2, "kernel": "linear"},
    ],
)
def test_stage_is_the_papers_transformer(generator, options):
    stage = LaplacianTransformer(**options).double()
    x = 0.3 * points(generator)  # small enough that linear walks need no bound
    r = stage(x).dense()
    for context, result in zip(x, r, strict=True):
        torch.testing.assert_close(result, paper_stage1(stage, context), **F64)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("backend", ["dense", "matrix_free"])
def test_operator_forms_agree(generator, options, backend):
    stage = LaplacianTransformer(**options).double()
    x = points(generator)
    f = torch.randn(2, 11, 4, generator=generator, dtype=torch.float64)
    r = stage(x).dense()
    operator = stage(x, backend=backend)
    torch.testing.assert_close(operator.dense(), r, **F64)
    torch.testing.assert_close(operator.matmul(f), r @ f, **F64)
    torch.testing.assert_close(operator.rmatmul(f), r.mT @ f, **F64)
    formed = operator.form()
    torch.testing.assert_close(formed.matmul(f), r @ f, **F64)
    torch.testing.assert_close(formed.rmatmul(f), r.mT @ f, **F64)


def test_backends_agree_on_a_device(generator, device):
    stage = LaplacianTransformer(layers=2, heads=2, stage_loops=2).to(device)
    x = points(generator).float().to(device)
    f = torch.randn(2, 11, 4, generator=generator).to(device)
    dense, free = stage(x), stage(x, backend="matrix_free")
    torch.testing.assert_close(free.matmul(f), dense.matmul(f), **F32)
    torch.testing.assert_close(free.rmatmul(f), dense.rmatmul(f), **F32)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "learned start"])
def test_equivariant_to_the_order_of_points(generator, name):
    stage = LaplacianTransformer(**VARIANTS[name]).double()
    x = points(generator)
    order = torch.randperm(11, generator=generator)
    expected = stage(x).dense()[:, order][:, :, order]
    torch.testing.assert_close(stage(x[:, order]).dense(), expected, **F64)


@pytest.mark.parametrize("attend_to_r", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_gradcheck(generator, kernel, attend_to_r):
    stage = LaplacianTransformer(
        2, 2, kernel=kernel, stage_loops=2, attend_to_r=attend_to_r
    ).double()
    x = points(generator, b=1, n=5).requires_grad_()
    names = [name for name, _ in stage.named_parameters()]

    def matrix(x, *values):
        parameters = dict(zip(names, values, strict=True))
        operator = torch.func.functional_call(stage, parameters, (x,))
        return operator.dense()

    assert torch.autograd.gradcheck(matrix, (x, *stage.parameters()))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_gradient_reaches_every_parameter(generator, options):
    stage = LaplacianTransformer(**options).double()
    assert without_gradient(stage, stage(points(generator)).dense(), generator) == []


def test_larger_stage_can_start_from_lemma1(generator):
    x = points(generator)
    small, large = LaplacianTransformer().double(), LaplacianTransformer(3, 4).double()
    for stage in (small, large):
        stage.start_from_lemma1(0.8)
    torch.testing.assert_close(large(x).dense(), small(x).dense(), **F64)
    large.start_from_lemma1(0.8, noise=0.05)
    assert (large(x).dense() - small(x).dense()).abs().max() > 1e-3


def test_linear_walk_is_bounded_but_not_at_the_papers_scale(generator):
    stage = LaplacianTransformer(2, 2, kernel="linear", stage_loops=2).double()
    for size in (1e-6, 1.0, 1e6):
        operator = stage(size * points(generator))
        for factor in operator.factors:
            assert factor.walk.dense().abs().sum(dim=-1).max() <= 16 + 1e-9
    shift = torch.tensor([1.0, 1.0, 0.0]).double()  # the largest that the paper draws
    x = 0.1 * points(generator) + shift
    stage = LaplacianTransformer(1, 4, kernel="linear").double()
    walk = stage(x).factors[0].walk
    key, query = stage.key_scale[0], stage.query_scale[0]
    plain = torch.einsum("h,bid,bjd->bhij", key * query, x, x) / 11
    torch.testing.assert_close(walk.dense(), plain, **F64)


def test_a_looped_stage_does_not_start_from_lemma1():
    with pytest.raises(ValueError, match="layer_loops = stage_loops = 1"):
        LaplacianTransformer(1, 1, stage_loops=2).start_from_lemma1(1.0)


def test_application_order_loops_layers_then_stage():
    assert application_order(2, 1, 1) == [0, 1]
    assert application_order(2, 2, 2) == [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kernel": "cosine"},
            r"unknown Laplacian kernel 'cosine'.*'linear', 'linear_unbounded', 'rbf'",
        ),
        ({"layers": 0}, r"layers must be at least 1, got 0"),
        ({"sigma": -1.0}, r"sigma must be a positive, finite number, got -1.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        LaplacianTransformer(**options)


def test_attend_to_r_needs_the_dense_backend(generator):
    stage = LaplacianTransformer(2, attend_to_r=True).double()
    with pytest.raises(ValueError, match="attend_to_r needs backend='dense'"):
        stage(points(generator), backend="matrix_free")


@pytest.mark.parametrize("seed", range(8))
def test_random_weights_start_where_power_steps_converge(seed):
    """Above 2, ``F - R R^T F`` grows at the wrong end of the spectrum."""
    torch.manual_seed(seed)
    stage = LaplacianTransformer(2, 4, layer_loops=2, stage_loops=2).double()
    x = torch.randn(3, 40, 3, dtype=torch.float64)
    r = stage(prepare(x)).dense()
    assert torch.linalg.eigvalsh(r @ r.mT).max() < 2
