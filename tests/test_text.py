"""Names of classes, columns and files are text, wherever they are shown."""

import re
from functools import partial
from html import unescape
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.table import Table

from helpers import run_command
from icssl._util.errors import printable
from icssl.app.cli.common import Console
from icssl.app.labelling import label_rows
from icssl.app.labelling_report import report_html
from icssl.app.tally import NAME
from icssl.bench.plots import LEGEND_NAME, add_legend, draw_label_curves
from icssl.tables.label_table import read_table
from icssl.tables.table_warning import TableWarning

HOSTILE = [
    r"$\undefinedmacro$",
    "\x1b]0;title\x07\x1b[2J",
    "[bold]loud[/bold]",
    ":warning:",
    "<script>alert(1)</script>",
    "%{customdata}",
    "\u202etxt.exe",
    "\x9b31m",
    "_hidden",
    "你好",
    "two\nlines",
    "x" * 10_000,
]


run = partial(run_command, "classify", wide=True)


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def hostile_table(tmp_path):
    """Columns and classes with all of these names, two rows of each class labelled."""
    n = len(HOSTILE)
    frame = pd.DataFrame(
        {
            "number": np.repeat(np.arange(n) * 10.0, 4) + np.tile([0, 0.1, 0.2, 0.3], n),
            HOSTILE[1]: np.repeat(HOSTILE, 4),
            "kind": [
                name if i % 4 < 2 else None for i, name in enumerate(np.repeat(HOSTILE, 4))
            ],
        }
    )
    path = tmp_path / "a.parquet"
    frame.to_parquet(path)
    return path


def test_control_characters_are_written_out_and_others_stay():
    assert printable("\x1b[31m\x00\x9b\u202e\u2028") == r"\x1b[31m\x00\x9b\u202e\u2028"
    assert printable("\ud800") == r"\ud800"  # or it could not be encoded
    for text in ("", "plain", "ä 你好 \u200d 👩\u200d🔬", "a\nb", "[bold]"):
        assert printable(text) == text
    for text in HOSTILE:
        assert len(printable(text, 20)) <= 20
        assert "\n" not in printable(text, 20)


def test_hostile_names_reach_neither_the_terminal_nor_matplotlibs_formulas(
    hostile_table, tmp_path
):
    result = run(hostile_table, "--target", "kind", "--report", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    assert files_in(tmp_path) == ["a-labelled.parquet", "a.html", "a.parquet"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.output)
    for shown in (r"\x1b]0;title\x07", "[bold]loud[/bold]", ":warning:", r"two\nlines"):
        assert shown in result.output
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page)
    back = pd.read_parquet(tmp_path / "a-labelled.parquet")
    assert back["label"].tolist() == list(np.repeat(HOSTILE, 4))


def test_a_legend_shows_every_name_as_it_is():
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    shown = [name for name in HOSTILE if name != "你好"]  # the font lacks it
    add_legend(figure, {name: axes.scatter([], []) for name in shown}, loc="center")
    figure.savefig(StringIO(), format="svg")
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == [printable(name, LEGEND_NAME) for name in shown]


def test_the_legend_of_the_report_shows_names_as_they_are(hostile_table):
    with pytest.warns(TableWarning, match=r"column '\\x1b\]0;title\\x07.* has the words"):
        table = read_table(hostile_table, "kind")
    page = report_html(label_rows(table))
    legend = page[page.index("class='legend'") :].partition("</ul>")[0]
    texts = [unescape(text) for text in re.findall(r"</svg>(.*?)</li>", legend, re.DOTALL)]
    assert texts == [printable(name, NAME) for name in sorted(HOSTILE)]


def test_label_curves_name_methods_and_sources_as_they_are(tmp_path):
    value = {"mean": 0.5, "half_width": 0.1}
    rows = [
        {
            "method": name,
            "labels": labels,
            "metrics": {"accuracy": value},
            "majority_rate": 0.5,
            "source": r"$\undefinedmacro$",
        }
        for name in ("_a", r"$\b")
        for labels in (1, 2)
    ]
    draw_label_curves(rows, "accuracy", tmp_path / "curves.svg")
    shown = (tmp_path / "curves.svg").read_text()
    for name in ("_a", r"$\b", r"$\undefinedmacro$"):
        assert f"<!-- {name} -->" in shown  # matplotlib notes every text


def test_a_console_shows_what_it_is_given_in_lines_and_tables():
    written = StringIO()
    console = Console(file=written, width=200, force_terminal=False)
    table = Table()
    table.add_column("\x1b[1mname")
    for name in HOSTILE[:4]:
        table.add_row(name)
        console.print(name)
    console.print(table)
    assert "\x1b" not in written.getvalue()
    assert written.getvalue().count("[bold]loud[/bold]") == 2
    assert written.getvalue().count(":warning:") == 2


@pytest.mark.parametrize("name", ["\x1b[2Ja.csv", "[bold]a.csv"])
def test_an_error_names_a_file_without_its_escape_codes(name, tmp_path):
    path = tmp_path / name
    path.write_text("x,y\n1,\x1b[2J\n2,\x1b[2J\n")
    missing = run(path, "--target", "z\x1b[3J")
    assert missing.exit_code == 2
    alone = run(path, "--target", "y")
    assert alone.exit_code == 2
    for output in (missing.output, alone.output):
        assert "\x1b[2J" not in output
        assert "\x1b[3J" not in output
        assert printable(path.name) in output


# Both files or neither


@pytest.mark.parametrize("old", [False, True])
def test_a_report_that_cannot_be_written_leaves_the_table_as_it_was(
    old, tmp_path, monkeypatch
):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n0,a\n0.1,\n9,b\n9.1,\n")
    output = tmp_path / "a-labelled.csv"
    if old:
        output.write_text("mine")
    # Half a character of a pair: it can be shown, and cannot be written in UTF-8.
    monkeypatch.setattr("icssl.app.labelling_report.report_html", lambda _: "\ud800")
    result = run(path, "--target", "y", "--report", tmp_path / "a.html", "--force")
    assert result.exit_code == 2
    assert files_in(tmp_path) == (["a-labelled.csv", "a.csv"] if old else ["a.csv"])
    assert not old or output.read_text() == "mine"
