"""The kernel for points with few coordinates, against the dense backend in float64."""

import pytest
import torch

from icssl.model.attention import attention, attention_transposed, is_narrow

# Of the largest entry. Distances are differences of products, as in torch's own kernels.
RELATIVE, OF_GRADIENTS = 2e-5, 5e-5
FUNCTIONS = {"attention": attention, "transposed": attention_transposed}
both = pytest.mark.parametrize("name", FUNCTIONS)


def drawn(generator, q=2100, k=2050, d=6, v=8, b=2, transposed=False):
    """Queries, keys and the values of those that are summed over, on the GPU."""
    shapes = ((b, q, d), (b, k, d), (b, q if transposed else k, v))
    return [torch.randn(*shape, generator=generator).cuda() for shape in shapes]


def distance(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


def check(name, inputs):
    """Result and gradients against float64, and that it was the kernel that ran."""
    function = FUNCTIONS[name]
    assert is_narrow(*inputs)
    rough = [t.clone().requires_grad_() for t in inputs]
    exact = [t.double().requires_grad_() for t in inputs]
    found = function("rbf", *rough, backend="matrix_free")
    expected = function("rbf", *exact)
    assert distance(found, expected) < RELATIVE
    onto = torch.randn_like(found)
    grads = torch.autograd.grad((found * onto).sum(), rough)
    truths = torch.autograd.grad((expected * onto.double()).sum(), exact)
    for grad, truth in zip(grads, truths, strict=True):
        assert distance(grad, truth) < OF_GRADIENTS


@pytest.mark.gpu
@both
@pytest.mark.parametrize(("d", "v"), [(1, 1), (6, 8), (30, 31), (3, 16)])
def test_result_and_gradients_are_those_of_float64(generator, name, d, v):
    check(name, drawn(generator, d=d, v=v, transposed=name == "transposed"))


@pytest.mark.gpu
@both
def test_queries_far_from_all_keys_read_the_nearest(generator, name):
    """All their weights are below what float32 can hold."""
    query, key, value = drawn(generator, transposed=name == "transposed")
    query[:, :5] += 30.0
    function = FUNCTIONS[name]
    found = function("rbf", query, key, value, backend="matrix_free")
    expected = function("rbf", query.double(), key.double(), value.double())
    # Exponents of a few thousand have three digits left behind the point.
    assert distance(found, expected) < 1e-2


@pytest.mark.gpu
@both
@pytest.mark.parametrize("size", [1e-3, 2.0])
def test_wide_and_narrow_weights(generator, name, size):
    """Nearly equal weights of all keys, and of few."""
    query, key, value = drawn(generator, transposed=name == "transposed")
    check(name, [size * query, size * key, value])


@pytest.mark.gpu
@both
def test_points_beyond_float16(generator, name):
    far, _, value = drawn(generator, k=2100)
    far *= 200.0
    found = FUNCTIONS[name]("rbf", far, far, value, backend="matrix_free")
    expected = FUNCTIONS[name]("rbf", far.double(), far.double(), value.double())
    # Exponents of 300,000 have no more than one digit behind the point in float32.
    assert distance(found, expected) < 0.1


@pytest.mark.gpu
def test_any_axes_before_the_points(generator):
    query, key, value = drawn(generator, b=4)
    wide = [t.reshape(2, 2, *t.shape[1:]) for t in (query, key, value)]
    flat = attention("rbf", query, key, value, backend="matrix_free")
    found = attention("rbf", *wide, backend="matrix_free")
    assert torch.equal(found.flatten(0, 1), flat)


def test_other_points_go_through_torch():
    points = torch.zeros(1, 4096, 6)
    assert not is_narrow(points, points, points)  # not on a GPU
