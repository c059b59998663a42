"""The one-way flow: every import descends, and a person who predicts loads little."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import icssl

ROOT = Path(icssl.__file__).parent

# From the bottom up; a module may import only from what stands before it.
LAYERS = [
    "_util",
    "tables",
    "episodes",
    "model",
    "classifier",
    "methods",
    "training",
    "evaluation",
    "bench",
    "app",
    "__main__",
]


def layer_of(module):
    """Return ``model`` for ``icssl.model.head``."""
    return module.split(".")[1]


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "icssl":
                yield from (f"icssl.{alias.name}" for alias in node.names)
            elif node.module.startswith("icssl."):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("icssl."))


def test_imports_only_descend():
    seen = set()
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts == ("__init__",):
            continue  # gathers the public names
        own = LAYERS.index(parts[0])
        for module in imports_of(path):
            if module == "icssl.__version__":
                continue
            room = layer_of(module)
            assert LAYERS.index(room) <= own, f"{path.name} imports {module}"
            # The paper's model and the classifier are two products side by side.
            assert (parts[0], room) != ("classifier", "model"), (
                f"{path.name} imports {module}"
            )
            seen.add(layer_of(module))
    assert {"_util", "episodes", "model"} <= seen  # the walk above found the imports


def test_contributors_read_the_same_order():
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text()
    (order,) = [block for block in text.split("```") if " < episodes < " in block]
    assert re.findall(r"\w+", order) == LAYERS[:-1]


def loaded_by(code):
    """Return the modules that are loaded after some code has run in a new process."""
    code = f"import sys\n{code}\nprint('LOADED', *sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(result.stdout.partition("LOADED")[2].split())


def test_import_of_the_package_loads_no_plotting_and_no_command_line():
    loaded = loaded_by("import icssl")
    assert "icssl" in loaded
    assert not {"torch", "matplotlib", "typer", "rich", "sklearn"} & loaded


def test_whoever_predicts_loads_no_paper_no_training_no_plotting():
    loaded = loaded_by("from icssl import ICSSLClassifier")
    assert "icssl.classifier.estimator" in loaded
    rooms = ("model", "training", "evaluation", "bench", "app", "classifier.pretraining")
    others = [f"icssl.{room}" for room in rooms]
    assert not {"matplotlib", *others} & loaded


@pytest.mark.parametrize(
    "arguments", ["--version", "--help", "classify --help", "train --help", "bench --help"]
)
def test_help_and_version_answer_without_loading_what_computes(arguments):
    loaded = loaded_by(
        "from icssl.__main__ import main\n"
        f"sys.argv = ['icssl', *{arguments.split()}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0"
    )
    assert "icssl.app.cli" in loaded
    heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pandas", "ray"}
    assert not heavy & loaded


def test_public_names_exist():
    assert all(hasattr(icssl, name) for name in icssl.__all__)
    assert set(icssl.__all__) <= set(dir(icssl))
