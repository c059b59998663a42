"""Graphs that are remembered between fits of the same rows."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

from icssl import ICSSLClassifier
from icssl.classifier import view_graph
from icssl.classifier.graph_memory import GraphMemory, is_remembering, remember_graphs


@pytest.fixture
def made(monkeypatch):
    """Names of views whose graphs were made and not recalled."""
    names, original = [], view_graph.ViewGraph.of_points

    def of_points(spec, *args, **options):
        names.append(spec.view)
        return original(spec, *args, **options)

    monkeypatch.setattr(view_graph.ViewGraph, "of_points", of_points)
    return names


def labels_of(truth, rows):
    y = np.full(len(truth), -1)
    y[rows] = truth[rows]
    return y


def test_a_label_more_makes_only_what_depends_on_labels_and_changes_no_answer(made):
    X, truth = load_wine(return_X_y=True)
    first, more = (labels_of(truth, [0, 59, 130, *others]) for others in ([], [80]))
    plain = ICSSLClassifier().fit(X, more)
    with remember_graphs(GraphMemory()):
        ICSSLClassifier().fit(X, first)
        made.clear()
        found = ICSSLClassifier().fit(X, more)
        assert set(made) == {"relevant"}
    np.testing.assert_array_equal(found.label_distributions_, plain.label_distributions_)
    np.testing.assert_array_equal(found.reach_, plain.reach_)


@pytest.mark.parametrize("backend", ["dense", "exact", "sparse"])
def test_other_rows_or_another_backend_have_graphs_of_their_own(backend):
    X, truth = load_wine(return_X_y=True)
    y = labels_of(truth, [0, 59, 130])
    memory = GraphMemory()
    for rows, options in (
        (X, {"backend": "dense"}),
        (X * np.linspace(1, 2, 13), {"backend": backend}),
        (X[::-1].copy(), {"backend": backend}),
        (np.where(X > 20, X**2, X), {"backend": backend, "model": "one view"}),
        (X, {"backend": backend}),
    ):
        plain = ICSSLClassifier(**options).fit(rows, y)
        with remember_graphs(memory):
            found = ICSSLClassifier(**options).fit(rows, y)
        np.testing.assert_array_equal(
            found.label_distributions_, plain.label_distributions_
        )


def test_a_memory_keeps_the_last_ones_and_only_within_its_block():
    memory, made = GraphMemory(most=2), []

    def recall(key):
        return memory.recall(key, lambda: made.append(key) or key)

    assert [recall(key) for key in "abaca"] == list("abaca")
    assert made == ["a", "b", "c"]  # a was used again before b was dropped
    recall("b")
    assert made == ["a", "b", "c", "b"]
    with remember_graphs(memory):
        assert is_remembering()
    assert not is_remembering()
