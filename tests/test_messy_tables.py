"""Tables as people have them: terminal, page and Python give the same good answer."""

import base64
import gzip
import io
import runpy
import sys
import warnings
import zipfile
from pathlib import Path
from xml.etree.ElementTree import canonicalize

import numpy as np
import pytest

import icssl
from helpers import run_command, text_of
from icssl import ICSSLClassifier
from icssl.app.explore import uploads
from icssl.app.explore.reading import Reading
from icssl.tables.table_warning import TableWarning

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("charset_normalizer")

ROOT = Path(__file__).parents[1]
MESSY = ROOT / "tests" / "messy"
# What each file needs to be told, and words of the warnings that say so.
FILES = {
    "clean.csv": ({}, []),
    "german.csv": ({}, []),
    "money.csv": ({}, []),
    "header_twice.csv": ({}, ["the header is repeated in 1 of the lines"]),
    "equal_names.csv": ({}, ["'value' is the name of several columns"]),
    "placeholders.csv": (
        {"missing": ["?", "unknown"]},
        ["'?' and 'unknown' stand for no label", "--missing '?' --missing unknown changes"],
    ),
    "spellings.csv": (
        {"relabel": {"Yes": "yes"}},
        ["labels 'yes' and 'Yes' differ by case", "--relabel Yes=yes changes this"],
    ),
    "days_first.tsv.gz": ({}, []),
    "utf16.csv": ({}, []),
    "lines.jsonl": ({}, []),
    "sheet.xlsx": ({}, ["only sheet 'customers' is read"]),
}


@pytest.fixture(scope="module")
def truth():
    return pd.read_csv(MESSY / "truth.csv").churned.to_numpy()


@pytest.fixture(scope="module")
def clean_accuracy(truth):
    table = icssl.read_table(MESSY / "clean.csv", "churned")
    return (ICSSLClassifier().fit_predict(table.features, table.target) == truth).mean()


def read(name, target="churned", **options):
    """The table, and what was said about it in the words of the terminal."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        table = icssl.read_table(MESSY / name, target, **options)
        labels = ICSSLClassifier().fit_predict(table.features, table.target)
    return table, labels, [warning.message.text("terminal") for warning in caught]


def options_of(told):
    """The same settings as options of the command."""
    missing = [part for one in told.get("missing", ()) for part in ("--missing", one)]
    named = told.get("relabel", {}).items()
    return missing + [part for a, b in named for part in ("--relabel", f"{a}={b}")]


def sheet_parts(path):
    """The date and the content of every part of a spreadsheet.

    Compression and prefixes in XML are those of the installed versions, and ``app.xml``
    names the version of openpyxl.
    """
    with zipfile.ZipFile(path) as archive:
        return {
            part.filename: (
                part.date_time,
                canonicalize(archive.read(part), rewrite_prefixes=True),
            )
            for part in archive.infolist()
            if part.filename != "docProps/app.xml"
        }


def test_the_script_makes_the_committed_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make", str(tmp_path)])
    runpy.run_path(str(ROOT / "scripts" / "make_messy_tables.py"), run_name="__main__")
    for name in [*FILES, "truth.csv"]:
        if name.endswith(".xlsx"):
            assert sheet_parts(tmp_path / name) == sheet_parts(MESSY / name)
        elif name.endswith(".gz"):
            made, kept = ((f / name).read_bytes() for f in (tmp_path, MESSY))
            assert gzip.decompress(made) == gzip.decompress(kept)
        else:
            assert (tmp_path / name).read_bytes() == (MESSY / name).read_bytes(), name


@pytest.mark.parametrize("name", FILES)
def test_a_messy_table_is_as_good_as_the_clean_one(name, truth, clean_accuracy):
    told, _ = FILES[name]
    assert clean_accuracy > 0.9  # labels at random would give 0.5
    _, labels, _ = read(name, **told)
    assert abs((labels == truth).mean() - clean_accuracy) <= 0.01


@pytest.mark.parametrize("name", FILES)
def test_what_is_doubtful_is_said_with_what_changes_it(name):
    told, words = FILES[name]
    _, _, said = read(name)
    for word in words:
        assert any(word in line for line in said), (word, said)
    if not words:
        assert said == []
    _, _, left = read(name, **told)
    if told:
        assert left == []


def reading_of(told):
    """Return the same settings as a person writes them on the page."""

    def text(value):
        if isinstance(value, dict):
            value = [f"{name}={given}" for name, given in value.items()]
        return value if isinstance(value, str) else "; ".join(value)

    return Reading(**{name: text(value) for name, value in told.items()})


@pytest.mark.parametrize("name", FILES)
def test_terminal_page_and_python_agree(name, tmp_path):
    told, _ = FILES[name]
    _, labels, said = read(name, **told)
    out = tmp_path / "out.csv"
    run = run_command(
        "classify", MESSY / name, "-t", "churned", "-o", out, *options_of(told), wide=True
    )
    assert run.exit_code == 0, run.output
    back = pd.read_csv(out, sep=None, engine="python")
    assert back.label.tolist() == labels.tolist()
    for line in said:
        assert f"Warning: {line}" in text_of(run)
    content = base64.b64encode((MESSY / name).read_bytes()).decode()
    upload = uploads.read_upload(name, f"data:;base64,{content}")
    assert upload.guess == "churned"
    found, warned = uploads.label_upload(upload, "churned", (), reading_of(told))
    assert found.labels.tolist() == labels.tolist()
    assert len(warned) == len(said)
    assert not any("--" in line for line in warned)


@pytest.mark.parametrize("name", ["clean.csv", "money.csv", "header_twice.csv"])
def test_fit_reads_the_texts_of_a_data_frame_by_the_same_rules(name):
    table, labels, _ = read(name)
    frame = pd.read_csv(MESSY / name)
    frame = frame[frame["churned"] != "churned"].reset_index(drop=True)
    classifier = ICSSLClassifier().fit(frame.drop(columns="churned"), frame["churned"])
    np.testing.assert_array_equal(classifier.transduction_, labels)
    # New rows are read as those of the fit were.
    new = frame.drop(columns="churned").iloc[:7]
    other = ICSSLClassifier().fit(table.features, table.target)
    np.testing.assert_allclose(
        classifier.predict_proba(new),
        other.predict_proba(table.features.iloc[:7]),
        atol=1e-6,
    )


def test_what_was_understood_is_a_table(tmp_path):
    table, _, _ = read("german.csv")
    columns = table.columns
    assert columns["joined"].read_as == "date"
    assert columns["joined"].note == "day first"
    assert columns["Einkünfte"].example == "37.181,47"
    assert columns["Einkünfte"].note == "decimal comma"
    assert (columns["Einkünfte"].missing, columns["Einkünfte"].numbers) == (9, 151)
    assert columns["plan"].read_as == "category"
    assert columns["churned"].read_as == "labels"
    frame = columns.to_frame()
    assert list(frame.name) == [column.name for column in columns]
    assert "Einkünfte" in str(columns)
    assert columns._repr_html_().count("<tr>") == len(columns) + 1
    shown = text_of(
        run_command("classify", MESSY / "german.csv", "-o", tmp_path / "a.csv", wide=True)
    )
    assert "decimal comma" in shown


EUROPEAN = "name;size;day\nA;1,5;03/04/2021\nB;2,5;04/05/2021\nC;3,25;05/06/2021\nD;;\n"


def frame_of(text, target=None, **options):
    content = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    return icssl.read_table(content, target, **options).features


def test_numbers_money_percents_and_groups():
    cells = {
        "1,234.50": 1234.5,
        "$-3": -3.0,
        "(7)": -7.0,
        "12%": 0.12,
        "-": np.nan,
        "NULL": np.nan,
        " 5 ": 5.0,
    }
    text = "x\tz\n" + "".join(f"{cell}\t{i}\n" for i, cell in enumerate(cells))
    with pytest.warns(
        TableWarning, match=r"'x' mixes numbers with '\$' and '%' and numbers without"
    ):
        frame = frame_of(text)
    np.testing.assert_allclose(frame["x"], list(cells.values()))


def test_a_column_that_proves_nothing_follows_the_others_and_says_so():
    with pytest.warns(TableWarning, match=r"'1.234' is read as 1,234"):
        frame = frame_of("a;b\n1.234;1,5\n2.345;2,5\n")
    assert frame["a"].tolist() == [1234, 2345]
    assert frame_of("a;b\n1.234;1\n2.345;2\n")["a"].tolist() == [1.234, 2.345]
    given = frame_of("a;b\n1.234;1\n2.345;2\n", decimal=",")
    assert given["a"].tolist() == [1234, 2345]


def test_dates_whose_order_is_open_are_said():
    with pytest.warns(TableWarning, match="whether day or month comes first"):
        days = frame_of(EUROPEAN)["day"]
    assert days[0] == pd.Timestamp("2021-04-03")  # decimal commas: Europe
    with pytest.warns(TableWarning, match="with the month first"):
        assert frame_of("d,x\n03/04/2021,1\n04/05/2021,2\n")["d"][0].month == 3
    assert frame_of("d,x\n13/04/2021,1\n04/05/2021,2\n")["d"][1].month == 5
    assert frame_of("d,x\n03/04/2021,1\n04/25/2021,2\n")["d"][1].month == 4


def test_cells_that_are_lost_are_named():
    text = "x,y\n" + "".join(f"{i % 9},{i % 7}\n" for i in range(30)) + "about 3,1\n"
    with pytest.warns(TableWarning, match="1 of its cells, 'about 3', counts as missing"):
        assert np.isnan(frame_of(text)["x"].iloc[-1])
    half = "x,y\n" + "".join(f"{i % 7 if i % 3 else 'some'},{i % 5}\n" for i in range(30))
    with pytest.warns(
        TableWarning, match="is read as categories, and 67% of its cells are"
    ):
        frame = frame_of(half)
    assert str(frame["x"].dtype) == "category"


def test_a_person_decides_what_a_column_is():
    text = "zip,n,note\n01067,1,x\n80331,2,y\n01067,3,z\n"
    assert frame_of(text)["zip"].tolist() == [1067, 80331, 1067]
    frame = frame_of(text, types={"zip": "category", "note": "ignore"})
    assert frame["zip"].tolist() == ["01067", "80331", "01067"]
    assert list(frame) == ["zip", "n"]
    # Fit leaves it so, though its texts are numbers.
    classifier = ICSSLClassifier().fit(frame, [0, 1, -1])
    assert classifier.columns_["zip"].read_as == "category"
    with pytest.raises(ValueError, match=r"no column 'zap' to give a type to.*'zip'"):
        frame_of(text, types={"zap": "number"})
    with pytest.raises(ValueError, match="unknown type of a column 'numbers'"):
        frame_of(text, types={"zip": "numbers"})
    assert frame_of(text, missing=["80331"])["zip"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_encodings(encoding):
    text = "größe;ort\n1,5;Köln\n2,5;Zürich\n3,5;Nîmes\n" * 1
    frame = frame_of(text.encode(encoding))
    assert frame["größe"].tolist() == [1.5, 2.5, 3.5]
    assert frame["ort"].tolist() == ["Köln", "Zürich", "Nîmes"]
    assert next(iter(frame_of(text.encode(), encoding="latin-1"))) == "grÃ¶Ã\x9fe"
    with pytest.raises(ValueError, match="is not text in ascii"):
        frame_of(text, encoding="ascii")


def test_another_alphabet_is_recognised():
    rows = ["имя;город;размер"] + [f"Наталья{i};Екатеринбург;{i},5" for i in range(40)]
    frame = frame_of("\n".join(rows).encode("cp1251"), drop=["имя"])
    assert list(frame) == ["город", "размер"]


def test_mixed_encodings_are_read_line_by_line_and_said():
    lines = [f"Köln,{i}" for i in range(5)]
    content = "\n".join(["ort,x", *lines]).encode() + "\nMünchen,7\n".encode("cp1252")
    with pytest.warns(TableWarning, match="mixes encodings: 1 of its lines, the first is"):
        assert frame_of(content)["ort"].tolist()[-2:] == ["Köln", "München"]


TABLE = pd.DataFrame({"x": [1.5, 2.5, np.nan], "g": ["a", "b", "a"], "y": ["p", "q", None]})


@pytest.mark.parametrize(
    "suffix", [".csv", ".tsv", ".xlsx", ".jsonl", ".parquet", ".feather", ".npz"]
)
def test_any_format_in_and_any_format_out(suffix, tmp_path):
    first = tmp_path / "in.csv"
    TABLE.to_csv(first, index=False)
    table = icssl.read_table(first, "y")
    out = tmp_path / f"out{suffix}"
    icssl.tables.output.write_table(table, {"label": np.array(["p", "q", "p"])}, out)
    again = icssl.read_table(out, "y", drop=["label"])
    pd.testing.assert_series_equal(
        pd.Series(np.asarray(pd.DataFrame(again.features).iloc[:, 0], dtype=float)),
        TABLE["x"],
        check_names=False,
    )
    assert [None if pd.isna(y) else y for y in again.target] == ["p", "q", None]
    last = tmp_path / "last.csv"
    icssl.tables.output.write_table(again, {"label2": np.array([1, 2, 3])}, last)
    assert pd.read_csv(last)["label2"].tolist() == [1, 2, 3]


def test_packed_files(tmp_path):
    text = TABLE.to_csv(index=False).encode()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder/a.csv", text)
        archive.writestr("__MACOSX/._a.csv", b"notes")
    for name in ("a.csv.gz", "a.zip"):
        assert icssl.read_table(tmp_path / name, "y").features["x"][1] == 2.5
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a.csv", text)
        archive.writestr("b.csv", text)
    with pytest.raises(ValueError, match=r"must hold one table, and it holds 'a.csv', 'b"):
        icssl.read_table(tmp_path / "b.zip", "y")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(ValueError, match="cannot be unpacked, perhaps it is cut short"):
        icssl.read_table(tmp_path / "c.csv.gz", "y")


def test_the_page_unpacks_no_more_than_it_takes():
    bomb = gzip.compress(b"x,y\n" + b"0," * 2**26)
    with pytest.raises(ValueError, match="unpacks to more than the 64 MB"):
        uploads.read_upload("a.csv.gz", "data:;base64," + base64.b64encode(bomb).decode())


def test_the_standard_input(monkeypatch):
    class Pipe:
        buffer = io.BytesIO((MESSY / "clean.csv").read_bytes())

    monkeypatch.setattr(sys, "stdin", Pipe)
    assert icssl.read_table("-", "churned").features.shape == (160, 6)
    for name in ("sheet.xlsx", "lines.jsonl", "days_first.tsv.gz"):
        content = (MESSY / name).read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)
            assert icssl.read_table(io.BytesIO(content), "churned").features.shape[0] == 160
