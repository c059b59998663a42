"""Each solver finds what LAPACK finds, wherever that counts in a kernel."""

import numpy as np
import pytest
import torch
from scipy import sparse

from icssl._util.lapack import largest_eigenpairs
from icssl.classifier import graph_sparse
from icssl.classifier.eigenmap import _shares, waves
from icssl.classifier.eigensolvers import (
    _solve_with,
    batched_eigenvectors,
    iterated_eigenvectors,
    leading_eigenvectors,
)
from icssl.classifier.graph_sparse import Nodes, SparseGraph, node_distances
from icssl.classifier.graphs import DenseGraph, neighbour_distances
from icssl.classifier.neighbour_search import all_neighbours, make_search
from known_answers import draw_shape

K = 48


def normalised_graphs(generator, b, n, d, parts=4):
    """Rows in a few blobs, and D^-1/2 W D^-1/2 without its constant eigenvector."""
    centres = 2 * torch.randn(b, parts, d, generator=generator, dtype=torch.float64)
    part = torch.randint(parts, (b, n, 1), generator=generator).expand(-1, -1, d)
    x = torch.randn(b, n, d, generator=generator, dtype=torch.float64)
    x = x + centres.gather(1, part)
    x = x / x.square().sum(-1).mean(-1).sqrt()[:, None, None]
    w = DenseGraph(x, neighbour_distances(x, x, skip_self=True)).dense()
    degrees = w.sum(-1)
    constant = (degrees / degrees.sum(-1, keepdim=True)).sqrt()
    root = degrees.rsqrt()
    matrix = root[..., None] * w * root[:, None]
    return x, matrix - constant[..., None] * constant[:, None]


def lapack(matrix, count):
    values, vectors = torch.linalg.eigh(matrix)
    return values.flip(-1)[:, :count], vectors.flip(-1)[..., :count]


def diffusion(values, vectors):
    """What a kernel reads: two steps of the walk, in which the last functions fade out."""
    values, vectors = values.double().clamp(0, 1), vectors.double()
    last = values.shape[-1] - 1
    features = (
        vectors[..., :last] * (_shares(values) * values[:, :last] ** 2).sqrt()[:, None]
    )
    return features @ features.mT


@pytest.mark.parametrize(("n", "d"), [(40, 3), (130, 2), (200, 5), (300, 20), (600, 4)])
def test_a_batch_is_solved_as_by_lapack(generator, n, d):
    x, matrix = normalised_graphs(generator, 3, n, d)
    count = min(K, n)
    start = waves(x, count).float()
    values, vectors = batched_eigenvectors(matrix.float(), start, count)
    expected_values, expected = lapack(matrix, count)
    error = (values - expected_values).abs()
    assert error[expected_values > 0.1].max() < 1e-4
    # Near zero, where a function counts by the square of its value, some are not converged.
    assert error[expected_values > 0.01].max() < 0.02
    found, expected = diffusion(values, vectors), diffusion(expected_values, expected)
    assert (found - expected).norm() < 1e-3 * expected.norm()
    orthonormal = vectors.mT @ vectors
    unit = torch.eye(count).expand_as(orthonormal)
    torch.testing.assert_close(orthonormal, unit, rtol=0, atol=1e-4)


def test_a_batch_with_many_parts_is_solved(generator):
    """Seventy pairs of rows that know no other rows: one eigenvalue, seventy times."""
    pairs = torch.block_diag(*70 * [torch.tensor([[0.0, 1.0], [1.0, 0.0]])])
    start = torch.randn(2, 140, 20, generator=generator)
    matrix = pairs.expand(2, -1, -1)
    values, vectors = batched_eigenvectors(matrix, start, 12)
    torch.testing.assert_close(values, torch.ones(2, 12), rtol=0, atol=1e-5)
    torch.testing.assert_close(matrix @ vectors, vectors, rtol=0, atol=1e-3)


def test_columns_that_depend_on_each_other_do_not_stop_a_batch(generator):
    x, matrix = normalised_graphs(generator, 2, 150, 3)
    start = waves(x, 8).float()
    start[..., 5:9] = start[..., :1]
    start[..., 9] = 0
    values, _ = batched_eigenvectors(matrix.float(), start, 8)
    torch.testing.assert_close(values.double(), lapack(matrix, 8)[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "count"), [(1, 1), (2, 1), (40, 40), (90, 7)])
def test_the_pointer_to_lapack_finds_what_eigh_finds(generator, dtype, n, count):
    matrix = torch.randn(n, n, generator=generator, dtype=torch.float64)
    matrix = (matrix + matrix.mT).numpy()
    values, vectors = largest_eigenpairs(matrix.astype(dtype), count)
    size = np.finfo(dtype).eps * n * np.abs(matrix).max()
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[-count:], atol=10 * size)
    assert vectors.dtype == dtype
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=10 * size)


@pytest.mark.parametrize(("n", "d"), [(520, 2), (700, 20)])
def test_float32_is_refined_to_what_float64_finds(generator, n, d):
    _, matrix = normalised_graphs(generator, 1, n, d)
    values, vectors = leading_eigenvectors(matrix, K)
    expected_values, expected = lapack(matrix, K)
    torch.testing.assert_close(values, expected_values, rtol=0, atol=1e-10)
    found, expected = diffusion(values, vectors), diffusion(expected_values, expected)
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()
    unit = torch.eye(K, dtype=torch.float64)[None]
    torch.testing.assert_close(vectors.mT @ vectors, unit, rtol=0, atol=1e-12)


def test_a_row_of_small_weights_keeps_its_digits(generator):
    """A row that hardly knows the others has tiny entries, which kernels blow up again."""
    _, matrix = normalised_graphs(generator, 1, 600, 4)
    matrix[:, 0] *= 1e-9
    matrix[:, :, 0] *= 1e-9
    found = diffusion(*leading_eigenvectors(matrix, K))[0, 0, 1:]
    expected = diffusion(*lapack(matrix, K))[0, 0, 1:]
    assert expected.abs().max() < 1e-8
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


def sparse_graph(shape, n):
    """The points of a shape in float32, the graph of their neighbours, and its matrix."""
    x = torch.from_numpy(draw_shape(shape, n, 1, 300)[0]).float()
    x = (x - x.mean(0)) / (x - x.mean(0)).square().sum(-1).mean().sqrt()
    nearest = all_neighbours(make_search(x), 32)
    counts = Nodes.of_rows(x).counts
    assert len(counts) == n  # rows are nodes in their own order
    graph = SparseGraph.of_neighbours(nearest, node_distances(nearest, counts))
    degrees = graph.regularised_degrees
    constant = (degrees / degrees.sum()).sqrt()[..., None]
    w = graph.matrix()[0].double()
    known = constant[0].double()
    return x, graph, constant, ((w + w.mT) / 2 - known @ known.mT)[None]


@pytest.mark.parametrize("shape", ["two spirals", "double helix", "long double helix"])
def test_long_thin_shapes_are_solved_as_by_lapack(shape):
    """Eigenvalues that are all nearly one, of which a filter in float32 has no digit."""
    x, graph, constant, matrix = sparse_graph(shape, 2000)
    values, vectors, are_solved = iterated_eigenvectors(
        graph, constant, waves(x[None], K), K
    )
    assert are_solved
    assert values.dtype == torch.float64
    expected_values, expected = lapack(matrix, K)
    distances, exact = 1 - values, 1 - expected_values
    assert exact[0, 3] < 1e-3
    # What rounding the weights to float32 does is below 1e-7.
    near = exact < 0.5 * exact[:, -1:]
    assert ((distances - exact).abs() < 1e-3 * exact + 1e-7)[near].all()
    found, expected = diffusion(values, vectors), diffusion(expected_values, expected)
    assert (found - expected).norm() < 1e-2 * expected.norm()


def test_many_parts_that_do_not_touch_have_no_distance_below_zero():
    """Rounding of float32 weights leaves I - S with eigenvalues of -1.6e-7 here."""
    rng = np.random.default_rng(0)
    parts, each = 60, 40
    starts = np.arange(0, parts * each * each + 1, each)
    w = rng.uniform(0.2, 1, (parts, each, each)).astype(np.float32)
    w = w + w.transpose(0, 2, 1)
    degrees = w.sum(2)
    w /= np.sqrt(degrees[:, :, None] * degrees[:, None])
    columns = np.arange(parts * each).reshape(parts, 1, each).repeat(each, 1)
    size = (parts * each,) * 2
    s = sparse.csr_matrix((w.ravel().astype(float), columns.ravel(), starts), size)
    laplacian = (sparse.eye(parts * each) - (s + s.T) / 2).tocsr()
    assert np.linalg.eigvalsh(laplacian.toarray())[0] < -1e-9
    constant = torch.from_numpy(np.sqrt(degrees.ravel()))[None, :, None]
    start = torch.randn(1, parts * each, 80, generator=torch.Generator().manual_seed(0))
    values, vectors = _solve_with(laplacian, constant, start, parts - 1)
    distances = 1 - values[0].numpy()
    assert np.abs(distances[: parts - 1]).max() < 1e-12  # as many as further parts
    assert distances[parts - 1] > 1e-2
    assert vectors.isfinite().all()


def test_where_a_graph_is_not_thin_the_filter_goes_on(monkeypatch):
    """Clusters that hardly touch: one filter leaves them blurred."""
    monkeypatch.setattr(graph_sparse, "MOST_SQUARES", 0.0)
    x, graph, constant, matrix = sparse_graph("two moons", 2000)
    assert graph.thin_laplacian() is None
    exact = 1 - lapack(matrix, K)[0][0, :5]
    errors = []
    for more in (0, graph.more_filters):
        monkeypatch.setattr(graph, "more_filters", more)
        values, _, are_solved = iterated_eigenvectors(graph, constant, waves(x[None], K), K)
        assert not are_solved
        errors.append(float((1 - values[0, :5].double() - exact).abs().max()))
    assert errors[1] < 0.5 * errors[0]
    assert errors[1] < 2e-5


def test_the_laplacian_of_a_thin_graph_is_that_of_its_matrix():
    _, graph, _, _ = sparse_graph("two moons", 700)
    expected = torch.eye(700).double() - graph.matrix()[0].double()
    order = graph._order
    found = torch.from_numpy(graph.thin_laplacian().toarray())
    torch.testing.assert_close(found, expected[order][:, order], rtol=0, atol=1e-6)


def test_rows_of_many_columns_are_not_thin(generator):
    x = torch.randn(4500, 20, generator=generator)
    nearest = all_neighbours(make_search(x), 32)
    ones = torch.ones(len(x), dtype=torch.long)
    graph = SparseGraph.of_neighbours(nearest, node_distances(nearest, ones))
    assert graph.thin_laplacian() is None
