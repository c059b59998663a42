"""Shapes of the benchmark with known answers: they are what their names say."""

import json
import sys
import warnings

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_info, threadpool_limits

import known_answers
from known_answers import SHAPES, draw_shape
from processes import map_in_processes


@pytest.mark.parametrize("name", SHAPES)
def test_labels_are_nested_and_points_do_not_depend_on_them(name):
    x, truth, few = draw_shape(name, 200, 2, seed=1)
    same_x, same_truth, more = draw_shape(name, 200, 5, seed=1)
    np.testing.assert_array_equal(x, same_x)
    np.testing.assert_array_equal(truth, same_truth)
    np.testing.assert_array_equal(more[few >= 0], few[few >= 0])
    classes = np.unique(truth)
    np.testing.assert_array_equal(classes, np.arange(len(classes)))
    for y, count in ((few, 2), (more, 5)):
        np.testing.assert_array_equal(y[y >= 0], truth[y >= 0])
        assert np.bincount(y[y >= 0]).tolist() == [count] * len(classes)
    assert not np.array_equal(x, draw_shape(name, 200, 2, seed=2)[0])


@pytest.mark.parametrize("name", SHAPES)
def test_the_nearest_point_has_the_same_class(name):
    """With all labels known, 1-NN is nearly always right: the answer is in the geometry."""
    x, truth, _ = draw_shape(name, 600, 2, seed=0)
    known = np.arange(len(x)) < 500
    model = KNeighborsClassifier(n_neighbors=1).fit(x[known], truth[known])
    assert (model.predict(x[~known]) == truth[~known]).mean() > 0.9


def test_spheres_have_their_radii_and_rings_are_linked():
    x, truth, _ = draw_shape("concentric spheres", 600, 2, seed=0)
    radius = np.linalg.norm(x, axis=1)
    for c, size in enumerate((1.0, 2.0)):
        assert abs(np.median(radius[truth == c]) - size) < 0.03
    x, truth, _ = draw_shape("interlocked rings", 600, 2, seed=0)
    # The second ring passes through the disc of the first, and also lies outside of it.
    near_plane = (truth == 1) & (np.abs(x[:, 2]) < 0.3)
    inside = np.linalg.norm(x[near_plane, :2], axis=1) < 0.8
    assert inside.any()
    assert not inside.all()


def test_the_quick_run_ends_in_one_json_line(monkeypatch, capsys, tmp_path):
    path = tmp_path / "known.json"
    monkeypatch.setattr(
        sys,
        "argv",
        ["known_answers.py", "--quick", "--shapes", "blobs", "--output", str(path)],
    )
    filters = warnings.filters.copy()
    known_answers.main()
    assert warnings.filters == filters
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found == json.loads(path.read_text())
    assert [line["labels"] for line in found["lines"]] == [2, 5]
    for line in found["lines"]:
        peers = {m: a for m, a in line["accuracy"].items() if m != known_answers.OURS}
        best = max(peers.values())
        assert line["minus_best"] == pytest.approx(line["accuracy"]["icssl"] - best)
        assert best == 1.0


def threads(_=None):
    """The threads of torch, and of every BLAS and OpenMP that is loaded."""
    return [torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())]


def test_one_worker_uses_one_thread_and_gives_back_those_of_the_caller():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        # Libraries that were loaded late have a thread per core: here all get the same.
        with threadpool_limits(2):
            given = threads()
            assert max(given) == 2
            for found in map_in_processes(threads, range(2), 1):
                assert set(found) == {1}
                assert threads() == given
    finally:
        torch.set_num_threads(before)


def test_every_one_of_several_workers_uses_one_thread():
    for found in map_in_processes(threads, range(2), 2):
        assert set(found) == {1}
