"""Attention against loops, and the matrix-free backend against the dense one."""

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers import F32, F64
from icssl.model.attention import (
    attention,
    attention_matrix,
    attention_transposed,
    square_safe,
    squared_distances,
)

KERNELS = ["rbf", "softmax", "linear"]


def inputs(
    generator, *, dtype=torch.float64, device="cpu", q=7, k=9, d=3, v=4, batch=(2, 3)
):
    def draw(*shape):
        return torch.randn(*batch, *shape, generator=generator, dtype=dtype).to(device)

    return draw(q, d), draw(k, d), draw(k, v), draw(q, v)


def looped_matrix(kernel, query, key):
    """P by the definition, one number at a time, in plain Python floats."""
    q, k = len(query), len(key)
    result = torch.zeros(q, k, dtype=torch.float64)
    for j in range(q):
        row = []
        for i in range(k):
            dot = sum(
                a * b for a, b in zip(query[j].tolist(), key[i].tolist(), strict=True)
            )
            gap = sum(
                (a - b) ** 2
                for a, b in zip(query[j].tolist(), key[i].tolist(), strict=True)
            )
            weight = {"rbf": math.exp(-gap), "softmax": math.exp(dot), "linear": dot}[
                kernel
            ]
            row.append(weight)
        total = 1.0 if kernel == "linear" else sum(row)
        result[j] = torch.tensor([w / total for w in row], dtype=torch.float64)
    return result


@pytest.mark.parametrize("kernel", KERNELS)
def test_matrix_is_its_definition(generator, kernel):
    query, key, _, _ = inputs(generator, batch=())
    expected = looped_matrix(kernel, query, key)
    torch.testing.assert_close(attention_matrix(kernel, query, key), expected, **F64)


@pytest.mark.parametrize("kernel", ["rbf", "softmax"])
def test_rows_sum_to_one(generator, kernel):
    query, key, _, _ = inputs(generator)
    rows = attention_matrix(kernel, query, key).sum(dim=-1)
    torch.testing.assert_close(rows, torch.ones_like(rows), **F64)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matrix_free_equals_dense(generator, kernel, dtype, device):
    """Forward, transposed, and the gradients of both."""
    query, key, value, grad = inputs(generator, dtype=dtype, device=device)
    tolerance = F64 if dtype == torch.float64 else F32
    for function, third, weight in [
        (attention, value, grad),
        (attention_transposed, grad, value),
    ]:
        results = []
        for backend in ("dense", "matrix_free"):
            leaves = [t.clone().requires_grad_() for t in (query, key, third)]
            out = function(kernel, *leaves, backend=backend)
            results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
        for dense, free in zip(*results, strict=True):
            torch.testing.assert_close(free, dense, **tolerance)


def test_products_are_with_the_matrix_of_the_definition(generator):
    query, key, value, grad = inputs(generator, batch=())
    for kernel in KERNELS:
        p = looped_matrix(kernel, query, key)
        transposed = attention_transposed(kernel, query, key, grad)
        torch.testing.assert_close(transposed, p.mT @ grad, **F64)
        torch.testing.assert_close(attention(kernel, query, key, value), p @ value, **F64)


@pytest.mark.parametrize("backend", ["dense", "matrix_free"])
def test_one_far_point_does_not_disturb_the_others(generator, backend):
    x = torch.randn(1, 50, 3, generator=generator)
    x[0, 0] = 1e8
    value = torch.randn(1, 50, 2, generator=generator)
    exact = attention("rbf", x.double(), x.double(), value.double())
    read = attention("rbf", x, x, value, backend=backend)
    torch.testing.assert_close(read.double()[:, 1:], exact[:, 1:], **F32)


@pytest.mark.parametrize(("d", "v"), [(3, 1), (6, 8), (20, 3), (2, 33)])
def test_matrix_free_reaches_a_fused_kernel(generator, d, v, device):
    """Where no fused kernel fits, torch forms the matrix; here it may only raise."""
    query, key, value, grad = inputs(
        generator, dtype=torch.float32, device=device, d=d, v=v, batch=(2,)
    )
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        free = attention("rbf", query, key, value, backend="matrix_free")
        asked = attention_transposed("rbf", query, key, grad, backend="matrix_free")
    torch.testing.assert_close(free, attention("rbf", query, key, value), **F32)
    dense = attention_transposed("rbf", query, key, grad)
    torch.testing.assert_close(asked, dense, **F32)


@pytest.mark.parametrize("backend", ["dense", "matrix_free"])
@pytest.mark.parametrize("distance", [1e1, 1e3, 1e12, 1e30])
def test_far_points_do_not_divide_zero_by_zero(distance, backend):
    """A query far from every key: each kernel value underflows, their ratio does not."""
    query = torch.tensor([[distance, 0.0]])
    key = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.1 * distance, 0.0]])
    naive = (-(query[:, None] - key).square().sum(-1)).exp()
    naive = naive / naive.sum(dim=-1, keepdim=True)
    read = attention("rbf", query, key, torch.eye(3), backend=backend)
    if distance > 1e1:
        assert naive.isnan().any()
    torch.testing.assert_close(read, torch.tensor([[0.0, 0.0, 1.0]]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("backend", ["dense", "matrix_free"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-12, 1e12, 3e38])
def test_finite_for_any_finite_input(generator, kernel, backend, size):
    query, key, value, grad = inputs(generator, dtype=torch.float32, q=300, k=300)
    query, key = (t / t.abs().max() * size for t in (query, key))
    value, grad = 1e3 * value, 1e3 * grad
    assert attention(kernel, query, key, value, backend=backend).isfinite().all()
    assert attention_transposed(kernel, query, key, grad, backend=backend).isfinite().all()


@pytest.mark.parametrize("backend", ["dense", "matrix_free"])
def test_rbf_is_accurate_far_from_the_origin(generator, backend):
    """A cloud of width 0.05 at offset 10 and bandwidth 0.05, in float32."""
    x = 10 + 0.05 * torch.randn(1, 40, 3, generator=generator, dtype=torch.float64)
    value = torch.randn(1, 40, 2, generator=generator, dtype=torch.float64)
    x32 = x.float()
    exact = attention("rbf", x32.double() / 0.05, x32.double() / 0.05, value)
    result = attention("rbf", x32 / 0.05, x32 / 0.05, value.float(), backend=backend)
    # Rounding x / 0.05 = 200 to float32 alone moves a score by about 1e-4.
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=5e-4)


def test_square_safe_leaves_usual_sizes_alone(generator):
    x = 1e6 * torch.randn(2, 5, 3, generator=generator)
    assert torch.equal(square_safe(x)[0], x)


def test_squared_distances_gradcheck(generator):
    a = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    expected = (a[:, :, None] - b[:, None]).square().sum(dim=-1)
    torch.testing.assert_close(squared_distances(a, b), expected, **F64)
    assert torch.autograd.gradcheck(squared_distances, (a, b))
    assert torch.autograd.gradgradcheck(squared_distances, (a, b))
    # Coinciding points, where the square root of cdist has no derivative.
    c = torch.ones(1, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: squared_distances(t, t), (c,))


@pytest.mark.parametrize("d", [3, 40, 1280])
def test_squared_distances_in_float32_keep_the_small_ones(generator, device, d):
    a = 5 + torch.randn(2, 30, d, generator=generator, dtype=torch.float64).to(device)
    a[:, 1] = a[:, 0] + 1e-3  # beside points that are a thousand times as far away
    a = a.float()
    exact = (a.double()[:, :, None] - a.double()[:, None]).square().sum(-1)
    torch.testing.assert_close(
        squared_distances(a, a).double(), exact, rtol=1e-5, atol=1e-9
    )


def test_squared_distances_under_vmap(generator):
    a = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    looped = torch.stack([squared_distances(t, t) for t in a])
    torch.testing.assert_close(torch.vmap(squared_distances)(a, a), looped, **F64)


def test_bad_input_names_the_choices(generator):
    query, key, value, _ = inputs(generator)
    with pytest.raises(
        ValueError, match=r"unknown kernel 'rfb'.*'linear', 'rbf', 'softmax'"
    ):
        attention_matrix("rfb", query, key)
    with pytest.raises(
        ValueError, match=r"unknown backend 'sparse'.*'dense', 'matrix_free'"
    ):
        attention("rbf", query, key, value, backend="sparse")
