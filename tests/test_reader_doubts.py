"""What a reader of tables finds doubtful, and the sentences that say so."""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import icssl
from helpers import run_command, text_of
from icssl import ICSSLClassifier
from icssl.tables.output import check_output, default_output, write_table
from icssl.tables.table_warning import TableWarning
from icssl.tables.text_numbers import written_number

pd = pytest.importorskip("pandas")

ROWS = "".join(f"{i % 7},{i % 3},{'ab'[i % 2] if i < 8 else ''}\n" for i in range(30))


def read(content, target=None, **options):
    """Return the table, and what was said in the words of the terminal."""
    content = content.encode() if isinstance(content, str) else content
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        table = icssl.read_table(io.BytesIO(content), target, **options)
    return table, [warning.message.text("terminal") for warning in caught]


def column(cells, **options):
    """Return the values of one column beside another, and what was said."""
    lines = (f"{cell}\t{i % 3}\n" for i, cell in enumerate(cells))
    table, said = read("a\tother\n" + "".join(lines), **options)
    return table, said


@pytest.mark.parametrize(
    ("above", "said"),
    [
        ("Customers 2021\n\n", "the first line, 'Customers 2021', is left out"),
        ("Customers,,\n,,\nby,me,\n", "the first 2 lines, 'Customers' and 'by me', are"),
        (",,\n , ,\n", None),
    ],
)
def test_lines_above_the_names_of_columns_are_left_out(above, said):
    table, doubts = read(f"{above}x,z,churned\n{ROWS}", "churned")
    assert list(table.features) == ["x", "z"]
    assert len(table.target) == 30
    assert table.target[:2].tolist() == ["a", "b"]
    assert [one.startswith(said) for one in doubts] == ([True] if said else [])


@pytest.mark.parametrize("above", ["Kunden, 2021\n", "Kunden; 2021\nStand Mai\n"])
def test_a_title_does_not_hide_the_separator(above):
    table, (doubt,) = read(above + f"x,z,churned\n{ROWS}".replace(",", ";"), "churned")
    assert table.separator == ";"
    assert "is left out" in doubt or "are left out" in doubt


@pytest.mark.parametrize(
    "text",
    [
        ",name\n0,a\n1,b\n2,a\n",
        ",u,v\n0,a,b\n1,b,c\n2,c,c\n",
        "x,comment\n1,\n2,\n3,much\n",
        "a,b,c,d\n1,,,\n,2,,\n3,,4,\n",
    ],
)
def test_a_header_is_no_title(text):
    table, said = read(text)
    assert len(table.features) == 3
    assert not any("left out:" in one for one in said)


def test_a_line_that_is_cut_short_is_counted_from_the_top_of_the_file():
    with pytest.raises(ValueError, match="line 33, has 2 fields and the header has 3"):
        read(f"Title\nx,z,churned\n{ROWS}1,2\n")


def test_a_title_in_a_spreadsheet_is_left_out():
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [[i % 5, i % 3, 0.5 * i, "yn"[i % 2] if i < 8 else None] for i in range(30)]
    for row in [["Customers"], [], ["May", 2021], ["u", "v", "w", "churned"], *rows]:
        book.active.append(row)
    content = io.BytesIO()
    book.save(content)
    table, (doubt,) = read(content.getvalue(), "churned")
    assert doubt.startswith("the first 2 lines, 'Customers' and 'May 2021', are left out")
    assert {label for label in table.target if label is not None} == {"y", "n"}
    assert list(table.stored) == ["u", "v", "w", "churned"]


@pytest.mark.parametrize("line", ["sep=;\n", '"sep=;"\r\n', "SEP=;;;\n"])
def test_a_line_that_names_the_separator_is_no_header(line):
    table, said = read(line + f"x,z,churned\n{ROWS}".replace(",", ";"), "churned")
    assert (list(table.features), table.separator, said) == (["x", "z"], ";", [])


def test_a_row_in_place_of_names_is_said():
    said = "holds numbers and is taken for the names of the columns: if it is a row, write"
    for first in ("5.1,3.5,1.4,setosa\n", "5,3,9\n"):
        _, doubts = read(first + first.replace("5", "6"))
        assert any(said in one for one in doubts), first
    for names in ("0,1,2\n", "2019,2020,2021,x\n", "400.5,401,401.5,402,402.5,y\n"):
        width = names.count(",")
        assert not any(said in one for one in read(names + "1," * width + "2\n")[1]), names


def test_a_class_called_none_can_be_named_and_is_said():
    cells = ["None", "low", "high", ""]
    text = "x,t\n" + "".join(f"{i},{cells[i % 4]}\n" for i in range(16))
    table, (doubt,) = read(text, "t")
    assert table.target[:4].tolist() == [None, "low", "high", None]
    assert doubt.startswith(
        "'None' in column 't' and its empty cells both count as no label, in 4 rows and 4"
    )
    assert "--relabel 'None=class None'" in doubt
    table, said = read(text, "t", relabel={"None": "nothing"})
    assert table.target[:4].tolist() == ["nothing", "low", "high", None]
    assert said == []
    assert read(text, "t", missing=["None"])[1] == []
    assert read(text.replace("None", ""), "t")[1] == []


def test_a_target_that_is_guessed_has_rows_without_a_label():
    lines = (f"{i % 5},{'ab'[i % 2]},{'yn'[i % 2] if i < 5 else ''}\n" for i in range(20))
    text = "x,class,survived\n" + "".join(lines)
    table, (doubt,) = read(text, "auto")
    assert table.target_name == "survived"
    assert "15 of its 20 cells are empty. Column 'class' has a label in every row" in doubt
    for labels in (["a", "b"], ["1", "0", "-1"]):
        lines = (f"{i % 5},{labels[i % len(labels)]}\n" for i in range(20))
        assert read("x,class\n" + "".join(lines), "auto")[0].target_name == "class"


def test_names_of_labels_and_texts_that_do_not_occur_are_said():
    text = "x,t\n" + "".join(f"p{i % 3},{['low', 'high', ''][i % 3]}\n" for i in range(9))
    _, said = read(text, "t", relabel={"hihg": "h"}, missing=["p0", "P1"])
    assert said == [
        "no label of column 't' is 'hihg', so that none is renamed to 'h'. Did you mean "
        "'high'?",
        "no text of the table is 'P1', so that none counts as missing for it. Did you mean "
        "'p1'?",
    ]


def test_a_number_that_stays_in_columns_of_numbers_is_said():
    pytest.importorskip("pyarrow")
    content = io.BytesIO()
    pd.DataFrame({"x": [1, -9, 3], "y": ["a", "b", None]}).to_parquet(content)
    _, (doubt,) = read(content.getvalue(), "y", missing=["-9"])
    assert "Columns of numbers, such as 'x', keep it: make those cells empty." in doubt


AMOUNTS = {
    "units": [f"{i + 3} kg" if i % 2 else f"{i}00 g" for i in range(24)],
    "sizes": [f"{i}.5k" if i % 2 else f"{i}M" for i in range(24)],
    "bounds": [f"<{i}" for i in range(24)],
    "times": [f"{i:02}:30" for i in range(24)],
    "ranges": [f"{i}-{i + 5}" for i in range(24)],
    "dates": [f"{i + 1} {['mars', 'avril', 'juin'][i % 3]} 2021" for i in range(24)],
}


@pytest.mark.parametrize("name", AMOUNTS)
def test_numbers_that_are_not_read_are_no_names_of_rows(name):
    table, (doubt,) = column(AMOUNTS[name])
    assert doubt.startswith("column 'a' is read as categories, and most of its cells begin")
    assert "numbers with different units? Write plain numbers of one unit" in doubt
    assert table.columns["a"].note == "numbers with different units?"


@pytest.mark.parametrize(
    "cells",
    [
        [f"W{i:03}" for i in range(24)],
        [f"{i} {chr(97 + i) * 3} Street" for i in range(24)],
        [f"{i * 7919 % 97:02x}{i * 104729 % 9973:x}f-{i * 31 % 17:x}" for i in range(24)],
    ],
)
def test_codes_and_addresses_still_name_rows(cells):
    _, (doubt,) = column(cells)
    assert "is different in every row and may only name the row" in doubt


def test_one_column_has_one_doubt():
    cells = [f"{i}.5" if i < 15 else f"about {i}" for i in range(24)]
    _, (doubt,) = column(cells)
    assert "62% of its cells are numbers" in doubt


def test_a_minus_behind_a_number_is_its_sign():
    assert column(["1.5-", "2.5-", "3-"])[0].features["a"].tolist() == [-1.5, -2.5, -3]
    assert written_number("12,00\u2212").value(",") == -12
    assert written_number("12.00- EUR").value(".") == -12
    assert written_number("5 -kg").unit == "-kg"
    assert written_number("-5-") is None


def test_a_type_that_reads_nothing_is_said():
    table, (doubt,) = column(["x1", "x2", "5"], types={"a": "number"})
    assert (
        "is read as numbers, and 2 of its cells, 'x1' and 'x2', count as missing" in doubt
    )
    assert table.features["a"].isna().sum() == 2
    _, (doubt,) = column(["x1", "x2", "x3"], types={"a": "date"})
    assert "is read as dates, and all of its cells, 'x1', 'x2' and 'x3', count as" in doubt
    table, said = column(["20210301", "20211231"], types={"a": "date"})
    assert (table.features["a"][0], said) == (pd.Timestamp("2021-03-01"), [])
    assert column(["20210301", "20211231"])[0].features["a"].tolist()[0] == 20210301


@pytest.mark.parametrize("name", ["id", "customer_id", "Order ID", "customerId", "Key"])
def test_numbers_that_are_called_so_may_name_rows(name):
    lines = "".join(f"{1000 + 7 * i * i},{i % 3}\n" for i in range(24))
    _, said = read(f"{name},x\n{lines}")
    assert said == [
        f"column {name!r} is different in every row and may only name the row: it "
        f"is used all the same. --drop "
        f"{name if ' ' not in name else repr(name)} leaves it out."
    ]
    assert read(f"paid,x\n{lines}")[1] == []
    again = "".join(f"{1000 + 7 * (i % 9)},{i % 3}\n" for i in range(24))
    assert read(f"{name},x\n{again}")[1] == []


def test_the_terminal_takes_the_word_tab(tmp_path):
    path, model = tmp_path / "a.csv", tmp_path / "a.icssl"
    path.write_text(f"x,z,churned\n{ROWS}".replace(",", "\t"))
    for text in ("tab", "\\t"):
        options = ["--separator", text, "--force", "--save", model]
        result = run_command("classify", path, "-t", "churned", *options)
        assert result.exit_code == 0, result.output
        out = tmp_path / "b.csv"
        result = run_command(
            "predict", model, path, "--separator", text, "--force", "-o", out
        )
        assert result.exit_code == 0, result.output
    result = run_command("classify", path, "-t", "churned", "--separator", "ab", "--force")
    assert "--separator must be one character or tab, got 'ab'" in text_of(result)


def test_json_is_written_as_one_list(tmp_path):
    table, _ = read('[{"a": 1.5, "y": "p"}, {"a": null, "y": null}]', "y")
    path = tmp_path / "a.json"
    write_table(table, {"label": np.array(["p", "q"])}, path)
    assert json.loads(path.read_text()) == [
        {"a": 1.5, "y": "p", "label": "p"},
        {"a": None, "y": None, "label": "q"},
    ]
    assert default_output(path) == tmp_path / "a-labelled.json"
    with pytest.raises(ValueError, match="or one of these and"):
        check_output(tmp_path / "a.pdf.gz")


def test_json_in_another_order_is_refused_with_what_to_do():
    for indent in (None, 1):
        text = json.dumps({"count": 2, "data": [{"a": 1}, {"a": 2}]}, indent=indent)
        with pytest.raises(
            ValueError, match="its rows are in 'data': save that list alone"
        ):
            read(text)
        text = json.dumps({"a": {"0": 1}, "b": {"0": 2}}, indent=indent)
        with pytest.raises(ValueError, match="holds columns, and rows are needed"):
            read(text)


def test_cells_are_shown_as_a_person_reads_them():
    pytest.importorskip("pyarrow")
    days = pd.to_datetime(["2021-03-01 00:00", None, "2021-03-01 08:30"])
    content = io.BytesIO()
    pd.DataFrame({"d": days, "y": ["a", "b", None]}).to_parquet(content)
    table, _ = read(content.getvalue(), "y")
    shown = [table.shown_cell(row, "d") for row in range(3)]
    assert shown == ["2021-03-01", "", "2021-03-01 08:30:00"]


def test_labels_that_look_like_amounts_are_said():
    rows = np.linspace(0, 1, 50)[:, None]
    prices = [3 + 37 * i % 501 for i in range(40)] + [None] * 10
    with pytest.warns(
        TableWarning, match="40 of 40 labels are different whole numbers.*ICSSLR"
    ):
        ICSSLClassifier("one view").fit(rows, prices)
    # Numbers of classes, one label each, are as likely.
    ICSSLClassifier("one view").fit(rows, [*range(40), *[None] * 10])


def test_one_repeated_header_is_one_line():
    _, (doubt,) = read(f"x,z,churned\n{ROWS}x,z,churned\n", "churned")
    assert "in 1 of the lines below it, row 30: this line is left out" in doubt


def test_the_messy_files_are_read_without_a_new_doubt():
    folder = Path(__file__).parent / "messy"
    for name in ("clean.csv", "german.csv", "money.csv", "utf16.csv", "lines.jsonl"):
        assert read((folder / name).read_bytes(), "churned")[1] == [], name
