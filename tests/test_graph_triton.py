"""The kernels for the graph of very many rows, against blocks of weights in float64."""

import pytest
import torch

from icssl.classifier.graph_exact import exact_distances, exact_graph
from icssl.classifier.graphs import (
    DenseGraph,
    NeighbourDistances,
    graph_weights,
    neighbour_distances,
)

pytestmark = pytest.mark.gpu
RELATIVE = 1e-4


@pytest.fixture
def rows(generator):
    return (torch.randn(2, 3000, 20, generator=generator) / 20**0.5).cuda()


def of_doubles(rows, distances):
    return DenseGraph(
        rows.double(), NeighbourDistances(distances.near.double(), distances.far.double())
    )


@pytest.mark.parametrize("d", [5, 20, 62, 126])
@pytest.mark.parametrize("k", [1, 56, 100])
def test_a_pass_is_that_of_float64(generator, d, k):
    from icssl.classifier.graph_triton import TritonGraph

    rows = (torch.randn(2, 1500, d, generator=generator) / d**0.5).cuda()
    x = torch.randn(2, 1500, k, generator=generator).cuda()
    distances = neighbour_distances(rows, rows, skip_self=True)
    found, expected = exact_graph(rows, distances), of_doubles(rows, distances)
    assert isinstance(found, TritonGraph)
    torch.testing.assert_close(
        found.degrees.double(), expected.degrees, rtol=RELATIVE, atol=1e-6
    )
    off = (found.times(x).double() - expected.times(x.double())).abs().max()
    assert off < RELATIVE * expected.times(x.double()).abs().max()


def test_no_row_reads_itself(rows):
    distances = neighbour_distances(rows, rows, skip_self=True)
    one = torch.zeros(2, 3000, 1, device="cuda")
    one[:, 1234] = 1.0
    found = exact_graph(rows, distances).times(one)
    assert (found[:, 1234] == 0).all()
    assert (found[:, :1234].sum(1) > 0).all()


@pytest.mark.parametrize("d", [5, 30, 62, 126])
def test_nearest_is_exact_and_the_twelfth_nearly_always(generator, d):
    """Of 60,000 rows in groups of 32, two of twelve share one in 3% of the cases."""
    rows = (torch.randn(1, 60_000, d, generator=generator) / d**0.5).cuda()
    found = exact_distances(rows)
    some = rows[:, ::60]
    expected = neighbour_distances(some.double(), rows.double(), skip_self=True)
    near, far = found.near[:, ::60].double(), found.far[:, ::60].double()
    torch.testing.assert_close(near, expected.near, rtol=1e-3, atol=1e-6)
    assert (far >= expected.far - 1e-6).all()
    same = (far - expected.far).abs() < 1e-3 * expected.far
    assert 0.93 < same.double().mean() < 1


def test_sums_in_pieces_are_the_same(rows, generator, monkeypatch):
    from icssl.classifier import graph_triton

    x = torch.randn(2, 3000, 56, generator=generator).cuda()
    distances = neighbour_distances(rows, rows, skip_self=True)
    whole = exact_graph(rows, distances).times(x)
    monkeypatch.setattr(graph_triton, "_ADDED", 256)
    pieces = exact_graph(rows, distances).times(x)
    off = (pieces - whole).abs().max()
    assert 0 < off < 1e-5 * whole.abs().max()


def test_sums_over_many_rows_keep_their_digits(generator):
    rows = (torch.randn(1, 100_000, 20, generator=generator) / 20**0.5).cuda()
    distances = exact_distances(rows)
    some = torch.arange(0, 100_000, 1000)
    own = distances.at(some[None].cuda())
    double = [NeighbourDistances(s.near.double(), s.far.double()) for s in (own, distances)]
    w = graph_weights(rows[:, some].double(), double[0], rows.double(), double[1])
    w[:, torch.arange(len(some)), some] = 0
    degrees = exact_graph(rows, distances).degrees[:, some].double()
    torch.testing.assert_close(degrees, w.sum(-1), rtol=2e-5, atol=0)
