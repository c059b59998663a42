"""Cells that are awkward to read and write: long digits, signs, controls, times."""

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import numpy as np
import pytest

import icssl
from helpers import run_command
from icssl import ICSSLClassifier
from icssl.tables.formulas import is_formula
from icssl.tables.targets import read_targets

pd = pytest.importorskip("pandas")


@pytest.mark.parametrize("cell", ["-1e-05", "-5 kg", "-€3.50", "+", "- -"])
def test_negative_numbers_are_no_formulas(cell, tmp_path):
    assert not is_formula(cell)
    path = tmp_path / "a.csv"
    frame = pd.DataFrame(
        {"u": range(4), "cell": [cell, "1", "2", "3"], "y": ["a", "b", "", ""]}
    )
    frame.to_csv(path, index=False)
    assert run_command("classify", path, "-t", "y").exit_code == 0
    back = pd.read_csv(tmp_path / "a-labelled.csv", dtype=str, keep_default_na=False)
    assert back["cell"][0] == cell


def test_very_long_numbers_take_no_time_that_grows_with_their_square(tmp_path):
    """A pattern that tries every split of the digits would take hours for a million."""
    digits = "1" * 10**6 + "x"
    path = tmp_path / "a.csv"
    path.write_text(f"u,y\n1,{digits}\n2,b\n3,\n")
    began = time.process_time()
    assert is_formula("-" + digits)
    assert read_targets([digits, "b", None])[0].tolist() == [digits, "b"]
    assert icssl.read_table(path, "y").target[0] == digits
    assert time.process_time() - began < 60  # hours, with the pattern that it replaced


def test_separators_of_lines_within_json_texts_come_back(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"u": i, "note": f"a\u2028b\u0085{i}", "y": "ab"[i % 2]} for i in range(4)]
    rows.append({"u": 4, "note": "c", "y": None})
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    assert run_command("classify", path, "-t", "y").exit_code == 0
    back = icssl.read_table(tmp_path / "a-labelled.jsonl", "label")
    assert back.features["note"].tolist() == [row["note"] for row in rows]


def test_a_sheet_takes_control_characters_and_times_with_a_zone(tmp_path):
    pytest.importorskip("openpyxl")
    pytest.importorskip("pyarrow")
    zone = timezone(timedelta(hours=2))
    moments = [datetime(2021, 3, day, 12, tzinfo=zone) for day in range(1, 5)]
    frame = pd.DataFrame({"when": moments, "note": ["a\x07", "b", "c", "d"]})
    frame["y"] = ["a", "b", None, None]
    frame.to_parquet(tmp_path / "a.parquet")
    path = tmp_path / "out.xlsx"
    assert (
        run_command("classify", tmp_path / "a.parquet", "-t", "y", "-o", path).exit_code
        == 0
    )
    back = pd.read_excel(path)
    assert back["note"].tolist() == ["a", "b", "c", "d"]
    assert back["when"][0].replace(tzinfo=UTC) == moments[0]


@pytest.mark.parametrize(
    "cells",
    [
        [b"a", b"b", b"a", b"c"],
        [("a", 1), ("b", 2), ("a", 1), ("c", 3)],
        [UUID(int=1), UUID(int=2), UUID(int=1), UUID(int=3)],
        [pd.Period("2021-01"), pd.Period("2021-02"), pd.Period("2021-01"), None],
    ],
    ids=["bytes", "tuples", "uuid", "periods"],
)
def test_objects_that_are_no_texts_are_categories(cells):
    column = np.empty(4, dtype=object)
    column[:] = cells
    frame = pd.DataFrame({"u": [0.0, 1.0, 0.1, 1.1], "it's": column})
    classifier = ICSSLClassifier().fit(frame, ["a", "b", None, None])
    assert classifier.columns_.to_frame()["read_as"].tolist() == ["number", "category"]
