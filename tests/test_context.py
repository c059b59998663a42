"""A table in context: views, graphs, kernels, gate and head, each against a reference.

Most contexts here have fewer rows than the eigenmap starts from, so that it is exact, and
what holds for the exact one holds to rounding.
"""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import norm, rankdata
from sklearn.datasets import make_blobs
from sklearn.feature_selection import f_classif
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import euclidean_distances

from helpers import F64, F64_DEEP, principal_angle
from icssl._util.lapack import largest_eigenpairs
from icssl.classifier import eigensolvers, gate, graphs
from icssl.classifier import kernels as kernels_file
from icssl.classifier.context_features import features_of_tables
from icssl.classifier.descent import descend
from icssl.classifier.eigenmap import PASSES, Eigenmap, waves
from icssl.classifier.eigensolvers import iterated_eigenvectors, leading_eigenvectors
from icssl.classifier.gate import FEATURES, kernel_features
from icssl.classifier.graphs import (
    BANDWIDTH_NEIGHBOURS,
    SHARPNESS,
    Backend,
    DenseGraph,
    GraphSpec,
    PrecomputedGraph,
    graph_weights,
    neighbour_distances,
    squared_distances,
)
from icssl.classifier.kernels import (
    ABSOLUTE,
    DIFFUSED,
    FORMS,
    GEOMETRIES,
    GRAPHS,
    KERNELS,
    REACH_TIME,
    RELAXATIONS,
    STEPS,
    ContextKernels,
    Kernel,
    kernels_of,
)
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.classifier.view_graph import AffinityGraph
from icssl.classifier.views import LONGEST, VIEWS, Views


def table(generator, b=2, n=40, d=3, dtype=torch.float64):
    return torch.randn(b, n, d, generator=generator, dtype=dtype)


def blobs(seed=0, n=120, centres=4, apart=8.0):
    """Far apart, on a line, so that the graph has a gap after as many eigenvalues."""
    places = [[apart * i, 0.0, 0.0] for i in range(centres)]
    x, y = make_blobs(n, centers=places, cluster_std=0.5, random_state=seed)
    return torch.tensor(x)[None], torch.tensor(y)[None]


def one_hot(classes, b=2):
    """The same classes in every context."""
    return torch.nn.functional.one_hot(torch.tensor([classes] * b)).double()


def views_of(x, names=VIEWS, labelled=(0, 1, 2, 3, 4, 5), classes=(0, 1, 2, 2, 1, 0)):
    indices = torch.tensor([labelled] * len(x))
    return Views.fit_rows(x, names, indices, one_hot(classes, len(x)))[0]


def centred(x):
    return x.numpy() - x.numpy().mean(0)


def of_size_one(rows):
    """Root mean square length of the rows is one."""
    return rows / np.sqrt((rows**2).sum(1).mean())


def gram(rows):
    return rows @ rows.mT


# Views


def test_ranks_are_normal_scores_and_ties_share_theirs(generator):
    x = table(generator)
    x[..., 0] = 3 * x[..., 0].round()
    assert len(x[0, :, 0].unique()) < 10
    (found,) = views_of(x, ("ranks",))(x)
    for rows, view in zip(x.numpy(), found, strict=True):
        ranks = rankdata(rows, method="average", axis=0)
        scores = norm.ppf((ranks - 0.5) / len(rows))
        # Columns keep their own deviation.
        scores *= rows.std(0) / np.sqrt((scores**2).mean(0))
        np.testing.assert_allclose(view.numpy(), of_size_one(scores), **F64)


@pytest.mark.parametrize(("n", "d"), [(40, 5), (9, 20)])
def test_raw_half_and_white_are_powers_of_the_singular_values(generator, n, d):
    """Against NumPy's decomposition: the rows' inner products do not know the basis."""
    x = table(generator, n=n, d=d)
    x[..., 1] = x[..., 0]  # one direction fewer than columns
    raw, half, white = views_of(x, ("raw", "half", "white"))(x)
    for i, rows in enumerate(x):
        u, s, _ = np.linalg.svd(centred(rows), full_matrices=False)
        u, s = u[:, s > 1e-9], s[s > 1e-9]
        for view, power in ((raw, 1), (half, 0.5), (white, 0)):
            expected = of_size_one(u * s**power)
            np.testing.assert_allclose(gram(view[i]), expected @ expected.T, **F64_DEEP)


def test_rows_that_are_fitted_are_what_the_views_give_of_them(generator):
    x, labelled = table(generator), torch.tensor([[0, 1, 2, 3]] * 2)
    views, rows = Views.fit_rows(x, VIEWS, labelled, one_hot([0, 1, 1, 0]))
    for fitted, again in zip(rows, views(x), strict=True):
        assert torch.equal(fitted, again)


def test_white_columns_have_one_variance_in_every_direction_that_there_is(generator):
    """Their covariance is a multiple of the projection on what the columns span."""
    # Columns that depend on each other, but in no direction so little that it is left out.
    x = table(generator, n=60, d=5) @ (1 + 2 * torch.eye(5).double())
    x[..., 2] = x[..., 0] - x[..., 1]
    (white,) = views_of(x, ("white",))(x)
    for rows, view in zip(x, white, strict=True):
        span = np.linalg.svd(centred(rows), full_matrices=False)[2][:4]
        expected = 60 / 4 * span.T @ span  # rows have length one in the mean
        np.testing.assert_allclose(view.mT @ view, expected, **F64_DEEP)


def one_hot_columns(generator, n=160, categories=8):
    """Equally frequent categories: all of their columns have one variance."""
    kind = torch.randperm(n, generator=generator) % categories
    return torch.nn.functional.one_hot(kind, categories).double()[None] / math.sqrt(2)


def with_other_eigenvectors(monkeypatch, generator):
    """Let LAPACK choose other eigenvectors: as good, turned where eigenvalues repeat."""
    of_views, of_graphs = torch.linalg.eigh, largest_eigenpairs

    def turn(values):
        level = (
            values[..., :, None] - values[..., None, :]
        ).abs() < 1e-9 * values.abs().max()
        mixed = torch.randn(level.shape, generator=generator, dtype=torch.float64)
        return torch.linalg.qr(torch.where(level, mixed, 0.0))[0]

    def turned(matrix):
        values, vectors = of_views(matrix)
        return values, vectors @ turn(values)

    def turned_for_graphs(matrix, count):
        values, vectors = of_graphs(matrix, count)
        return values, vectors @ turn(torch.tensor(values)).numpy()

    monkeypatch.setattr(torch.linalg, "eigh", turned)
    monkeypatch.setattr(eigensolvers, "largest_eigenpairs", turned_for_graphs)


@pytest.mark.parametrize("wide", [False, True])
def test_whitened_views_do_not_depend_on_the_choice_of_eigenvectors(
    generator, monkeypatch, wide
):
    x = one_hot_columns(generator)
    x = x[:, :6] if wide else x
    names = ("half", "white")
    expected = views_of(x, names)(x)
    with_other_eigenvectors(monkeypatch, generator)
    for found, view in zip(views_of(x, names)(x), expected, strict=True):
        torch.testing.assert_close(found, view, **F64_DEEP)


@pytest.mark.parametrize(("n", "d"), [(40, 3), (8, 30)])
def test_a_row_has_its_place_whatever_comes_with_it(generator, n, d):
    views = views_of(table(generator, n=n, d=d))
    new = 3 * table(generator, n=6, d=d)
    together = views(new)
    for i in range(6):
        for alone, all_rows in zip(views(new[:, i : i + 1]), together, strict=True):
            torch.testing.assert_close(alone, all_rows[:, i : i + 1], **F64)


def test_constant_columns_change_nothing(generator):
    x = table(generator)
    wider = torch.cat([x, torch.full_like(x[..., :1], 7.0)], dim=-1)
    for plain, with_it in zip(views_of(x)(x), views_of(wider)(wider), strict=True):
        torch.testing.assert_close(gram(with_it), gram(plain), **F64)
    ones = torch.ones(1, 8, 2).double()
    for view in views_of(ones)(ones):
        assert view.abs().max() == 0


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_unit_of_the_table_changes_nothing(generator, unit):
    x = table(generator)
    other = unit * (x + torch.tensor([5.0, -10.0, 0.0]))
    for plain, scaled in zip(views_of(x)(x), views_of(other)(other), strict=True):
        torch.testing.assert_close(gram(scaled), gram(plain), **F64_DEEP)


def test_columns_weigh_by_the_variance_between_classes(generator):
    """Against the F statistic of an analysis of variance, as omega squared."""
    x, classes = table(generator, n=60, d=6), [0, 1, 2, 0, 1, 2, 0, 0]
    labelled = list(range(10, 18))
    x[:, labelled, 0] = torch.tensor(classes) - 1 + 0.1 * x[:, labelled, 0]
    ranks, relevant = views_of(x, ("ranks", "relevant"), labelled, classes)(x)
    for i in range(2):
        f, _ = f_classif(ranks[i, labelled], classes)
        omega = 2 * (f - 1) / (2 * (f - 1) + len(classes))
        assert omega[0] > 0.4
        expected = ranks[i].numpy() * np.sqrt(np.maximum(omega, 0) + 0.05)
        np.testing.assert_allclose(relevant[i], of_size_one(expected), **F64_DEEP)


def test_columns_weigh_alike_where_classes_have_one_label(generator):
    x = table(generator)
    ranks, relevant = views_of(x, ("ranks", "relevant"), (4, 9, 1), (0, 1, 2))(x)
    torch.testing.assert_close(relevant, ranks, **F64)


def test_a_wild_cell_is_not_all_that_a_row_is(generator):
    x = table(generator, b=1, n=400)
    x[0, 0, 0] = 1e12
    for view in views_of(x)(x):
        assert view.isfinite().all()
        assert view.norm(dim=-1).max() <= LONGEST + 1e-9


# Graphs


@pytest.mark.parametrize("n", [2, 9, 60])
def test_scale_is_the_nearest_and_the_twelfth(generator, n):
    x, new = table(generator, n=n), table(generator, n=5)
    own, other = (
        neighbour_distances(x, x, skip_self=True),
        neighbour_distances(new, x, skip_self=False),
    )
    for i in range(2):
        among = np.sort(euclidean_distances(x[i], squared=True), axis=1)
        to_new = np.sort(euclidean_distances(new[i], x[i], squared=True), axis=1)
        last = min(BANDWIDTH_NEIGHBOURS, n - 1)
        np.testing.assert_allclose(own.near[i], among[:, 1], **F64_DEEP)
        np.testing.assert_allclose(own.far[i], among[:, last], **F64_DEEP)
        np.testing.assert_allclose(other.near[i], to_new[:, 0], **F64_DEEP)
        last = min(BANDWIDTH_NEIGHBOURS, n) - 1
        np.testing.assert_allclose(other.far[i], to_new[:, last], **F64_DEEP)


def test_equal_rows_have_a_scale_and_weights_that_are_finite():
    x = torch.ones(1, 20, 3).double()
    scale = neighbour_distances(x, x, skip_self=True)
    assert (scale.far > 0).all()
    assert (scale.contrast > 0).all()
    graph = DenseGraph(x, scale)
    assert graph.dense().isfinite().all()
    assert (graph.degrees > 0).all()


def dense_weights(x, neighbours=BANDWIDTH_NEIGHBOURS):
    """Return the weights of one table, with loops, from the definition."""
    d = euclidean_distances(x, squared=True)
    n = len(d)
    ordered = np.sort(d, axis=1)
    near, far = ordered[:, 1], ordered[:, min(neighbours, n - 1)]
    w = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            unit = np.sqrt((far[i] - near[i]) * (far[j] - near[j]))
            steps = (d[i, j] - (near[i] + near[j]) / 2) / unit
            w[i, j] = 0 if i == j else np.exp(-SHARPNESS * max(steps, -1))
    return w


def test_weights_count_distances_in_units_of_contrast(generator):
    x = table(generator)
    graph = DenseGraph(x, neighbour_distances(x, x, skip_self=True))
    for i in range(2):
        expected = dense_weights(x[i])
        np.testing.assert_allclose(graph.dense()[i], expected, **F64_DEEP)
        np.testing.assert_allclose(graph.degrees[i], expected.sum(1), **F64_DEEP)


def test_new_rows_have_the_weights_of_the_definition(generator):
    x, new = table(generator, b=1), table(generator, b=1, n=4)
    own, other = (
        neighbour_distances(x, x, skip_self=True),
        neighbour_distances(new, x, skip_self=False),
    )
    d = euclidean_distances(new[0], x[0], squared=True)
    among = np.sort(euclidean_distances(x[0], squared=True), axis=1)
    near, far = among[:, 1], among[:, BANDWIDTH_NEIGHBOURS]
    to_new = np.sort(d, axis=1)
    new_near, new_far = (
        to_new[:, :1],
        to_new[:, BANDWIDTH_NEIGHBOURS - 1 : BANDWIDTH_NEIGHBOURS],
    )
    unit = np.sqrt((new_far - new_near) * (far - near))
    expected = np.exp(-SHARPNESS * np.maximum((d - (new_near + near) / 2) / unit, -1))
    np.testing.assert_allclose(graph_weights(new, other, x, own)[0], expected, **F64_DEEP)


@pytest.mark.parametrize("block", [1, 7, 39])
def test_graph_in_blocks_is_the_dense_one(generator, block):
    x, values = table(generator), table(generator, d=5)
    scale = neighbour_distances(x, x, skip_self=True)
    dense, blocked = DenseGraph(x, scale), DenseGraph(x, scale, block=block)
    torch.testing.assert_close(blocked.degrees, dense.degrees, **F64)
    torch.testing.assert_close(blocked @ values, dense @ values, **F64)
    torch.testing.assert_close(blocked.dense(), dense.dense(), **F64)


def test_product_is_with_the_normalised_weights(generator):
    x, values = table(generator), table(generator, d=5)
    graph = DenseGraph(x, neighbour_distances(x, x, skip_self=True))
    w = graph.dense()
    root = torch.diag_embed(w.sum(-1).rsqrt())
    for product in (graph @ values, PrecomputedGraph(w) @ values):
        torch.testing.assert_close(product, root @ w @ root @ values, **F64)


def graph_and_eigenmap(x, k=8, block=None):
    graph = DenseGraph(x, neighbour_distances(x, x, skip_self=True), block)
    return graph, Eigenmap.of_graph(graph, lambda: waves(x, k), k)


def exact_eigenmap(w):
    """Values and functions of the walk D^-1 W of one graph, by LAPACK, falling."""
    degrees = w.sum(1)
    root = degrees.rsqrt()
    values, vectors = torch.linalg.eigh(root[:, None] * w * root)
    stationary = degrees / degrees.sum()
    return values.flip(0), vectors.flip(1) / stationary.sqrt()[:, None], stationary


def faded(values):
    """What counts of eigenfunctions where all are there: those near zero fade out."""
    return (values / 0.05).clamp(0, 1)


def blobs_of_a_context(seed=0):
    """Four blobs that touch: eigenvalues near one, none of them repeated, then a gap."""
    x, y = blobs(seed, apart=3.0)
    return views_of(x, ("raw",))(x)[0], y


def test_eigenmap_finds_the_leading_functions_of_the_walk():
    for seed in range(3):
        x, _ = blobs_of_a_context(seed)
        graph, found = graph_and_eigenmap(x)
        values, functions, stationary = exact_eigenmap(graph.dense()[0])
        assert values[3] - values[4] > 0.05
        torch.testing.assert_close(found.values[0, :4], values[:4], rtol=0, atol=1e-6)
        angle = principal_angle(found.functions[0, :, 1:4], functions[:, 1:4])
        assert angle < 1e-3
        kept = found.functions[0, :, 1:4]
        inner = kept.mT @ (stationary[:, None] * kept)
        torch.testing.assert_close(inner, torch.eye(3).double(), rtol=0, atol=1e-4)


def filtered(graph, x, k):
    """Values and functions of the walk by the iteration that many rows need."""
    constant = (graph.degrees / graph.degrees.sum(-1, keepdim=True)).sqrt()[..., None]
    values, vectors, _ = iterated_eigenvectors(graph, constant, waves(x, k), k)
    return values[0], (vectors / constant)[0]


def test_of_many_rows_the_leading_functions_are_told_apart(generator):
    x = table(generator, b=1, n=2500, d=4) / 2  # of length one in the mean
    graph = DenseGraph(x, neighbour_distances(x, x, skip_self=True))
    found, functions = filtered(graph, x, 48)
    values, expected, _ = exact_eigenmap(graph.dense()[0])
    assert values[48] > 0.8  # so many functions hardly differ: the case that is hard
    # The first is the constant, which the iteration leaves out.
    torch.testing.assert_close(found[:11], values[1:12], rtol=0, atol=1e-3)
    assert principal_angle(functions[:, :4], expected[:, 1:5]) < 0.05


def test_the_filter_and_lapack_find_the_same(generator):
    """Four blobs that touch have a gap after four eigenvalues: few rounds will do."""
    x, _ = blobs_of_a_context()
    graph = DenseGraph(x, neighbour_distances(x, x, skip_self=True))
    found, functions = filtered(graph, x, 8)
    exact = Eigenmap.of_graph(graph, lambda: waves(x, 8), 8)
    torch.testing.assert_close(found[:3], exact.values[0, 1:4], rtol=0, atol=1e-6)
    assert principal_angle(functions[:, :3], exact.functions[0, :, 1:4]) < 1e-3


def repeated_graph():
    """Twelve equal groups of five rows: all but the first eigenvalue repeat many times."""
    inside = torch.block_diag(*12 * [torch.ones(5, 5)]).double()
    return PrecomputedGraph((inside + 0.1 - 1.1 * torch.eye(60))[None])


def test_kernels_do_not_depend_on_which_eigenfunctions_of_a_level_are_kept(generator):
    """Eleven eigenvalues are level, and seven are asked for: none of them counts."""
    graph = repeated_graph()
    values = exact_eigenmap(graph.times(torch.eye(60).double()[None])[0])[0]
    assert (values[1:12] - values[1]).abs().max() < 1e-12
    few = Eigenmap.of_graph(graph, lambda: None, 8)
    torch.testing.assert_close(few.shares[0, 1:], torch.zeros(7).double(), **F64_DEEP)
    order = torch.randperm(60, generator=generator)
    w = graph.times(torch.eye(60).double()[None])
    for k in (8, 12, 13, 30):
        plain, shuffled = (
            Eigenmap.of_graph(PrecomputedGraph(one), lambda: None, k)
            for one in (w, w[:, order][:, :, order])
        )
        expected, found = (
            gram(one.diffusion_features(one.functions, 2)) for one in (plain, shuffled)
        )
        torch.testing.assert_close(found, expected[:, order][:, :, order], **F64_DEEP)


def test_lapack_solves_graphs_whose_eigenvalues_repeat_many_times():
    """Its fast routine gives up on some of them: pairs of rows, and nothing else."""
    pairs = torch.block_diag(*30 * [torch.tensor([[0.0, 1.0], [1.0, 0.0]])]).double()
    for matrix in (pairs, torch.eye(60).double(), torch.zeros(60, 60).double()):
        values, vectors = leading_eigenvectors(matrix[None], 40)
        expected = torch.linalg.eigvalsh(matrix).flip(0)[:40]
        torch.testing.assert_close(values[0], expected, **F64_DEEP)
        torch.testing.assert_close(matrix @ vectors[0], vectors[0] * values[0], **F64_DEEP)
        torch.testing.assert_close(
            vectors[0].mT @ vectors[0], torch.eye(40).double(), **F64_DEEP
        )


@pytest.mark.parametrize("raises", [True, False])
def test_a_failure_of_the_fast_routine_is_made_up_for(generator, monkeypatch, raises):
    matrix = table(generator, b=1, n=30, d=30)
    matrix = matrix + matrix.mT
    expected = leading_eigenvectors(matrix, 5)[0]

    def fails(one, count):
        if raises:
            raise eigensolvers.LinAlgError("Internal Error.")
        values, vectors = largest_eigenpairs(one, count)
        return values[2:], vectors[:, 2:]  # two are lost

    monkeypatch.setattr(eigensolvers, "largest_eigenpairs", fails)
    values, vectors = leading_eigenvectors(matrix, 5)
    torch.testing.assert_close(values, expected, **F64_DEEP)
    torch.testing.assert_close(matrix @ vectors, vectors * values[:, None], **F64_DEEP)


def test_rows_without_a_neighbour_have_no_part_in_any_function(generator):
    x = table(generator, b=1, n=30)
    w = DenseGraph(x, neighbour_distances(x, x, skip_self=True)).dense().clone()
    alone = [3, 8, 20]
    w[:, alone] = 0
    w[:, :, alone] = 0
    joined = [i for i in range(30) if i not in alone]
    found = Eigenmap.of_graph(PrecomputedGraph(w), lambda: None, 12)
    assert (found.functions[:, alone] == 0).all()
    expected = Eigenmap.of_graph(
        PrecomputedGraph(w[:, joined][:, :, joined]), lambda: None, 12
    )
    found_gram, expected_gram = (
        gram(one.diffusion_features(one.functions, 2)) for one in (found, expected)
    )
    torch.testing.assert_close(
        found_gram[:, joined][:, :, joined], expected_gram, **F64_DEEP
    )


def test_functions_have_mean_zero_where_the_walk_stays(generator):
    x = table(generator, n=90)
    graph, found = graph_and_eigenmap(x)
    stationary = graph.regularised_degrees / graph.regularised_degrees.sum(-1, keepdim=True)
    mean = torch.einsum("bn,bnk->bk", stationary, found.functions)
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-12)


def test_a_small_context_has_the_exact_eigenmap(generator):
    x = table(generator, b=1, n=30)
    graph, found = graph_and_eigenmap(x, k=30)
    values, functions, _ = exact_eigenmap(graph.dense()[0])
    torch.testing.assert_close(found.values[0], values.clamp(min=0), **F64_DEEP)
    for time in (1, 6):
        features = found.diffusion_features(found.functions, time)[0]
        expected = functions * (faded(values) * values.clamp(min=0) ** time).sqrt()
        torch.testing.assert_close(1 + gram(features), gram(expected), **F64_DEEP)


def test_extension_to_the_own_rows_gives_the_functions(generator):
    x = table(generator, b=1, n=30)
    graph, found = graph_and_eigenmap(x, k=30)
    kept = found.values[0] > 0.2  # smaller ones are not divided by
    assert kept.sum() >= 4
    extended = found.extend(graph.dense())[0]
    torch.testing.assert_close(extended[:, kept], found.functions[0, :, kept], **F64_DEEP)


def test_eigenmap_follows_the_order_of_rows(generator):
    x = table(generator, n=90)
    order = torch.randperm(90, generator=generator)
    _, plain = graph_and_eigenmap(x)
    _, shuffled = graph_and_eigenmap(x[:, order])
    torch.testing.assert_close(shuffled.values, plain.values, **F64_DEEP)
    expected = gram(plain.functions)[:, order][:, :, order]
    torch.testing.assert_close(gram(shuffled.functions), expected, **F64_DEEP)


def test_eigenmap_in_blocks_is_the_dense_one(generator):
    x = table(generator, n=90)
    _, dense = graph_and_eigenmap(x)
    _, blocked = graph_and_eigenmap(x, block=7)
    torch.testing.assert_close(gram(blocked.functions), gram(dense.functions), **F64_DEEP)


def test_a_view_takes_24_passes_over_its_rows_and_no_matrix_of_them(generator, monkeypatch):
    pairs, largest = 0, 0

    def counted(a, c):
        nonlocal pairs, largest
        size = a.shape[1] * c.shape[1]
        pairs, largest = pairs + size, max(largest, size)
        return squared_distances(a, c)

    monkeypatch.setattr(graphs, "squared_distances", counted)
    x = table(generator, b=1, n=90)
    scale = neighbour_distances(x, x, skip_self=True)
    assert pairs == 90**2
    largest = 0
    filtered(DenseGraph(x, scale, block=7), x, 8)
    assert pairs <= PASSES * 90**2
    assert largest == 7 * 90


def test_relaxation_is_when_a_walk_forgets_the_parts(generator):
    x = table(generator, n=30)
    _, found = graph_and_eigenmap(x, k=6)
    for parts, place in ((2, 2), (5, 5), (50, 5)):
        for i in range(2):
            value = min(max(float(found.values[i, place]), 1e-3), 1 - 1e-4)
            steps = float(found.relaxation(parts)[i])
            assert value**steps == pytest.approx(math.exp(-1))


# Kernels


def graphs_of(views):
    return tuple(graph for graph in GRAPHS if graph.view in views)


def context_kernels(x, labelled, n_classes=3, k=48, views=VIEWS, factors=None):
    """Of contexts whose labelled rows have the classes 0, 1, ... in turn."""
    indices = torch.tensor([labelled] * len(x))
    classes = torch.arange(len(labelled)) % n_classes
    target = torch.nn.functional.one_hot(classes, n_classes).double()
    target = target.expand(len(x), -1, -1)
    return ContextKernels.of_tables(
        x, indices, target, k, graphs_of(views), factors=factors
    )


def cosine(a, b):
    """Rows far shorter than a thousandth have no direction."""
    a, b = (rows / np.sqrt((rows**2).sum(1, keepdims=True) + 1e-6) for rows in (a, b))
    return a @ b.T


def expected_kernels(rows, labelled, n_classes, neighbours=BANDWIDTH_NEIGHBOURS):
    """Return every form, of one view of one context, from its rows, by NumPy."""
    rows = rows.numpy()
    known = rows[labelled]
    d = euclidean_distances(rows, squared=True)
    far = np.sort(d, axis=1)[:, min(neighbours, len(d) - 1)]
    d = d[:, labelled]
    made = {
        "linear": rows @ known.T,
        "cosine": cosine(rows, known),
        "wide": np.exp(-d / 2),
        "narrow": np.exp(-2 * d),
        "local": np.exp(-d / np.sqrt(np.outer(far, far[labelled]))),
    }
    values, functions, _ = exact_eigenmap(torch.tensor(dense_weights(rows, neighbours)))
    shares = faded(values).numpy()[1:]
    values, functions = values.clamp(min=0).numpy()[1:], functions.numpy()[:, 1:]
    relaxed = -1 / np.log(np.clip(values[n_classes - 1], 1e-3, 1 - 1e-4))
    times = [*STEPS, *(relaxed * t for t in RELAXATIONS)]
    for name, time in zip(DIFFUSED, times, strict=True):
        features = functions * np.sqrt(shares * values**time)
        made[name] = cosine(features, features[labelled])
    return made


def test_every_kernel_is_its_formula(generator):
    x, labelled = table(generator, n=30), [3, 17, 5, 29]
    factors = torch.rand(2, 3, generator=generator, dtype=torch.float64) + 0.2
    kernels = context_kernels(x, labelled, factors=factors)
    assert kernels.kernels == KERNELS
    found = kernels.label_kernels(kernels.context_rows()).kernels
    columns = {"each": x, "common": x * factors[:, None]}
    classes = tuple(i % 3 for i in range(4))
    for i in range(2):
        for graph in GRAPHS:
            rows = columns[graph.geometry]
            (points,) = views_of(rows, (graph.view,), labelled, classes)(rows)
            expected = expected_kernels(points[i], labelled, 3, graph.neighbours)
            for form in set(graph.forms) - {ABSOLUTE}:  # which has a test of its own
                kernel = Kernel(graph, form)
                np.testing.assert_allclose(
                    found[i, KERNELS.index(kernel)],
                    expected[form],
                    err_msg=str(kernel),
                    **F64_DEEP,
                )


def test_kernel_of_absolute_differences_is_its_formula(generator):
    x, labelled = table(generator, n=30), [3, 17, 5, 29]
    kernels = context_kernels(x, labelled, views=("ranks",))
    assert [str(kernel) for kernel in kernels.kernels] == [
        f"ranks.{form}" for form in (*FORMS, ABSOLUTE)
    ]
    found = kernels.label_kernels(kernels.context_rows()).kernels[:, -1]
    (ranks,) = views_of(x, ("ranks",))(x)
    for i in range(2):
        apart = np.abs(ranks[i].numpy()[:, None] - ranks[i].numpy()[labelled]).sum(-1)
        expected = np.exp(-2 * apart / apart.mean())
        np.testing.assert_allclose(found[i], expected, **F64_DEEP)


def test_names_are_in_order_whatever_the_views(generator):
    x = table(generator, n=20)
    names = [str(kernel) for kernel in KERNELS]
    assert len(names) == len(set(names)) == sum(len(graph.forms) for graph in GRAPHS)
    for views in (("white",), ("raw", "half"), VIEWS):
        kernels = context_kernels(x, [0, 1], views=views).kernels
        # The first geometry is complete before the second begins, as in GRAPHS.
        assert kernels == tuple(kernel for kernel in KERNELS if kernel.graph.view in views)


def test_new_rows_one_by_one_are_as_together(generator):
    x, new = table(generator), table(generator, n=6)
    kernels = context_kernels(x, [3, 17, 5])
    together = kernels.label_kernels(kernels.place(new))
    for i in range(6):
        alone = kernels.label_kernels(kernels.place(new[:, i : i + 1]))
        part = slice(i, i + 1)
        torch.testing.assert_close(alone.kernels, together.kernels[:, :, part], **F64_DEEP)
        torch.testing.assert_close(alone.contact, together.contact[:, part], **F64_DEEP)
        torch.testing.assert_close(alone.reach, together.reach[:, part], **F64_DEEP)


def test_a_given_graph_has_the_kernels_of_its_rows(generator):
    """The weights of a view, given as a matrix: its diffusion kernels, and no others."""
    x, labelled = table(generator, n=30), [3, 17, 5]
    by_rows = context_kernels(x, labelled, views=("raw",))
    (raw,) = views_of(x, ("raw",))(x)
    w = DenseGraph(raw, neighbour_distances(raw, raw, skip_self=True)).dense()
    given = ContextKernels.of_affinities(w, torch.tensor([labelled] * 2), 3, 48)
    assert given.kernels == tuple(Kernel(GRAPHS[0], form) for form in DIFFUSED)
    found = given.label_kernels(given.context_rows())
    expected = by_rows.label_kernels(by_rows.context_rows())
    places = [by_rows.kernels.index(name) for name in given.kernels]
    torch.testing.assert_close(found.kernels, expected.kernels[:, places], **F64_DEEP)
    torch.testing.assert_close(found.contact, torch.ones(2, 30).double(), **F64)


def test_new_rows_of_a_given_graph(generator):
    """With the weights of an old row it is where that was; with none it has no contact."""
    x = table(generator, b=1, n=30)
    w = DenseGraph(x, neighbour_distances(x, x, skip_self=True)).dense()
    kernels = ContextKernels.of_affinities(w, torch.tensor([[1, 2]]), 2, 48)
    found = kernels.label_kernels(kernels.place(torch.cat([w[:, :5], 0 * w[:, :1]], dim=1)))
    old = kernels.label_kernels(kernels.context_rows())
    torch.testing.assert_close(found.contact[:, 5:], torch.zeros(1, 1).double())
    assert (found.contact[:, :5] > 0.9).all()
    torch.testing.assert_close(found.reach[:, 5:], torch.zeros(1, 1).double())
    place = list(DIFFUSED).index("steps6")  # the longest in which noise has died out
    torch.testing.assert_close(
        found.kernels[:, place, :5], old.kernels[:, place, :5], rtol=0, atol=0.02
    )


def test_contact_is_one_among_the_rows_and_zero_far_away(generator):
    x = table(generator, n=60)
    kernels = context_kernels(x, [0, 1])
    assert kernels.label_kernels(kernels.context_rows()).contact.median() > 0.99
    corners = torch.cartesian_prod(*[torch.tensor([-1e3, 1e3]).double()] * 3)
    contact = kernels.label_kernels(kernels.place(corners.expand(2, -1, -1))).contact
    assert contact.max() < 1e-3


@pytest.mark.parametrize("views", [("raw",), VIEWS], ids=["raw", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_labels_of_one_part_do_not_reach_another(seed, views):
    x, y = blobs(seed, n=60, centres=2, apart=40.0)
    labelled = torch.nonzero(y[0] == 0)[:4, 0].tolist()
    kernels = context_kernels(x, labelled, n_classes=2, views=views)
    reach = kernels.label_kernels(kernels.context_rows()).reach[0]
    assert reach[y[0] == 1].max() < 1e-6
    assert reach[y[0] == 0].min() > 0.2


def test_reach_is_how_likely_a_walk_meets_a_labelled_row(generator):
    x, labelled = table(generator, b=1, n=30), [3, 17]
    kernels = context_kernels(x, labelled, views=("raw",))
    (raw,) = views_of(x, ("raw",))(x)
    values, functions, _ = exact_eigenmap(torch.tensor(dense_weights(raw[0])))
    walked = functions * values.clamp(min=0) ** (REACH_TIME / 2)
    likely = (walked @ walked[labelled].mT).amax(1).clamp(0, 1)
    found = kernels.label_kernels(kernels.context_rows())
    torch.testing.assert_close(found.reach[0], likely * found.contact[0], **F64_DEEP)


def test_neighbourhood_without_distances_is_equivariant_to_the_order_of_rows(generator):
    x = table(generator, b=1, n=80)
    w = DenseGraph(x, neighbour_distances(x, x, skip_self=True)).dense()
    order = torch.randperm(80, generator=generator)
    plain = AffinityGraph.of_weights(GRAPHS[0], w, 8).context.functions
    w = w[:, order][:, :, order]
    shuffled = AffinityGraph.of_weights(GRAPHS[0], w, 8).context.functions
    expected = gram(plain)[:, order][:, :, order]
    torch.testing.assert_close(gram(shuffled), expected, rtol=1e-5, atol=1e-6)


# The gate


def gate_case(generator, b=1, e=2, n=15, classes=(0, 1, 2, 0, 1, 2, 0, 0)):
    """Positive definite kernels between points, of which the first have a class."""
    points = torch.randn(b, e, n, 4, generator=generator, dtype=torch.float64)
    kernels = points @ points.mT / 4
    m, y = len(classes), torch.tensor([classes] * b)
    valid = torch.ones(b, m, dtype=torch.bool)
    target = torch.nn.functional.one_hot(y, max(classes) + 1).double()
    return kernels[..., :m], kernels[..., :m, :m], target, valid


def sharpened(scores):
    return 3 * scores / scores.std(ddof=1)


def judged_by_loop(scores, target, rows):
    """Mean log-probability and hits beyond chance, of some rows."""
    c = target.shape[1]
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    first = softmax(scores / 0.01, axis=1)  # all of it for the first, but for ties
    right = [first[i] @ target[i] - 1 / c for i in rows]
    score = [np.log(p[i] @ target[i]) + np.log(c) for i in rows]
    return np.mean(score), np.mean(right)


def feature(found, name):
    return found[0, :, FEATURES.index(name)].numpy()


def test_class_means_leave_each_row_out(generator):
    kernels, among, target, valid = gate_case(generator)
    found = kernel_features(kernels, among, target, valid)
    y = target[0].numpy()
    for e, kernel in enumerate(among[0].numpy()):
        scores = np.zeros_like(y)
        for i in range(len(y)):
            for c in range(3):
                others = [j for j in range(len(y)) if y[j, c] and j != i]
                scores[i, c] = np.mean([kernel[i, j] for j in others])
        score, hits = judged_by_loop(sharpened(scores), y, range(len(y)))
        assert feature(found, "score")[e] == pytest.approx(score, rel=1e-10)
        assert feature(found, "hits")[e] == pytest.approx(hits, rel=1e-10)
        many = score * np.log(len(y) / 3)
        assert feature(found, "score where many")[e] == pytest.approx(many, rel=1e-6)


def test_ridge_is_refitted_without_each_row(generator):
    kernels, among, target, valid = gate_case(generator)
    found = kernel_features(kernels, among, target, valid)
    y, m = target[0].numpy(), target.shape[1]
    centring = np.eye(m) - 1 / m
    for e, kernel in enumerate(among[0].numpy()):
        kernel = centring @ kernel @ centring  # noqa: PLW2901
        scores = np.zeros_like(y)
        for i in range(m):
            rest = np.delete(np.arange(m), i)
            ridge = KernelRidge(alpha=gate._RIDGE, kernel="precomputed")
            ridge.fit(kernel[np.ix_(rest, rest)], y[rest] - 1 / 3)
            scores[i] = ridge.predict(kernel[i : i + 1, rest])[0]
        score, hits = judged_by_loop(sharpened(scores), y, range(m))
        assert feature(found, "ridge")[e] == pytest.approx(score, rel=1e-8)
        assert feature(found, "ridge hits")[e] == pytest.approx(hits, rel=1e-8)


def test_features_of_the_predictions_are_their_formulas(generator):
    kernels, among, target, valid = gate_case(generator)
    found = kernel_features(kernels, among, target, valid)
    y = target[0].numpy()
    predicted = []
    for kernel in kernels[0].numpy():
        scores = sharpened(kernel @ (y / y.sum(0)))
        predicted.append(np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
    for e, p in enumerate(predicted):
        share = p.mean(0)
        expected = {
            "agreement": (p * np.mean(predicted, axis=0)).sum(1).mean() - 1 / 3,
            "confidence": p.max(1).mean() - 1 / 3,
            "balance": -(share * np.log(share)).sum() / np.log(3),
            "spread": np.log(kernels[0, e].numpy().std(0, ddof=1).mean()),
        }
        for name, value in expected.items():
            assert feature(found, name)[e] == pytest.approx(value, rel=1e-10), name


@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2, 3), (0, 0, 0, 1)])
def test_features_are_finite_where_a_class_has_one_label(generator, classes):
    found = kernel_features(*gate_case(generator, classes=classes))
    assert found.isfinite().all()
    if len(set(classes)) == len(classes):
        for name in ("score", "hits", "ridge", "ridge hits"):
            assert (feature(found, name) == 0).all()  # nobody else: nothing is learned


@pytest.mark.parametrize("classes", [(0, 1, 2, 0, 1, 2, 0, 0), (0, 1)])
def test_filling_up_labelled_rows_changes_no_feature(generator, classes):
    kernels, among, target, valid = gate_case(generator, classes=classes)
    expected = kernel_features(kernels, among, target, valid)
    pad = torch.nn.functional.pad
    found = kernel_features(
        pad(kernels, (0, 3)),
        pad(among, (0, 3, 0, 3)),
        pad(target, (0, 0, 0, 3)),
        pad(valid, (0, 3)),
    )
    torch.testing.assert_close(found, expected, **F64)


# The model


def random_model(members=2, graphs=GRAPHS, **options):
    """Weights far from where training starts, so that everything has a part."""
    config = ContextConfig(width=16, embedding=4, members=members, **options)
    model = ContextModel(config, graphs)
    with torch.no_grad():
        for p in model.gates.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model.double().eval().requires_grad_(False)


def context(generator, b=2, n=40, d=3, c=3, m=7):
    """Random rows and classes; ``m`` labelled rows, each class among them."""
    x = table(generator, b=b, n=n, d=d)
    y = torch.randint(c, (b, n), generator=generator)
    labelled = torch.zeros(b, n, dtype=torch.bool)
    for i in range(b):
        order = torch.randperm(n, generator=generator)[:m]
        y[i, order[:c]] = torch.arange(c)
        labelled[i, order] = True
    return x, y, labelled, c


def test_a_context_does_not_depend_on_the_batch(generator):
    """Contexts of 3, 7 and 12 labels, filled up to twelve."""
    model, c = random_model(), 3
    cases = [context(generator, b=1, m=m) for m in (3, 7, 12)]
    x, y, labelled = (torch.cat([case[i] for case in cases]) for i in range(3))
    new = table(generator, b=3, n=5)
    fitted = model.fit(x, y, labelled, c)
    own, other = fitted.predict_context(), fitted.predict_new(new)
    for i, case in enumerate(cases):
        alone = model.fit(*case)
        for found, expected in (
            (own, alone.predict_context()),
            (other, alone.predict_new(new[i : i + 1])),
        ):
            torch.testing.assert_close(found.logits[i], expected.logits[0], **F64_DEEP)
            torch.testing.assert_close(found.reach[i], expected.reach[0], **F64_DEEP)


def test_equivariant_to_the_order_of_classes(generator):
    model = random_model()
    x, y, labelled, c = context(generator, n=90)
    turn = torch.tensor([2, 0, 1])
    plain, turned = model(x, y, labelled, c), model(x, turn[y], labelled, c)
    torch.testing.assert_close(turned[..., turn], plain, **F64_DEEP)


@pytest.mark.parametrize("n", [40, 150])
def test_equivariant_to_the_order_of_rows(generator, n):
    model = random_model()
    x, y, labelled, c = context(generator, n=n)
    order = torch.randperm(n, generator=generator)
    plain = model(x, y, labelled, c)
    shuffled = model(x[:, order], y[:, order], labelled[:, order], c)
    torch.testing.assert_close(shuffled, plain[:, order], **F64_DEEP)


def test_order_of_columns_and_unit_of_the_table_do_not_matter(generator):
    model = random_model()
    x, y, labelled, c = context(generator)
    new = table(generator, n=5)
    other, other_new = (1e4 * rows[..., [2, 0, 1]] + 3 for rows in (x, new))
    plain, changed = (model.fit(rows, y, labelled, c) for rows in (x, other))
    torch.testing.assert_close(
        changed.predict_context().logits, plain.predict_context().logits, **F64_DEEP
    )
    expected, found = plain.predict_new(new), changed.predict_new(other_new)
    torch.testing.assert_close(found.logits, expected.logits, **F64_DEEP)


def test_labels_of_other_rows_do_not_matter(generator):
    model = random_model()
    x, y, labelled, c = context(generator)
    hidden = torch.where(labelled, y, -1)
    expected = model(x, y, labelled, c)
    torch.testing.assert_close(model(x, hidden, labelled, c), expected, rtol=0, atol=0)


def test_new_rows_do_not_depend_on_each_other(generator):
    model = random_model()
    fitted = model.fit(*context(generator))
    new = table(generator, n=6)
    together = fitted.predict_new(new)
    for i in range(6):
        alone = fitted.predict_new(new[:, i : i + 1])
        torch.testing.assert_close(alone.logits, together.logits[:, i : i + 1], **F64_DEEP)


def test_parts_sum_to_the_logits(generator):
    model = random_model()
    fitted = model.fit(*context(generator))
    for found in (
        fitted.predict_context(parts=True),
        fitted.predict_new(table(generator, n=6), parts=True),
    ):
        assert found.parts.shape[2] == 7
        torch.testing.assert_close(found.parts.sum(2), found.logits, **F64)
    assert fitted.predict_context().parts is None


@pytest.mark.parametrize("as_graph", [False, True])
def test_in_pieces_it_is_the_same(generator, monkeypatch, as_graph):
    model = random_model()
    x, y, labelled, c = context(generator)
    new = table(generator, n=6)
    if as_graph:
        w = DenseGraph(x, neighbour_distances(x, x, skip_self=True)).dense()
        x, new, read = w, w[:, :6], model.fit_graph
    else:
        read = model.fit
    fitted = read(x, y, labelled, c)
    whole = fitted.predict_context(parts=True), fitted.predict_new(new, parts=True)
    nine_rows = 2 * 7 * len(KERNELS) * 9
    monkeypatch.setattr(kernels_file, "MOST_KERNEL_VALUES", nine_rows)
    fitted = read(x, y, labelled, c)
    assert as_graph or fitted.centred.context is None
    pieces = fitted.predict_context(parts=True), fitted.predict_new(new, parts=True)
    for found, expected in zip(pieces, whole, strict=True):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, **F64_DEEP)


SECOND_GRAPHS = [GraphSpec("raw", 5, FORMS), GraphSpec("raw", 5, DIFFUSED)]


@pytest.mark.parametrize("second", SECOND_GRAPHS, ids=["all forms", "diffused"])
def test_a_second_graph_of_a_view_is_one_line(generator, second):
    """Declared, it has kernels of its own, which every backend computes alike."""
    declared = (*GRAPHS, second)
    model, (x, y, labelled, c) = random_model(graphs=declared), context(generator, b=1)
    assert len(model.kernels) == len(KERNELS) + len(second.forms)
    assert len({str(kernel) for kernel in model.kernels}) == len(model.kernels)
    new = table(generator, b=1, n=6)
    dense, *others = (
        model.fit(x, y, labelled, c, backend=backend)
        for backend in (Backend("dense"), Backend("exact"), Backend("sparse", 40))
    )
    for fitted in others:
        for found, expected in (
            (fitted.predict_context(parts=True), dense.predict_context(parts=True)),
            (fitted.predict_new(new, parts=True), dense.predict_new(new, parts=True)),
        ):
            for part, whole in zip(found, expected, strict=True):
                torch.testing.assert_close(part, whole, **F64_DEEP)
    without = model.fit(x, y, labelled, c, GRAPHS).predict_context().logits
    assert (without - dense.predict_context().logits).abs().max() > 1e-3


@pytest.mark.parametrize("second", SECOND_GRAPHS, ids=["all forms", "diffused"])
def test_kernels_of_a_second_graph_are_their_formulas(generator, second):
    x, labelled = table(generator, n=30), [3, 17, 5, 29]
    indices = torch.tensor([labelled] * 2)
    target = one_hot([0, 1, 2, 0])
    kernels = ContextKernels.of_tables(x, indices, target, 48, (*GRAPHS, second))
    # One geometry after the other, in the order in which each declares its graphs.
    in_order = sorted((*GRAPHS, second), key=lambda g: GEOMETRIES.index(g.geometry))
    assert kernels.kernels == kernels_of(in_order)
    found = kernels.label_kernels(kernels.context_rows()).kernels
    raw = kernels.views["each"](x)[0]
    for i in range(2):
        expected = expected_kernels(raw[i], labelled, 3, second.neighbours)
        for form in second.forms:
            kernel = found[i, kernels.kernels.index(Kernel(second, form))]
            np.testing.assert_allclose(kernel, expected[form], err_msg=form, **F64_DEEP)


def test_float32_is_close_to_float64(generator):
    model = random_model()
    x, y, labelled, c = context(generator)
    exact = model(x, y, labelled, c).softmax(-1)
    rough = model.float()(x.float(), y, labelled, c).softmax(-1)
    torch.testing.assert_close(rough.double(), exact, rtol=0, atol=2e-3)


@pytest.mark.parametrize("d", [2, 3, 200])
def test_the_choice_of_eigenvectors_does_not_matter(generator, monkeypatch, d):
    model, (x, y, labelled, c) = random_model(), context(generator, b=1, n=160, d=d)
    x = torch.cat([x, one_hot_columns(generator)], dim=-1)
    expected = model.fit(x, y, labelled, c).predict_context().logits
    with_other_eigenvectors(monkeypatch, generator)
    found = model.fit(x, y, labelled, c).predict_context().logits
    torch.testing.assert_close(found, expected, **F64_DEEP)


def test_classes_that_are_level_share_a_hit():
    """Whichever stands first: a tie is half a hit of two classes, a third of three."""
    y = torch.eye(3).double()[None]
    scores = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 1.0, 3.0]])
    judged = torch.ones(1, 3, dtype=torch.bool)
    _, hits = gate._judge(scores.double()[None, None], y, judged)
    expected = (1 / 2 + 1 / 3 + 1) / 3 - 1 / 3
    assert float(hits) == pytest.approx(expected, abs=1e-12)


def test_devices_agree(generator, device):
    model = random_model()
    x, y, labelled, c = context(generator)
    new = table(generator, n=6)
    fitted = model.fit(x, y, labelled, c)
    expected = fitted.predict_context().logits, fitted.predict_new(new).logits
    there = (part.to(device) for part in (x, y, labelled))
    fitted = model.to(device).fit(*there, c)
    found = (
        fitted.predict_context().logits.cpu(),
        fitted.predict_new(new.to(device)).logits.cpu(),
    )
    torch.testing.assert_close(found, expected, **F64_DEEP)


def test_labels_a_class_are_counted_in_the_precision_of_the_context(generator):
    """A quotient of whole numbers is float32, which devices round each in their own way."""
    features = features_of_tables(*context(generator, m=7, c=3), GRAPHS, 48)
    assert features.inputs.context[:, 0].tolist() == [math.log(7 / 3)] * 2


def test_members_give_the_mean_of_their_weights(generator):
    model = random_model(members=3).train()  # in which nothing corrects them
    features = features_of_tables(*context(generator), GRAPHS, 48)
    each = [model.fit_features(features, [i]) for i in range(3)]
    together = model.fit_features(features)
    for name in ("mixture", "weights", "sharpness", "slope"):
        of_each = torch.stack([getattr(fitted, name) for fitted in each])
        assert (of_each[0] - of_each[1]).abs().max() > 1e-4
        found = getattr(together, name)
        torch.testing.assert_close(found, of_each.mean(0), **F64)
        if name in ("mixture", "weights"):
            sums = found.sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums), **F64)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_descent_is_on_the_balanced_cross_entropy_of_the_labels(generator, steps):
    """Nesterov's, in the space of functions: autograd's gradient, divided by the kernel."""
    _, among, target, valid = gate_case(generator, e=1)
    kernel = among[:, 0] + torch.eye(8)
    found = descend(kernel, target, valid, steps)
    k, y = kernel[0], target[0]
    weight = len(y) / 3 / (y @ y.sum(0))  # classes of many labels weigh as those of few
    bound = (k.abs() * weight).sum(1).max() / 2 + 1
    momentum = (bound.sqrt() - 1) / (bound.sqrt() + 1)
    before = ahead = torch.zeros_like(y)
    for _ in range(steps):
        a = ahead.clone().requires_grad_()
        losses = torch.nn.functional.cross_entropy(k @ a, y.argmax(1), reduction="none")
        loss = (weight * losses).sum() + 0.5 * (a * (k @ a)).sum()
        (gradient,) = torch.autograd.grad(loss, a)
        now = ahead - torch.linalg.solve(k, gradient) / bound
        before, ahead = now, now + momentum * (now - before)
    torch.testing.assert_close(found[0], before, **F64_DEEP)


def test_descent_ends_at_logistic_regression_in_the_kernel(generator):
    _, among, target, valid = gate_case(generator, e=1)
    kernel = among[:, 0] + 0.1 * torch.eye(8)
    found = kernel @ descend(kernel, target, valid, 400)
    features = torch.linalg.cholesky(kernel[0]).numpy()
    regression = LogisticRegression(
        class_weight="balanced", fit_intercept=False, tol=1e-10, max_iter=1000
    )
    regression.fit(features, target[0].argmax(1))
    expected = regression.decision_function(features)
    np.testing.assert_allclose(found[0].softmax(-1), softmax(expected, axis=1), atol=1e-6)


def test_sharpness_and_reach_multiply_the_logits(generator):
    """Against the same context, fitted alike, whose logits are left as they are."""
    fitted = random_model().fit(*context(generator))
    assert (fitted.slope.abs() > 1e-3).all()
    plain = replace(fitted, sharpness=0 * fitted.sharpness, slope=0 * fitted.slope)
    found, expected = fitted.predict_context(), plain.predict_context().logits
    for i in range(2):
        for j in range(40):
            exponent = fitted.sharpness[i] + fitted.slope[i] * found.reach[i, j]
            torch.testing.assert_close(
                found.logits[i, j], exponent.exp() * expected[i, j], **F64
            )


def test_a_row_without_contact_has_no_logits(generator):
    fitted = random_model().fit(*context(generator))
    columns = fitted.kernels.label_kernels(fitted.kernels.context_rows())
    nowhere = columns._replace(contact=torch.zeros_like(columns.contact))
    assert fitted.predict_kernels(nowhere).logits.abs().max() == 0


@pytest.mark.parametrize(("n", "d", "c"), [(2, 1, 2), (3, 50, 2), (30, 1, 20), (60, 2, 2)])
def test_any_shape_is_finite(generator, n, d, c):
    model = random_model()
    fitted = model.fit(*context(generator, n=n, d=d, c=c, m=c))
    for found in (
        fitted.predict_context(),
        fitted.predict_new(table(generator, n=3, d=d)),
    ):
        assert found.logits.isfinite().all()
        assert ((found.reach >= 0) & (found.reach <= 1)).all()


# Documents

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_on_the_walk_names_every_file_that_a_fit_passes():
    script = runpy.run_path(str(DOCS.parent / "scripts" / "draw_walk.py"))
    files = script["trace"]().files
    # The first is where a small table is limited to one thread.
    first = ["classifier/context_estimator.py", "classifier/estimator.py"]
    assert [file for file in files if "_util" not in file][:2] == first
    steps = [f"classifier/{name}.py" for name in ("views", "graphs", "eigenmap", "gate")]
    order = [file for file in files if file in steps]
    assert order == steps
    page = (DOCS / "architecture.md").read_text()
    missing = [
        file for file in files if "_util" not in file and Path(file).name not in page
    ]
    assert set(missing) <= {"tables/cells.py", "tables/order.py"}  # no step of their own
