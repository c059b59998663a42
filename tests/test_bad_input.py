"""Files that are no tables: one sentence, nothing half-written, and the page lives on."""

import base64
import io
import re

import numpy as np
import pytest

import icssl
from helpers import run_command, text_of
from icssl.app.explore import uploads
from icssl.tables.formulas import is_formula
from icssl.tables.table_columns import CategoryCells, columns_of

pd = pytest.importorskip("pandas")
openpyxl = pytest.importorskip("openpyxl")

BAD = {
    "random.csv": np.random.default_rng(0).bytes(5000),
    "zeros.csv": bytes(1000),
    "picture.csv": b"\xff\xd8\xff\xe0" + bytes(50),
    "book.csv": b"PK\x03\x04" + bytes(50),
    "old.csv": b"\xd0\xcf\x11\xe0" + bytes(50),
    "empty.csv": b"",
    "blank.csv": b"\n\n \n",
    "header.csv": b"x,y\n",
    "line.csv": b"z" * 3_000_000,
    "repeated.csv": b"\xc5" * 20_000,
    "one.csv": b"y\na\nb\n\n",
    "text.xlsx": b"hello",
    "zip.xlsx": b"PK\x05\x06" + bytes(18),
    "list.json": b"[1, 2]",
    "cut.jsonl": b'{"x": 1, "y": "a"}\n{"x": 2, "y"',
    "nested.jsonl": b'{"x": [1], "y": "a"}\n',
    "deep.json": b"[" * 100_000,
    "text.gz": b"hello",
    "text.zip": b"hello",
    "text.feather": b"hello",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_table_is_refused_in_a_sentence(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BAD[name])
    report = tmp_path / "report.html"
    result = run_command("classify", path, "-t", "y", "--report", report, wide=True)
    assert result.exit_code == 2, result.output
    said = text_of(result).partition("Invalid value:")[2].strip()
    assert name.split(".")[0] in said
    assert len(said) < 400 + len(str(path))
    assert [file.name for file in tmp_path.iterdir()] == [name]


def label_first(store, name, content):
    return uploads.label_upload(store.add(name, content), "y", ())


@pytest.mark.parametrize("name", [name for name in BAD if not name.endswith(".feather")])
def test_the_page_refuses_the_same_and_lives_on(name):
    content = base64.b64encode(BAD[name]).decode()
    store = uploads.Uploads()
    with pytest.raises(ValueError, match=re.escape(name)):
        label_first(store, name, f"data:;base64,{content}")
    good = base64.b64encode(b"x,label\n1,a\n5,b\n2,\n").decode()
    found, _ = uploads.label_upload(
        store.add("good.csv", f"data:;base64,{good}"), "label", ()
    )
    assert found.labels.tolist() == ["a", "b", "a"]


def test_a_table_of_very_many_columns_is_read(tmp_path):
    """A hundred times wider than long; texts and numbers."""
    count = 20_000
    rows = [",".join(str((i * j) % 7) for j in range(count)) for i in range(4)]
    text = ",".join(f"c{j}" for j in range(count)) + ",y\n"
    text += "".join(f"{row},{y}\n" for row, y in zip(rows, "ab\0\0", strict=True))
    path = tmp_path / "wide.csv"
    path.write_text(text.replace("\0", ""))
    table = icssl.read_table(path, "y")
    assert table.features.shape == (4, count)
    assert table.features["c3"].tolist() == [0, 3, 6, 2]


def test_columns_of_a_frame_are_the_same_one_by_one_and_by_kind():
    """Columns of one kind are taken together; each must be what pandas gives for it."""
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 9, 30)
    frame = pd.DataFrame(
        {
            "whole": whole,
            "category": pd.Categorical(2**60 + whole % 2),
            "parts": rng.normal(size=30),
            "small": whole.astype("int8"),
            "texts": whole.astype(str),
            "nullable": pd.array(whole, dtype="Int64"),
            "other": -whole,
            "days": pd.to_datetime(whole, unit="D"),
            "yes": whole > 4,
        }
    )
    for place, cells in enumerate(columns_of(frame)):
        column = frame.iloc[:, place]
        assert isinstance(cells, CategoryCells) == (frame.columns[place] == "category")
        assert list(cells) == column.tolist()
        if not isinstance(cells, CategoryCells):
            assert cells.dtype == column.to_numpy().dtype


def test_lines_of_two_encodings_are_read_whichever_are_more():
    unicode, western = "Zürich,1,a\n".encode(), "Köln,2,b\n".encode("cp1252")
    for first, second in ((5, 1), (2, 2), (1, 5)):
        content = b"town,size,y\n" + first * unicode + second * western
        with pytest.warns(icssl.tables.table_warning.TableWarning, match="mixes encodings"):
            table = icssl.read_table(io.BytesIO(content), "y")
        assert set(table.stored["town"]) == {"Zürich", "Köln"}
    # A word of Chinese whose bytes are UTF-8 by chance does not make its file mixed.
    words = "联通,1,中国人民银行\n中国北京,2,上海市广东省深圳\n天津重庆,3,四川河南\n" * 9
    table = icssl.read_table(io.BytesIO(b"town,size,y\n" + words.encode("gb18030")), None)
    assert set(table.stored["town"]) == {"联通", "中国北京", "天津重庆"}


def test_a_very_long_line_is_read_and_refused_by_the_page(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("x,note,y\n1," + "z" * 10**7 + ",a\n5,,b\n2,,\n")
    table = icssl.read_table(path, "y")
    assert len(table.features["note"][0]) == 10**7
    content = base64.b64encode(path.read_bytes()).decode()
    with pytest.raises(ValueError, match="and the page takes 8 MB"):
        uploads.read_upload("long.csv", f"data:;base64,{content}")


FORMULAS = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\tx", "=HYPERLINK(1)"]
PLAIN = [
    "-5",
    "+3.5",
    "-1,234.5",
    "- ",
    "a=b",
    "<b>bold</b>",
    "-",
    "--",
    "+49 30 1234",
    "-5 %",
]


def test_formulas_are_told_from_numbers():
    assert all(map(is_formula, FORMULAS))
    assert not any(map(is_formula, PLAIN))


def messy_cells(path):
    cells = FORMULAS + PLAIN
    frame = pd.DataFrame(
        {
            "=header": np.arange(len(cells)) % 3,
            "cell": cells,
            "y": ["=a", "b"] + [None] * (len(cells) - 2),
        }
    )
    frame.to_csv(path, index=False)
    return cells


def test_no_spreadsheet_runs_what_is_written(tmp_path):
    path = tmp_path / "a.csv"
    cells = messy_cells(path)
    report = tmp_path / "a.html"
    result = run_command("classify", path, "-t", "y", "--report", report, wide=True)
    assert result.exit_code == 0, result.output
    back = pd.read_csv(tmp_path / "a-labelled.csv", dtype=str, keep_default_na=False)
    assert next(iter(back)) == "'=header"
    written = back["cell"].tolist()
    assert written == [f"'{cell}" if cell in FORMULAS else cell for cell in cells]
    assert set(back["label"]) <= {"'=a", "b"}
    page = report.read_text(encoding="utf-8")
    assert "<b>bold</b>" not in page


def test_a_spreadsheet_has_no_formulas_either(tmp_path):
    path, out = tmp_path / "a.csv", tmp_path / "a.xlsx"
    messy_cells(path)
    result = run_command("classify", path, "-t", "y", "-o", out, wide=True)
    assert result.exit_code == 0, result.output
    for row in openpyxl.load_workbook(out).active.iter_rows():
        assert all(cell.data_type != "f" for cell in row)


def test_the_values_of_formulas_are_read():
    book = openpyxl.Workbook()
    for row in (["x", "y"], ["=1+1", "a"], [3, "b"], [4, None]):
        book.active.append(row)
    content = io.BytesIO()
    book.save(content)
    content.seek(0)
    # openpyxl computes nothing: the cell has no value, as after other programs.
    table = icssl.read_table(content, "y")
    assert table.features["x"].isna().tolist() == [True, False, False]


def test_a_spreadsheet_that_unpacks_to_too_much_is_refused():
    from zipfile import ZIP_DEFLATED, ZipFile

    bomb = io.BytesIO()
    with ZipFile(bomb, "w", ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"<row>" * 2**24)
    content = base64.b64encode(bomb.getvalue()).decode()
    with pytest.raises(ValueError, match="unpacks to more than the 64 MB"):
        uploads.read_upload("a.xlsx", f"data:;base64,{content}")
