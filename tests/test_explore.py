"""What the page of ``icssl explore`` computes, without a browser."""

import base64
import errno
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.datasets import load_iris
from threadpoolctl import threadpool_info, threadpool_limits
from typer.testing import CliRunner

from helpers import F64, bottom_eigenvectors, principal_angle
from icssl import ICSSLClassifier
from icssl._util.colours import plane_coordinates
from icssl._util.errors import did_you_mean
from icssl.app.cli import app as command
from icssl.app.cli.tools import _host_in_link
from icssl.app.explore import class_marks, figures
from icssl.app.explore import uploads as tables
from icssl.app.explore.clouds import (
    SOURCES,
    cache_last,
    draw_cloud,
    drawn_coordinates,
    one_label_per_class,
    predict_cloud,
    reasons,
)
from icssl.app.explore.events import (
    BUTTONS,
    CLOUDS,
    SETTINGS,
    after_button,
    after_click,
    after_setting,
)
from icssl.app.explore.layers import (
    MOST_SHOWN,
    constructed_model,
    trace_layers,
    trained_model,
)
from icssl.app.explore.state import (
    MOST_CLASSES,
    State,
    cloud_of,
    from_link,
    to_link,
    with_one_label_per_class,
)

pytest.importorskip("dash", reason="dash is not installed: pip install 'icssl[explore]'")
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

import pandas as pd

from icssl.app.explore import page_views, table_view
from icssl.app.explore.app import _refusal, build_app, listen, server_on


def click(point):
    return {"points": [{"customdata": point}]}


# The state and its link


@pytest.mark.parametrize(
    "state",
    [
        State(),
        State(tab="why", source="wine", n=178, noise=0.25, seed=9, labels=(), point=3),
        State(labels=((0, 4), (7, 1)), classes=5, brush=4, colouring="reach", rival="svc"),
        State(table="ab12", target="a: b, c", row=3, marks=((1, "x:y,z%"), (9, "ä"))),
    ],
)
def test_a_link_gives_its_state_back(state):
    assert from_link(to_link(state)) == (state, "")
    assert State.from_values(state.as_values()) == state


def test_a_link_without_labels_has_one_a_class():
    state, message = from_link("?n=50&source=digits")
    assert message == ""
    assert [code for _, code in sorted(state.labels, key=lambda pair: pair[1])] == [
        *range(10)
    ]
    assert from_link(to_link(state)) == (state, "")
    same = State(seed=1)  # labels as those of the start, on another cloud
    assert from_link(to_link(same))[0].labels == same.labels


def test_the_page_opens_with_the_first_seed_and_the_labels_of_its_own_rule():
    start = State()
    assert start.seed == 0
    assert with_one_label_per_class(replace(start, labels=())) == start


def test_an_unchanged_page_has_a_short_address():
    assert to_link(State()) == ""
    assert from_link("") == from_link(None) == (State(), "")


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("?source=donut", "unknown source 'donut'"),
        ("?n=2", "n must be from 20 to 3000, got 2"),
        ("?n=1e9", "n=1e9"),
        ("?noise=nan", "noise must be from 0 to 0.5, got nan"),
        ("?seed=x", "seed=x"),
        ("?labels=7", "labels=7"),
        ("?labels=300:0", "a labelled point must be from 0 to 199, got 300"),
        ("?labels=3:-4", "a class must be from 0 to"),
        ("?labels=3:0,3:1", "a point has one label, got 2 of point 3"),
        ("?marks=-1:x", "a labelled row must be from 0 to 1e+09, got -1"),
        ("?marks=4:x,4:y", "a row has one label, got 2 of row 4"),
        ("?row=-2", "row must be from 0 to 1e+09, got -2"),
        ("?layer=-1", "layer must be from 0 to 10000, got -1"),
        ("?point=-1", "point must be from 0 to 199, got -1"),
        ("?brush=-2", "brush must be from -1 to 34, got -2"),
        ("?colour=red", "colour=red"),
        (f"?labels=1:{MOST_CLASSES}", "classes must be from 2 to 35"),
    ],
)
def test_a_wrong_link_says_what_is_wrong_and_opens_all_the_same(link, words):
    state, message = from_link(link)
    assert words in message
    assert state == State()


# What clicks do


def test_a_click_labels_with_the_true_class_or_the_chosen_one_and_again_unlabels():
    state = replace(State(), labels=())
    truth = int(cloud_of(state).y[5])
    once = after_click(state, "play_cloud", click(5))
    assert once.labels == ((5, truth),)
    assert once.point == 5
    assert after_click(once, "play_cloud", click(5)).labels == ()
    other = after_click(after_button(once, "new_class"), "play_cloud", click(5))
    assert other.labels == ((5, 2),)  # another class takes the place of the first


def test_clicks_elsewhere_select_and_nonsense_does_nothing():
    state = State()
    assert after_click(state, "why_cloud", click(9)) == replace(state, point=9)
    assert after_click(state, "data_cloud", click(9)) == replace(state, row=9)
    for nothing in (None, {}, {"points": []}, click(None), click("9"), click(-1)):
        assert after_click(state, "play_cloud", nothing) == state
    with pytest.raises(ValueError, match="point must be from 0 to 199, got 999"):
        after_click(state, "play_cloud", click(999))


def test_a_new_cloud_begins_with_a_label_a_class():
    state = after_setting(State(point=100), "source", "digits")
    cloud = cloud_of(state)
    assert state.point == 0
    assert sorted(code for _, code in state.labels) == list(range(10))
    assert all(cloud.y[point] == code for point, code in state.labels)
    assert after_setting(state, "n", None) == state  # an empty field


def test_more_points_were_asked_for_than_a_table_has():
    state = State(source="iris", n=200, labels=((3, 0), (190, 1)), point=199)
    after = after_button(state, "label")
    assert after.point == 149
    assert [point for point, _ in after.labels] == [3, 149]
    assert page_views.play(state) is not None


def test_buttons():
    state = State()
    assert after_button(state, "clear").labels == ()
    assert after_button(after_button(state, "clear"), "start").labels == state.labels
    found = predict_cloud(cloud_of(state), state.labels)
    assert after_button(state, "suggest").point == found.suggested
    assert found.labels[found.suggested] < 0
    alone = after_button(state, "clear")
    assert after_button(alone, "suggest") == alone
    many = state
    for _ in range(2 * MOST_CLASSES):
        many = after_button(many, "new_class")
    assert many.classes == MOST_CLASSES
    marked = after_button(replace(state, row=4), "mark", " oak ")
    assert marked.marks == ((4, "oak"),)
    assert after_button(marked, "mark", "").marks == ()
    assert after_button(marked, "unmark").marks == ()


# Clouds and answers


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_is_drawn_the_same_again_and_classified(source):
    cloud = draw_cloud(source, 60, 0.05, 3)
    draw_cloud.cache_clear()
    again = draw_cloud(source, 60, 0.05, 3)
    np.testing.assert_array_equal(cloud.x, again.x)
    np.testing.assert_array_equal(cloud.y, again.y)
    assert len(cloud.x) == 60
    assert not np.array_equal(cloud.x, draw_cloud(source, 60, 0.05, 4).x)
    points = drawn_coordinates(cloud)
    assert points.shape in ((60, 2), (60, 3))
    assert np.isfinite(points).all()
    found = predict_cloud(cloud, one_label_per_class(cloud))
    np.testing.assert_allclose(found.distributions.sum(axis=1), 1)
    assert set(found.rivals) == {"label_spreading", "svc", "logistic_regression"}


def test_noise_moves_points_by_its_share_of_their_spread():
    still, moved = (draw_cloud("sphere", 3000, noise, 0).x for noise in (0.0, 0.2))
    share = (moved - still).std(axis=0) / still.std(axis=0)
    np.testing.assert_allclose(share, 0.2, rtol=0.1)


def test_fewer_than_two_classes_have_no_answer():
    cloud = draw_cloud("two_moons", 50, 0.1, 0)
    assert predict_cloud(cloud, ()) is None
    assert predict_cloud(cloud, ((1, 0), (2, 0))) is None
    for tab in ("play", "why", "inside"):
        shown = getattr(page_views, tab)(State(n=50, tab=tab, labels=()))
        assert "two classes" in str(shown["note"])


def test_the_answer_is_the_classifiers_own():
    cloud = draw_cloud("wine", 178, 0.0, 1)
    labels = one_label_per_class(cloud)
    found = predict_cloud(cloud, labels)
    given = np.full(178, -1)
    given[[point for point, _ in labels]] = [code for _, code in labels]
    own = ICSSLClassifier().fit(cloud.x, given)
    np.testing.assert_array_equal(found.predicted, own.transduction_)
    np.testing.assert_allclose(found.reach, own.reach_, rtol=0, atol=1e-9)  # other threads
    asked = given < 0
    share = (own.transduction_ == cloud.y)[asked].mean()
    assert found.accuracy(found.predicted, cloud.y) == share
    assert found.views == "all views"
    large = draw_cloud("two_moons", 401, 0.1, 0)
    assert predict_cloud(large, one_label_per_class(large)).views == "one view"


def test_contributions_add_up_to_the_logit_and_its_probability():
    cloud = draw_cloud("iris", 150, 0.0, 0)
    labels = (*one_label_per_class(cloud), (7, int(cloud.y[7])))
    found = predict_cloud(cloud, tuple(sorted(labels)))
    for point in np.flatnonzero(found.labels < 0)[:20]:
        each = reasons(found, int(point))
        for reason in each:
            assert reason.logit == pytest.approx(sum(reason.parts) + reason.base)
            assert reason.labelled == tuple(sorted(point for point, _ in labels))
        by_code = {reason.code: reason for reason in each}
        logits = np.array([by_code[int(code)].logit for code in found.classes])
        np.testing.assert_allclose(softmax(logits), found.distributions[point], **F64)
        assert each[0].code == found.predicted[point]


def test_rows_far_from_all_others_do_not_squeeze_the_picture():
    generator = np.random.default_rng(0)
    embedding = generator.standard_normal((100, 4))
    embedding[0] = 1e4
    drawn = plane_coordinates(embedding)
    assert drawn.shape == (100, 2)
    assert np.abs(drawn).max() < 20 * np.median(np.abs(drawn))


# Layers


@pytest.fixture(scope="module")
def moons():
    return draw_cloud("two_moons", 80, 0.1, 0)


@pytest.mark.parametrize("weights", ["trained", "constructed"])
def test_layers_are_those_of_the_model(moons, weights):
    opened = trace_layers(weights, moons, one_label_per_class(moons))
    stages = [layer.stage for layer in opened.layers]
    assert stages == sorted(stages, key=["walks", "eigenmap", "descent"].index)
    assert opened.points.tolist() == list(range(80))
    for layer in opened.layers:
        if layer.stage == "walks":
            np.testing.assert_allclose(layer.value.sum(axis=1), 1, atol=1e-5)
    model = trained_model() if weights == "trained" else constructed_model()
    labels = torch.full((1, 80), -1)
    for point, code in one_label_per_class(moons):
        labels[0, point] = code
    from icssl import Episode

    with torch.no_grad():
        logits = model(Episode(torch.from_numpy(moons.x)[None], labels, labels >= 0))
    np.testing.assert_allclose(opened.layers[-1].value, logits[0].double(), atol=1e-5)


@pytest.mark.parametrize("weights", ["trained", "constructed"])
def test_angles_are_those_of_another_formula(moons, weights):
    opened = trace_layers(weights, moons, one_label_per_class(moons))
    assert len(opened.to_truth) == len(opened.eigenmap_layers)
    model = trained_model() if weights == "trained" else constructed_model()
    with torch.no_grad():
        x = torch.from_numpy(moons.x)[None]
        labels = torch.tensor([[0, 1] + [-1] * 78])
        from icssl import Episode

        operator, _, _ = model.stages(Episode(x, labels, labels >= 0))
    bottom = bottom_eigenvectors(operator.dense().double(), 4)[0]
    for layer, angle in zip(opened.eigenmap_layers, opened.to_operator, strict=True):
        wanted = principal_angle(torch.from_numpy(layer.value), bottom)
        assert angle == pytest.approx(float(wanted), abs=1e-3)


def test_the_constructed_features_come_nearer_to_the_true_eigenvectors(moons):
    opened = trace_layers("constructed", moons, one_label_per_class(moons))
    assert opened.to_truth[-1] < opened.to_truth[0]
    assert opened.to_operator[-1] < opened.to_operator[0]


def test_of_many_points_some_take_part_and_the_labelled_ones_always_do():
    cloud = draw_cloud("sphere", 1000, 0.1, 0)
    labels = ((3, 0), (998, 1))
    opened = trace_layers("trained", cloud, labels)
    assert len(opened.points) == MOST_SHOWN
    assert {3, 998} <= set(opened.points.tolist())
    shown = page_views.inside(State(source="sphere", n=1000, tab="inside", labels=labels))
    numbers = [n for trace in shown["cloud"]["data"] for n in trace["customdata"]]
    assert set(numbers) == set(opened.points.tolist())


# Figures


def test_classes_differ_by_more_than_their_colour():
    pairs = {
        (class_marks.colour_of(c), class_marks.symbol_of(c)) for c in range(MOST_CLASSES)
    }
    assert len(pairs) == MOST_CLASSES
    assert len({class_marks.class_name(c) for c in range(MOST_CLASSES)}) == MOST_CLASSES


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_every_point_is_drawn_once_and_says_which_it_is(axes):
    points = np.random.default_rng(0).standard_normal((30, axes))
    codes, given = np.arange(30) % 3, np.where(np.arange(30) < 4, 2, -1)
    figure = figures.cloud_figure(points, codes, given, selected=7)
    *traces, ring = figure["data"]
    assert ring["customdata"] == [7]
    assert sorted(n for trace in traces for n in trace["customdata"]) == list(range(30))
    labelled = [trace for trace in traces if "labelled" in trace["name"]]
    assert [trace["customdata"] for trace in labelled] == [[0, 1, 2, 3]]
    for trace in traces:
        np.testing.assert_allclose(
            trace["x"], points[trace["customdata"], 0], rtol=1e-3, atol=1e-9
        )


@pytest.mark.parametrize("tab", ["play", "inside", "why"])
@pytest.mark.parametrize("source", ["sphere", "images", "digits"])
def test_a_tab_is_shown_only_when_it_is_open(tab, source):
    state = from_link(f"?n=60&source={source}")[0]
    assert getattr(page_views, tab)(replace(state, tab="data")) is None
    shown = getattr(page_views, tab)(replace(state, tab=tab))
    assert set(shown) == set(page_views.OUTPUTS[tab])
    assert shown["cloud"]["data"]


# Tables


def encoded(content):
    return "data:text/csv;base64," + base64.b64encode(content).decode()


def iris_table():
    iris = load_iris(as_frame=True)
    names = iris.target_names[iris.target]
    species = [name if i % 50 in (3, 30) else None for i, name in enumerate(names)]
    return iris.data.assign(species=species)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_is_read_labelled_marked_and_written(suffix, tmp_path):
    path = tmp_path / f"flowers{suffix}"
    frame = iris_table()
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    uploads = tables.Uploads()
    upload = uploads.add(path.name, encoded(path.read_bytes()))
    assert upload.guess == "species"
    assert uploads.columns(upload.key) == [str(name) for name in frame.columns]
    found, warned = tables.label_upload(upload, "species", ((70, "versicolor"),))
    assert warned == ()
    assert found.labels[70] == "versicolor"
    assert (found.given_codes >= 0).sum() == 7
    name, content = tables.download(upload, found)
    assert name == f"flowers-labelled{suffix}"
    written = tmp_path / name
    written.write_bytes(content)
    back = pd.read_csv(written) if suffix == ".csv" else pd.read_parquet(written)
    assert back["label"].tolist() == found.labels.tolist()
    assert len(back) == 150


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.txt", b"a,b\n1,2\n", "drop a file that ends in .csv or .parquet"),
        ("code.py", b"import os", "drop a file that ends in .csv or .parquet"),
        ("empty.csv", b"", "is empty"),
        ("torn.parquet", b"PAR1", "torn.parquet cannot be read as .parquet"),
        (
            "picture.csv",
            b"\x89PNG\xff\xfe",
            "picture.csv is no table in text: it looks like a PNG",
        ),
        ("ragged.csv", b'a,b\n"1,2\n3,4\n', "ragged.csv cannot be read from line 2 on"),
        (
            "long.csv",
            b"a,b\n" + b"1,2\n" * 5001,
            "has more than 5,000 rows, and the page takes 5,000",
        ),
        ("big.csv", b"a" * (tables.MOST_BYTES + 1), "the page takes 8 MB"),
    ],
)
def test_what_is_no_table_for_the_page_is_refused(name, content, words):
    with pytest.raises(ValueError, match=words.replace(".", r"\.")) as caught:
        tables.read_upload(name, encoded(content))
    assert tempfile.gettempdir() not in str(caught.value)


def test_a_line_cut_short_is_named_without_the_folder_it_is_read_from():
    with pytest.raises(ValueError, match=r"^short\.csv, line 3, has 1 fields") as caught:
        tables.read_upload("short.csv", encoded(b"a,b,label\n1,2,x\n3\n"))
    assert tempfile.gettempdir() not in str(caught.value)


def packed(frame):
    buffer = BytesIO()
    frame.to_parquet(buffer, compression="zstd", use_dictionary=False)
    return buffer.getvalue()


def test_a_parquet_file_is_refused_by_its_own_account_before_it_is_unpacked():
    """Its pages are torn out: what is read of it is the account at its end."""
    rows = packed(pd.DataFrame({"a": np.arange(6000)}))
    wide = packed(pd.DataFrame({"a": ["x" * 2**20] * 70}))
    assert len(wide) < tables.MOST_BYTES
    for content, words in {
        rows: "has 6,000 rows, and the page takes 5,000: give it a part of them",
        wide: "unpacks to more than the 64 MB that the page takes: drop a part",
    }.items():
        length = int.from_bytes(content[-8:-4], "little") + 8  # of the account
        torn = b"PAR1" + bytes(len(content) - length - 4) + content[-length:]
        with pytest.raises(ValueError, match=words):
            tables.read_upload("a.parquet", encoded(torn))


def test_of_a_long_csv_only_the_first_rows_are_read():
    """What comes after them is no table at all, and nobody looks."""
    content = b"a,b\n" + b"1,2\n" * 5001 + b'"' + b"3,4,5\n" * 100
    with pytest.raises(ValueError, match="has more than 5,000 rows"):
        tables.read_upload("long.csv", encoded(content))


def test_an_upload_that_was_cut_short_is_refused():
    with pytest.raises(ValueError, match="did not arrive whole"):
        tables.read_upload("a.csv", "data:text/csv;base64,abc")


@pytest.mark.parametrize("name", ["../../etc/x.csv", "C:\\secret\\x.csv", "/root/x.csv"])
def test_the_name_of_a_file_is_never_a_path(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    upload = tables.read_upload(name, encoded(b"a,label\n1,x\n2,y\n3,\n4,\n"))
    assert upload.name == "x.csv"
    found, _ = tables.label_upload(upload, "label", ())
    assert tables.download(upload, found)[0] == "x-labelled.csv"
    assert list(tmp_path.iterdir()) == []


def data_note(uploads, **changes):
    shown = table_view.data(State(tab="data", **changes), uploads)
    return f"{shown['note']}{shown['doubts']}"


def test_the_page_says_what_to_do_about_a_table():
    uploads = tables.Uploads()
    assert data_note(uploads) == ""
    assert "drop the file again" in data_note(uploads, table="gone")
    plain = uploads.add("plain.csv", encoded(b"a,b\n1,2\n3,4\n"))
    assert "Choose its column of labels" in data_note(uploads, table=plain.key)
    wrong = data_note(uploads, table=plain.key, target="c")
    assert "unknown column of labels 'c'" in wrong
    one = uploads.add("one.csv", encoded(b"a,label\n1,yes\n2,\n3,\n"))
    said = data_note(uploads, table=one.key, target="label")
    assert "one class only, 'yes'" in said
    assert "two different ones" in said
    alone = uploads.add("alone.csv", encoded(b"label\nx\ny\nz\n"))
    said = data_note(uploads, table=alone.key, target="label")
    assert "alone.csv has nothing to learn from" in said


def test_marks_are_of_the_kind_of_the_other_labels():
    text = b"a,label\n" + b"1,0\n5,1\n" * 5 + b"2,\n4,\n"
    upload = tables.read_upload("numbers.csv", encoded(text))
    found, _ = tables.label_upload(upload, "label", ((10, "1"), (11, "2")))
    assert found.labels[[10, 11]].tolist() == [1, 2]
    with pytest.raises(ValueError, match="whole numbers, got 'oak'"):
        tables.label_upload(upload, "label", ((10, "oak"),))
    for row in (99, -1):
        with pytest.raises(ValueError, match=f"row {row} is not in the table"):
            tables.label_upload(upload, "label", ((row, "1"),))


def test_every_picture_of_an_embedding_says_how_it_is_drawn():
    uploads = tables.Uploads()
    upload = uploads.add("flowers.csv", encoded(iris_table().to_csv(index=False).encode()))
    notes = [data_note(uploads, table=upload.key, target="species")]
    for tab in ("play", "inside", "why"):
        state = from_link(f"?source=wine&tab={tab}")[0]
        notes.append(str(getattr(page_views, tab)(state)["note"]))
        flat = from_link(f"?n=50&tab={tab}")[0]
        assert "drawn nearer" not in str(getattr(page_views, tab)(flat)["note"])
    for note in notes:
        assert "from all others are drawn nearer" in note


def test_only_the_last_tables_are_kept():
    uploads = tables.Uploads()
    keys = [uploads.add(f"{i}.csv", encoded(b"a,b\n1,2\n")).key for i in range(6)]
    assert uploads.get(keys[-1]).name == "5.csv"
    with pytest.raises(ValueError, match="drop the file again"):
        uploads.get(keys[0])


# Many requests at once


def in_threads(count, work):
    """What ``work`` gives in each of so many threads."""
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(work, i) for i in range(count)]]


def test_one_thread_computes_at_a_time_and_the_same_question_once():
    running, most, asked = [], [], []

    @cache_last(4)
    def slow(question):
        running.append(question)
        asked.append(question)
        time.sleep(0.02)
        most.append(len(running))
        running.remove(question)
        return 2 * question

    assert in_threads(8, lambda i: slow(i % 4)) == [0, 2, 4, 6, 0, 2, 4, 6]
    assert set(most) == {1}
    assert sorted(asked) == [0, 1, 2, 3]


def test_the_thread_of_a_request_computes_alone():
    """OpenMP counts for every thread: the main one's limit does not hold in a request's."""

    @cache_last(1)
    def pools():
        return {pool["num_threads"] for pool in threadpool_info()}

    def with_two(_):
        threadpool_limits(2, user_api="openmp")
        before = {pool["num_threads"] for pool in threadpool_info()}
        return before, pools()

    ((before, during),) = in_threads(1, with_two)
    assert 2 in before
    assert during == {1}


def test_tables_that_are_labelled_at_once_keep_their_own_warnings():
    """A row with two labels is warned of; a table beside it has no such row."""
    plain = b"a,label\n" + b"1,x\n2,x\n8,y\n9,y\n3,\n7,\n"
    contents = [plain + b"1,y\n" * (i % 2) + b"%d,\n" % (20 + i) for i in range(8)]
    uploads = tables.Uploads()

    def warned(i):
        upload = uploads.add(f"{i}.csv", encoded(contents[i]))
        return tables.label_upload(upload, "label", ())[1]

    before = list(warnings.filters)
    found = in_threads(8, warned)
    assert [bool(said) for said in found] == [False, True] * 4
    assert warnings.filters == before


# The server


def test_only_what_becomes_part_of_the_page_needs_dash():
    folder = Path(page_views.__file__).parent
    pattern = re.compile(r"^(?:from|import) (?:dash|flask|werkzeug)\b", re.MULTILINE)
    found = {path.stem for path in folder.glob("*.py") if pattern.search(path.read_text())}
    assert found == {"app", "guard", "layout", "page_views", "table_view"}


def test_every_control_is_on_the_page_and_nothing_comes_from_elsewhere():
    app = build_app()
    client = app.server.test_client()
    layout = client.get("/_dash-layout").get_data(as_text=True)
    for name in (*SETTINGS, *BUTTONS, *CLOUDS):
        assert f'"id":"{name}"' in layout.replace('": "', '":"'), name
    index = client.get("/").get_data(as_text=True)
    assert "http://" not in index
    assert "https://" not in index


def call_view(client, output, state):
    """Ask for a part of the page, as the browser does."""
    listed = client.get("/_dash-dependencies").get_json()
    (call,) = [each for each in listed if each["output"].startswith(f"..{output}.")]
    places = [place.rsplit(".", 1) for place in call["output"].strip(".").split("...")]
    return client.post(
        "/_dash-update-component",
        json={
            "output": call["output"],
            "outputs": [{"id": name, "property": prop} for name, prop in places],
            "inputs": [{"id": "state", "property": "data", "value": state}],
            "changedPropIds": ["state.data"],
        },
    )


def test_what_nobody_expected_is_said_on_the_page_and_logged_with_its_place(
    caplog, monkeypatch
):
    client = build_app().server.test_client()
    answered = call_view(client, "play_cloud", State().as_values()).get_json()
    assert len(answered["response"]["play_cloud"]["figure"]["data"]) > 2
    assert "message" not in answered.get("sideUpdate", {})
    assert not caplog.records
    monkeypatch.setattr(page_views, "_play_figure", None)
    response = call_view(client, "play_cloud", State().as_values())
    said = response.get_json()["sideUpdate"]["message"]["children"]
    assert "an error in the page (TypeError)" in said
    assert "see the terminal where it runs" in said
    assert "Traceback" in caplog.text
    assert "in play" in caplog.text


def test_a_file_of_the_limit_can_be_sent_and_a_request_of_twice_that_cannot():
    client = build_app().server.test_client()
    most = tables.MOST_BYTES
    for size, status in {4 * most // 3: 400, 2 * most: 413}.items():  # 400: no call of ours
        response = client.post("/_dash-update-component", json={"contents": "x" * size})
        assert response.status_code == status


def test_a_busy_port_gives_way_to_the_next_free_one():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with listen("127.0.0.1", port) as waiting:
            assert waiting.getsockname()[1] > port


def test_a_host_that_is_not_here_is_refused():
    with pytest.raises(ValueError, match=r"192\.0\.2\.1 cannot be listened on"):
        listen("192.0.2.1", 8050)


def test_a_port_that_is_not_for_everyone_is_not_called_busy():
    said = _refusal("127.0.0.1", 80, PermissionError(errno.EACCES, "Permission denied"))
    assert said == (
        "port 80 on 127.0.0.1 is not open to this user: Permission denied. Give a port "
        "from 1024 on."
    )


@pytest.fixture(scope="module", params=["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def local_client(request):
    """Of a page that is served on loopback."""
    if request.param == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    server = server_on(listen(request.param, 8250), request.param)
    yield server.app.test_client()
    server.server_close()


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize(
    ("asked", "welcome"),
    [
        ("localhost", True),
        ("LocalHost:8250", True),
        ("127.0.0.1:8250", True),
        ("127.0.0.2", True),
        ("[::1]", True),
        ("[::1]:8250", True),
        ("evil.example", False),
        ("evil.example:8250", False),
        ("localhost.evil.example", False),
        ("localhost@evil.example", False),
        ("evil.example@localhost", False),
        ("localhost:8250/evil.example", False),
        ("localhost:evil", False),
        ("10.0.0.1", False),
        ("[::2]:8250", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_on_loopback_only_its_own_names_are_answered(local_client, asked, welcome, method):
    # A POST to the front page is answered too: it is not allowed, which is 405.
    answered = {"get": 200, "post": 405}[method]
    response = getattr(local_client, method)("/", headers={"Host": asked})
    assert response.status_code == (answered if welcome else 400)


def test_on_a_network_any_name_is_answered():
    server = server_on(listen("0.0.0.0", 8250), "0.0.0.0")
    try:
        response = server.app.test_client().get("/", headers={"Host": "my.machine"})
        assert response.status_code == 200
    finally:
        server.server_close()


def test_a_missing_extra_is_named_with_exit_code_2(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("icssl.app.explore.app")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dash", None)
    result = CliRunner().invoke(command, ["explore", "--no-browser"])
    assert result.exit_code == 2
    assert "pip install 'icssl[explore]'" in " ".join(
        result.output.replace("│", "").split()
    )


@pytest.fixture
def interruptible():
    """What a background shell starts ignores Ctrl-C, and so would its own children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_the_command_serves_until_it_is_stopped():
    arguments = [sys.executable, "-m", "icssl", "explore", "--no-browser", "--port", "8350"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            if "busy" in line:
                line = process.stdout.readline()
            address = re.match(r"Open (http://127\.0\.0\.1:\d+/) ", line)[1]
            with urlopen(address, timeout=30) as response:
                assert b"<title>icssl explore</title>" in response.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("host", "written"), [("::1", "[::1]"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]")]
)
def test_the_link_of_a_host_can_be_opened_on_this_machine(host, written):
    assert _host_in_link(host) == written


def test_the_names_of_choices_are_near_enough_to_guess():
    assert did_you_mean("two moons", list(SOURCES)) == " Did you mean 'two_moons'?"
