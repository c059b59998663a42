"""``icssl bench scale``: what is measured, stored and drawn."""

import json
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from helpers import run_command
from icssl.bench.pool import Pool, run_in_subprocess
from icssl.bench.runner import missing_of, run_missing
from icssl.bench.scale import cost
from icssl.bench.scale.cost import (
    MADE,
    ScaleSpec,
    clusters,
    few_labels,
    sizes_for,
    table_of,
)
from icssl.bench.scale.growth import growth_lines, growth_of, write_scale
from icssl.bench.store import Store
from icssl.bench.work import row_of
from icssl.methods import registry
from icssl.methods.registry import REGISTRY, Recipe, choose_methods, names_in

ROOT = Path(__file__).parents[1]


def trial(**options):
    """With some of the usual fields changed."""
    usual = {"data": MADE, "rows": 300, "labels": 5, "draw": 0, "method": "icssl"}
    return ScaleSpec(**{**usual, "device": "cpu", "threads": 1, **options})


def measure(spec):
    return row_of(spec, (), "cpu")


def saved(path, rows=40, first=0):
    """A file of some made rows."""
    x, y = clusters(rows + first)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, x=x[first:], y=y[first:])
    return str(path)


run = partial(run_command, "bench", "scale")


def test_labels_are_so_many_of_each_class_and_right():
    _, truth = clusters(500)
    y = few_labels(truth, 4, 0)
    known = y >= 0
    assert (y[known] == truth[known]).all()
    assert np.bincount(y[known]).tolist() == [4] * 8
    assert (few_labels(truth, 4, 1) != y).any()
    more = few_labels(truth, 6, 0)
    assert (more[known] == y[known]).all()  # fewer labels are among more


@pytest.mark.parametrize("method", ["icssl", "spreading_knn", "spreading_rbf"])
def test_a_row_says_what_was_measured(method):
    row = measure(trial(method=method))
    assert 0.4 < row["accuracy"] < 1
    assert row["seconds"] > 0
    assert row["whole_megabytes"] > 100
    assert row["spec"]["rows"] == 300
    assert row["how"]


def test_graph_methods_of_the_peer_are_far_above_chance():
    pytest.importorskip("graphlearning")
    for method in ("laplace", "poisson"):
        assert measure(trial(method=method, rows=600))["accuracy"] > 0.5


def test_everything_that_decides_a_row_is_in_its_key(tmp_path):
    keys = [
        trial(data=saved(tmp_path / "a" / "x.npz")).key,
        trial(data=saved(tmp_path / "b" / "x.npz", first=1)).key,  # of the same name
        trial(data=saved(tmp_path / "clusters.npz")).key,  # not the made ones
        trial().key,
        trial(rows=301).key,
        trial(labels=6).key,
        trial(draw=1).key,
        trial(method="poisson").key,
        trial(device="cuda").key,
        trial(threads=2).key,
    ]
    assert len(set(keys)) == len(keys)


def test_a_file_is_known_by_its_bytes_wherever_it_lies(tmp_path):
    first = Path(saved(tmp_path / "a" / "x.npz"))
    moved = tmp_path / "x.npz"
    moved.write_bytes(first.read_bytes())
    assert trial(data=str(first)).key == trial(data=str(moved)).key


def test_rows_of_different_weights_are_not_averaged(tmp_path):
    made = measure(trial(rows=40, labels=1))
    rows = []
    for draw, weights, accuracy in (
        (0, "aaaaaaa", 0.5),
        (0, "bbbbbbb", 0.9),
        (1, "bbbbbbb", 0.7),
    ):
        spec = {**made["spec"], "digest": "abc", "weights": weights, "draw": draw}
        rows.append({**made, "spec": spec, "accuracy": accuracy})
    (page,) = write_scale([*rows, rows[-1]], tmp_path)  # a draw that was run twice is one
    lines = [line for line in page.read_text().splitlines() if "weights" in line]
    assert ["0.500" in lines[0], "0.800 ± 0.141" in lines[1], len(lines)] == [True, True, 2]


def test_files_of_one_name_have_a_table_each(tmp_path):
    made = measure(trial(rows=40, labels=1))
    named = [{**made, "spec": {**made["spec"], "digest": d}} for d in ("abc", "def")]
    (page,) = write_scale(named, tmp_path)
    assert page.name == "clusters.md"  # and not that of the made rows
    for digest in ("abc", "def"):
        assert f"Accuracy on clusters, file {digest}" in page.read_text()


def test_a_file_of_ones_own(tmp_path):
    x, y = clusters(400)
    np.savez(tmp_path / "own.npz", x=x.reshape(400, 4, 5), y=y)
    rows, classes = table_of(str(tmp_path / "own.npz"), 100)
    assert rows.shape == (100, 20)
    places = [np.flatnonzero((np.float32(x) == row).all(1))[0] for row in rows]
    assert (y[places] == classes).all()
    found = run(
        *("--data", tmp_path / "own.npz", "--sizes", 400, "--methods", "icssl"),
        *("--labels", "1,3", "--draws", 2, "-o", tmp_path / "out", "--threads", 1),
    )
    assert found.exit_code == 0, found.output
    page = (tmp_path / "out" / "own.md").read_text()
    assert "1 per class" in page
    assert "3 per class" in page


def test_what_is_there_is_not_measured_again_and_pages_are_drawn(tmp_path):
    arguments = ("--sizes", "120,200", "--methods", "icssl,spreading_rbf", "--labels", 3)
    arguments += ("--threads", 1, "-o", tmp_path)
    assert "4 of 4 are to be measured" in run(*arguments).output
    first = (tmp_path / "rows.jsonl").read_text()
    assert "0 of 4 are to be measured" in run(*arguments).output
    assert (tmp_path / "rows.jsonl").read_text() == first
    page = (tmp_path / "scale.md").read_text()
    for row in map(json.loads, first.splitlines()):
        assert f"{row['accuracy']:.3f}" in page
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
    figure = (tmp_path / "scale.svg").read_text()
    for text in ("ICSSL", "Label spreading, Gaussian kernel"):
        assert f"<!-- {text} -->" in figure  # matplotlib notes every text that it draws


def test_methods_stop_where_they_would_not_end():
    assert sizes_for("spreading_rbf", [1_000, 20_000, 30_000]) == [1_000, 20_000]
    assert sizes_for("icssl", [1_000_000]) == [1_000_000]


def test_other_methods_stay_on_the_cores_of_a_machine_with_a_gpu(monkeypatch):
    ran = []

    def method(x, y, device):
        ran.append((len(x), device))
        return np.zeros(len(x), int), "somehow"

    entry = replace(REGISTRY["spreading_rbf"], where={"scale": Recipe(lambda: method, {})})
    monkeypatch.setitem(REGISTRY, "spreading_rbf", entry)
    monkeypatch.setattr(cost, "made_with", lambda device: {"device": device})
    row = measure(trial(device="cuda", method="spreading_rbf", rows=500))
    assert ran == [(400, "cpu"), (500, "cpu")]  # a warm start, and what is measured
    assert row["how"] == "somehow, on the cores"
    assert row["device"] == "cuda"
    assert "gpu_megabytes" not in row
    assert trial(device="cuda", method="icssl").runs_on == "cuda"


def test_all_methods_are_those_that_are_installed(monkeypatch):
    def choose(*names):
        return choose_methods("scale", names, skip_missing=True)

    monkeypatch.setattr(registry, "find_spec", lambda name: object())
    assert choose("all") == names_in("scale")
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert choose("all") == ["icssl", "spreading_knn", "spreading_rbf"]
    with pytest.raises(ImportError, match=r"icssl\[peers\]"):
        choose("icssl", "laplace")


def test_committed_pages_are_those_of_their_rows(tmp_path):
    committed = ROOT / "results" / "scale"
    for page in write_scale(list(Store(committed / "rows.jsonl")), tmp_path):
        assert page.read_text() == (committed / page.name).read_text()
    text = (ROOT / "docs" / "scale.md").read_text()
    for row in map(json.loads, (committed / "rows.jsonl").read_text().splitlines()):
        if row["spec"]["method"] == "icssl" and row["spec"]["data"] == MADE:
            known = row["spec"]["device"] == "cpu" or row["spec"]["rows"] > 10_000
            assert not known or says_seconds(text, row["seconds"]), row["spec"]


def says_seconds(text, seconds):
    """Rounded to a tenth or a hundredth, and not as the end of another number."""
    shown = [f"{seconds:.1f}", f"{seconds:.2f}"]
    return any(re.search(rf"(?<![\d.]){re.escape(one)} s\b", text) for one in shown)


def test_growth_is_the_exponent_and_needs_two_large_sizes():
    assert growth_of([10_000, 100_000, 1_000_000], [1, 10, 100]) == pytest.approx(1)
    assert growth_of([100, 10_000], [1, 5]) is None


def test_growth_is_printed_for_every_machine(tmp_path):
    store = Store(tmp_path / "rows.jsonl")
    for device, of_each in (("A", (1.0, 100.0)), ("B", (1.0, 10.0))):
        for n, seconds in zip((10_000, 100_000), of_each, strict=True):
            found = trial(rows=n, device="cpu" if device == "A" else "cuda")
            row = {"key": found.key, "spec": found.describe(), "seconds": seconds}
            row |= {"megabytes": 1, "whole_megabytes": 2, "accuracy": 0.5, "how": "dense"}
            store.append({**row, "device": device, "torch": "1", "commit": "c"})
    options = ("--sizes", "10000,100000", "--methods", "icssl", "--labels", 5)
    said = run(*options, "--threads", 1, "-o", tmp_path).output
    assert "0 of 2 are to be measured" in said
    assert "A: ICSSL: seconds grow as rows to the power 2.00." in said
    assert "B: ICSSL: seconds grow as rows to the power 1.00." in said


def test_growth_is_told_by_way_where_ways_change():
    row = measure(trial(rows=40, labels=1))
    rows = [
        {**row, "spec": {**row["spec"], "rows": n}, "seconds": seconds, "how": how}
        for n, seconds, how in ((10**4, 1, "a"), (10**5, 10, "b"), (10**6, 1000, "b"))
    ]
    assert [line.partition(": ")[2] for line in growth_lines(rows)] == [
        "ICSSL, across ways: seconds grow as rows to the power 1.50.",
        "ICSSL, b: seconds grow as rows to the power 2.00.",
    ]


def test_a_method_that_fails_leaves_a_row_with_its_error(tmp_path):
    found = run(
        *("--sizes", 5, "--methods", "spreading_knn", "--labels", 1),
        *("--threads", 1, "-o", tmp_path),
    )
    assert found.exit_code == 0
    (row,) = Store(tmp_path / "rows.jsonl")
    assert "Error" in row["error"]
    assert write_scale([row], tmp_path) == []


def test_what_failed_is_tried_again(tmp_path):
    store, wanted = Store(tmp_path / "rows.jsonl"), [trial(rows=40, labels=1)]
    failed = {"key": wanted[0].key, "spec": wanted[0].describe()}
    store.append({**failed, "error": "MemoryError: for now"})
    assert missing_of(wanted, store) == []  # a row is a row, unless it is asked for
    assert missing_of(wanted, store, retry_failed=True) == wanted
    reports = []
    pool = Pool(threads=None, is_fresh=True)
    run_missing(wanted, store, executor=pool, retry_failed=True, report=reports.append)
    assert missing_of(wanted, store, retry_failed=True) == []
    assert list(Store(store.path)) == [reports[-1].row]
    assert reports[-1].row["accuracy"] > 0


def test_a_process_that_is_killed_is_an_error_and_no_endless_wait():
    with pytest.raises(RuntimeError, match="ended without an answer"):
        run_in_subprocess(os._exit, 9)
    assert run_in_subprocess(divmod, 7, 2) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sizes", "many"), "--sizes takes whole numbers"),
        (("--labels", "0"), "--labels takes whole numbers"),
        (("--methods", "magic"), "'magic'"),
        (("--data", "nowhere.npz"), "nowhere.npz does not exist"),
        (("--device", "tpu"), "'cuda'"),
    ],
)
def test_bad_options_say_what_is_allowed(tmp_path, arguments, said):
    found = run(*arguments, "-o", tmp_path / "out")
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())
    assert not (tmp_path / "out").exists()
