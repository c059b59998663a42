"""What a warning proposes must help: advice that was followed made tables worse."""

import numpy as np
import pytest

import icssl
from helpers import run_command, text_of
from icssl import ICSSLClassifier
from icssl._util.percent import percent
from icssl.app.explore.state import State
from icssl.app.explore.table_view import data
from icssl.app.explore.uploads import Uploads, read_upload
from icssl.tables.leak_doubts import doubts_about_leaks, said_of_copy
from icssl.tables.table_warning import TableWarning
from icssl.tables.target_doubts import doubts_about_labels, is_slip
from icssl.tables.targets import read_targets
from icssl.tables.text_numbers import is_currency, same_money
from test_reader_doubts import column, read

pd = pytest.importorskip("pandas")

NUMBERS = [f"{i % 7}.{i}" for i in range(30)]


def uploaded(text, name="a.csv"):
    from base64 import b64encode

    return name, "data:;base64," + b64encode(text.encode()).decode()


def test_a_word_for_no_value_in_several_columns_is_one_warning_that_can_be_confirmed():
    rows = [[f"{i}.5", f"{3 * i}.25", "ab"[i % 2]] for i in range(30)]
    rows[3][0] = rows[4][1] = rows[9][1] = "fehlt"
    text = "x,z,kind\n" + "".join(",".join(row) + "\n" for row in rows)
    table, (said,) = read(text)
    assert said == (
        "'fehlt' in 2 columns, 'x' and 'z', is no number: 3 cells count as missing. "
        "--missing fehlt confirms this."
    )
    confirmed, nothing = read(text, missing=["fehlt"])
    assert nothing == []
    pd.testing.assert_frame_equal(table.features, confirmed.features)
    # A data frame is told the same, in words of Python.
    with pytest.warns(TableWarning, match="or NaN in their place confirms this"):
        ICSSLClassifier().fit(pd.DataFrame(rows, dtype=object), [0, 1, *[None] * 28])


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            ["12 stones", *NUMBERS],
            "1 of its cells, '12 stones', counts as missing: correct",
        ),
        (
            ["a", "b", "c", "d", *NUMBERS, *NUMBERS],
            "4 of its cells, 'a', 'b', 'c' and 1 mo",
        ),
    ],
)
def test_cells_that_are_no_marks_have_no_option_to_copy(cells, said):
    _, doubts = column(cells)
    (doubt,) = [one for one in doubts if "count" in one]
    assert said in doubt
    assert "--" not in doubt


def test_a_unit_of_nearly_all_cells_is_read():
    table, (doubt,) = column([*(f"{x} kg" for x in NUMBERS), "13200 g"])
    assert table.features["a"].dtype == float
    assert np.isnan(table.features["a"]).sum() == 1
    assert "'13200 g', counts as missing" in doubt


@pytest.mark.parametrize(("kind", "month"), [("day-first", 2), ("month-first", 1)])
def test_the_order_of_dates_can_be_said(kind, month):
    cells = [f"0{i % 9 + 1}/02/2024" for i in range(24)]
    _, (doubt,) = column(cells)
    assert "--type a=day-first changes this" in doubt
    table, doubts = column(cells, types={"a": kind})
    assert doubts == []
    assert table.features["a"][0].month == month


def test_labels_that_look_misspelt_can_be_renamed():
    labels = [*["Gouda"] * 9, "Goudda", *["Feta"] * 9, "Brie", *["stage 1"] * 9, "stage 2"]
    doubts = doubts_about_labels(labels, *read_targets(labels))
    typo, lone = doubts
    assert typo.text("terminal") == (
        "label 'Goudda' looks like 'Gouda', and counts as a class of its own: rename it if "
        "it is misspelt. --relabel Goudda=Gouda changes this."
    )
    assert "'Brie' and 'stage 2' have one label each" in lone.said


OTHER_CLASSES = """female male, inactive active, unhealthy healthy, abnormal normal,
atypical typical, hyperthyroid hypothyroid, Australia Austria, grower B|grower A,
stage II|stage I, dog dogs, class-1 class-2, Nordic Sardic, type 2 b|type 2 a"""


@pytest.mark.parametrize("pair", OTHER_CLASSES.replace("\n", " ").split(", "))
def test_classes_that_are_no_misspellings_are_kept(pair):
    name, other = pair.split("|") if "|" in pair else pair.split()
    assert not is_slip(name, other)
    assert not is_slip(other, name)


@pytest.mark.parametrize(
    "pair", ["Setosa Setsoa", "Goudda Gouda", "Berg-Käse Bergkäse", "virginica virginca"]
)
def test_slips_of_a_letter_are_known(pair):
    name, other = pair.split()
    assert is_slip(name, other)
    assert is_slip(other, name)
    labels = np.array([other] * 9 + [name] + ["Feta"] * 9)
    with pytest.warns(TableWarning, match=f"^label '{name}' looks like '{other}'"):
        ICSSLClassifier().fit(np.arange(19.0)[:, None], labels)


def test_a_label_is_never_proposed_as_a_mark_for_no_value():
    rows = [f"{i}.5,{'fresh' if i % 2 else 'ok'}" for i in range(30)]
    for word in ("ok", "fehlt"):
        _, doubts = read("x,state\n" + "\n".join([*rows, f"{word},\n"]), "state")
        (said,) = [one for one in doubts if "counts as missing" in one]
        assert ("--missing" in said) == (word == "fehlt")
        assert ("Make them empty to confirm this" in said) == (word == "ok")


def test_a_word_among_numbers_of_an_object_column_is_not_all_of_it():
    frame = pd.DataFrame({"x": [*np.arange(29.0), "fehlt"]}, dtype=object)
    with pytest.warns(TableWarning, match=r"'fehlt' in column 'x' is no number: 1 cell"):
        ICSSLClassifier().fit(frame, [0, 1, *[None] * 28])


def test_units_are_read_and_their_lack_is_said():
    table, doubts = column([*(f"{x} kg" for x in NUMBERS), "13200"])
    assert table.features["a"].dtype == float
    (said,) = [one for one in doubts if "mixes" in one]
    assert "mixes numbers with 'kg' and numbers without a unit" in said
    table, _ = column([*(f"{x} kg" for x in NUMBERS[:26]), *"abcd"], types={"a": "number"})
    assert table.features["a"].notna().sum() == 26
    # One currency in two ways is one unit, and money is often without its sign.
    table, doubts = column([*(f"{x} €" for x in NUMBERS), "EUR 7.5", "12.5"])
    assert doubts == []
    assert table.readings["a"].unit == "€"


def leaks(cells):
    """Return what is said of a column beside labels in two thirds of the rows."""
    labels = [*(["red", "green", "blue"] * 10)]
    lines = (
        f"{i % 5}.{i},{cell},{labels[i] if i < 20 else ''}\n"
        for i, cell in enumerate(cells)
    )
    _, doubts = read("x,copy,y\n" + "".join(lines), "y")
    return [one for one in doubts if "alone decides" in one]


def test_columns_that_nearly_repeat_the_labels_are_said():
    words = ["red", "green", "blue"] * 10
    (exact,) = leaks([word.upper() for word in words])
    assert "has the words of the labels in all 20 labelled rows: if" in exact
    (gap,) = leaks(["", *words[1:]])
    assert "in all 19 labelled rows where it has one" in gap
    (wrong,) = leaks(["green", *words[1:]])
    assert "in 19 of 20 labelled rows" in wrong
    codes = {"red": "A-1", "green": "B-2", "blue": "C-3"}
    (coded,) = leaks([codes[word] for word in words])
    assert "has one value per class in all 20 labelled rows" in coded
    # A column that is merely good is none, nor one of more values than classes.
    assert leaks([codes[words[i - (i % 4 == 0)]] for i in range(30)]) == []
    assert leaks([f"{word}-{i % 2}" for i, word in enumerate(words)]) == []
    # What the reader takes for missing is missing here too.
    (marked,) = leaks(["NA", "?", *(codes[word] for word in words[2:])])
    assert "in all 18 labelled rows where it has one" in marked
    (gaps,) = leaks(["paid" if word == "red" else "" for word in words])
    assert "has a value in all labelled rows of class 'red', and in no other" in gaps


def test_rare_words_that_agree_by_chance_are_no_copy():
    rng = np.random.default_rng(0)
    labels = ["yes" if i % 20 == 0 else "no" for i in range(200)]
    for _ in range(50):
        flags = ["yes" if one else "no" for one in rng.random(200) < 0.03]
        assert said_of_copy(flags, labels) == ""
    copy = [*labels[:-6], *["yes"] * 6]
    assert said_of_copy(labels, labels).startswith("has the words of the labels in all 200")
    assert said_of_copy(copy, labels) == ""  # six more of ten rare ones
    # Whole numbers count as such, with or without a point.
    numbers = pd.DataFrame({"a": [float(i % 2) for i in range(12)]})
    (said,) = doubts_about_leaks(numbers, ["a"], np.array([i % 2 for i in range(12)]))
    assert "in all 12 labelled rows" in said.said


@pytest.fixture
def model(tmp_path):
    frame = pd.DataFrame(
        {
            "price": [f"{20 + i},50 €" for i in range(24)],
            "weight": [f"{i + 1} kg" for i in range(24)],
            "kind": ["ab"[i // 12] if i % 3 == 0 else "" for i in range(24)],
        }
    )
    frame.to_csv(tmp_path / "old.csv", index=False, sep=";")
    path = tmp_path / "a.icssl"
    result = run_command("classify", tmp_path / "old.csv", "-t", "kind", "--save", path)
    assert result.exit_code == 0, result.output
    return path


def predicted(model, wanted=0, **cells):
    """Return what ``icssl predict`` says of a row of these cells, ten times."""
    path = model.with_name("new.csv")
    new = {"price": "21,00 €", "weight": "3 kg"} | cells
    pd.DataFrame([new] * 10).to_csv(path, index=False, sep=";")
    result = run_command("predict", model, path, "--force", wide=True)
    assert result.exit_code == wanted, result.output
    return text_of(result)


def test_new_rows_in_another_currency_or_unit_are_said(model):
    assert "Warning" not in predicted(model)
    assert "Warning" not in predicted(model, price="EUR 21,00")
    said = predicted(model, price="21,00 CHF")
    assert "column 'price' has 'CHF' where it had '€' before" in said
    said = predicted(model, wanted=2, weight="3 lb")
    assert "'3 lb' in row 0 is no number; before, it had numbers in kg" in said


def test_new_rows_go_to_a_name_of_their_own_and_unused_columns_are_said(model):
    said = predicted(model, colour="red", kind="a")
    assert "Columns that are not used: 'colour'." in said
    assert (model.parent / "new-predicted.csv").exists()
    assert not (model.parent / "new-labelled.csv").exists()


def test_the_page_says_what_a_button_does():
    rows = [f"{i}.5,{'ab'[i % 2]},{'ab'[i % 2] if i < 12 else ''}" for i in range(40)]
    rows[3] = "fehlt,a,"
    uploads = Uploads()
    text = "x,copy,y\n" + "\n".join(rows)
    upload = uploads.add(*uploaded(text))
    shown = str(data(State(tab="data", table=upload.key, target="y"), uploads)["doubts"])
    assert "Count fehlt as no value" in shown
    assert "To confirm this, write fehlt into Texts for no value." in shown


def test_the_page_says_what_one_column_lacks_and_refuses_a_name_that_stops_a_browser():
    uploads = Uploads()
    upload = uploads.add(*uploaded("a\n" + "1\n" * 20))
    note = data(State(tab="data", table=upload.key), uploads)["note"]
    assert "has one column: a table needs one for the labels" in note
    with pytest.raises(ValueError, match=r"has a column whose name, 'aaaa.*20,000 char"):
        read_upload(*uploaded("a" * 20_000))


def test_pandas_does_not_compare_equal_names(monkeypatch):
    """It compares each with all before it, which took minutes for 700,000."""
    headers, real = [], pd.read_csv

    def spy(*args, **options):
        headers.append(options["header"])
        return real(*args, **options)

    monkeypatch.setattr(pd, "read_csv", spy)
    table, _ = read(",".join(["a"] * 300) + "\n" + ",".join(["1"] * 300) + "\n")
    assert table.features.columns[[0, 1, 299]].tolist() == ["a", "a.1", "a.299"]
    assert headers == [None]


@pytest.mark.parametrize(
    "pair", ["kr SEK", "Rs INR", "R$ BRL", "A$ AUD", "₽ RUB", "¥ CNY", "Ft HUF", "zł PLN"]
)
def test_signs_and_codes_of_one_currency_are_the_same_money(pair):
    sign, code = pair.split()
    assert is_currency(sign)
    assert same_money(sign, code)
    assert not same_money(sign, "EUR")


def test_a_picture_that_is_called_a_spreadsheet_is_said(tmp_path):
    path = tmp_path / "a.xlsx"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    with pytest.raises(ValueError, match=r"as \.xlsx, it looks like a PNG picture"):
        icssl.read_table(path, None)


def test_no_probability_is_certain_unless_it_is_one():
    shown = [percent(p) for p in (0.0, 0.004, 0.005, 0.02, 0.994, 0.9951, 1.0)]
    assert shown == ["0%", "< 1%", "< 1%", "2%", "99%", "> 99%", "100%"]
