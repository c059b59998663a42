"""What people hesitated at in a first hour with a table of their own."""

import io
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

import icssl
from helpers import run_command, text_of
from icssl import LabelledFold
from icssl._util.progress import Pace, begin_steps, stepper
from icssl.app.labelling import label_rows
from icssl.app.labelling_report import report_html
from icssl.app.row_notes import row_notes
from icssl.tables.table_warning import TableWarning

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def orders():
    """A table whose first column only names the row, and whose classes are far apart."""
    rng = np.random.default_rng(0)
    rows = 40
    kinds = np.repeat(["early", "late"], rows // 2)
    frame = pd.DataFrame(
        {
            "order": [f"SN-{7 * i:04}" for i in range(rows)],
            "days": rng.normal(size=rows) + 20 * (kinds == "late"),
            "note": [f"left with the neighbour at no. {i}" for i in range(rows)],
        }
    )
    labels = pd.Series(kinds, dtype=object)
    labels[~np.isin(np.arange(rows), [0, 1, 2, 30, 31, 32])] = None
    return frame, labels


def said_by(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        value = call()
    return value, [warning for warning in caught if warning.category is TableWarning]


# Columns that only name rows


@pytest.mark.parametrize("kind", ["pandas", "polars", "whole numbers", "regressor"])
def test_fit_points_out_columns_that_name_rows_and_free_text(orders, kind):
    frame, labels = orders
    estimator, y = icssl.ICSSLClassifier("one view"), labels
    if kind == "polars":
        frame = pytest.importorskip("polars").from_pandas(frame)
    if kind == "whole numbers":
        frame = frame.assign(order=1000 + np.arange(len(frame)))
    if kind == "regressor":
        estimator, y = icssl.ICSSLRegressor(), labels.map({"early": 0.0, "late": 1.5})
    _, caught = said_by(lambda: estimator.fit(frame, y))
    assert [warning.message.values for warning in caught] == [("order",), ("note",)]
    first, second = (str(warning.message) for warning in caught)
    assert "may only name the row: it is used all the same" in first
    assert first.endswith("drop=['order']) or an X without it leaves it out.")
    assert "free text" in second
    assert {warning.filename for warning in caught} == {__file__}  # the caller's line


def test_warnings_point_at_the_line_of_the_caller(orders):
    frame, labels = orders
    model = icssl.ICSSLClassifier("one view").fit(frame[["days"]], labels)
    _, caught = said_by(lambda: icssl.read_table(io.BytesIO(b"a,y\n1,x\n2,z\n3,\n")))
    assert "the labels are taken from column 'y'" in str(caught[0].message)
    assert {warning.filename for warning in caught} == {__file__}
    with pytest.warns(UserWarning, match="leaves out") as left_out:
        model.score(frame[["days"]], labels)
    assert [warning.filename for warning in left_out] == [__file__]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        cross_val_score(model, frame[["days"]], labels.fillna(""), cv=LabelledFold(2))
        cross_val_score(model, frame, labels.fillna(""), cv=2)  # scores rows without one
    assert caught
    assert {warning.filename for warning in caught} == {__file__}


def test_a_column_of_whole_numbers_with_a_gap_names_no_rows(orders):
    frame, labels = orders
    numbers = pd.array([None, *range(len(frame) - 1)], dtype="Int64")
    _, caught = said_by(
        lambda: icssl.ICSSLClassifier("one view").fit(
            frame[["days"]].assign(number=numbers), labels
        )
    )
    assert caught == []


def test_fit_says_nothing_of_arrays_and_of_columns_that_repeat(orders):
    frame, labels = orders
    array = frame[["order", "days"]].to_numpy()
    few = frame[["days"]].assign(carrier=np.resize(["a", "b"], len(frame)))
    for X in (array, few):
        _, caught = said_by(lambda X=X: icssl.ICSSLClassifier("one view").fit(X, labels))
        assert caught == []


def test_reading_and_fit_together_say_it_once(orders, tmp_path):
    frame, labels = orders
    path = tmp_path / "orders.csv"
    frame.assign(kind=labels).to_csv(path, index=False)
    said = text_of(run_command("classify", path, "-t", "kind", "--no-score"))
    assert said.count("may only name the row") == 1
    table, _ = said_by(lambda: icssl.read_table(path, "kind"))
    labelling, caught = said_by(lambda: label_rows(table, model="one view"))
    assert caught == []
    texts = [str(warning) for warning in labelling.warnings]
    assert len(texts) == len(set(texts)) == 2


# The report


@pytest.fixture(scope="module")
def labelling(orders):
    frame, labels = orders
    content = io.BytesIO(frame.assign(kind=labels).to_csv(index=False).encode())
    table, _ = said_by(lambda: icssl.read_table(content, "kind", drop=["order"]))
    return said_by(lambda: label_rows(table, model="one view"))[0]


def test_a_report_has_the_name_of_the_file_and_no_folders(labelling):
    folders = "/home/somebody/" + "x" * 200
    table = replace(labelling.table, name=f"{folders}/orders of May.csv")
    page = report_html(replace(labelling, table=table))
    assert "<h1>orders of May.csv</h1>" in page
    assert "<title>orders of May.csv: labels</title>" in page
    assert "somebody" not in page


def test_long_cells_of_a_report_have_a_box_that_is_wide_enough(labelling):
    page = report_html(labelling)
    row = labelling.suggested[0]
    assert (
        f"<td><span class='long'>left with the neighbour at no. {row}</span></td>" in page
    )
    assert f"<td>SN-{7 * row:04}</td>" in page


def test_a_row_that_no_label_reaches_is_not_explained_by_labels(labelling):
    row = labelling.suggested[0]
    (note,) = row_notes(labelling, [row])
    assert note.why.startswith("because of row")
    assert note.evidence
    # Evidence that moves a probability by less than a point, as far from all labels.
    parts = labelling.why.parts * 1e-4
    why = replace(labelling.why, parts=parts)
    assert np.abs(parts).max() < 0.005
    (note,) = row_notes(replace(labelling, why=why), [row])
    assert note.why == "because of the shares of the classes: no label is near"
    assert note.evidence == ()


# The picture of the page


def boxes_overlap(one, other):
    """Whether two names of six letters lie on each other in a picture of 500 x 350."""
    wide, high = 50, 14
    return abs(one[0] - other[0]) < wide and abs(one[1] - other[1]) < high


def test_names_of_labelled_points_do_not_lie_on_each_other():
    pytest.importorskip("dash")
    from icssl.app.explore.figures import cloud_figure

    rng = np.random.default_rng(1)
    points = rng.normal(size=(90, 2)) * [1, 0.1]
    labels = np.where(np.arange(90) < 45, np.arange(90) % 15, -1)
    names = [f"name {code}" for code in range(15)]
    figure = cloud_figure(points, np.arange(90) % 15, labels, names)
    corner, size = points.min(axis=0), np.ptp(points, axis=0).max() / 500
    written = [
        (np.array([trace["x"][i], trace["y"][i]]) - corner) / size
        for trace in figure["data"]
        for i, text in enumerate(trace.get("text", []))
        if text
    ]
    assert 2 <= len(written) < 15
    for place, one in enumerate(written):
        assert not any(boxes_overlap(one, other) for other in written[:place])


def test_the_legend_names_every_class_once():
    pytest.importorskip("dash")
    from icssl.app.explore.figures import cloud_figure

    points = np.zeros((40, 2))
    points[:, 0] = np.arange(40)
    labels = np.full(40, -1)
    labels[:30] = np.arange(30) % 3
    for codes, classes in ((np.arange(40) % 3, 3), (np.zeros(40, int), 1)):
        figure = cloud_figure(points, codes, labels, ["a", "b", "c"])
        legend = [t["name"] for t in figure["data"] if t.get("showlegend", True)]
        words = [text for t in figure["data"] for text in t.get("text", []) if text]
        assert legend[:classes] == ["a", "b", "c"][:classes]
        assert {*legend, *(word[3:-4] for word in words)} >= {"a", "b", "c"}
        assert len(legend) == len(set(legend))


# Waiting


def test_the_time_left_follows_the_pace_of_the_work_at_hand(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = Pace()
    left = []
    for second, done, total in (
        (0, 0, 5),
        (4, 5, 5),
        (10, 0, 10),
        (12, 1, 10),
        (20, 5, 10),
    ):
        now[0] = second
        left.append(pace.seconds_left(done, total))
    assert left == [None, 0.0, None, 18.0, 10.0]
    assert pace.seconds_left(3, None) is None


def test_the_page_is_told_how_far_its_own_answer_is(monkeypatch):
    pytest.importorskip("dash")
    from icssl.app.explore.waiting import Waiting

    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    waiting = Waiting()
    with waiting.work_for("ann"):
        begin_steps(0, "labelling 80 rows")
        assert waiting.answer("ann") == {"text": "labelling 80 rows"}
        begin_steps(4, "predictions of hidden labels")
        stepper()()
        assert waiting.answer("ann")["text"].startswith(
            "predictions of hidden labels, 1 of 4, about 0 s left"
        )
        assert waiting.answer("bob") == {"text": ""}
        with waiting.work_for("ann"):  # in another tab of the same browser
            begin_steps(0, "labelling 9 rows")
            assert waiting.answer("ann") == {"text": "labelling 9 rows"}
        assert waiting.answer("ann")["text"].startswith("predictions of hidden labels")
    assert waiting.answer("ann") == {"text": ""}


def test_a_browser_asks_how_far_its_answer_is():
    pytest.importorskip("dash")
    from icssl.app.explore.app import build_app

    answer = build_app().server.test_client().get("/_progress")
    assert (answer.status_code, answer.get_json()) == (200, {"text": ""})


# Fields of the page


@pytest.mark.parametrize("name", ["point", "row"])
def test_a_step_below_the_first_selects_the_first(name):
    pytest.importorskip("dash")
    from icssl.app.explore.events import after_setting
    from icssl.app.explore.state import State

    state = after_setting(State(), name, 3)
    assert getattr(state, name) == 3
    assert getattr(after_setting(state, name, -1), name) == 0


# Warnings of the page


def test_a_warning_of_the_page_has_a_button_that_answers_it():
    dash = pytest.importorskip("dash")
    from icssl.app.explore.table_view import _answer_button

    (_, button) = _answer_button(TableWarning("Odd.", "relabel", ["Yes=yes", "No=no"]))
    assert isinstance(button, dash.html.Button)
    sent = button.to_plotly_json()["props"]
    assert (sent["data-setting"], sent["data-value"]) == ("relabel", "Yes=yes; No=no")
    for warning in (
        TableWarning("Odd."),
        TableWarning("Odd.", "target", ["y"]),
        TableWarning("Odd.", "missing", ["a;b"]),
        UserWarning("Odd."),
        None,
    ):
        assert _answer_button(warning) == []
