"""The registry of file formats: a format is added in one place, and read everywhere."""

import base64
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from icssl.app.cli import app
from icssl.app.explore.uploads import MOST_ROWS, download, label_upload, read_upload
from icssl.episodes.data_config import source_named
from icssl.tables import formats
from icssl.tables.formats import FORMATS, TableFormat, suffix_of
from icssl.tables.label_table import read_table
from icssl.tables.output import default_output
from icssl.tables.reader import read_features
from icssl.tables.table_file import FileTable

pd = pytest.importorskip("pandas")

ROWS = [(i % 2 * 10 + i / 10, -(i % 2) * 10, "ab"[i % 2]) for i in range(40)]


def read_toy(source, options):
    """Names in the first line, cells in the others, slashes between them."""
    with source.open() as file:
        names, *lines = file.read().decode().splitlines()
    cells = [[cell or None for cell in line.split("/")] for line in lines]
    frame = pd.DataFrame(cells, columns=names.split("/"))
    return FileTable(frame.apply(as_numbers))


def as_numbers(column):
    try:
        return pd.to_numeric(column)
    except ValueError:
        return column


def write_toy(stored, columns, path, separator):
    frame = stored.assign(**columns)
    lines = ["/".join(map(str, row)) for row in frame.itertuples(index=False)]
    path.write_text("\n".join(["/".join(frame), *lines]) + "\n")


def toy_text(labels):
    lines = [f"{x}/{z}/{y if i < labels else ''}" for i, (x, z, y) in enumerate(ROWS)]
    return "\n".join(["x/z/label", *lines]) + "\n"


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(FORMATS, ".toy", TableFormat(read_toy, write_toy, on_page=True))


def encoded(text):
    return "data:;base64," + base64.b64encode(text.encode()).decode()


def classify(*arguments):
    wide = {"COLUMNS": "400", "TERMINAL_WIDTH": "400"}
    return CliRunner().invoke(app, ["classify", *map(str, arguments)], env=wide)


def labels_of(text):
    header, *lines = text.splitlines()
    place = header.split("/").index("icssl_label")
    return [line.split("/")[place] for line in lines]


def test_a_new_format_is_read_and_written_by_the_command(toy, tmp_path):
    path = tmp_path / "data.toy"
    path.write_text(toy_text(labels=4))
    table = read_table(path, "label")
    assert list(table.features) == ["x", "z"]
    assert list(table.target[:4]) == ["a", "b", "a", "b"]
    assert pd.isna(table.target[4:]).all()
    result = classify(path, "--target", "label")
    assert result.exit_code == 0, result.output
    written = (tmp_path / "data-labelled.toy").read_text()
    assert labels_of(written) == [y for _, _, y in ROWS]


def test_a_new_format_is_taken_by_the_page(toy):
    upload = read_upload("data.toy", encoded(toy_text(labels=4)))
    assert upload.columns == ("x", "z", "label")
    assert upload.guess == "label"
    labelling, _ = label_upload(upload, "label", ())
    assert labelling.labels.tolist() == [y for _, _, y in ROWS]
    name, content = download(upload, labelling)
    assert name == "data-labelled.toy"
    assert labels_of(content.decode()) == [y for _, _, y in ROWS]


def test_a_new_format_has_features_for_episodes(toy, tmp_path):
    path = tmp_path / "data.toy"
    path.write_text(toy_text(labels=40))
    table = read_features(path)
    np.testing.assert_allclose(table.x, [row[:2] for row in ROWS], rtol=1e-6)
    assert table.classes == ("a", "b")
    assert table.y.tolist() == [0, 1] * 20
    with pytest.raises(ValueError, match="class 'a' has 20 rows"):  # it was read
        source_named(str(path))


def test_the_limits_of_the_page_hold_for_any_format(toy):
    text = "x/label\n" + "1/a\n" * (MOST_ROWS + 1)
    with pytest.raises(ValueError, match="has 5,001 rows, and the page takes 5,000"):
        read_upload("data.toy", encoded(text))


def test_errors_list_the_formats_that_there_are(toy, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=r"must end in \.csv, .*, \.toy, \.gz, \.zip\."):
        read_table(tmp_path / "a.txt", "y")
    with pytest.raises(ValueError, match=r"ends in \.csv or .* or \.toy or "):
        read_upload("a.txt", encoded("x"))
    with pytest.raises(ValueError, match=r"\.npz, \.npy, .*\.toy or be a folder of"):
        read_features(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"ends in \.csv, .*, \.toy\."):
        source_named("a.txt")


def test_a_format_that_cannot_be_written_is_not_for_the_command(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"a\.npy must end in \.csv, \.parquet, \.npz, "):
        read_table(tmp_path / "a.npy", "y")


def test_an_npy_file_that_says_it_is_larger_than_it_is_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((3, 3)))
    honest = path.read_bytes()
    path.write_bytes(honest.replace(b"(3, 3), }" + b" " * 12, b"(3, 3000000000000), }"))
    assert path.read_bytes() != honest
    with pytest.raises(ValueError, match=r"cannot be read as \.npy: .* and 72 are there"):
        read_features(path)


def test_the_page_takes_no_archive():
    with pytest.raises(ValueError, match=r"a\.npz is no table that the page reads"):
        read_upload("a.npz", encoded("PK"))


def test_the_longest_suffix_decides(monkeypatch):
    monkeypatch.setitem(FORMATS, ".csv.toy", FORMATS[".csv"])
    monkeypatch.setitem(FORMATS, ".toy", FORMATS[".npz"])
    assert suffix_of("a.csv.toy") == ".csv.toy"
    assert suffix_of(Path("b/a.b.toy")) == ".toy"
    assert default_output(Path("b/a.CSV.toy")) == Path("b/a-labelled.CSV.toy")


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch, tmp_path):
    (tmp_path / "a.toy").write_text("x")
    absent = TableFormat(read_toy, packages=("no_such_package",))
    monkeypatch.setitem(FORMATS, ".toy", absent)
    with pytest.raises(ImportError, match=r"\.toy files need no_such_package: pip install"):
        formats.read_file(formats.Source(str(tmp_path / "a.toy")))
