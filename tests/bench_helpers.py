"""Toy specs and a toy profile for tests of the bench, and rows that were not measured."""

import csv
from pathlib import Path

import torch

import icssl.bench.paper
from helpers import toy_config
from icssl.bench.paper.artefact import Profile
from icssl.bench.paper.catalogue import ARTEFACTS
from icssl.bench.probes import EIG, Alignment
from icssl.bench.spec import Scores
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.metrics import METRIC_NAMES, interval

SPHERE = DataConfig(("sphere",), n=20)
FIRST, SECOND = (toy_config("transformer", "steps=5", f"seed={i}") for i in range(2))
OTHER = toy_config("orig_icl", "steps=5")
FEW = {"episodes": 4, "tuning": 3}


def toy_specs():
    """Seven of them, from three models of two architectures, and two without any."""
    return [
        Scores("transformer", SPHERE, 3, (FIRST, SECOND), **FEW),
        Scores("transformer", SPHERE, 5, (FIRST, SECOND), **FEW),
        Scores("transformer", SPHERE, 3, (FIRST,), **FEW),
        Scores("orig_icl", SPHERE, 3, (OTHER,), **FEW),
        Alignment(EIG, OTHER, SPHERE, 3, episodes=4),
        Scores("majority", SPHERE, 3, **FEW),
        Scores("nearest_neighbour", SPHERE, 3, **FEW),
    ]


def without_time(row):
    """A row without what differs between two runs of the same spec."""
    return {name: value for name, value in row.items() if name != "seconds"}


TOY_PROFILE = Profile(
    name="toy",
    note="Profile toy: nothing at all was learned.",
    judges=True,
    features="digits",
    seeds=1,
    runs=2,
    steps=1,
    batch=2,
    encoder_steps=1,
    hard_steps=1,
    eigenvector_episodes=4,
    image_episodes=2,
    episodes=3,
    tuning=2,
    budgets=(3, 39),
    product_budgets=(3,),
    sizes=(2, 4),
    iterations=3,
    literal_steps=1,
    literal_batch=2,
)
WITH_SPECS = [name for name, artefact in ARTEFACTS.items() if artefact.specs(TOY_PROFILE)]


def published_rows(artefact):
    """What the paper printed for one artefact, read without the package's reader."""
    path = Path(icssl.bench.paper.__file__).parent / "paper_values.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["artefact"] == artefact]
    assert len(rows) > 5
    return rows


def row_with(mean, *, majority=0.5, spread=0.01, seeds=1, undertrained=None):
    """A row of scores around a mean."""
    values = mean + spread * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    found = interval(values)
    each = {"mean": found.mean, "half_width": found.half_width}
    row = {
        "metrics": dict.fromkeys(METRIC_NAMES, each),
        "seeds": [mean] * seeds,
        "accuracies": values.tolist(),
        "majority_rate": majority,
        "settings": "",
    }
    return row if undertrained is None else row | {"undertrained": undertrained}


def aligned(value, separation=0.3):
    each = {"mean": value, "half_width": 0.001}
    apart = {"mean": separation, "half_width": 0.001}
    names = ("mutual_knn", "cycle_knn", "cycle_share_knn", "lcs_knn")
    measures = dict.fromkeys(names, each)
    both = dict.fromkeys(("separation_first", "separation_second"), apart)
    return {"measures": measures | both}


def looked_into(spec):
    """A row of :class:`Mechanism`."""
    heads, count = [[0.5, 0.25], [1.0, 2.0]], len(spec.trainings)
    stage1 = {"bandwidth": heads, "attracts": [[True, False]] * 2, "mix": heads}
    line = {"f": [-1.0, 1.0], "mlp": [0.0, 0.5], "exact": [0.1, 0.4]}
    each = {"mean": 0.8125, "half_width": 0.01}
    return {
        "stage1": [{**stage1, "skip": [0.1, 0.2]}] * count,
        "stage2": [{"to_operator": [1.0, 0.5], "to_truth": [1.2, 0.7]}] * count,
        "stage3": [line] * count,
        "trained": [each] * count,
        "constructed": {"mean": 0.625, "half_width": 0.02},
    }


def made_up(spec, mean):
    """A row as the runner would have stored it."""
    if isinstance(spec, Scores):
        measured = row_with(mean, seeds=max(1, len(spec.trainings)))
    elif isinstance(spec, Alignment):
        measured = aligned(mean)
    else:
        measured = looked_into(spec)
    row = {"key": spec.key, "spec": spec.describe(), **measured}
    if spec.trainings:
        count = len(spec.trainings)
        row |= {"held_out_loss": [0.5] * count, "slope": [0.0] * count}
        row |= {"episodes_seen": 2, "undertrained": False}
    made_with = {"device": "a CPU", "torch": "2", "version": "0", "commit": "c"}
    return row | {"seconds": 1.0} | made_with
