"""What the report and the page say: doubts, scores, stages, refusals, and Ctrl-C."""

import base64
import io
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import rich.console
import rich.progress
import typer
from typer.testing import CliRunner

from helpers import run_command, text_of
from icssl._util import progress
from icssl.app import labelling as labelling_module
from icssl.app.cli import common
from icssl.app.cli.options_without_value import Group
from icssl.app.label_options import LabelOptions
from icssl.app.labelling import label_file, label_rows, summary_lines
from icssl.app.labelling_report import report_html
from icssl.app.row_notes import cell_names
from icssl.classifier.label_score import LabelScore
from icssl.tables.formats import page_suffixes
from icssl.tables.label_table import LabelTable, read_table
from icssl.tables.table_warning import FIELDS, TableWarning

pd = pytest.importorskip("pandas")

ROOT = Path(__file__).parents[1]
# A mark for no label, two spellings, a label of one row, and equal rows that disagree.
DOUBTFUL = (
    "u,kind\n1,yes\n2,yes\n8,no\n9,no\n3,Yes\n3.5,Yes\n8,yes\n7,?\n6,?\n5,lone\n4,\n2.5,\n"
    "1.1,yes\n1.2,yes\n1.3,yes\n9.1,no\n9.2,no\n9.3,no\n9.4,no\n9.5,no\n9.6,no\n9.7,no\n"
)
SAID = "labels|'"  # what every doubt here has in it
DOUBTS = ("'?'", "'Yes'", "'lone'", "equal in all columns have different labels")


@pytest.fixture
def doubtful(tmp_path):
    path = tmp_path / "doubtful.csv"
    path.write_text(DOUBTFUL)
    return path


def part_of(page, heading):
    """The section of a report below a heading."""
    return page.split(f">{heading}</h2>")[1].split("</section>")[0]


# Doubts


def test_the_report_has_the_doubts_of_the_fit_and_of_the_guess_as_the_terminal_has(
    doubtful, tmp_path
):
    report = tmp_path / "report.html"
    ran = run_command("classify", doubtful, "--report", report, "--no-score", wide=True)
    assert ran.exit_code == 0, ran.output
    page = report.read_text(encoding="utf-8")
    box = page.split("Before you rely on this")[1].split("</aside>")[0]
    said = box.replace("&#x27;", "'").split("<li>")[1:]
    printed = [line for line in ran.output.splitlines() if line.startswith("Warning: ")]
    assert len(said) == len(printed) >= 5
    for words in ("taken from column 'kind'", *DOUBTS):
        assert sum(words in line for line in said) >= 1, (words, said)
    for words in (DOUBTS[-1], "taken from column 'kind'"):
        assert sum(words in line for line in printed) == 1  # once, although it is kept too
    assert "--missing" in " ".join(printed)
    assert "--missing" not in box


def test_warnings_are_kept_and_raised_again_once(doubtful):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table = read_table(doubtful, "kind")
    with pytest.warns(UserWarning, match=SAID) as raised:
        kept = label_rows(table).warnings
    assert [str(one) for one in kept[len(table.warnings) :]] == [
        str(one.message) for one in raised
    ]
    assert any("different labels" in str(one) for one in kept)
    with pytest.warns(UserWarning, match=SAID) as raised:
        kept = label_file(LabelOptions(doubtful, judge=False)).warnings
    assert [str(one) for one in kept] == [str(one.message) for one in raised]
    assert any(getattr(one, "setting", "") == "target" for one in kept)


def test_a_warning_that_counts_as_an_error_is_raised_as_one():
    rows = np.arange(6.0).reshape(3, 2)
    with pytest.raises(UserWarning, match=r"'\?' stands for no label"):
        label_rows(LabelTable("t", rows, ["a", "a", "?"], {}))
    with pytest.raises(ValueError, match="one class only"):
        label_rows(LabelTable("t", rows, ["a", "a", None], {}))


@pytest.mark.parametrize(
    ("setting", "values", "words"),
    [
        (
            "missing",
            ["?", "unknown"],
            " To change this, write ?; unknown into Texts for no value.",
        ),
        (
            "types",
            ["age=number"],
            " To change this, write age=number into Types of columns.",
        ),
        ("drop", ["id"], " To change this, write id into Columns to leave out."),
        ("relabel", ["Yes=yes"], " To change this, write Yes=yes into Labels to rename."),
        ("decimal", [","], " To change this, write , into Decimal mark."),
        ("encoding", ["cp1252"], " To change this, write cp1252 into Encoding."),
        ("target", ["kind"], " Choose another column under Column of labels."),
        ("missing", ["a;b"], ""),  # a field would take it for two texts
        ("", [], ""),
    ],
)
def test_on_the_page_a_warning_names_the_field_that_changes_it(setting, values, words):
    warning = TableWarning("This is odd.", setting, values)
    assert warning.text("page") == f"This is odd.{words}"
    assert warning.text("report") == "This is odd."


def test_the_fields_that_warnings_name_are_on_the_page():
    pytest.importorskip("dash")
    from icssl.app.explore.layout import page

    titles = re.findall(r"Label\(children='([^']+)', htmlFor='([^']+)'\)", str(page()))
    on_page = {name: title for title, name in titles}
    for setting, title in FIELDS.items():
        assert on_page[setting] == title


# The page


def encoded(content):
    return f"data:;base64,{base64.b64encode(content).decode()}"


def changes_of(app, output, values, touched, browser=None):
    """What the callback that sets ``output`` changes, asked as the browser asks.

    A browser that asks twice is known by its cookie.
    """
    client = browser or app.server.test_client()
    listed = client.get("/_dash-dependencies").get_json()
    (spec,) = [each for each in listed if each["output"].startswith(output)]
    places = [place.rsplit(".", 1) for place in spec["output"].strip(".").split("...")]

    def filled(parts):
        keys = [f"{part['id']}.{part['property']}" for part in parts]
        return [
            {**part, "value": values.get(key)}
            for part, key in zip(parts, keys, strict=True)
        ]

    outputs = [{"id": name, "property": prop} for name, prop in places]
    call = {
        "output": spec["output"],
        "outputs": outputs if spec["output"].startswith("..") else outputs[0],
        "inputs": filled(spec["inputs"]),
        "state": filled(spec["state"]),
        "changedPropIds": [touched],
    }
    answer = client.post("/_dash-update-component", json=call)
    assert answer.status_code == 200, answer.data
    return answer.get_json()["response"]


@pytest.fixture
def page_with_a_table():
    pytest.importorskip("dash")
    from icssl.app.explore.app import build_app
    from icssl.app.explore.state import State

    app, state = build_app(), State(tab="data").as_values()
    browser = app.server.test_client()
    values = {"state.data": state, "upload.filename": "a.csv", "url.search": ""}
    values["upload.contents"] = encoded(b"u,kind\n1,x\n2,y\n3,\n4,x\n5,y\n")
    changed = changes_of(app, "..state.data", values, "upload.contents", browser)
    state = changed["state"]["data"]
    assert state["table"]
    assert state["target"] == changed["target"]["value"] == "kind"
    return app, {**state, "row": 2, "marks": [[2, "x"]]}, browser


def test_a_refused_file_says_whose_answer_still_stands(page_with_a_table):
    """It stays with the labels that were given to its rows."""
    app, state, browser = page_with_a_table
    values = {"state.data": state, "upload.filename": "b.pdf", "url.search": ""}
    values["upload.contents"] = encoded(b"%PDF")
    changed = changes_of(app, "..state.data", values, "upload.contents", browser)
    message = changed["message"]["children"]
    assert "b.pdf is no table" in message
    assert message.endswith(" a.csv is still shown below.")
    assert changed["state"]["data"] == state
    # Before there is a table, there is nothing to say of it.
    values["state.data"] = {**state, "table": "", "target": "", "row": -1, "marks": []}
    changed = changes_of(app, "..state.data", values, "upload.contents")
    assert "still shown" not in changed["message"]["children"]


def test_the_same_file_again_keeps_what_was_set_for_it(page_with_a_table):
    """As after a restart of the page, whose address still has the settings."""
    from icssl.app.explore.app import build_app

    _, state, _ = page_with_a_table
    state |= {"drop": "u2", "relabel": "x=z"}
    values = {"state.data": state, "upload.filename": "a.csv", "url.search": ""}
    content = b"u,kind\n1,x\n2,y\n3,\n4,x\n5,y\n"
    values["upload.contents"] = encoded(content)
    again = changes_of(build_app(), "..state.data", values, "upload.contents")
    assert again["state"]["data"] == state
    assert again["target"]["options"] == ["u", "kind"]
    values["upload.contents"] = encoded(content + b"6,x\n")
    other = changes_of(build_app(), "..state.data", values, "upload.contents")
    after = other["state"]["data"]
    assert (after["drop"], after["relabel"], after["marks"]) == ("", "", [])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.xlsx"])
def test_the_download_has_labels_of_the_page_in_the_column_of_labels(tmp_path, name):
    pytest.importorskip("dash")
    pytest.importorskip("pyarrow")
    pytest.importorskip("openpyxl")
    from icssl.app.explore.uploads import download, label_upload, read_upload

    rows = {"u": [1.0, 2.0, 3.0, 4.0, 5.0], "kind": ["x", "y", None, "x", None]}
    frame = pd.DataFrame(rows)
    path = tmp_path / name
    write = {".csv": frame.to_csv, ".parquet": frame.to_parquet, ".xlsx": frame.to_excel}
    write[path.suffix](path, index=False)
    upload = read_upload(name, encoded(path.read_bytes()))
    marks = ((2, "new"),)
    labelling, _ = label_upload(upload, "kind", marks)
    written, content = download(upload, labelling, marks)
    read = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".xlsx": pd.read_excel}
    back = read[path.suffix](io.BytesIO(content))
    assert written == f"a-labelled{path.suffix}"
    assert back["kind"][:4].tolist() == ["x", "y", "new", "x"]
    assert back["kind"].isna().tolist() == [False] * 4 + [True]
    assert back["label"][2] == "new"


def test_an_answer_begins_with_the_row_most_worth_a_label():
    pytest.importorskip("dash")
    from icssl.app.explore import table_view, uploads
    from icssl.app.explore.state import NO_ROW, State

    kept = uploads.Uploads()
    table = kept.add("a.csv", encoded(b"u,kind\n1,x\n2,y\n3,\n4,x\n5,y\n")).key
    shown = {
        row: table_view.data(State(tab="data", table=table, target="kind", row=row), kept)
        for row in (NO_ROW, 3)
    }
    assert shown[NO_ROW]["first_row"] == 2  # the only row without a label
    assert "Row 2: " in str(shown[NO_ROW]["selected"])
    assert shown[3]["first_row"] is None


def test_a_file_that_the_browser_keeps_back_says_so_too(page_with_a_table):
    app, state, browser = page_with_a_table
    large = {"name": "large.csv", "size": 2**30}
    values = {"state.data": state, "dropped.data": large}
    changed = changes_of(app, "message.children", values, "dropped.data", browser)
    said = str(changed)
    assert "large.csv has 1,024.0 MB" in said
    assert "icssl classify FILE, in a terminal, has no such limit." in said
    assert "--" not in said
    assert "a.csv is still shown below." in said


def test_the_waiting_message_names_what_is_computed():
    pytest.importorskip("dash")
    from icssl.app.explore.page_views import VIEWS

    script = (files("icssl.app.explore") / "assets" / "page.js").read_text()
    stages = dict(re.findall(r"busy(\w+): \"([^\"]+)\"", script))
    shown = {name.capitalize() for name in (*VIEWS, "data")} - {"Frame"}
    assert set(stages) == shown
    assert stages["Data"] == "labelling your table"


def test_look_inside_says_which_model_it_shows_and_real_tables_have_no_noise():
    pytest.importorskip("dash")
    from icssl.app.explore.clouds import REAL_TABLES
    from icssl.app.explore.events import after_setting
    from icssl.app.explore.layout import page
    from icssl.app.explore.state import State, cloud_of, from_link

    words = "This is another model than on Play: the paper's own (ICSSLTransformer)"
    assert words in str(page())
    for name in REAL_TABLES:
        state, said = from_link(f"?source={name}")
        assert (state.noise, said) == (0.0, "")
    iris = after_setting(State(noise=0.3), "source", "iris")
    assert iris.noise == 0.0
    again = cloud_of(replace(iris, seed=iris.seed + 1))
    assert set(map(tuple, again.x)) == set(map(tuple, cloud_of(iris).x))
    assert after_setting(iris, "source", "sphere").noise == State.noise


# How good it is


def test_a_score_that_was_not_measured_is_asked_for_by_name(monkeypatch, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("u,kind\n1,x\n2,y\n3,\n4,x\n5,y\n")
    monkeypatch.setattr(labelling_module, "MOST_JUDGED", 4)
    line = (
        "How good it is here was not measured, since the table has more than 3,000 rows. "
        "Add --score to icssl classify: it takes up to ten times as long."
    )
    long = label_file(LabelOptions(path, "kind"))
    assert line in summary_lines(long)
    assert line in part_of(report_html(long), "How good is it here?")
    refused = label_file(LabelOptions(path, "kind", judge=False))
    assert not any("How good" in said for said in summary_lines(refused))
    assert ">How good is it here?</h2>" not in report_html(refused)


def test_the_page_says_how_to_measure_a_long_table(monkeypatch):
    pytest.importorskip("dash")
    from icssl.app.explore import uploads

    monkeypatch.setattr(uploads, "_MOST_JUDGED", 4)
    content = encoded(b"u,kind\n1,x\n2,y\n3,\n4,x\n5,y\n7,\n")
    labelled, _ = uploads.label_upload(uploads.read_upload("a.csv", content), "kind", ())
    (line,) = [one for one in summary_lines(labelled) if "How good" in one]
    assert "was not measured, since the table has more than 1,000 rows." in line
    assert line.endswith("classify FILE, in a terminal, measures it if it is asked to.")
    assert "--" not in line


def test_the_question_stands_once_in_the_report(labelling):
    scored = replace(
        labelling, score=LabelScore.of_hits(17, 20), baseline=LabelScore.of_hits(16, 20)
    )
    said = part_of(report_html(scored), "How good is it here?")
    assert "How good" not in said
    assert said.startswith("<p>17 of 20 hidden labels are predicted: 0.85")
    assert any("How good is it here? 17 of 20" in line for line in summary_lines(scored))


# Pictures and cells


def test_on_a_phone_points_are_larger_and_no_picture_has_words(labelling):
    page = report_html(labelling)
    narrow = page.split("@media (max-width: 40rem)")[1].split("@media print")[0]
    assert "path.p { transform: scale(2)" in narrow
    for picture in re.findall(r"<svg viewBox='0 0 900.*?</svg>", page, re.DOTALL):
        assert "<text" not in picture
    assert "The highest bar has 1 row." in page
    assert "<span>50% (chance)</span><span>100%</span>" in part_of(page, "Confidence")
    assert "Point at a row" not in page


def test_twenty_columns_of_cells_are_shown(labelling):
    wide = pd.DataFrame({f"c{number}": np.arange(4.0) for number in range(25)})
    table = LabelTable("wide", wide, labelling.table.target, {})
    shown = cell_names(replace(labelling, table=table))
    assert shown == tuple(f"c{number}" for number in range(20))
    assert "<th scope='col'>c19</th>" in report_html(replace(labelling, table=table))


def test_the_script_draws_two_pictures_or_says_what_is_missing(monkeypatch, capsys):
    script = runpy.run_path(str(ROOT / "scripts" / "draw_report.py"))
    for name, (_, *size, _) in script["PICTURES"].items():
        content = (ROOT / "docs" / "figures" / f"{name}.png").read_bytes()
        assert [int.from_bytes(content[i : i + 4], "big") for i in (16, 20)] == size
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["draw_report.py"])
    script["main"]()
    assert capsys.readouterr().err.startswith("Nothing is drawn: ")


# Help, stages and Ctrl-C


def test_help_says_what_reach_is_and_which_files_the_page_takes():
    said = text_of(run_command("classify", "--help", wide=True))
    assert "how alike the row is to a labelled one" in said
    assert "near 0, the label is hardly more than a guess" in said
    assert "evidence" not in said
    told = text_of(run_command("explore", "--help", wide=True))
    for suffix in page_suffixes():
        assert suffix in told


def test_predict_names_its_stages(monkeypatch, tmp_path):
    seen = []

    class Recorded(common.Console):
        def status(self, text, **options):
            seen.append(text)
            shown = super().status(text, **options)
            shown.update = seen.append
            return shown

    path = tmp_path / "a.csv"
    path.write_text("u,kind\n1,x\n2,y\n3,\n4,x\n5,y\n")
    model = tmp_path / "a.icssl"
    ran = run_command("classify", path, "-t", "kind", "--save", model, "--no-score")
    assert ran.exit_code == 0, ran.output
    monkeypatch.setattr("icssl.app.cli.predict.Console", Recorded)
    ran = run_command("predict", model, path, "-o", tmp_path / "out.csv")
    assert ran.exit_code == 0, ran.output
    assert seen == [
        "fitting the classifier ...",
        "reading new rows ...",
        "predicting 5 rows ...",
        "writing ...",
    ]


def stopping_app():
    app = typer.Typer(cls=Group)

    def stop():
        raise KeyboardInterrupt

    def answered():
        typer.echo("Stopped; no file is half-written.")
        raise typer.Exit(130)

    @app.callback()
    def main(version: bool = typer.Option(False, callback=lambda on: stop() if on else on)):
        """Do nothing."""

    app.command("work")(stop)
    app.command("answered")(answered)
    return app


@pytest.mark.parametrize("arguments", [["work"], ["--version", "work"]])
def test_ctrl_c_is_answered_with_one_word_and_its_code(arguments):
    ran = CliRunner().invoke(stopping_app(), arguments)
    assert (ran.exit_code, ran.stderr, ran.stdout) == (130, "Stopped.\n", "")


def test_a_command_that_answers_ctrl_c_itself_has_no_second_word():
    ran = CliRunner().invoke(stopping_app(), ["answered"])
    assert (ran.exit_code, ran.stderr) == (130, "")
    assert ran.stdout == "Stopped; no file is half-written.\n"


def test_ctrl_c_in_the_imports_of_a_command_is_answered(tmp_path):
    """In place of a library that takes its time, one that the person interrupts."""
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'icssl.app.labelling':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from icssl.__main__ import main\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted", "classify", "--demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr.splitlines()[-1:] == ["Stopped."]
    assert (ended.stdout + ended.stderr).count("Stopped") == 1
    assert "Traceback" not in ended.stderr


def test_other_work_has_a_bar_of_its_own(monkeypatch):
    bars = []

    class Recorded(rich.progress.Progress):
        def __init__(self, *columns, console, **options):
            console = rich.console.Console(file=io.StringIO(), force_terminal=True)
            super().__init__(*columns, console=console, **options)
            bars.append(self)

    monkeypatch.setattr(rich.progress, "Progress", Recorded)
    with progress.bar_on_standard_error(True):
        progress.begin_steps(40, "graphs")
        progress.stepper()(40)
        (bar,) = bars
        (task,) = bar.tasks
        assert (task.description, task.completed, task.total) == ("graphs", 40, 40)
        progress.begin_steps(0, "walks")
        (task,) = bar.tasks
        assert (task.description, task.completed, task.total) == ("walks", 0, None)
        progress.stepper()(3)
        assert (task.completed, task.total) == (3, None)
        bar.refresh()
        last = bar.console.file.getvalue().split("walks")[-1]
        assert "100%" not in last
