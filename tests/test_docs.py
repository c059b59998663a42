"""Documents are consistent and true: links, contents, code, numbers, benchmarks.

``make docs`` builds the documentation, which takes longer.
"""

import dataclasses
import fnmatch
import importlib
import json
import pydoc
import re
import runpy
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from sklearn.datasets import load_iris

import icssl
from helpers import skip_without_reader
from icssl import ICSSLClassifier, ICSSLTransformer, ModelConfig
from icssl.classifier import neighbour_search, plan
from icssl.classifier.graphs import (
    BANDWIDTH_NEIGHBOURS,
    FEW_NEIGHBOURS,
    SPARSE_NEIGHBOURS,
)
from icssl.classifier.kernels import graphs_of_geometry
from icssl.classifier.weights import released_model
from icssl.episodes.data_config import DataConfig
from icssl.model.build import save_model
from icssl.training.config import TrainConfig
from icssl.training.presets import PRESETS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "icssl"
BUILT = ("_build", "generated", "tutorials", "_templates")
PAGES = sorted(
    path
    for pattern in ("*.md", "*.rst")
    for path in DOCS.rglob(pattern)
    if path.relative_to(DOCS).parts[0] not in BUILT
)
OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
MARKDOWN = [*OUTSIDE, *(path for path in PAGES if path.suffix == ".md")]
TUTORIALS = sorted((ROOT / "examples").glob("*.py"))
HOWTOS = [f"howto/{path.name}" for path in sorted((DOCS / "howto").glob("*.md"))]
WITH_CODE = [
    page
    for page in ["start.md", "classifier.md", "tables.md", *HOWTOS]
    if "```python" in (DOCS / page).read_text() and page != "howto/baseline.md"
]  # the last one has a test of its own


@pytest.fixture(scope="module")
def conf():
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    return runpy.run_path(str(DOCS / "conf.py"))


def python_blocks(path):
    """Return the blocks of Python, also those that are part of a list."""
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    return [textwrap.dedent(block.rstrip(" ")) for block in blocks]


def run_blocks(path):
    """Run all blocks, one after the other, with fewer iterations; return their names."""
    names: dict = {"__name__": "page"}
    for block in python_blocks(path):
        module = re.match(r"# (\w+\.py)\n", block)
        if module:  # a file of the reader's own, in the current folder
            Path(module[1]).write_text(block)
            continue
        exec(block.replace("30_000", "200"), names)
    return names


def name_of(path):
    return path.relative_to(DOCS).with_suffix("").as_posix()


def contents():
    """Entries of all tables of contents in the index."""
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.S)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


def api_names():
    """Full names of all entries of the API reference."""
    module, names = "", []
    for line in (DOCS / "api.rst").read_text().splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif re.fullmatch(r"   [A-Za-z_.]+", line):
            names.append(f"{module}.{line.strip()}")
    return names


def test_conf_is_read(conf):
    for extension in conf["extensions"]:
        importlib.import_module(extension)
    assert conf["release"] == icssl.__version__


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_stands_in_the_contents(page):
    name = name_of(page)
    assert name == "index" or any(fnmatch.fnmatch(name, entry) for entry in contents())


def test_the_contents_have_no_page_that_is_not_there():
    names = [*map(name_of, PAGES), "tutorials/index"]
    for entry in contents():
        assert fnmatch.filter(names, entry), entry


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_every_tutorial_is_run_and_has_a_title(conf, tutorial):
    pattern = conf["sphinx_gallery_conf"]["filename_pattern"]
    assert re.search(pattern, tutorial.as_posix())
    _, title, rule = tutorial.read_text().splitlines()[:3]
    assert title
    assert rule == "=" * len(title)
    compile(tutorial.read_text(), tutorial.name, "exec")


def test_every_public_name_has_a_page():
    for name in icssl.__all__:
        listed = f"icssl.{name}" in api_names()
        assert listed or f"``icssl.{name}``" in (DOCS / "api.rst").read_text()


@pytest.mark.parametrize("name", api_names())
def test_the_reference_names_what_is_there_and_says_what_it_is(name):
    module, _, attribute = name.rpartition(".")
    assert getattr(importlib.import_module(module), attribute).__doc__


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda path: path.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


TODAY = [page for page in MARKDOWN if page.name not in ("LOG.md", "CHANGELOG.md")]


@pytest.mark.parametrize("page", TODAY, ids=lambda path: path.stem)
def test_files_that_a_page_names_are_there(page):
    """Paths from the root of the repository or of the package, as `model/head.py`."""
    tops = {path.name for folder in (ROOT, PACKAGE) for path in folder.iterdir()}
    for name in re.findall(
        r"`([\w/-]+/[\w.-]+\.(?:py|md|toml|safetensors))`", page.read_text()
    ):
        if name.split("/")[0] in tops:
            assert (ROOT / name).exists() or (PACKAGE / name).exists(), name


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda path: path.stem)
def test_tests_that_a_page_names_are_there(page):
    for file, test in re.findall(r"`(test_\w+\.py)::(test_\w+)`", page.read_text()):
        text = (ROOT / "tests" / file).read_text()
        assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{file}::{test}"


@pytest.mark.parametrize("page", TODAY, ids=lambda path: path.stem)
def test_names_of_the_package_on_a_page_are_there(page):
    for name in re.findall(r"`(icssl(?:\.\w+)+)\b[^`/]*`", page.read_text()):
        assert pydoc.locate(name) is not None, name


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_pages_that_tutorials_name_are_there(tutorial):
    names = [f"/{name_of(page)}" for page in PAGES] + [path.stem for path in TUTORIALS]
    for name in re.findall(r":doc:`([^`]+)`", tutorial.read_text()):
        assert name in names


@pytest.mark.parametrize("page", WITH_CODE)
def test_python_of_the_page_runs(page, tmp_path, monkeypatch):
    if page == "howto/model.md":  # it writes a module and a run
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
    assert run_blocks(DOCS / page)


def test_a_new_baseline_is_sane():
    """The class of the how-to beats chance; ``evaluate`` refuses what is no probability."""
    names = run_blocks(DOCS / "howto" / "baseline.md")
    assert names["rows"][0].metrics["accuracy"].mean > 0.6


WHERE_LIMITS_ARE = {
    "classifier.md": (DOCS / "classifier.md").read_text(),
    "scale.md": (DOCS / "scale.md").read_text(),
    "howto/large.md": (DOCS / "howto" / "large.md").read_text(),
}


@pytest.mark.parametrize("page", WHERE_LIMITS_ARE)
def test_pages_name_the_sizes_that_the_classifier_goes_by(page):
    text = WHERE_LIMITS_ARE[page]
    sizes = [plan.DENSE_ROWS, plan._DENSE_ROWS_GPU, plan._MOST_ROWS, plan._MOST_CELLS]
    for size in [*sizes, plan._WIDE_ROWS, plan._GPU_ROWS]:
        assert f"{size:,}" in text, size
    assert f"{plan._MOST_CELLS // plan._MOST_ROWS} columns" in text


def test_pages_name_the_neighbours_graphs_and_kernels_of_the_classifier():
    assert f"at least {BANDWIDTH_NEIGHBOURS}" in ICSSLClassifier.__doc__
    assert SPARSE_NEIGHBOURS >= BANDWIDTH_NEIGHBOURS
    scale, card = WHERE_LIMITS_ARE["scale.md"], (DOCS / "model-card.md").read_text()
    assert f"`n_neighbors` ({SPARSE_NEIGHBOURS})" in scale
    few, many = neighbour_search.BRUTE_FORCE_ROWS, neighbour_search.MOST_BRUTE_FORCE_ROWS
    assert few < many
    assert f"Up to {few:,} rows, neighbours are found exactly" in scale
    assert f"all rows are compared up to {many:,}" in scale
    model = released_model()
    assert f"{len(model.kernels)} kernels" in card
    sizes = {sum(p.numel() for p in gate.parameters()) for gate in model.gates}
    assert sizes == {9_007}
    assert len(model.gates) == 4
    assert "four gates of 9,007 parameters each" in card
    described = PACKAGE / "classifier" / "weights" / "tables.json"
    run = json.loads(described.read_text())["training"]
    contexts = len(model.gates) * run["steps"] * run["batch"] * run["draws"]
    assert f"{contexts:,}: four members, {run['steps']} steps" in card
    assert f"icssl pretrain --device cuda --steps {run['steps']}" in card
    text = " ".join(WHERE_LIMITS_ARE["classifier.md"].split())
    by_neighbours = Counter(graph.neighbours for graph in model.graphs)
    assert by_neighbours == {BANDWIDTH_NEIGHBOURS: 7, FEW_NEIGHBOURS: 2}
    assert "Twelve neighbours set the bandwidth" in text
    assert "sharper graph of six neighbours" in text
    assert "nine graphs, or six" in text
    assert len(graphs_of_geometry("each")) == 6
    forms = sorted(len(graph.forms) for graph in model.graphs)
    assert forms == [5, 5, 10, 10, 10, 10, 10, 10, 11]  # one has a form more
    assert "A graph of twelve neighbours gives ten kernels" in text
    assert "One more kernel" in text
    assert f"{len(model.kernels)} kernels" in text


def test_the_readme_has_the_numbers_of_the_benchmark():
    """Accuracy, rank and calibration error of each line stand in one line of the report."""
    report = (ROOT / "results" / "real" / "report.md").read_text()
    overview = report.partition("**Overview**")[2].partition("**Accuracy by")[0]
    known = [set(re.findall(r"\d+\.\d+", line)) for line in overview.splitlines()]
    text = (ROOT / "README.md").read_text()
    lines = [line for line in text.splitlines() if re.search(r"\| 0\.\d+ \|", line)]
    assert len(lines) == 7
    for line in lines:
        assert any(set(re.findall(r"\d+\.\d+", line)) <= numbers for numbers in known), line
    (difference,) = re.findall(r"self-training, (0\.\d+ ± 0\.\d+)", text)
    assert f"| Self-training | +{difference} |" in report


def test_the_readme_has_the_sizes_of_the_installation():
    rows = json.loads((ROOT / "results" / "benchmark-install.json").read_text())["sizes"]
    sizes = {row["extras"]: f"{row['mb'] / 1000:.1f} GB" for row in rows}
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"`.[tables]` takes {sizes['tables']}" in text
    everything = max(sizes, key=len)
    assert f"all extras together take {sizes[everything]}" in text


def test_the_table_of_the_regressor_has_the_numbers_of_its_benchmark():
    line = json.loads((ROOT / "results" / "benchmark-regressor.json").read_text())
    text = (DOCS / "classifier.md").read_text().partition("| table | ICSSLRegressor")[2]
    lines = [re.split(r" *\| *", line.strip("| ")) for line in text.splitlines()]
    found = {
        cells[0]: [float(cell.strip("*")) for cell in cells[1:]] for cells in lines[2:16]
    }
    names = {"all": "all", **{f"all, {n} targets": n for n in ("10", "20", "50")}}
    del found["seconds"]
    assert len(found) == len(line["error"]["ICSSLRegressor"])
    for title, numbers in found.items():
        key = names.get(title, title)
        expected = [means[key] for means in line["error"].values()]
        assert numbers == pytest.approx(expected, abs=0.0051), title


def test_python_in_the_readme_runs():
    names = run_blocks(ROOT / "README.md")
    right = names["classifier"].transduction_ == names["truth"]
    assert f"# {right.mean():.2f}, from three labels" in (ROOT / "README.md").read_text()


def test_the_model_is_opened_as_documented():
    names = run_blocks(DOCS / "model.md")
    assert names["predicted"].shape == (1, 100)
    assert names["logits"].shape == (1, 100, 2)
    assert "eigenmap.399.F" in names["trace"]


def test_a_trained_model_is_used_as_documented(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = ICSSLTransformer(ModelConfig.preset("encoder"))
    save_model(model, tmp_path / "runs" / "torus" / "model.safetensors")
    (block,) = python_blocks(DOCS / "training.md")
    names: dict = {}
    exec(block, names)
    assert names["predicted"].shape == (100,)
    assert names["probabilities"].shape == (100, 2)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_table_of_presets_names_their_models(preset):
    text = (DOCS / "training.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith("| `")]
    (row,) = [row for row in rows if f"`{preset}`" in row.split("|")[1]]
    model = PRESETS[preset]["model"]
    assert (f'"{model["preset"]}"' if "preset" in model else "BaselineConfig") in row


@pytest.mark.parametrize("config", [TrainConfig, DataConfig])
def test_every_field_that_show_prints_is_explained(config):
    text = (DOCS / "training.md").read_text()
    fields = text.partition("## Fields")[2].partition("## Use")[0]
    for field in dataclasses.fields(config):
        assert re.search(rf"\b{field.name}\b", fields), field.name


# The documents show these.
BENCHMARK_FIGURES = {"convergence": {"convergence.png"}, "attention": {"attention-cpu.png"}}


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("convergence", ["--most", "20"]),
        ("attention", ["--sizes", "50,100"]),
        ("episodes", ["--seconds", "0.01"]),
        ("images", ["--count", "2"]),
        ("ceiling", ["--episodes", "5"]),
        (
            "starts",
            [
                *("--steps", "2", "--batch", "2", "--episodes", "4"),
                *("--models", "free, hashed;paper_scalars, learned"),
            ],
        ),
        ("explore", ["--clicks", "1", "--points", "40"]),
        ("training", ["--seconds", "0.01", "--rounds", "1", "--only", "eager", "--toy"]),
        ("classifier", ["--draws", "1", "--repeats", "1"]),
        ("regressor", ["--draws", "2", "--targets", "10", "--tables", "wine"]),
        ("scale_classifier", ["--sizes", "600", "--threads", "1", "--models", "one view"]),
    ],
)
def test_benchmarks_run_at_toy_size(tmp_path, script, options):
    if script == "explore":
        pytest.importorskip("dash")
        pytest.importorskip("pandas")
    file = tmp_path / "results" / f"benchmark-{script}.json"
    file.parent.mkdir()
    result = subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks" / f"{script}.py",
            *(("--output", file) if script == "regressor" else ("--root", tmp_path)),
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
    drawn = {path.name: imread(path) for path in (tmp_path / "docs").rglob("*.png")}
    assert set(drawn) == BENCHMARK_FIGURES.get(script, set())
    committed = ROOT / "docs" / "figures"
    for name, picture in drawn.items():
        assert picture.shape == imread(committed / name).shape


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


def test_seconds_are_added_up_by_test_file(tmp_path):
    script = runpy.run_path(str(ROOT / "scripts" / "test_seconds.py"))
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.test_head" name="a" time="1.5" />
        <testcase classname="tests.test_head.TestB" name="b" time="2.0" />
        <testcase classname="tests.test_head" name="c" time="0.0"><skipped /></testcase>
        <testcase classname="src.icssl.model.head" name="icssl.model.head" time="0.25" />
        </testsuite></testsuites>"""
    )
    files = script["seconds_by_file"](report)
    assert files == {"tests/test_head.py": (2, 3.5), "doctests of src/icssl": (1, 0.25)}
    table = script["table_of"](files)
    assert table.splitlines()[2] == "| `tests/test_head.py` | 2 | 4 |"
    page = script["replace_table"]((ROOT / "CONTRIBUTING.md").read_text(), table)
    assert script["replace_table"](page, table) == page
    assert table in page


def test_the_wines_of_the_readme_are_drawn_and_have_a_label_each(tmp_path):
    script = ROOT / "scripts" / "draw_wines.py"
    command = [sys.executable, script, "--draws", "2", "--root", tmp_path]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    line = json.loads(result.stdout)
    assert set(line["mean"]) == {"logistic regression", "ICSSLClassifier"}
    assert all(0.3 < mean <= 1 for mean in line["mean"].values())
    drawn = imread(tmp_path / "docs" / "figures" / "wines.png")
    assert drawn.shape == imread(DOCS / "figures" / "wines.png").shape


def test_the_table_of_the_examples_is_the_one_that_its_script_makes(tmp_path):
    script = ROOT / "scripts" / "make_example_data.py"
    subprocess.run([sys.executable, script, "--root", tmp_path], check=True)
    (made,) = (tmp_path / "examples" / "data").iterdir()
    committed = ROOT / "examples" / "data" / "wines.csv"
    assert made.read_bytes() == committed.read_bytes()
    rows = committed.read_text().splitlines()[1:]
    assert Counter(row.rpartition(",")[2] for row in rows) == {
        "": 169,
        "Ada": 3,
        "Bruno": 3,
        "Carla": 3,
    }


def test_gallery_is_drawn(tmp_path):
    script = ROOT / "scripts" / "draw_gallery.py"
    subprocess.run([sys.executable, script, "--root", tmp_path], check=True)
    drawn = {path.stem for path in (tmp_path / "docs" / "figures").iterdir()}
    assert drawn == {"gallery", "image-grid"}
