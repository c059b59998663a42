"""The documentation hangs together; ``make docs`` builds it, which takes longer."""

import fnmatch
import importlib
import re
import runpy
from pathlib import Path

import pytest

import icssl

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = ("_build", "generated", "tutorials", "_templates")
PAGES = sorted(
    path
    for pattern in ("*.md", "*.rst")
    for path in DOCS.rglob(pattern)
    if path.relative_to(DOCS).parts[0] not in BUILT
)
MARKDOWN = [ROOT / "README.md", *(path for path in PAGES if path.suffix == ".md")]
TUTORIALS = sorted((ROOT / "examples").glob("*.py"))
WITH_CODE = ["start.md", "howto/artefact.md", "howto/large.md"]


@pytest.fixture(scope="module")
def conf():
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    return runpy.run_path(str(DOCS / "conf.py"))


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


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_pages_that_tutorials_name_are_there(tutorial):
    names = [f"/{name_of(page)}" for page in PAGES] + [path.stem for path in TUTORIALS]
    for name in re.findall(r":doc:`([^`]+)`", tutorial.read_text()):
        assert name in names


@pytest.mark.parametrize("page", WITH_CODE)
def test_python_of_the_page_runs(page):
    names: dict = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        exec(block, names)


def test_a_new_baseline_is_sane():
    """The class of the how-to: it beats chance, and rows of probabilities sum to one."""
    names: dict = {"__name__": "page"}
    text = (DOCS / "howto" / "baseline.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert names["rows"][0].metrics["accuracy"].mean > 0.6


def test_the_readme_has_the_numbers_of_the_benchmark():
    """Accuracy, rank and calibration error of each line stand in one line of the report."""
    report = (ROOT / "results" / "real" / "report.md").read_text()
    overview = report.partition("**Overview**")[2].partition("**Accuracy by")[0]
    known = [set(re.findall(r"\d+\.\d+", line)) for line in overview.splitlines()]
    text = (ROOT / "README.md").read_text()
    lines = [line for line in text.splitlines() if re.search(r"\| 0\.\d+ \|", line)]
    assert len(lines) == 6
    for line in lines:
        assert any(set(re.findall(r"\d+\.\d+", line)) <= numbers for numbers in known), line
    (difference,) = re.findall(r"self-training, (0\.\d+ ± 0\.\d+)", text)
    assert f"| Self-training | +{difference} |" in report
