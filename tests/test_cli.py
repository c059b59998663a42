"""The command line, as a person types it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from icssl import __version__
from icssl.cli import app
from icssl.demo import CLOUDS, METHODS, run_demo


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    for command in ("demo", "params"):
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
