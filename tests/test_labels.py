"""Labels keep their identity: every container in, every format out, to the last digit."""

import csv
import re

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from icssl import ICSSLClassifier
from icssl.app.cli import app
from icssl.app.explore.uploads import _like
from icssl.tables.label_table import read_table
from icssl.tables.targets import read_targets

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
parquet = pytest.importorskip("pyarrow.parquet")

# Neighbours that one float64 would merge, up to the ends of 64 bits.
SIGNED = [2**53, 2**53 + 1, -(2**53) - 1, 7, 2**63 - 1, -(2**63)]
UNSIGNED = [2**53, 2**53 + 1, 7, 2**63, 2**64 - 2, 2**64 - 1]
RANGES = {"signed": SIGNED, "unsigned": UNSIGNED}
ROWS = 24


def some_missing(labels):
    """Two rows of each label and then rows without one."""
    return [*labels, *labels, *[None] * (ROWS - 2 * len(labels))]


def features(labels):
    """Clouds far from each other, one per label; rows without a label lie in the first."""
    centre = np.array([labels.index(y) if y is not None else 0 for y in labels])
    return np.random.default_rng(0).normal(size=(len(labels), 3)) + 50 * centre[:, None]


# --- Containers


def with_numpy(dtype):
    """As an array without missing cells, and -1 for no label where there is one."""

    def make(y):
        marked = [-1 if cell is None else cell for cell in y]
        return np.array(
            marked if dtype == "int64" else [c for c in marked if c != -1], dtype
        )

    return make


def masked(y):
    dtype = np.uint64 if max(c for c in y if c is not None) > 2**63 - 1 else np.int64
    cells = np.array([5 if cell is None else cell for cell in y], dtype=dtype)
    return np.ma.array(cells, mask=[cell is None for cell in y])


def pandas_category(y):
    names = pd.Index(sorted({cell for cell in y if cell is not None}))
    codes = [-1 if cell is None else names.get_loc(cell) for cell in y]
    return pd.Series(pd.Categorical.from_codes(codes, categories=names))


CONTAINERS = {
    "list": list,
    "list with NaN": lambda y: [np.nan if cell is None else cell for cell in y],
    "tuple": tuple,
    "objects": lambda y: np.array(y, dtype=object),
    "masked": masked,
    "pandas object": lambda y: pd.Series(y, dtype=object),
    "pandas index": lambda y: pd.Index(y, dtype=object),
    "pandas category": pandas_category,
    "pyarrow": pa.array,
    "pyarrow chunks": lambda y: pa.chunked_array([y[:5], y[5:]]),
    "polars": pl.Series,
    "polars frame": lambda y: pl.DataFrame({"y": y}),
    "pandas frame": lambda y: pd.DataFrame({"y": pd.array(y, dtype="object")}),
}
ONLY_SIGNED = {
    "int64": with_numpy("int64"),
    "torch": lambda y: torch.tensor([-1 if cell is None else cell for cell in y]),
    "Int64": lambda y: pd.Series(y, dtype="Int64"),
    "array of Int64": lambda y: pd.array(y, dtype="Int64"),
    "int64[pyarrow]": lambda y: pd.Series(y, dtype="int64[pyarrow]"),
}
ONLY_UNSIGNED = {
    "uint64": with_numpy("uint64"),
    "UInt64": lambda y: pd.Series(y, dtype="UInt64"),
    "uint64[pyarrow]": lambda y: pd.Series(
        pa.array(y, pa.uint64()), dtype=pd.ArrowDtype(pa.uint64())
    ),
}
CASES = [
    *((name, make, "signed") for name, make in (CONTAINERS | ONLY_SIGNED).items()),
    *((name, make, "unsigned") for name, make in (CONTAINERS | ONLY_UNSIGNED).items()),
]


def arrow_needs_a_type(name, kind):
    return kind == "unsigned" and name.startswith("pyarrow")


@pytest.mark.filterwarnings(
    "ignore:A column-vector y:sklearn.exceptions.DataConversionWarning"
)
@pytest.mark.parametrize(("name", "make", "kind"), CASES)
def test_large_labels_keep_their_identity_in_every_container(name, make, kind):
    labels = RANGES[kind]
    if arrow_needs_a_type(name, kind):
        chunks = [some_missing(labels)[:5], some_missing(labels)[5:]]
        typed = pa.chunked_array(chunks, pa.uint64())
        y = typed if name == "pyarrow chunks" else typed.combine_chunks()
    elif kind == "unsigned" and name.startswith("polars"):
        y = pl.Series("y", some_missing(labels), dtype=pl.UInt64)
        y = y.to_frame() if name == "polars frame" else y
    else:
        y = make(some_missing(labels))
    classes, codes = read_targets(y)
    assert classes.tolist() == sorted(labels)
    assert all(type(label) is int for label in classes.tolist())
    given = [sorted(labels).index(label) for label in labels]
    assert codes[: 2 * len(labels)].tolist() == 2 * given
    assert (codes[2 * len(labels) :] == -1).all()


@pytest.mark.parametrize("kind", RANGES)
def test_the_classifier_answers_with_large_labels_as_they_were_given(kind):
    y = some_missing(RANGES[kind])
    X = features(y)
    classifier = ICSSLClassifier().fit(X, y)
    assert classifier.classes_.tolist() == sorted(RANGES[kind])
    known = 2 * len(RANGES[kind])
    assert classifier.transduction_[:known].tolist() == y[:known]
    assert classifier.predict(X[:known]).tolist() == y[:known]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([2**64, 1, None], f"from 1 to {2**64}, and no integer type of 64 bits"),
        ([-(2**63) - 1, 1], "no integer type of 64 bits holds both: give labels as texts"),
        ([2**64 - 1, -5], f"from -5 to {2**64 - 1}, and no integer type of 64 bits"),
        ([10**5000, 1], "from 1 to about 2^16610"),
        ([2.0**53, 1.0], "label 9007199254740992.0 is a float64 of 2^53 or more"),
        ([2**53 + 1, 1e300, None], "label 1e+300 is a float64"),
        (np.array([2**24, 1], np.float32), "is a float32 of 2^24 or more"),
        (np.array([-(2**11), 1], np.float16), "is a float16 of 2^11 or more"),
        (pd.Series([2**53, 1, None], dtype=float), "give labels as integers or as texts"),
        (torch.tensor([2.0**24, 1.0]), "is a float32 of 2^24 or more"),
    ],
)
def test_labels_that_cannot_keep_their_identity_are_refused(y, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        read_targets(y)


def test_floats_below_the_limit_of_their_type_are_whole_numbers():
    for dtype, limit in ((np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)):
        classes, _ = read_targets(np.array([limit - 1, 1 - limit, np.nan], dtype))
        assert classes.tolist() == [1 - limit, limit - 1]


def test_a_tensor_with_a_gradient_is_a_target():
    classes, codes = read_targets(torch.tensor([1.0, 0.0, -1.0], requires_grad=True))
    assert classes.tolist() == [0, 1]
    assert codes.tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    "cells", [[3, 1, 9, 2], ["b", "a", "z", "c"], [True, False, True, True], [3.0, 1, 9, 2]]
)
def test_a_masked_target_is_no_label(cells):
    mask = [False, False, True, False]
    classes, codes = read_targets(np.ma.array(cells, mask=mask))
    twin = np.array(cells, dtype=object)
    twin[2] = None
    expected, expected_codes = read_targets(twin)
    assert classes.tolist() == expected.tolist()
    np.testing.assert_array_equal(codes, expected_codes)
    np.testing.assert_array_equal(
        read_targets(np.ma.array(cells))[1], read_targets(np.array(cells))[1]
    )
    in_a_list = [
        np.ma.masked if hidden else c for c, hidden in zip(cells, mask, strict=True)
    ]
    np.testing.assert_array_equal(read_targets(in_a_list)[1], expected_codes)


# --- Files


def table_of(labels):
    """Columns to write: large row numbers, of which some are missing, and features."""
    y = some_missing(labels)
    x = features(y)
    ids = [None if row % 5 == 0 else 2**53 + row for row in range(ROWS)]
    return y, {"id": ids, "a": x[:, 0], "b": x[:, 1], "y": y}


def write_csv(path, y, columns, mark=""):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            *others, label = [mark if cell is None else cell for cell in row]
            writer.writerow([*("" if cell == mark else cell for cell in others), label])


def arrow_table(y, columns):
    """Columns of Arrow with their types and nulls, as other tools than pandas have them."""
    kind = pa.uint64() if max(filter(None, y)) > 2**63 - 1 else pa.int64()
    typed = {"id": pa.int64(), "y": kind}
    return pa.table({name: pa.array(v, typed.get(name)) for name, v in columns.items()})


def write_arrow(path, y, columns):
    parquet.write_table(arrow_table(y, columns), path)


def write_dictionary(path, y, columns):
    table = arrow_table(y, columns)
    coded = table["y"].dictionary_encode()
    parquet.write_table(table.set_column(3, "y", coded), path)


def write_pandas(path, y, columns):
    kind = "UInt64" if max(filter(None, y)) > 2**63 - 1 else "Int64"
    typed = {"y": pd.array(y, dtype=kind), "id": pd.array(columns["id"], dtype="Int64")}
    pd.DataFrame(columns | typed).to_parquet(path)


def write_npz(path, y, columns):
    # There is no missing cell in such an array: -1 is, or every row has a label.
    unsigned = max(filter(None, y)) > 2**63 - 1
    nothing, dtype = (y[0], np.uint64) if unsigned else (-1, np.int64)
    y = np.array([nothing if cell is None else cell for cell in y], dtype)
    ids = np.array([2**53 + row for row in range(ROWS)])
    np.savez(path, id=ids, a=columns["a"], b=columns["b"], y=y)


def read_csv_column(path, name):
    with path.open(newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def read_column(path, name):
    """The cells of an output, without going through pandas."""
    if path.suffix == ".csv":
        return [int(text) if text else None for text in read_csv_column(path, name)]
    if path.suffix == ".parquet":
        return parquet.read_table(path)[name].to_pylist()
    with np.load(path) as arrays:
        return arrays[name].tolist()


FILES = {
    "csv with blanks": (".csv", write_csv),
    "csv with NA": (".csv", lambda *a: write_csv(*a, mark="NA")),
    "csv with -1": (".csv", lambda *a: write_csv(*a, mark="-1")),
    "parquet of arrow": (".parquet", write_arrow),
    "parquet of pandas": (".parquet", write_pandas),
    "parquet dictionary": (".parquet", write_dictionary),
    "npz": (".npz", write_npz),
}


def classify(path, *options):
    arguments = ["classify", path, "-t", "y", "--drop", "id", *options]
    wide = {"COLUMNS": "400", "TERMINAL_WIDTH": "400"}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=wide)


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("form", FILES)
def test_large_labels_and_row_numbers_keep_their_identity_in_every_file(
    tmp_path, form, kind
):
    suffix, write = FILES[form]
    path, labels = tmp_path / f"in{suffix}", RANGES[kind]
    y, columns = table_of(labels)
    write(path, y, columns)
    result = classify(path, "--report", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    out = tmp_path / f"in-labelled{suffix}"
    known = 2 * len(labels)
    found = read_column(out, "label")
    assert found[:known] == y[:known]
    assert set(found) == set(labels)
    if suffix == ".npz":
        assert read_column(out, "id") == [2**53 + row for row in range(ROWS)]
    else:
        assert read_column(out, "id") == columns["id"]
    for text in (result.output, (tmp_path / "page.html").read_text()):
        for label in labels:
            assert re.search(rf"(?<!\d){label}(?!\d)", text)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["-1", str(2**64 - 1), "5"], None),  # -1 is no label, the others fit in uint64
        (["-5", str(2**64 - 1), ""], "no integer type of 64 bits holds both"),
        ([str(2**64), "5", ""], "no integer type of 64 bits holds both"),
        ([str(2**64), "5", "6"], "no integer type of 64 bits holds both"),
        (["0.5", "1", ""], "0.5 is no whole number"),
    ],
)
def test_labels_of_a_csv_file_are_kept_or_refused_in_words(tmp_path, cells, words):
    path = tmp_path / "in.csv"
    path.write_text("a,y,id\n" + "".join(f"{i},{c},{i}\n" for i, c in enumerate(cells * 4)))
    result = classify(path)
    if words is None:
        assert result.exit_code == 0, result.output
        found = read_csv_column(tmp_path / "in-labelled.csv", "label")
        assert set(found) == {str(2**64 - 1), "5"}
    else:
        assert result.exit_code == 2
        assert words in " ".join(result.output.split())
        assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


def test_parquet_columns_keep_type_and_digits_whatever_is_missing(tmp_path):
    path = tmp_path / "in.parquet"
    y, columns = table_of(SIGNED)
    table = arrow_table(y, columns).append_column(
        "small", pa.array([None, *range(ROWS - 1)], pa.int8())
    )
    parquet.write_table(table, path)
    assert classify(path).exit_code == 0
    found = parquet.read_table(tmp_path / "in-labelled.parquet")
    assert found.select(table.column_names).equals(table)


def test_row_numbers_in_a_report_are_those_of_the_file(tmp_path):
    for suffix, write in ((".csv", write_csv), (".parquet", write_arrow)):
        path = tmp_path / f"in{suffix}"
        y, columns = table_of([1, 2])
        write(path, y, columns)
        table = read_table(path, "y")
        assert table.shown_cell(1, "id") == str(2**53 + 1)


def test_a_large_label_given_on_the_page_keeps_its_digits():
    assert _like(7, str(2**53 + 1)) == 2**53 + 1
    assert _like(np.int64(7), "9007199254740993.0") == 2**53 + 1
    for wrong in ("a", "", "1,5"):
        with pytest.raises(ValueError, match="labels of this column are whole numbers"):
            _like(7, wrong)


@pytest.mark.parametrize("minus_one", ["", "  ", "-1"])
def test_blank_bytes_in_an_npz_file_are_rows_to_label(tmp_path, minus_one):
    path = tmp_path / "in.npz"
    y = [b"A", b"B", *[minus_one.encode()] * 10]
    x = np.random.default_rng(0).normal(size=(12, 2))
    np.savez(path, x=x, id=np.arange(12), y=np.array(y, dtype="S"))
    result = classify(path)
    assert result.exit_code == 0, result.output
    assert "12 rows, 2 labelled" in result.output
    with np.load(tmp_path / "in-labelled.npz") as arrays:
        assert set(arrays["label"].tolist()) == {b"A", b"B"}


@pytest.mark.parametrize("kind", ["m8[ns]", "m8[s]", "M8[s]", object])
def test_spans_and_moments_of_time_are_no_labels(kind):
    """A span is an integer to NumPy: -1 of its units was a class."""
    y = np.array([1, 2, -1], "m8[s]" if kind is object else kind).astype(kind)
    if kind is object:
        y = np.array([np.timedelta64(1, "s"), np.timedelta64(2, "s"), None], object)
    with pytest.raises(ValueError, match=r"Unknown label type: (timedelta|datetime)64"):
        read_targets(y)
