"""Lemma 2, stage 2 against the paper's update, and its starts."""

import pytest
import torch
from sklearn.datasets import make_blobs

from helpers import F64, bottom_eigenvectors, principal_angle, without_gradient
from icssl.model.eigenmap import (
    STARTS,
    EigenmapTransformer,
    fourier_start,
    largest_eigenvalue,
    normalise,
)
from icssl.model.laplacian import LaplacianTransformer
from icssl.model.operator import LaplacianOperator


def dense_operator(r):
    return LaplacianOperator([], matrix=r)


def random_case(generator, b=2, n=9, d=3):
    x = torch.randn(b, n, d, generator=generator, dtype=torch.float64)
    return dense_operator(torch.randn(b, n, n, generator=generator, dtype=torch.float64)), x


def blobs(seed=0, n=80):
    centres = [[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]]
    x, _ = make_blobs(n, centers=centres, cluster_std=0.5, random_state=seed)
    return torch.tensor(x)[None]


def paper_stage2(stage, r, f):
    """The paper's eq. (transformer_eigmap): Z = [Psi; Phi] in columns, head by head."""
    psi, phi = r.T, f.T
    for layer in stage.order:
        update = stage.skip[layer].T @ phi
        for h in range(stage.heads):
            value, key, query = (
                w[layer, h].T for w in (stage.value, stage.key, stage.query)
            )
            # kappa_linear over the whole token, its Psi part scaled by b and c.
            b, c = stage.key_r[layer, h], stage.query_r[layer, h]
            kappa = (b * psi).T @ (c * psi) + (key @ phi).T @ (query @ phi)
            update = update + value @ phi @ kappa
        phi = phi + update
        phi = phi / phi.norm(dim=1, keepdim=True)
    return phi.T


@pytest.mark.parametrize("loops", [(1, 1), (2, 2)])
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (3, 2)])
def test_stage_is_the_papers_transformer(generator, layers, heads, loops):
    stage = EigenmapTransformer(
        4, layers, heads, layer_loops=loops[0], stage_loops=loops[1]
    ).double()
    operator, x = random_case(generator)
    start = fourier_start(x, 4)
    result = stage(operator, x)
    for i in range(2):
        expected = paper_stage2(stage, operator.matrix[i], start[i])
        torch.testing.assert_close(result[i], expected, **F64)


def lemma2_with(mu, k, iterations):
    """The construction of Lemma 2 with a mu of our own, instead of an estimated one."""
    stage = EigenmapTransformer(k, layers=k * iterations).double()
    stage.start_from_lemma2(mu)
    return stage


def test_lemma2_has_the_weights_of_the_proof():
    """DESIGN.md section 3: the power layer with A = -I, which the paper prints as +I."""
    k, mu = 3, 2.5
    stage = lemma2_with(mu, k, iterations=2)
    assert stage.order == list(range(6))
    eye = torch.eye(k).double()
    for first in (0, 3):
        torch.testing.assert_close(stage.skip[first], (mu - 1) * eye)
        torch.testing.assert_close(stage.value[first, 0], -eye)
        assert stage.key_r[first, 0] * stage.query_r[first, 0] == 1
        assert stage.key[first].abs().max() == stage.query[first].abs().max() == 0
        for i in (1, 2):
            before = torch.diag((torch.arange(k) < i).double())
            torch.testing.assert_close(stage.key[first + i, 0], before)
            torch.testing.assert_close(stage.query[first + i, 0], before)
            torch.testing.assert_close(stage.value[first + i, 0], -torch.diag(eye[i]))
            assert stage.skip[first + i].abs().max() == stage.key_r[first + i, 0] == 0


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_lemma2_is_block_power_iteration(generator, iterations):
    """Every iteration is (mu I - R R^T) F followed by a QR decomposition."""
    operator, x = random_case(generator)
    r = operator.matrix
    mu = 1.1 * torch.linalg.matrix_norm(r, ord=2).max().square().item()
    stage = lemma2_with(mu, 4, iterations)
    expected = fourier_start(x, 4)
    for _ in range(iterations):
        q, upper = torch.linalg.qr(mu * expected - r @ (r.mT @ expected))
        expected = q * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    torch.testing.assert_close(stage(operator, x), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mu", [None, 1.5, 4.0])
def test_lemma2_converges_to_the_bottom_eigenvectors(mu):
    x = blobs()
    operator = LaplacianTransformer.lemma1(1.5)(x).form()
    stage = EigenmapTransformer.lemma2(4, 500) if mu is None else lemma2_with(mu, 4, 500)
    f = stage(operator, x)
    expected = bottom_eigenvectors(operator.dense(), 4)
    assert principal_angle(f, expected) < 1e-6
    torch.testing.assert_close(f.mT @ f, torch.eye(4).double()[None], **F64)


def test_lemma2_finds_a_repeated_eigenvalue_as_a_subspace():
    """Blobs so far apart that the graph falls into four pieces: a null space of four."""
    x = 100 * blobs(n=40)
    operator = LaplacianTransformer.lemma1(100.0)(x).form()
    r = operator.dense()
    assert torch.linalg.eigvalsh(r @ r.mT)[0, 3] < 1e-12
    f = EigenmapTransformer.lemma2(4, 400)(operator, x)
    assert torch.linalg.matrix_norm(r.mT @ f) < 1e-6


def test_default_mu_takes_r_at_any_scale(generator):
    """The same features whatever R is multiplied by; a fixed mu would diverge."""
    x = blobs()
    r = LaplacianTransformer.lemma1(1.5)(x).dense()
    stage = EigenmapTransformer.lemma2(4, 20)
    expected = stage(dense_operator(r), x)
    for scale in (1e-3, 1e3):
        torch.testing.assert_close(stage(dense_operator(scale * r), x), expected, **F64)


def test_largest_eigenvalue_is_estimated_from_below():
    for seed in range(5):
        x = blobs(seed)
        r = LaplacianTransformer.lemma1(1.5)(x).dense()
        exact = torch.linalg.matrix_norm(r, ord=2).square()
        estimate = largest_eigenvalue(dense_operator(r), x)
        assert 0.8 * exact < estimate <= exact * (1 + 1e-12)


def test_fourier_start_depends_on_the_shape_of_the_cloud_alone(generator):
    x = torch.randn(2, 10, 3, generator=generator, dtype=torch.float64)
    start = fourier_start(x, 5)
    torch.testing.assert_close(fourier_start(1e6 * x + 3, 5), start, rtol=1e-8, atol=1e-8)
    order = torch.randperm(10, generator=generator)
    torch.testing.assert_close(fourier_start(x[:, order], 5), start[:, order], **F64)
    assert torch.linalg.matrix_rank(start).eq(5).all()


FREE_STARTS = [name for name in STARTS if name != "learned"]


@pytest.mark.parametrize("start", FREE_STARTS)
def test_starts_that_are_not_learned_are_functions_of_the_point(generator, start):
    """Free of place, unit, order and number; every column of length one, none the same."""
    stage = EigenmapTransformer(5, 1, 1, start=start).double()
    x = torch.randn(2, 12, 3, generator=generator, dtype=torch.float64)
    first = stage._start(x)
    # Short waves magnify the rounding of the points a hundredfold.
    torch.testing.assert_close(stage._start(1e3 * x + 3), first, rtol=1e-6, atol=1e-8)
    order = torch.randperm(12, generator=generator)
    torch.testing.assert_close(stage._start(x[:, order]), first[:, order], **F64)
    length = first.norm(dim=1)
    torch.testing.assert_close(length, torch.ones_like(length), **F64)
    assert torch.linalg.matrix_rank(first).eq(5).all()
    is_constant = (first - first.mean(dim=1, keepdim=True)).norm(dim=1) < 1e-9
    assert is_constant[:, 0].all() if start == "fourier" else not is_constant.any()


def test_hashed_start_is_unrelated_at_near_points(generator):
    x = torch.randn(1, 400, 3, generator=generator, dtype=torch.float64)
    near = x + 0.1 * torch.randn_like(x)
    both = torch.cat([x, near], dim=1)
    values = EigenmapTransformer(4, 1, 1, start="hashed").double()._start(both)[0]
    for a, b in zip(values[:400].T, values[400:].T, strict=True):
        # The correlation of 400 independent pairs has a standard deviation of 0.05.
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.25
    smooth = EigenmapTransformer(4, 1, 1, start="waves").double()._start(both)[0]
    for a, b in zip(smooth[:400].T, smooth[400:].T, strict=True):
        assert torch.corrcoef(torch.stack([a, b]))[0, 1] > 0.8


def test_learned_start_is_where_the_papers_update_begins(generator):
    stage = EigenmapTransformer(4, 2, 2, start="learned", start_points=9).double()
    operator, x = random_case(generator)
    for r, f in zip(operator.matrix, stage(operator, x), strict=True):
        torch.testing.assert_close(f, paper_stage2(stage, r, stage.start), **F64)


@pytest.mark.parametrize("scale_operator", [False, True])
@pytest.mark.parametrize("start", ["fourier", "learned"])
def test_gradcheck(generator, start, scale_operator):
    points = 6 if start == "learned" else None
    options = {"start": start, "start_points": points, "scale_operator": scale_operator}
    stage = EigenmapTransformer(3, 2, 2, stage_loops=2, **options)
    stage = stage.double()
    operator, x = random_case(generator, b=1, n=6)
    r = operator.matrix.requires_grad_()
    names = [name for name, _ in stage.named_parameters()]

    def features(r, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(stage, parameters, (dense_operator(r), x))

    assert torch.autograd.gradcheck(features, (r, *stage.parameters()))
    f = features(r, *stage.parameters())
    assert without_gradient(stage, f, generator) == []


def test_equivariant_to_the_order_of_points(generator):
    stage = EigenmapTransformer(4, 2, 2, stage_loops=2, scale_operator=True).double()
    operator, x = random_case(generator)
    order = torch.randperm(9, generator=generator)
    shuffled = dense_operator(operator.matrix[:, order][:, :, order])
    expected = stage(operator, x)[:, order]
    torch.testing.assert_close(stage(shuffled, x[:, order]), expected, **F64)


def test_larger_stage_can_start_from_lemma2(generator):
    operator, x = random_case(generator)
    small, large = (EigenmapTransformer(3, 6, heads).double() for heads in (1, 4))
    for stage in (small, large):
        stage.start_from_lemma2(mu=40.0)
    torch.testing.assert_close(large(operator, x), small(operator, x), **F64)
    large.start_from_lemma2(mu=40.0, noise=0.1)
    assert without_gradient(large, large(operator, x), generator) == []


def test_normalise_leaves_a_zero_column_finite():
    f = torch.tensor([[[0.0, 3.0], [0.0, 4.0]]])
    assert normalise(f).tolist() == [[[0.0, pytest.approx(0.6)], [0.0, pytest.approx(0.8)]]]


def test_bad_options(generator):
    with pytest.raises(ValueError, match=r"unknown start 'zeros'.*'fourier', .*'learned'"):
        EigenmapTransformer(4, start="zeros")
    with pytest.raises(ValueError, match="start_points goes with start='learned'"):
        EigenmapTransformer(4, start="learned")
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        EigenmapTransformer.lemma2(4, 0)
    with pytest.raises(ValueError, match="mu must be a positive, finite number, got -1"):
        lemma2_with(-1.0, 4, 2)
    operator, x = random_case(generator)
    with pytest.raises(ValueError, match=r"k = 10, n = 9"):
        EigenmapTransformer(10).double()(operator, x)
    stage = EigenmapTransformer(4, start="learned", start_points=8).double()
    with pytest.raises(ValueError, match="learned for 8 points, got 9"):
        stage(operator, x)
