"""The column of labels: doubts about it, guesses, and how good labels are."""

import io
import shlex
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import icssl
from helpers import run_command, text_of
from icssl import ICSSLClassifier
from icssl.app.labelling import demo_table, label_rows
from icssl.app.quality import quality_lines
from icssl.classifier.label_score import hidden_labels
from icssl.tables.table_warning import TableWarning

pd = pytest.importorskip("pandas")

IRIS = load_iris()


def doubts(y):
    """What fit says about labels of the first rows of iris."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        classifier = ICSSLClassifier("one view").fit(IRIS.data[: len(y)], y)
    return classifier, [warning.message for warning in caught]


def test_blanks_around_labels_do_not_count():
    classifier, said = doubts([" a", "a ", "b", "b", None, " b ", ""])
    assert classifier.classes_.tolist() == ["a", "b"]
    assert said == []
    array, _ = doubts(np.array([" a", "a ", "b", "b", "", " "]))
    assert array.classes_.tolist() == ["a", "b"]


def test_labels_that_differ_by_case_are_kept_and_said():
    classifier, (doubt,) = doubts(["yes", "yes", "Yes", "no", "no", None])
    assert classifier.classes_.tolist() == ["Yes", "no", "yes"]  # nothing is merged
    assert (doubt.setting, doubt.values) == ("relabel", ("Yes=yes",))
    assert "relabel={'Yes': 'yes'}" in str(doubt)
    assert "--relabel Yes=yes changes this" in doubt.text("terminal")
    assert "--" not in doubt.text("page")


@pytest.mark.parametrize("mark", ["?", "unknown", "n/a", "Unlabelled", "-", "none", "nan"])
def test_texts_that_stand_for_no_label_are_said(mark):
    _, (doubt,) = doubts(["a", "a", "b", "b", mark, mark, None])
    assert (doubt.setting, doubt.values) == ("missing", (mark,))


def test_a_class_with_one_label_is_said_where_others_have_many():
    _, (doubt,) = doubts(["a", "b"] * 8 + ["c", None])
    assert doubt.said.startswith("'c' has one label")
    assert "no row would be predicted as it" in doubt.said
    assert doubts(["a", "b", "c", None])[1] == []  # all have one: it is meant


def test_a_target_of_names_or_amounts_is_said(tmp_path):
    cells = [f"T-{i:03}" for i in range(40)]
    _, (doubt,) = doubts([*cells, None])
    assert "40 of 40 labels are different texts, as 'T-000' and 'T-039' are" in doubt.said
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(8)) + "9,\n")
    with pytest.raises(ValueError, match="'y' cannot be left out twice, nor be the target"):
        icssl.read_table(path, "y", drop=["y"])


def test_an_earlier_answer_and_a_copy_of_the_labels_are_said(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{i},{'ab'[i % 2]},{'ab'[i % 2] if i < 8 else ''}" for i in range(12)]
    path.write_text("x,copy,y\n" + "\n".join(lines) + "\n")
    with pytest.warns(TableWarning, match="'copy' has the words of the labels in all 8"):
        icssl.read_table(path, "y")
    assert run_command("classify", path, "-t", "y", "--drop", "copy").exit_code == 0
    with pytest.warns(TableWarning) as said:
        icssl.read_table(tmp_path / "a-labelled.csv", "y", drop=["copy"])
    answers = [
        one.message for one in said if "an earlier answer of icssl" in str(one.message)
    ]
    assert [one.values for one in answers] == [("label", "probability", "reach")]
    # Two of the three are names as any.
    path.write_text("reach,probability,y\n" + "\n".join(f"{i},{i},a" for i in range(9)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TableWarning)
        icssl.read_table(path, "y")


def test_minus_one_beside_empty_cells_is_said():
    """A person with sentiments from -1 to 1 must not lose a class without a word."""
    classifier, (doubt,) = doubts([-1.0, 0.0, 1.0, np.nan, 0.0, 1.0, -1.0])
    assert classifier.classes_.tolist() == [0, 1]
    assert "-1 beside empty cells" in doubt.said
    assert doubts([-1, 0, 1, -1])[1] == []
    assert doubts([0.0, 1.0, np.nan])[1] == []


def test_minus_one_can_be_made_a_class(tmp_path):
    path = tmp_path / "a.csv"
    cells = ["-1", "0", "1", ""] * 6
    path.write_text("x,y\n" + "".join(f"{i % 4}.{i},{y}\n" for i, y in enumerate(cells)))
    table = icssl.read_table(path, "y")
    with pytest.warns(TableWarning, match="-1 beside empty cells"):
        ICSSLClassifier().fit(table.features, table.target)
    result = run_command("classify", path, "-t", "y", "--relabel", "-1=bad", wide=True)
    assert result.exit_code == 0, result.output
    assert set(pd.read_csv(tmp_path / "a-labelled.csv", dtype=str)["label"]) == {
        *("bad", "0", "1")
    }


GUESSES = {
    "by name": ("age,Label,g\n1,a,\n2,b,x\n3,,y\n4,,x\n", "Label"),
    "emptiest": ("v,churned,x\n1,a,1\n2,b,2\n,,3\n2,,4\n1,,5\n", "churned"),
    "last": ("a,b,x\np,r,1\nq,s,2\n,,3\n,,4\n", "b"),
}


@pytest.mark.parametrize("case", GUESSES)
def test_the_target_is_guessed_and_said(case):
    text, column = GUESSES[case]
    with pytest.warns(TableWarning, match=f"the labels are taken from column '{column}'"):
        table = icssl.read_table(io.BytesIO(text.encode()))
    assert table.target_name == column
    assert column not in table.features


def test_a_target_that_cannot_be_guessed_is_asked_for(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ValueError, match="name the target, one of 'a', 'b'"):
        icssl.read_table(path)
    result = run_command("classify", path, wide=True)
    assert result.exit_code == 2
    assert "has no column that looks like labels" in text_of(result)
    assert icssl.read_table(path, None).target is None


def test_the_baseline_is_logistic_regression_on_the_same_hidden_labels():
    y = np.full(150, -1)
    chosen = np.r_[0:4, 50:54, 100:104]
    y[chosen] = IRIS.target[chosen]
    classifier = ICSSLClassifier().fit(IRIS.data, y)
    scaled = (IRIS.data - IRIS.data.mean(axis=0)) / IRIS.data.std(axis=0)
    hits = 0
    for hidden in hidden_labels(y, classifier._order):
        shown = np.setdiff1d(chosen, hidden)
        model = LogisticRegression(max_iter=1000).fit(scaled[shown], y[shown])
        hits += (model.predict(scaled[hidden]) == y[hidden]).sum()
    assert classifier.label_baseline_.rows == 12
    assert classifier.label_baseline_.accuracy == hits / 12


def test_how_good_it_is_is_told_with_a_caveat():
    labelling = label_rows(demo_table(), judge=True)
    (line,) = quality_lines(labelling.score, labelling.baseline)
    hits = round(9 * labelling.score.accuracy)
    assert f"{hits} of 9 hidden labels are predicted: {hits / 9:.2f}" in line
    assert f"Logistic regression predicts {labelling.baseline.accuracy:.2f}" in line
    assert "With so few labels this is rough" in line
    assert label_rows(demo_table()).score is None
    assert quality_lines(None, None) == ["How good it is here was not measured."]
    said = text_of(run_command("classify", "--demo", wide=True))
    assert line in said
    assert "How good" not in text_of(run_command("classify", "--demo", "--no-score"))


def test_the_options_of_all_warnings_stand_in_one_line(tmp_path):
    path = tmp_path / "a.csv"
    labels = ["yes", "yes", "Yes", "no", "?"] * 4 + [""] * 4
    path.write_text("x,y\n" + "".join(f"{i}.5,{y}\n" for i, y in enumerate(labels)))
    first = run_command("classify", path, "-t", "y", "--no-score", wide=True)
    options = ["--relabel", "Yes=yes", "--missing", "?"]
    assert f"All at once: {shlex.join(options)}" in text_of(first)
    again = run_command("classify", path, "-t", "y", "--no-score", "--force", *options)
    assert "Yes=yes" not in again.output
