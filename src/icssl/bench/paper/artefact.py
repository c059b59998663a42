"""Artefacts of the paper (specs, what the paper says, how to draw) and their profiles."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from icssl.bench.render import Item
from icssl.bench.spec import Spec


@dataclass(frozen=True)
class Profile:
    """Sizes that all artefacts share.

    Parameters
    ----------
    name : str
    note : str
        Stands on every page that is made from it.
    judges : bool
        Whether its rows support verdicts on claims.
    seeds, runs : int
        Models of every trained method; of every column of the ablation.
    steps, batch : int
        Of training a model with a descent head.
    encoder_steps : int
        Of training an encoder head or the Transformer baseline.
    hard_steps : int
        Of both where they take longer: on every source but the Swiss roll.
    eigenvector_episodes : int
        Different episodes with ground truth that Eig+ICL is trained on.
    image_episodes : int
        Different image manifolds that models are trained on.
    episodes, tuning : int
        Test episodes, and training episodes on which classical methods are tuned.
    budgets : tuple of int
        Labels of the curves of surfaces.
    product_budgets : tuple of int
        Labels on the product: those of the paper's ablation.
    features : str
        The table in place of ImageNet100: ``"digits"``, or the file that
        ``scripts/fetch_cifar10_features.py`` makes.
    sizes : tuple of int
        Different training episodes of the curves on features.
    iterations : int
        Of the constructed model.
    """

    name: str
    note: str
    judges: bool
    seeds: int
    runs: int
    steps: int
    batch: int
    encoder_steps: int
    hard_steps: int
    eigenvector_episodes: int
    image_episodes: int
    episodes: int
    tuning: int
    budgets: tuple[int, ...]
    product_budgets: tuple[int, ...]
    features: str
    sizes: tuple[int, ...]
    iterations: int


PROFILES = {
    "quick": Profile(
        name="quick",
        note=(
            "Profile quick: models have seen a few hundred episodes and were tested on a "
            "few dozen. It shows that everything runs, and supports no conclusion."
        ),
        judges=False,
        seeds=1,
        runs=2,
        steps=12,
        batch=16,
        encoder_steps=12,
        hard_steps=12,
        eigenvector_episodes=64,
        image_episodes=24,
        episodes=24,
        tuning=12,
        budgets=(3, 10, 21, 39),
        product_budgets=(3, 20, 40),
        features="digits",
        sizes=(100, 1200),
        iterations=300,
    ),
    "full": Profile(
        name="full",
        note=(
            "Profile full: the paper's sizes and three seeds, but ten in the ablation and "
            "one under the two rules of id-ood whose classes are uneven."
        ),
        judges=True,
        seeds=3,
        runs=10,
        steps=500,
        batch=128,
        encoder_steps=1000,
        hard_steps=4000,
        eigenvector_episodes=2000,
        image_episodes=1000,
        episodes=500,
        tuning=200,
        budgets=(3, 5, 10, 15, 21, 25, 39, 60, 80),
        product_budgets=(3, 5, 10, 15, 20, 40, 80),
        features="data/cifar10-efficientnet-lite0.npz",
        sizes=(100, 300, 600, 1200, 2500, 5000),
        iterations=3000,
    ),
}


Row = dict[str, Any]


class Cell(NamedTuple):
    """Where a row stands in the tables of an artefact."""

    source: str
    labels: float
    method: str
    kernel: str = ""
    setting: str = "id"
    threshold: str = "median"
    size: int = 0


Specs = dict[Cell, Spec]
Rows = Mapping[Cell, Row]


@dataclass(frozen=True)
class Artefact:
    """One table or figure of the paper.

    Parameters
    ----------
    name, title : str
    says : str
        What the paper says, in our words.
    specs : callable
        The specs of a profile, by the cell that their rows fill.
    draw : callable
        Tables and pictures from those rows that are there, in a folder.
    """

    name: str
    title: str
    says: str
    specs: Callable[[Profile], Specs]
    draw: Callable[[Profile, Rows, Path], list[Item]]


def no_specs(profile: Profile) -> Specs:
    """Of an artefact that needs no run."""
    return {}


@cache
def published() -> dict[tuple[str, Cell], tuple[float, float | None]]:
    """Values and sds that the paper printed, by artefact and cell."""
    found = {}
    text = (files("icssl.bench.paper") / "paper_values.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["metric"] != "accuracy" or not row["context"]:
            continue
        cell = Cell(
            row["data"].replace("product5", "product"),
            float(row["context"]),
            row["method"],
            row["kernel"],
            row["setting"],
        )
        sd = float(row["sd"]) if row["sd"] else None
        found[row["artefact"], cell] = (float(row["value"]), sd)
    return found
