"""``Artefact``: one table or figure of the paper. ``Profile``: the sizes of all of them."""

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
    """Sizes that all artefacts share: how much is trained, and on how much it is tested.

    Parameters
    ----------
    name : str
    note : str
        Text for every page that is made from the profile.
    judges : bool
        Whether its rows support verdicts on claims.
    seeds, runs : int
        Models per trained method, and models per method of the ablation.
    steps, batch : int
        Training steps of a model with a descent head, and episodes per step.
    encoder_steps : int
        Training steps of an encoder head or the Transformer baseline.
    hard_steps : int
        Training steps of these two on every single source but the Swiss roll, where they
        learn more slowly.
    eigenvector_episodes : int
        Different episodes with ground truth that Eig+ICL is trained on.
    image_episodes : int
        Different image manifolds that models are trained on.
    episodes, tuning : int
        Test episodes, and training episodes on which classical methods are tuned.
    budgets : tuple of int
        Numbers of labels in the curves of surfaces.
    product_budgets : tuple of int
        Numbers of labels on the product: those of the paper's ablation.
    features : str
        The table in place of ImageNet100: ``"digits"``, or the file that
        ``scripts/fetch_cifar10_features.py`` makes.
    sizes : tuple of int
        Numbers of different training episodes, where a curve varies them.
    iterations : int
        Iterations of the constructed model.
    literal_seeds, literal_steps, literal_batch : int
        Models per method under the paper's own conditions, their training steps, and
        episodes per step. Attention to R costs ten times a step of our variant.
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
    literal_seeds: int = 1
    literal_steps: int = 12
    literal_batch: int = 16


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
            "Profile full: sizes are ours, as the paper prints none of the training. "
            "Three seeds, but ten in the ablation, five under the paper's own conditions, "
            "where each model sees 4,800 episodes, and one under the two rules of id-ood "
            "whose classes are uneven."
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
        literal_seeds=5,
        literal_steps=300,
        literal_batch=16,
    ),
}


Row = dict[str, Any]


class Cell(NamedTuple):
    """The place of a row in the tables of an artefact.

    Parameters
    ----------
    source : str
        What the method is tested on.
    labels : float
        Labelled points per episode.
    method : str
        A name of :data:`icssl.evaluation.predictors.METHODS`, or what an artefact compares.
    kernel : {"", "rbf", "linear"}
        Kernel of a descent head.
    setting : {"id", "ood"}
        Trained on the source itself, or on others.
    threshold : str or float
        How classes are cut: a rule, or a radius.
    size : int
        The number that a table varies beside labels, such as different training episodes.
    steps : int
        Training steps, where a table varies them.
    trained_on : tuple of str
        Training sources, where a table has several sets of them.
    beside : str
        The other method, where the representations of two are compared.
    n : int
        Points per episode, where a table varies them; 0 for as many as the source has.
    """

    source: str
    labels: float
    method: str
    kernel: str = ""
    setting: str = "id"
    threshold: str | float = "median"
    size: int = 0
    steps: int = 0
    trained_on: tuple[str, ...] = ()
    beside: str = ""
    n: int = 0

    def on_same_episodes(self, method: str) -> "Cell":
        """Return the cell of a method without training on the episodes of this one."""
        return Cell(self.source, self.labels, method, threshold=self.threshold, n=self.n)


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
        Returns the specs of a profile, by the cell that each row fills.
    draw : callable
        Makes tables and pictures in a folder from those rows that are stored.
    """

    name: str
    title: str
    says: str
    specs: Callable[[Profile], Specs]
    draw: Callable[[Profile, Rows, Path], list[Item]]


def no_specs(profile: Profile) -> Specs:
    """Return no specs, for an artefact that needs no run."""
    return {}


@cache
def published_values() -> dict[tuple[str, Cell], tuple[float, float | None]]:
    """Return the values and sds that the paper printed, by artefact and cell."""
    values = {}
    text = (files("icssl.bench.paper") / "paper_values.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["metric"] != "accuracy" or not row["context"]:
            continue
        sd = float(row["sd"]) if row["sd"] else None
        values[row["artefact"], published_cell(row)] = (float(row["value"]), sd)
    return values


def published_cell(row: Mapping[str, str]) -> Cell:
    """Return the cell of a line of the published numbers."""
    source = row["data"].replace("product5", "product")
    trained_on: tuple[str, ...] = ()
    if row["artefact"] == "image-transfer":
        # All of them are tested on images; the file names the four training surfaces.
        source, trained_on = "images", tuple(sorted(source.split("+")))
    return Cell(
        source,
        float(row["context"] or 0),
        row["method"],
        row["kernel"],
        row["setting"],
        trained_on=trained_on,
    )
