"""``icssl classify``: a file in, the same rows with labels out."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from helpers import run_command, skip_without_reader, text_of
from icssl.app.label_options import CONTEXT_ROWS, SUGGESTIONS
from icssl.app.labelling import class_rows, demo_table, label_rows, summary_lines
from icssl.app.row_notes import least_certain
from icssl.classifier.plan import MODELS
from icssl.tables.label_table import read_table
from icssl.tables.output import write_table

pd = pytest.importorskip("pandas")


# So wide that no path of a temporary folder is broken in two.
run = partial(run_command, "classify", wide=True)


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def blobs():
    """Two clouds that nobody can confuse, two labels each, with columns of every kind."""
    rng = np.random.default_rng(0)
    kind = np.arange(40) % 2
    species = np.where(np.arange(40) < 4, np.array(["cat", "dog"])[kind], "")
    return pd.DataFrame(
        {
            "id": [f"{i:03}" for i in range(40)],
            "size": [f"{x:.2f}" for x in rng.normal(10 * kind, 1)],
            "weight": [f"{x:.2f}" for x in rng.normal(-10 * kind, 1)],
            "coat": np.where(kind == 1, "rough", "soft, mostly"),
            "born": np.where(np.arange(40) == 7, "", "2020-01-02"),
            "species": species,
        }
    )


@pytest.fixture
def csv_file(blobs, tmp_path):
    path = tmp_path / "pets.csv"
    blobs.to_csv(path, index=False)
    return path


def test_given_labels_stay_and_others_are_the_likeliest(labelling):
    columns = labelling.columns
    assert columns["label"].tolist() == ["x", "y", "y", "x"]
    np.testing.assert_array_equal(columns["probability"], [0.9, 0.75, 0.4, 0.5])
    np.testing.assert_array_equal(columns["reach"], [1.0, 0.5, 1.0, 0.0])


def test_summary_counts_rows_labels_and_reach(labelling):
    first, second = summary_lines(labelling)
    assert first == "four <rows>: 4 rows, 2 labelled, 2 columns, 2 classes. Model: small."
    assert second.startswith("Mean confidence 0.625 over the 2 rows")
    assert "label; 1 of them has a reach below 0.1" in second
    near = replace(labelling.tally, unreached=0).lines[1]
    assert near.endswith("all of them are like some labelled row.")
    assert class_rows(labelling) == (("x", "1", "2", "0.500"), ("y", "1", "2", "0.750"))


def test_least_certain_rows_have_no_label_and_the_worst_is_first(labelling):
    assert least_certain(labelling) == [3, 1]


def test_csv_is_read_by_what_cells_look_like(csv_file):
    table = read_table(csv_file, "species", drop=["id"])
    assert list(table.features) == ["size", "weight", "coat", "born"]
    assert table.features["size"].dtype == np.float64
    assert table.features["born"].dtype.kind == "M"
    assert table.features["born"].isna().sum() == 1
    assert list(table.target[:5]) == ["cat", "dog", "cat", "dog", table.target[4]]
    assert pd.isna(table.target[4:]).all()


def test_csv_cells_are_written_back_as_they_were(csv_file, blobs, tmp_path):
    table = read_table(csv_file, "species", drop=["id"])
    path = tmp_path / "out.csv"
    write_table(table, {"label": np.arange(40), "reach": np.full(40, 1 / 3)}, path)
    back = pd.read_csv(path, dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(back[list(blobs)], blobs, check_dtype=False)
    assert back["label"].tolist() == [str(i) for i in range(40)]
    assert set(back["reach"]) == {"0.333333"}


def test_a_name_that_is_taken_is_not_written_over(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("label,x\n0,1\n1,2\n")
    write_table(read_table(path, "label"), {"label": np.array([5, 6])}, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == "label,x,icssl_label\n0,1,5\n1,2,6\n"


def test_other_separators_blank_lines_and_byte_order_marks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\ufeffy;x\n\n0;1,5\n;2\n", encoding="utf-8")
    table = read_table(path, "y", separator=";")
    assert table.features["x"].tolist() == [1.5, 2.0]
    write_table(table, {"label": np.array([0, 0])}, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == "y;x;label\n0;1,5;0\n;2;0\n"


def test_parquet_keeps_its_kinds(tmp_path):
    skip_without_reader("a.parquet")
    frame = pd.DataFrame(
        {
            "y": pd.Series([1, None, 0], dtype="Int64"),
            "day": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
            "group": pd.Series(["a", "b", None], dtype="category"),
        }
    )
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", "y")
    assert list(table.features) == ["day", "group"]
    write_table(table, {"label": np.array([1, 0, 0])}, tmp_path / "b.parquet")
    back = pd.read_parquet(tmp_path / "b.parquet")
    pd.testing.assert_frame_equal(back.drop(columns="label"), frame)
    assert back["label"].tolist() == [1, 0, 0]


def test_npz_uses_arrays_with_as_many_rows(tmp_path):
    arrays = {
        "y": np.array(["a", "", "b"]),
        "image": np.arange(12.0).reshape(3, 2, 2),
        "age": np.array([1, 2, 3]),
        "number": np.array([7, 8, 9]),
        "names": np.array(["one", "two"]),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    table = read_table(tmp_path / "a.npz", "y", drop=["number"])
    np.testing.assert_array_equal(
        table.features, np.column_stack([arrays["image"].reshape(3, 4), arrays["age"]])
    )
    assert table.target.tolist() == ["a", None, "b"]
    labels = np.array(["a", "b", "b"], dtype=object)
    write_table(table, {"label": labels}, tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as back:  # no pickles
        assert set(back) == {*arrays, "label"}
        for name, values in arrays.items():
            np.testing.assert_array_equal(back[name], values)
        assert back["label"].tolist() == ["a", "b", "b"]


def test_the_demo_has_three_labels_a_class():
    table = demo_table()
    assert table.features.shape == (178, 13)
    given = [name for name in table.target if name is not None]
    assert sorted(given) == sorted(np.unique(table.truth).tolist() * 3)
    assert all(table.truth[i] == name for i, name in enumerate(table.target) if name)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.parquet", b"", "a.parquet is empty"),
        ("a.csv", b"x,y\n", "has a header and no rows"),
        ("a.csv", b"x,z\n1,2\n", "no column 'y': it has 'x', 'z'"),
        ("a.csv", b"x y\n1 2\n", "it has 'x y'. Is the separator right?"),
        ("a.csv", b"y\n1\n2\n", "nothing to learn from beside the target 'y'"),
        ("a.csv", b"x,y\n1,2\n3", "line 3, has 1 fields and the header has 2"),
        ("a.csv", b"x,y\n1,2,3\n", "line 2, has 3 fields and the header has 2"),
        ("a.csv", b'x,y\n1,"2\n', "cannot be read from line 2 on: unexpected end of data"),
        ("a.csv", b"x,y\n\0\0,1\n", "is no table in text: it has zero bytes"),
        ("a.csv", b"\x89PNG\r\n", "is no table in text: it looks like a PNG picture"),
        ("a.parquet", b"PAR1 and no more", "cannot be read as .parquet"),
        ("a.npz", b"PK\x03\x04 and no more", "cannot be read as .npz"),
        ("a.npz", b"no archive", "cannot be read as .npz"),
        ("a.txt", b"x y", "must end in .csv, .parquet, .npz"),
    ],
)
def test_a_broken_file_is_an_error_in_words(tmp_path, name, content, words):
    skip_without_reader(name)
    path = tmp_path / name
    path.write_bytes(content)
    result = run(path, "--target", "y")
    assert result.exit_code == 2
    assert words in text_of(result)
    assert "Traceback" not in result.output
    assert ".." not in text_of(result)
    assert files_in(tmp_path) == [name]


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_binary_file_cut_short_is_an_error(tmp_path, blobs, keep):
    skip_without_reader("a.parquet")
    blobs.to_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "b.npz", x=np.ones((50, 2)), y=np.arange(50) % 3)
    for path in (tmp_path / "a.parquet", tmp_path / "b.npz"):
        path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
        result = run(path, "--target", "y")
        assert result.exit_code == 2
        assert "perhaps it is cut short" in text_of(result)
        assert ".." not in text_of(result)


def test_npz_with_wrong_arrays_is_an_error_in_words(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones((3, 2)), table=np.ones((3, 2)), few=np.ones(2))
    for target, words in (
        ("label", "has no array 'label': it has 'x', 'table', 'few'."),
        ("tabel", "Did you mean 'table'?"),
        ("table", "'table' must have one label per row, got (3, 2)"),
        ("few", "nothing to learn from"),
    ):
        result = run(path, "--target", target)
        assert result.exit_code == 2
        assert words in text_of(result)


def test_a_column_to_drop_that_is_not_there_is_named(csv_file):
    result = run(csv_file, "--target", "species", "--drop", "idd")
    assert result.exit_code == 2
    assert "no column 'idd'" in text_of(result)
    assert "Did you mean 'id'?" in text_of(result)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a file to label, or --demo"),
        (["missing.csv", "-t", "y"], "missing.csv does not exist"),
        (["--demo", "--target", "y"], "--demo has its own table"),
        (["--demo", "--output", "a.csv"], "--demo has its own table"),
        (["--demo", "--report", "a.pdf"], "a.pdf must end in .html"),
        (["a.csv", "-t", "y", "-o", "a.pdf"], "a.pdf must end in .csv, .parquet, .npz"),
        (["a.csv", "-t", "y", "--type", "x"], "--type takes COLUMN=TYPE"),
        (["-", "-t", "y"], "rows from the standard input need --output"),
        (["a.csv", "-t", "y", "--separator", "ab"], "--separator must be one character"),
        (
            ["a.csv", "-t", "y", "--seed", "0"],
            "--seed 0 is for --engine ray, not for local",
        ),
        (
            ["a.csv", "-t", "y", "--context-rows", "9"],
            "--context-rows 9 is for --engine ray",
        ),
        (
            ["a.parquet", "-t", "y", "--engine", "ray", "--separator", ";"],
            "--separator ; is for --engine local, not for ray",
        ),
        (
            ["a.parquet", "-t", "y", "--engine", "ray", "--suggest", "3"],
            "--suggest 3 is for --engine local",
        ),
        ([".", "-t", "y"], ". is a folder: a folder of Parquet files needs --engine ray"),
        (["--demo", "--model", "big"], "'one view', or a file that ends in .safetensors."),
    ],
)
def test_arguments_that_do_not_go_together(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in text_of(result)
    assert files_in(tmp_path) == []


def test_neither_the_input_nor_an_old_file_is_written_over(csv_file, tmp_path):
    before = csv_file.read_bytes()
    link = tmp_path / "link.csv"
    link.symlink_to(csv_file)
    for output in (csv_file, link):
        result = run(csv_file, "-t", "species", "-o", output, "--force")
        assert result.exit_code == 2
        assert "is the input" in text_of(result)
    old = tmp_path / "pets-labelled.csv"
    old.write_text("mine")
    for arguments in ([], ["-o", tmp_path / "new.csv", "--report", tmp_path / "old.html"]):
        (tmp_path / "old.html").write_text("mine")
        result = run(csv_file, "-t", "species", *arguments)
        assert result.exit_code == 2
        assert "exists already: --force" in text_of(result)
    assert csv_file.read_bytes() == before
    assert old.read_text() == (tmp_path / "old.html").read_text() == "mine"
    assert not (tmp_path / "new.csv").exists()


def test_help_teaches():
    text = text_of(run("--help"))
    for word in ("--demo", "--report", "flowers-labelled.csv", "reach", "probability"):
        assert word in text
    assert f"[default: ({CONTEXT_ROWS:,})]" in text
    assert f"[default: ({SUGGESTIONS})]" in text
    assert f"random other rows up to {CONTEXT_ROWS:,} in total" in text
    for model in MODELS:
        assert model in text


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_clear_clouds_are_labelled_right(blobs, tmp_path, suffix):
    path = tmp_path / f"pets{suffix}"
    skip_without_reader(path)
    if suffix == ".csv":
        blobs.to_csv(path, index=False)
    elif suffix == ".parquet":
        blobs.astype({"size": float, "weight": float}).to_parquet(path)
    else:
        x = blobs[["size", "weight"]].to_numpy(dtype=float)
        np.savez(path, x=x, species=blobs["species"].to_numpy(dtype=str))
    drop = [] if suffix == ".npz" else ["--drop", "id"]
    report = tmp_path / "new folder" / "pets.html"
    result = run(path, "--target", "species", *drop, "--report", report)
    assert result.exit_code == 0, result.output
    assert "40 rows, 4 labelled" in text_of(result)
    assert str(report.name) in text_of(result)
    assert "Rows to label next" in report.read_text(encoding="utf-8")
    out = tmp_path / f"pets-labelled{suffix}"
    if suffix == ".npz":
        with np.load(out) as arrays:
            back = {name: arrays[name] for name in ("label", "probability", "reach")}
    else:
        back = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    assert list(back["label"]) == ["cat", "dog"] * 20
    probability, reach = np.array(back["probability"]), np.array(back["reach"])
    assert ((probability > 0.5) & (probability <= 1)).all()
    assert (np.isfinite(reach) & (reach >= 0)).all()
    assert files_in(tmp_path) == sorted([path.name, out.name, "new folder"])


def test_labels_in_numbers_stay_whole_and_force_writes_over(tmp_path):
    path, out = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("x,y\n0,3\n0.1,\n9,5\n9.1,-1\n0.2,NaN\n")
    out.write_text("old")
    result = run(path, "-t", "y", "-o", out, "--force")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(out, dtype=str)["label"].tolist() == ["3", "3", "5", "5", "3"]


def test_a_table_with_all_labels_is_allowed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n0,a\n0.1,a\n9,b\n9.1,b\n")
    result = run(path, "-t", "y", "--report", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    assert "Every row came with a label" in text_of(result)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("1,\n2,\n", "a.csv: its target has no label: all 2 rows"),
        ("1,a\n2,\n", "a.csv: its target has one class only, 'a'"),
        ("1,1\n2,-1\n", "-1 marks unlabelled rows"),
        ("1,0.5\n2,1.5\n", "Unknown label type: continuous"),
        ("inf,a\n2,b\n", "contains infinity or a value too large"),
        pytest.param(
            "1,a\n2,b\n1e999,\n",
            "row 2, column 'x'",
            marks=pytest.mark.skipif(
                pd.__version__ < "3", reason="pandas 2 reads a number too large as a text"
            ),
        ),
    ],
)
def test_a_table_that_cannot_be_labelled_leaves_no_file(tmp_path, rows, words):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + rows)
    result = run(path, "--target", "y", "--report", tmp_path / "a.html")
    assert result.exit_code == 2
    assert words in text_of(result)
    assert files_in(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("ids", [range(5, 30), [f"W{i:03}" for i in range(25)]])
def test_a_column_that_names_rows_is_pointed_out(tmp_path, ids):
    path = tmp_path / "a.csv"
    rows = [f"{one},{i / 7},{'ab'[i % 2] if i < 6 else ''}" for i, one in enumerate(ids)]
    path.write_text("\n".join(["id,x,y", *rows]) + "\n")
    said = text_of(run(path, "--target", "y"))
    assert (
        "column 'id' is different in every row and may only name the row: it is used"
        in said
    )
    assert "--drop id leaves it out." in said
    assert "column 'x'" not in said
    assert "leaves it out" not in text_of(run(path, "-t", "y", "--drop", "id", "--force"))


def test_the_mean_of_a_class_is_over_rows_without_a_label():
    labelling = label_rows(demo_table())
    for code, row in enumerate(labelling.tally.class_rows):
        found = (labelling.codes == code) & (labelling.given_codes < 0)
        assert row[3] == f"{labelling.probability[found].mean():.3f}"
    known = replace(labelling, given_codes=labelling.codes)
    assert {row[3] for row in known.tally.class_rows} == {"-"}


def test_a_warning_is_a_line_of_the_summary(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n0,a\n0,b\n9,b\n9.1,\n")
    result = run(path, "--target", "y")
    assert result.exit_code == 0, result.output
    assert "Warning:" in text_of(result)


def test_the_demo_prints_a_summary_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("--demo")
    assert result.exit_code == 0, result.output
    assert "178 rows, 9 labelled, 13 columns, 3 classes" in text_of(result)
    right = float(re.search(r"truth: (\S+) of these", text_of(result)).group(1))
    assert right > 0.8
    assert files_in(tmp_path) == []
    assert run("--demo", "--report", "demo.html").exit_code == 0
    assert files_in(tmp_path) == ["demo.html"]
