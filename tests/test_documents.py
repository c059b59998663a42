"""What the README shows runs, and the benchmarks still do."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_iris

from helpers import skip_without_reader
from icssl import ICSSLTransformer, ModelConfig
from icssl.episodes.sources import DataConfig
from icssl.model.registry import save_model
from icssl.training.config import PRESETS, TrainConfig

ROOT = Path(__file__).parents[1]


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


def run_blocks(path):
    """All blocks, one after the other, with fewer iterations."""
    names: dict = {}
    for block in python_blocks(path):
        exec(block.replace("30_000", "200"), names)
    return names


def test_python_in_the_readme_runs():
    names = run_blocks(ROOT / "README.md")
    right = names["classifier"].transduction_ == names["truth"]
    assert f"# {right.mean():.2f}, from three labels" in (ROOT / "README.md").read_text()


def test_the_model_is_opened_as_documented():
    names = run_blocks(ROOT / "docs" / "model.md")
    assert names["predicted"].shape == (1, 100)
    assert names["logits"].shape == (1, 100, 2)
    assert "eigenmap.399.F" in names["trace"]


def test_a_trained_model_is_used_as_documented(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = ICSSLTransformer(ModelConfig.preset("encoder"))
    save_model(model, tmp_path / "runs" / "torus" / "model.safetensors")
    (block,) = python_blocks(ROOT / "docs" / "training.md")
    names: dict = {}
    exec(block, names)
    assert names["predicted"].shape == (100,)
    assert names["probabilities"].shape == (100, 2)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_table_of_presets_names_their_models(preset):
    text = (ROOT / "docs" / "training.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    (row,) = [row for row in rows if f"`{preset}`" in row.split("|")[1]]
    model = PRESETS[preset]["model"]
    assert (f'"{model["preset"]}"' if "preset" in model else "BaselineConfig") in row


@pytest.mark.parametrize("config", [TrainConfig, DataConfig])
def test_every_field_that_show_prints_is_explained(config):
    text = (ROOT / "docs" / "training.md").read_text()
    fields = text.partition("## Fields")[2].partition("## Use")[0]
    for field in dataclasses.fields(config):
        assert re.search(rf"\b{field.name}\b", fields), field.name


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("convergence", ["--most", "20"]),
        ("attention", ["--sizes", "50,100"]),
        ("episodes", ["--seconds", "0.01"]),
        ("images", ["--count", "2"]),
        ("ceiling", ["--episodes", "5"]),
        ("explore", ["--clicks", "1", "--points", "40"]),
        ("training", ["--seconds", "0.01", "--rounds", "1", "--only", "eager", "--toy"]),
        ("classifier", ["--draws", "1", "--repeats", "1"]),
        ("scale_classifier", ["--sizes", "600", "--threads", "1", "--models", "one view"]),
    ],
)
def test_benchmarks_run_at_toy_size(tmp_path, script, options):
    if script == "explore":
        pytest.importorskip("dash")
        pytest.importorskip("pandas")
    result = subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks" / f"{script}.py",
            "--root",
            tmp_path,
            *options,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    line = json.loads(result.stdout.splitlines()[-1])
    assert line["benchmark"].replace("-", "_") == script
    (written,) = (tmp_path / "results").iterdir()
    assert json.loads(written.read_text()) == line
    for figure in (tmp_path / "docs").rglob("*.png"):
        assert figure.stat().st_size > 1000


def test_parity_is_measured_at_toy_size(tmp_path):
    skip_without_reader("iris.parquet")
    iris = load_iris(as_frame=True).frame
    iris.to_parquet(tmp_path / "iris.parquet")
    few = ["--sets", "iris", "--labels", "2", "--draws", "1", "--kept", "16"]
    script = ROOT / "benchmarks" / "parity.py"
    places = ["--data", tmp_path, "--root", tmp_path]
    subprocess.run([sys.executable, script, *places, *few], check=True)
    line = json.loads((tmp_path / "results" / "benchmark-parity.json").read_text())
    assert {row["set"] for row in line["rows"]} == {"iris"}
    assert "16" in (tmp_path / "results" / "benchmark-parity.md").read_text()


def test_gallery_is_drawn(tmp_path):
    script = ROOT / "scripts" / "draw_gallery.py"
    subprocess.run([sys.executable, script, "--root", tmp_path], check=True)
    drawn = {path.stem for path in (tmp_path / "docs" / "figures").iterdir()}
    assert drawn == {"gallery", "image-grid"}
