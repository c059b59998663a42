"""Files that are too large, too wide, nested or oddly named: the command and the page."""

import base64
import json
import subprocess
import sys
from functools import partial
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pandas as pd
import pytest

from helpers import run_command
from icssl.app.explore import uploads
from icssl.tables.label_table import choose_target, read_table
from icssl.tables.npz import write_arrays
from icssl.tables.pieces import pieces_of
from icssl.tables.table_file import FileTable, Source, check_names

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")


run = partial(run_command, "classify", wide=True)


def said_by(result):
    return " ".join(result.output.replace("│", " ").split())


def encoded(content):
    return "data:;base64," + base64.b64encode(content).decode()


def parquet(columns, **options):
    buffer = BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd", **options)
    return buffer.getvalue()


# What a file unpacks to

LABELS = ["A", "B"] + [None] * 1998


def repeated(value, kind):
    """2,000 times the same value, which is here once."""
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(2000, np.int32)), pa.array([value], kind)
    )


def bombs():
    """Small files of a gigabyte, by what makes them small."""
    text = repeated("z" * 500_000, pa.string())
    return {
        "a repeated text": parquet({"s": text}, store_schema=False),
        "a category": parquet({"s": text}),
        "bytes of one length": parquet(
            {"s": repeated(b"z" * 500_000, pa.binary(500_000))}, store_schema=False
        ),
        "several columns": parquet(
            {f"s{i}": repeated("z" * 50_000, pa.string()) for i in range(10)},
            store_schema=False,
        ),
    }


READ_IN_A_CHILD = """
import json, resource, sys
from icssl.app.explore.uploads import read_upload
import pandas, pyarrow.parquet
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, said = peak(), {}
for kind, content in json.load(sys.stdin).items():
    try:
        read_upload("bomb.parquet", content)
    except ValueError as error:
        said[kind] = str(error)
print(json.dumps({"said": said, "grown": peak() - before}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others count memory in other units")
def test_a_small_parquet_file_that_unpacks_to_a_gigabyte_is_refused_in_little_memory():
    contents = bombs()
    assert max(map(len, contents.values())) < 20_000
    child = subprocess.run(
        [sys.executable, "-c", READ_IN_A_CHILD],
        input=json.dumps({kind: encoded(content) for kind, content in contents.items()}),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(child.stdout)
    assert set(found["said"]) == set(contents)
    for said in found["said"].values():
        assert "unpacks to more than the 64 MB that the page takes" in said
    assert found["grown"] < 300 * 1024  # of 1,000,000 kB that the cells of one would need


def varint(number, length=1):
    """A number as footers have it: seven bits a byte, perhaps with zeros more."""
    groups = [number >> 7 * i & 127 for i in range(10)]
    while len(groups) > length and not groups[-1]:
        groups.pop()
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


def lying(content, number, lie, times=-1):
    """The same file with a footer that says another number, everywhere or so many times."""
    old = varint(2 * number)
    footer = int.from_bytes(content[-8:-4], "little") + 8
    told = content[-footer:].replace(old, varint(2 * lie, len(old)), times)
    assert told != content[-footer:]
    return content[:-footer] + told


def test_the_rows_of_a_parquet_file_are_those_of_its_groups():
    """Readers do not believe the footer's total, which stands before the groups."""
    rows = 1_000_003
    lie = lying(parquet({"n": np.zeros(rows, np.int8)}), rows, 50, times=1)
    assert pq.read_metadata(BytesIO(lie)).num_rows == 50
    assert len(pq.read_table(BytesIO(lie))) == rows
    with pytest.raises(ValueError, match="1,000,003 rows, and the page takes 5,000"):
        uploads.read_upload("lie.parquet", encoded(lie))


def test_a_footer_that_lies_about_pages_is_found_out():
    content = parquet({"s": ["z" * 2**20] * 80}, use_dictionary=False)
    size = pq.read_metadata(BytesIO(content)).row_group(0).total_byte_size
    lie = lying(content, size, 1000)
    assert pq.read_metadata(BytesIO(lie)).row_group(0).total_byte_size == 1000
    assert len(pq.read_table(BytesIO(lie))) == 80  # readers believe the pages
    with pytest.raises(ValueError, match="unpacks to more than the 64 MB"):
        uploads.read_upload("lie.parquet", encoded(lie))


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"data_page_size": 100}]
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_an_honest_file_are_as_large_as_its_footer_says(options, version):
    from icssl.tables import parquet as parquet_pages

    columns = {"s": [f"{i:09}" for i in range(9000)], "n": np.arange(9000) % 7}
    content = parquet(columns, data_page_version=version, **options)
    group = pq.read_metadata(BytesIO(content)).row_group(0)
    for j in range(2):
        told = group.column(j).total_uncompressed_size  # with the headers themselves
        counted = parquet_pages.page_bytes(content, group.column(j), 2**30)
        few = options == {"data_page_size": 100}  # each counts for a kilobyte at least
        assert told * 0.9 <= counted <= (2**30 if few else told + 2048)


def test_texts_stored_by_what_they_share_with_the_one_before_are_counted_whole():
    content = parquet(
        {"s": ["z" * 500_000] * 150},
        use_dictionary=False,
        column_encoding={"s": "DELTA_BYTE_ARRAY"},
    )
    assert len(content) < 20_000
    with pytest.raises(ValueError, match="unpacks to more than the 64 MB"):
        uploads.read_upload("bomb.parquet", encoded(content))


def test_a_parquet_file_within_the_limit_is_read_whole():
    texts = [f"{i:05}" * 100 for i in range(2000)]
    content = parquet({"s": texts, "n": range(2000), "label": LABELS})
    upload = uploads.read_upload("fine.parquet", encoded(content))
    assert upload.columns == ("s", "n", "label")


def test_unpacked_bytes_are_those_of_the_cells():
    from icssl.tables.parquet import open_parquet, unpacked_bytes

    columns = {"s": ["abc", None, "d" * 1000] * 50, "n": range(150), "b": [True] * 150}
    table = pa.table(columns)
    content = parquet(columns)
    with open_parquet(Source("a", content)) as file:
        counted = unpacked_bytes(file, content, 2**30)
    assert counted == pytest.approx(table.nbytes, abs=1000)  # bits are rounded up


def archive(path, **members):
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def npy(array):
    buffer = BytesIO()
    np.lib.format.write_array(buffer, array)
    return buffer.getvalue()


def npy_header(shape, data=b""):
    """A float64 array that says it has this shape, whatever comes after."""
    buffer = BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, about)
    return buffer.getvalue() + data


def test_an_npz_array_larger_than_its_archive_is_refused_before_it_is_read(tmp_path):
    """Of 8 TB, or of 80 numbers where 10 are there."""
    labels = npy(np.array([0, 1, -1, -1]))
    for shape in ((4, 2**38), (4, 20)):
        path = tmp_path / "a.npz"
        archive(path, y=labels, x=npy_header(shape, bytes(80)))
        result = run(path, "--target", "y")
        assert result.exit_code == 2
        assert "says it has" in said_by(result)
        assert "and 80 are there" in said_by(result)


def test_an_npz_bomb_that_cannot_be_labelled_is_refused_before_its_data_are_read(
    tmp_path, monkeypatch
):
    """Of the target the shape is wrong; the gigabyte beside it is never unpacked."""
    path = tmp_path / "a.npz"
    archive(path, y=npy(np.zeros((2, 2))), x=npy(np.zeros((4, 1000))))
    read = []
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: read.append(a))
    with pytest.raises(ValueError, match=r"'y' must have one label per row, got \(2, 2\)"):
        read_table(path, "y")
    with pytest.raises(ValueError, match="has no array 'z'"):
        read_table(path, "z")
    assert not read


def test_an_npz_bomb_that_is_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    archive(path, y=npy(np.array([0, 1, -1, -1])), x=npy(np.zeros((4, 2**18))))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("icssl.tables.npz.free_bytes", lambda: 2**23)
    with pytest.raises(ValueError, match="unpacks to 8 MB, which are needed twice, and 8"):
        read_table(path, "y")


def test_npz_headers_that_are_torn_are_errors_in_words(tmp_path):
    rng = np.random.default_rng(0)
    good = npy(np.arange(6.0))
    labels = npy(np.array([0, 1, -1, -1, -1, -1]))
    refused = 0
    for _ in range(300):
        torn = bytearray(good)
        for place in rng.integers(0, 100, size=4):
            torn[place] = int(rng.choice([*b"({'\n", rng.integers(256)]))
        archive(tmp_path / "a.npz", y=labels, x=bytes(torn))
        try:
            read_table(tmp_path / "a.npz", "y")
        except ValueError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("notes", [b"{", b"[]", b'{"columns": [{}], "index_columns": [7]}'])
def test_damaged_notes_for_pandas_in_a_parquet_file_are_an_error_in_words(notes, tmp_path):
    table = pa.table({"x": [0.0, 9.0, 1.0], "y": ["a", "b", None]})
    path = tmp_path / "a.parquet"
    pq.write_table(table.replace_schema_metadata({b"pandas": notes}), path)
    result = run(path, "--target", "y")
    assert result.exit_code == 2
    assert "cannot be read as .parquet" in said_by(result)
    with pytest.raises(ValueError, match=r"cannot be read as \.parquet"):
        uploads.read_upload("a.parquet", encoded(path.read_bytes()))


# Many columns


class CountingList(list):
    """A list that knows how often it was searched from end to end."""

    searches = 0

    def count(self, value):
        type(self).searches += 1
        return super().count(value)

    def __contains__(self, value):
        type(self).searches += 1
        return super().__contains__(value)


def test_names_of_columns_are_checked_without_searching_them_once_for_each():
    names = CountingList(f"c{i}" for i in range(1000))
    CountingList.searches = 0
    check_names(Path("a.csv"), "column", names, names[:500])
    with pytest.raises(ValueError, match="more than one column 'c7'"):
        check_names(Path("a.csv"), "column", CountingList([*names, "c7"]), [])
    assert CountingList.searches == 0


def test_names_of_100000_columns_are_checked():
    """Searched for one by one, they would take minutes."""
    names = [f"c{i}" for i in range(100_000)]
    check_names(Path("a.csv"), "column", names, ["c0", "c99999"])


@pytest.mark.parametrize("count", [1000, 2000])
def test_dates_in_many_columns_are_put_in_their_places_at_once(count, monkeypatch):
    """Put one by one, each would copy the list of all columns."""
    assigned = []
    assign = pd.DataFrame.assign

    def counted(frame, **columns):
        assigned.append(len(columns))
        return assign(frame, **columns)

    monkeypatch.setattr(pd.DataFrame, "assign", counted)
    frame = pd.DataFrame({f"c{i}": ["2020-01-02", "2020-01-03"] for i in range(count)})
    frame = frame.assign(y=["a", "b"])
    table = choose_target("a.parquet", FileTable(frame), "y")
    assert {column.dtype.kind for _, column in table.features.items()} == {"M"}
    assert assigned == [1]  # by the test itself


def test_blank_lines_before_a_wide_header_do_not_hide_it():
    """Pandas skips them, and would read a million columns."""
    header = ",".join(f"c{i}" for i in range(uploads.MOST_COLUMNS + 1))
    content = "\n" * (uploads.MOST_ROWS + 2) + header + "\n" + "1," * 10_000 + "1\n"
    with pytest.raises(ValueError, match="columns, and the page takes 10,000"):
        uploads.read_upload("a.csv", encoded(content.encode()))


def test_a_missing_name_among_very_many_is_said_in_few_words(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(3000)) + "\n" + "1," * 2999 + "1\n")
    said = said_by(run(path, "--target", "c3001"))
    assert "and 2,950 more. Did you mean 'c" in said
    assert len(said) < 1500


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_page_refuses_more_columns_than_it_takes_before_pandas_reads_them(
    suffix, monkeypatch
):
    count = uploads.MOST_COLUMNS + 1
    if suffix == ".csv":
        content = b" \n" + b"," * (count - 1) + b"\n"
    else:
        content = parquet({f"c{i}": [1] for i in range(count)})
    monkeypatch.setattr(pd, "read_csv", None)
    monkeypatch.setattr(pd, "read_parquet", None)
    with pytest.raises(ValueError, match="has 10,001 columns, and the page takes 10,000"):
        uploads.read_upload(f"wide{suffix}", encoded(content))


def test_cells_of_more_than_131072_characters_are_read(tmp_path):
    long = "x" * 200_000
    rows = [
        f"{long if i == 7 else 'y'},{i % 2 * 9},{'ab'[i % 2] if i < 4 else ''}"
        for i in range(12)
    ]
    path = tmp_path / "long.csv"
    path.write_text("\n".join(["s,n,label", *rows]) + "\n")
    result = run(path, "--target", "label")
    assert result.exit_code == 0, result.output
    assert long in (tmp_path / "long-labelled.csv").read_text()
    assert uploads.read_upload("long.csv", encoded(path.read_bytes())).guess == "label"


def test_texts_that_become_too_many_columns_of_numbers_are_refused_by_the_page():
    """1.2 MB of texts with 50 values each would be 160 MB of numbers, several times."""
    rng = np.random.default_rng(0)
    texts = np.char.add("t", rng.integers(0, 60, size=(5000, 80)).astype(str))
    frame = pd.DataFrame(texts).add_prefix("c")
    frame = frame.assign(label=["a", "b"] + [None] * 4998)
    content = frame.to_csv(index=False).encode()
    upload = uploads.read_upload("texts.csv", encoded(content))
    with pytest.raises(
        ValueError, match="with a column for each text it has 4,000 columns"
    ):
        uploads.label_upload(upload, "label", ())


# Nested columns

NESTED = {
    "lists": pa.array([[1, 2], [3]] * 12),
    "records": pa.array([{"a": 1}, {"a": 2}] * 12),
    "maps": pa.array([[("k", 1)], [("k", 2)]] * 12, pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_parquet_columns_are_refused_in_words_and_can_be_dropped(kind, tmp_path):
    columns = {
        "tags": NESTED[kind],
        "x": [float(i % 2) + i / 100 for i in range(24)],
        "label": ["a", "b"] + [None] * 22,
    }
    path = tmp_path / "nested.parquet"
    path.write_bytes(parquet(columns))
    result = run(path, "--target", "label")
    assert result.exit_code == 2
    assert "cells of column 'tags' are not single values but" in said_by(result)
    assert run(path, "--target", "tags").exit_code == 2
    with pytest.raises(ValueError, match="cells of column 'tags' are not single values"):
        pieces_of(path, ["label"])
    with pytest.raises(ValueError, match="cells of column 'tags' are not single values"):
        uploads.read_upload("nested.parquet", encoded(path.read_bytes()))
    dropped = run(path, "--target", "label", "--drop", "tags")
    if kind == "maps":
        assert dropped.exit_code == 2  # they could not be written back
        return
    assert dropped.exit_code == 0, dropped.output
    assert len(pieces_of(path, ["label", "tags"], unread=["tags"])) == 1
    back = pq.read_table(tmp_path / "nested-labelled.parquet")
    assert back.column("tags").to_pylist() == NESTED[kind].to_pylist()


# Names of arrays


@pytest.mark.parametrize(
    "name", ["file", "allow_pickle", "args", "kwds", "a/b", "ä", "x.npy"]
)
def test_an_npz_array_of_any_name_is_in_the_output(name, tmp_path):
    labels = np.array([0, 1, -1, -1])
    write_arrays(tmp_path / "a.npz", {"y": labels, name: np.array([0.0, 9.0, 0.1, 9.1])})
    result = run(tmp_path / "a.npz", "--target", "y")
    assert result.exit_code == 0, result.output
    with ZipFile(tmp_path / "a-labelled.npz") as back:
        assert f"{name}.npy" in back.namelist()
    again = read_table(tmp_path / "a-labelled.npz", "label", drop=["y"])
    np.testing.assert_array_equal(again.stored[name], [0.0, 9.0, 0.1, 9.1])
    np.testing.assert_array_equal(again.target, [0, 1, 0, 1])


def test_what_is_written_is_what_numpy_reads(tmp_path):
    arrays = {
        "x": np.arange(6.0).reshape(2, 3),
        "s": np.array(["a", "ü"]),
        "z": np.array(3),
    }
    write_arrays(tmp_path / "a.npz", arrays)
    with np.load(tmp_path / "a.npz") as back:
        assert set(back) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(back[name], array)
            assert back[name].dtype == array.dtype
