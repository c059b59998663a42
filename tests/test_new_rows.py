"""Tables that come after the first: read like it, shown with it, written beside it."""

import gzip
import io
import warnings

import numpy as np
import pytest

import icssl
from helpers import run_command, text_of
from icssl.app.labelling import label_rows
from icssl.app.labelling_report import report_html
from icssl.app.row_notes import cell_names, row_notes
from icssl.tables.output import write_table
from icssl.tables.table_warning import TableWarning

pd = pytest.importorskip("pandas")

CUSTOMERS = [
    "CustomerID;income;visits;churned",
    *(
        f"C{i:03};{1000 + 7.5 * i:.2f};{i % 14};{('Yes', 'no', 'yes')[i % 3]}".replace(
            ".", ","
        )
        for i in range(12)
    ),
    *(f"C{i:03};{1000 + 7.5 * i:.2f};;".replace(".", ",") for i in range(12, 30)),
]


def read(lines, target="auto", **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        content = io.BytesIO("\n".join(lines).encode())
        table = icssl.read_table(content, target, **options)
    return table, [warning.message for warning in caught]


@pytest.fixture(scope="module")
def customers():
    options = {"drop": ["CustomerID"], "relabel": {"Yes": "yes"}}
    return read(CUSTOMERS, "churned", **options)[0]


def test_new_rows_are_read_like_the_table_before(customers):
    # By itself, this file would not tell that its commas are decimal marks.
    new = ["CustomerID;income;visits;note", "C900;1,015;3;a", "C901;1,022;4;b"]
    table, said = read(new, like=customers)
    assert list(table.features) == ["income", "visits"]
    assert table.features["income"].tolist() == [1.015, 1.022]
    assert table.target is None
    (doubt,) = map(str, said)  # where a person meant a thousand, this helps
    assert "'income': 2 of 2 numbers, such as 1.015, are far from all that it had" in doubt
    classifier = icssl.ICSSLClassifier("one view").fit(customers.features, customers.target)
    assert set(classifier.predict(table.features)) <= {"yes", "no"}


def test_what_is_odd_in_new_rows_is_said(customers):
    new = ["New customers;;;", "CustomerID;income;visits;note", "C900;1,015;3;a"]
    table, said = read([*new, "C901;1,022;4;b"], like=customers)
    assert table.features["income"].tolist() == [1.015, 1.022]
    assert [str(warning) for warning in said] == [str(one) for one in table.warnings]
    assert "the first line, 'New customers', is left out" in str(said[0])


def test_what_is_not_like_the_table_before_is_refused(customers):
    lines = ["CustomerID;incom;visits", "C900;1,0;3", "C901;2,0;4"]
    with pytest.raises(ValueError, match=r"no column 'income'.*mean 'incom'"):
        read(lines, like=customers)
    for option in ({"drop": ["visits"]}, {"types": {"visits": "date"}}, {"target": "y"}):
        (name,) = option
        with pytest.raises(ValueError, match=f"like and {name} exclude each other"):
            read(CUSTOMERS, like=customers, **option)
    with pytest.raises(ValueError, match="columns without names"):
        icssl.read_table(
            io.BytesIO("\n".join(CUSTOMERS).encode()),
            like=icssl.tables.label_table.LabelTable("a", np.ones((2, 2)), None, {}),
        )


def test_predict_says_how_to_read_a_file_of_new_rows(customers):
    classifier = icssl.ICSSLClassifier("one view").fit(customers.features, customers.target)
    new, _ = read([line.rpartition(";")[0] for line in CUSTOMERS], None)
    with pytest.raises(ValueError, match=r"- CustomerID\n.*read_table\(file, like=table\)"):
        classifier.predict(new.features)


def test_a_table_prints_as_one_line(customers):
    assert repr(customers) == (
        "<LabelTable 'table.csv': 30 rows, 2 columns of features, 12 labels in 'churned'>"
    )
    unlabelled, _ = read(CUSTOMERS, None)
    assert "4 columns of features, no target" in str(unlabelled)


def test_labels_are_counted_as_they_were_taken(customers):
    labels = customers.columns["churned"]
    assert (labels.distinct, labels.missing) == (2, 18)
    plain, _ = read(CUSTOMERS, "churned")
    assert plain.columns["churned"].distinct == 3
    without, _ = read(CUSTOMERS, "churned", missing=["no"])
    assert (without.columns["churned"].distinct, without.columns["churned"].missing) == (
        2,
        22,
    )


def test_a_column_that_is_left_out_stands_first_beside_a_row(customers):
    labelling = label_rows(customers, model="one view")
    assert cell_names(labelling) == ("CustomerID", "income", "visits")
    (note,) = row_notes(labelling, [14])
    assert note.cells == ("C014", "1105,00", "")  # as they stand in the file
    page = report_html(labelling)
    assert "<th scope='col'>CustomerID</th><th scope='col'>income</th>" in page
    assert f"<td>C{labelling.suggested[0]:03}</td>" in page


def test_a_column_that_counts_is_no_guess_for_the_labels():
    table, (doubt,) = read(["visits,kind", *(f"{i},{'ab'[i % 2]}" for i in range(14)), ","])
    assert table.target_name == "kind"
    assert "visits" not in doubt.said


def test_a_packed_table_is_written(customers, tmp_path):
    path = tmp_path / "rows.csv.gz"
    write_table(customers, {"label": np.repeat("x", 30)}, path)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert lines[0] == "CustomerID;income;visits;churned;label"
    assert len(lines) == 31
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv.gz"]
    frame = pd.read_csv(path, sep=";", decimal=",")
    assert frame["income"][2] == 1015.0


def test_all_files_that_are_there_are_named_at_once(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(CUSTOMERS))
    rows, page, model = (tmp_path / name for name in ("a.tsv", "a.html", "a.icssl"))
    for file in (rows, page, model):
        file.touch()
    command = ("classify", path, "-t", "churned", "-o", rows, "--report", page)
    said = text_of(run_command(*command, "--save", model, wide=True))
    for file in (rows, page, model):
        assert file.name in said
    assert "exist already: --force writes over them" in said
