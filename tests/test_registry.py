"""The registry of methods: what is declared there once appears everywhere."""

import ast
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from typer.testing import CliRunner

from icssl.app.cli import app
from icssl.bench.paper.curves import style_of
from icssl.bench.real.scores import RealSpec
from icssl.bench.scale.cost import ScaleSpec
from icssl.bench.spec import Scores
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.predictors import METHODS
from icssl.methods import BASELINES, TITLES
from icssl.methods.registry import (
    PLACES,
    REGISTRY,
    MethodEntry,
    Recipe,
    Style,
    choose_methods,
    names_in,
    recipe_of,
    register,
)
from icssl.methods.simple import Majority

STATED = [(place, name) for place in ("evaluate", "real") for name in names_in(place)]


def _guess(context, *, seed):
    return np.full((len(context.y), context.n_classes), 1 / context.n_classes)


@pytest.fixture
def toy():
    entry = MethodEntry(
        "toy",
        "A toy",
        {
            "evaluate": Recipe(Majority, "Toy(settings=1)"),
            "real": Recipe(lambda: _guess, "Toy(settings=2)"),
            "scale": Recipe(lambda: lambda x, y, device: (y, "guess"), {"toys": 3}),
        },
        Style("#123456", "8"),
    )
    register(entry)
    yield entry
    del REGISTRY["toy"]


def test_a_method_is_added_in_one_place(toy):
    for place in ("evaluate", "real", "scale"):
        assert choose_methods(place, ["toy"]) == ["toy"]
        assert names_in(place)[-1] == "toy"
    assert METHODS["toy"] == TITLES["toy"] == "A toy"
    assert isinstance(BASELINES["toy"], Majority)
    look = style_of("toy")
    assert (look["color"], look["marker"], look["linestyle"]) == ("#123456", "8", "--")
    listed = CliRunner().invoke(app, ["evaluate", "--list"]).output
    assert "A toy" in listed
    # Its settings are in the keys of its rows, as they were stated.
    scores = Scores("toy", DataConfig(("sphere",)), 3)
    assert scores.describe()["settings"] == "Toy(settings=1)"
    assert RealSpec("iris", 1, 0, "toy", "x").describe()["settings"] == "Toy(settings=2)"
    assert ScaleSpec("clusters", 9, 1, 0, "toy", "cpu", 1).describe()["toys"] == 3


def test_names_and_places_are_checked(toy):
    with pytest.raises(ValueError, match="there is a method 'toy' already"):
        register(toy)
    with pytest.raises(ValueError, match="unknown place 'kitchen'"):
        register(replace(toy, name="other", where={"kitchen": toy.where["real"]}))
    with pytest.raises(ValueError, match="unknown method 'other'"):
        choose_methods("scale", ["other"])
    assert "other" not in REGISTRY


def test_titles_differ_within_a_place():
    for place in PLACES:
        titles = [TITLES[name] for name in names_in(place)]
        assert len(set(titles)) == len(titles)


def test_another_repr_of_scikit_learn_changes_no_key(monkeypatch):
    from sklearn.base import BaseEstimator

    before = {name: RealSpec("iris", 1, 0, name, "x").key for name in names_in("real")}
    monkeypatch.setattr(BaseEstimator, "__repr__", lambda self, *_: "printed otherwise")
    assert "printed otherwise" in repr(recipe_of("real", "svc").method)
    assert {n: RealSpec("iris", 1, 0, n, "x").key for n in names_in("real")} == before


def check_stated(stated, made):
    """Check that an object has the kind and the settings that a text states."""
    assert stated.func.id == type(made).__name__
    values = made.get_params() if hasattr(made, "get_params") else vars(made)
    for keyword in stated.keywords:
        if isinstance(keyword.value, ast.Call):
            check_stated(keyword.value, values[keyword.arg])
        else:
            assert ast.literal_eval(keyword.value) == values[keyword.arg]
    if is_dataclass(made):  # ours state every setting, scikit-learn's what is not usual
        assert {k.arg for k in stated.keywords} == {f.name for f in fields(made)}
    else:
        usual = type(made)(**{n: values[n] for n in ("estimator",) if n in values})
        ours = {n for n, v in usual.get_params(deep=False).items() if v != values[n]}
        assert ours <= {k.arg for k in stated.keywords}


@pytest.mark.parametrize(("place", "name"), STATED)
def test_methods_have_the_settings_that_are_stated(place, name):
    recipe = recipe_of(place, name)
    if not recipe.is_installed:
        pytest.skip(f"{name} is not installed")
    check_stated(ast.parse(recipe.stated_settings, mode="eval").body, recipe.method)
