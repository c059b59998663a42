"""``icssl classify --save`` and ``icssl predict``: a classifier as a file of data alone."""

import json
from zipfile import ZipFile

import numpy as np
import pytest

import icssl
from helpers import run_command, text_of
from icssl import ICSSLClassifier
from icssl.app.label_options import LabelOptions
from icssl.app.saved_classifier import load_classifier, save_classifier

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


def rows(count, seed, labelled=0):
    """Customers as a person saves them: money, dates in words, categories, gaps."""
    rng = np.random.default_rng(seed)
    kind = np.arange(count) % 2
    income = rng.normal(2000 + 900 * kind, 250)
    frame = pd.DataFrame(
        {
            "income": [f"${x:,.2f}" if i % 9 else "-" for i, x in enumerate(income)],
            "joined": [f"{d % 27 + 1:02}.0{3 + k}.2021" for d, k in enumerate(kind)],
            "plan": np.where(rng.random(count) < 0.2 + 0.6 * kind, "big", "small"),
            "visits": rng.poisson(3 + 3 * kind),
        }
    )
    names = np.array(["stay", "go"])[kind]
    return frame.assign(left=np.where(np.arange(count) < labelled, names, "")), names


@pytest.fixture
def files(tmp_path):
    rows(60, 0, labelled=10)[0].to_csv(tmp_path / "old.csv", index=False)
    new, truth = rows(30, 1)
    new.drop(columns="left")[["visits", "plan", "joined", "income"]].to_csv(
        tmp_path / "new.csv", index=False
    )
    return tmp_path, truth


def saved(folder, *more):
    path = folder / "model.icssl"
    result = run_command(
        "classify", folder / "old.csv", "-t", "left", "--save", path, *more, wide=True
    )
    assert result.exit_code == 0, result.output
    assert f"Model: {path}" in text_of(result)
    return path


def test_a_saved_classifier_predicts_what_the_fitted_one_does(files):
    folder, truth = files
    path = saved(folder)
    result = run_command("predict", path, folder / "new.csv", wide=True)
    assert result.exit_code == 0, result.output
    back = pd.read_csv(folder / "new-predicted.csv")
    old = icssl.read_table(folder / "old.csv", "left")
    new = icssl.read_table(folder / "new.csv", None)
    fitted = ICSSLClassifier().fit(old.features, old.target)
    features = new.features[list(old.features)]
    assert back["label"].tolist() == fitted.predict(features).tolist()
    np.testing.assert_allclose(
        back["probability"], fitted.predict_proba(features).max(axis=1), atol=1e-6
    )
    assert (back["label"] == truth).mean() > 0.85
    assert f"30 rows, mean confidence {back['probability'].mean():.3f}" in text_of(result)


@pytest.mark.parametrize("suffix", [".xlsx", ".jsonl", ".parquet"])
def test_new_rows_come_and_go_in_any_format(files, suffix):
    pytest.importorskip("openpyxl")
    folder, _ = files
    path, frame = saved(folder, "--no-score"), pd.read_csv(folder / "new.csv")
    source = folder / f"rows{suffix}"
    if suffix == ".xlsx":
        frame.to_excel(source, index=False)
    elif suffix == ".jsonl":
        frame.to_json(source, orient="records", lines=True)
    else:
        frame.to_parquet(source)
    labels = []
    for data in (source, folder / "new.csv"):
        out = folder / f"out{data.suffix}.csv"
        result = run_command("predict", path, data, "-o", out, wide=True)
        assert result.exit_code == 0, result.output
        labels.append(pd.read_csv(out)["label"].tolist())
    assert labels[0] == labels[1]


def test_settings_are_kept(files):
    folder, _ = files
    path = saved(folder, "--column-scale", "each", "--type", "visits=category")
    with ZipFile(path) as archive:
        settings = json.loads(archive.read("settings.json"))
    assert settings["column_scale"] == "each"
    assert settings["icssl"] == icssl.__version__
    again = load_classifier(path)
    assert again.classifier.column_scale == "each"
    assert again.readings["visits"].kind == "category"
    assert again.readings["joined"].kind == "date"


def test_the_file_holds_no_pickle(files):
    with ZipFile(saved(files[0])) as archive:
        names = archive.namelist()
        assert sorted(names) == ["settings.json", "table.parquet"]
        assert archive.read("table.parquet").startswith(b"PAR1")


def test_what_cannot_be_predicted_is_said(files):
    folder, _ = files
    path = saved(folder, "--no-score")
    frame = pd.read_csv(folder / "new.csv")
    cases = {
        "no column 'income', which the classifier was fitted with. Did you mean 'Income'": (
            frame.rename(columns={"income": "Income"})
        ),
        "column 'visits': 'many' in row 0 is no number": frame.assign(visits="many"),
    }
    for words, odd in cases.items():
        odd.to_csv(folder / "odd.csv", index=False)
        result = run_command("predict", path, folder / "odd.csv", wide=True)
        assert result.exit_code == 2
        assert words in text_of(result)
        assert not (folder / "odd-predicted.csv").exists()
    assert run_command("predict", path, folder / "no.csv").exit_code == 2
    damaged = "torn.icssl is not as icssl classify --save wrote it"
    for content, words in (
        (b"", "torn.icssl is empty."),
        (b"PK", damaged),
        (path.read_bytes()[:200], damaged),
    ):
        (folder / "torn.icssl").write_bytes(content)
        torn = run_command("predict", folder / "torn.icssl", folder / "new.csv", wide=True)
        assert torn.exit_code == 2
        assert words in text_of(torn)
        assert "Traceback" not in torn.output


def predicted(path, frame, *more):
    """What the terminal says of new rows, and the table that it writes."""
    file = path.parent / "odd.csv"
    frame.to_csv(file, index=False)
    result = run_command("predict", path, file, "--force", *more, wide=True)
    assert result.exit_code == 0, result.output
    return text_of(result), pd.read_csv(path.parent / "odd-predicted.csv")


def test_new_rows_that_are_other_than_before_are_said(files):
    folder, truth = files
    path, frame = saved(folder, "--no-score"), pd.read_csv(folder / "new.csv")
    said, back = predicted(path, frame)
    assert "Warning" not in said
    assert "all of them are like some labelled row" in said
    assert (back["label"] == truth).mean() > 0.85
    cells = frame["visits"].astype(object)
    cells[4] = "ca. 3"
    said, back = predicted(path, frame.assign(visits=cells))
    assert "column 'visits': 'ca. 3' in row 4 is no number and counts as missing." in said
    assert (back["label"] == truth).mean() > 0.85
    cells[:] = "lost"
    cells[4] = "3"
    said, _ = predicted(path, frame.assign(visits=cells), "--missing", "lost")
    assert "Warning" not in said
    said, _ = predicted(path, frame.assign(visits=100 * frame["visits"]))
    assert "column 'visits': 28 of 30 numbers, such as 800, are far from all" in said
    assert "are they in another unit?" in said
    assert "of them have a reach below" in said
    said, _ = predicted(path, frame.assign(plan="huge", visits=np.nan))
    assert "column 'visits' is empty in the new rows, and was not." in said
    assert (
        "'plan': 30 of 30 cells are texts that it did not have before, such as 'huge'"
        in said
    )


def test_what_cannot_be_saved_is_said_before_anything_is_read(files):
    folder, _ = files
    for words, more in {
        "must end in .icssl": ["--save", folder / "a.pkl"],
        "no weights": ["--save", folder / "a.icssl", "--model", "mine.safetensors"],
    }.items():
        result = run_command("classify", folder / "old.csv", "-t", "left", *more, wide=True)
        assert result.exit_code == 2
        assert words in text_of(result)
    path = saved(folder, "--no-score")
    again = run_command("classify", folder / "old.csv", "--save", path, "--force")
    assert again.exit_code == 0
    np.savez(folder / "a.npz", x=np.ones((3, 2)), y=np.array(["a", "b", ""]))
    table = icssl.read_table(folder / "a.npz", "y")
    with pytest.raises(ValueError, match="whose columns have names"):
        save_classifier(folder / "b.icssl", table, LabelOptions())
