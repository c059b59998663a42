"""The page that ``icssl classify --report`` writes."""

import re
import warnings
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from icssl.app.labelling import Labelling, demo_table, label_rows
from icssl.app.labelling_report import report_html
from icssl.classifier.explanation import Explanation
from icssl.tables.label_table import read_table
from icssl.tables.table_warning import TableWarning

pd = pytest.importorskip("pandas")


def test_the_report_is_one_file_with_pictures_and_escapes_cells(labelling):
    page = report_html(_with_doubts(labelling, "column <i>'a'</i> looks odd."))
    embedding, histogram = re.findall(r"<svg viewBox='0 0 900.*?</svg>", page, re.DOTALL)
    assert len(re.findall("<path class='p'", embedding)) == 4
    said = re.findall(r"<title>(.*?)</title>", embedding)
    assert sorted(said) == [
        "row 0: x, has this label",
        "row 1: y, 75%",
        "row 2: y, has this label",
        "row 3: x, 50%",
    ]
    counts = re.findall(r"<title>(\d+) rows", histogram)
    assert [int(count) for count in counts if count != "0"] == [1, 1]
    assert "four &lt;rows&gt;" in page
    assert "<li>Column &lt;i&gt;&#x27;a&#x27;&lt;/i&gt; looks odd.</li>" in page
    assert "--drop" not in page
    assert "<td>&lt;b&gt;</td>" in page
    assert not re.search(r"(src|href)=[\"']?(http|/)|url\(|@import|<script", page)
    worth = page[page.index(">Rows to label next</h2>") :]
    assert worth.index("<td>3</td>") < worth.index("<td>1</td>")
    assert "1 row is hardly like any labelled row" in page


def test_the_report_is_well_formed(labelling):
    """A parser that keeps count of what is open finds nothing left open or closed twice."""
    page = report_html(_with_doubts(replace(labelling, why=_reasons()), "careful."))
    open_tags, void = [], {"meta"}

    class Check(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in void:
                open_tags.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Check().feed(page)
    assert open_tags == []
    names = re.findall(r"<h2 id='([^']+)'", page)
    assert re.findall(r"href='#([^']+)'", page) == names
    assert len(names) == len(set(names)) == 7


def _with_doubts(labelling, said):
    """The same with a warning that has an option, which the report does not name."""
    warning = TableWarning(said, "drop", ["a"])
    return replace(labelling, table=replace(labelling.table, warnings=(warning,)))


def _reasons():
    """Two labelled rows: the first speaks for x, the second for y."""
    parts = np.zeros((4, 2, 2))
    parts[:, 0, 0], parts[:, 1, 1] = [2.0, 0.5, 0.1, 0.3], [0.1, 1.5, 3.0, 0.2]
    base = np.log(np.full((4, 2), 0.5))
    rows, codes = np.array([0, 2]), np.array([0, 1])
    return Explanation(parts, base, np.array(["x", "y"], dtype=object), rows, codes)


def test_the_report_says_why_in_words_and_bars(labelling):
    page = report_html(replace(labelling, why=_reasons()))
    why = page[page.index(">Why</h2>") : page.index(">Confidence</h2>")]
    assert "<summary>Row 3: 50% x, because of row 0</summary>" in why
    assert "<summary>Row 1: 75% y, because of row 2</summary>" in why
    widths = re.findall(r"left:([\d.]+)%;width:([\d.]+)%", why[why.index("Row 1:") :])
    # Row 2 speaks for y with 0.75, row 0 against it with 0.25: a third as much.
    assert widths == [("50.0", "50.0"), ("33.3", "16.7")]
    assert ">Why</h2>" not in report_html(labelling)


def test_the_embedding_of_the_demos_report_fills_its_frame():
    page = report_html(label_rows(demo_table()))
    embedding = page[page.index("rows in the embedding") : page.index("<figcaption>")]
    places = re.findall(r"d='M([\d.]+) ([\d.]+)", embedding)
    assert len(places) == 178
    for axis, size in zip(np.array(places, dtype=float).T, (900, 480), strict=True):
        assert (np.abs(axis - np.median(axis)) < 0.1 * size).mean() < 0.6
        assert np.ptp(axis) > 0.85 * size
    for words in ("alcohol", "malic_acid", "The demo knows the truth"):
        assert words in page


def test_a_report_of_a_table_without_unlabelled_rows(labelling):
    full = Labelling(
        labelling.table,
        labelling.classes,
        np.array([0, 1, 1, 0]),
        labelling.distributions,
        labelling.embedding[:, :1],
        labelling.reach,
        (),
        "small",
    )
    assert "Every row came with a label." in report_html(full)


def test_the_report_has_columns_warnings_and_accuracy_of_a_real_file():
    """A file with money, percents and a column that names rows."""
    path = Path(__file__).parent / "messy" / "money.csv"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table = read_table(path)
        labelling = label_rows(table, judge=True)
    page = report_html(labelling)
    for column in table.columns:
        assert f"<td>{escape(column.name)}</td><td>{column.read_as}</td>" in page
    for warning in table.warnings:
        assert escape(warning.text("report")) in page
    score = labelling.score
    assert f"<b>{score.accuracy:.0%}</b>" in page
    assert escape(str(score)) in page
    assert f"{labelling.baseline.accuracy:.2f} of the same" in page
