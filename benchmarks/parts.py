"""Measure what each part of the classifier gives, on the development half of the real data.

Every variant leaves out or replaces one part of the released classifier: a geometry, the
graphs of few neighbours, the linear head, the estimate of the class shares, the corrections
of the gate. All variants see the same contexts and are scored on the unlabelled rows.
Contexts are of three kinds. "per-class" and "random" are the protocols of
``icssl bench real``. "uneven" tables are subsampled so that class shares are uneven (two
classes: a minority of 5 to 50%; more: uniform among all shares, each at least 3%), and have
as many labels of each class. Prints one table per kind of context, and as its last line the
same as JSON. Two draws take a quarter of an hour on one core.

    python benchmarks/parts.py [--draws 2] [--kinds per-class random uneven] [--labels 1 2]
        [--sets NAME ...] [--data data/real] [--workers 1] [--json FILE]
"""

import argparse
import json
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from icssl._util.random import generator_for
from icssl.bench.real.cells import calibration_of, cells_of
from icssl.bench.real.comparisons import difference
from icssl.bench.real.datasets import HALVES, LABELS, PROTOCOLS, draw_context, read_set
from icssl.bench.real.scores import score
from icssl.classifier.class_shares import prior_for
from icssl.classifier.context_features import features_of_tables
from icssl.classifier.gate import HEADS
from icssl.classifier.geometry import Units
from icssl.classifier.graphs import FEW_NEIGHBOURS
from icssl.classifier.kernels import GEOMETRIES
from icssl.classifier.plan import dtype_for
from icssl.classifier.weights import released_model, weights_id
from icssl.tables.columns import ColumnEncoder
from processes import map_in_processes

RELEASED = "released"
METRICS = ("accuracy", "balanced_accuracy", "log_loss")
UNEVEN = "uneven"
KINDS = (*PROTOCOLS, UNEVEN)
MOST_ROWS = 600  # of an uneven context
LEAST_MINORITY = 0.05
LEAST_SHARE = 0.03
LEAST_ROWS = max(LABELS) + 1  # of a class: so that one row stays hidden


def uneven_shares(n_classes, rng):
    """Draw class shares: of two classes a log-uniform minority, else a flat Dirichlet."""
    if n_classes == 2:
        minority = np.exp(rng.uniform(np.log(LEAST_MINORITY), np.log(0.5)))
        return rng.permutation([minority, 1 - minority])
    shares = np.maximum(rng.dirichlet(np.ones(n_classes)), LEAST_SHARE)
    return shares / shares.sum()


def subsample(table, rng):
    """Return rows of a set such that its classes have uneven shares."""
    _, y = np.unique(table["target"], return_inverse=True)
    counts = np.bincount(y)
    shares = uneven_shares(len(counts), rng)
    rows = min(MOST_ROWS, int((counts / shares).min()))
    wanted = np.clip((rows * shares).round().astype(int), LEAST_ROWS, counts)
    places = [
        rng.choice(np.flatnonzero(y == c), count, replace=False)
        for c, count in enumerate(wanted)
    ]
    return table.iloc[np.sort(np.concatenate(places))].reset_index(drop=True)


def context_of(folder, name, kind, draw, labels):
    """Return one context; the rows are the same for all label counts."""
    table = read_set(folder, name)
    if kind != UNEVEN:
        return draw_context(table, name, draw, labels, kind)
    seed = generator_for(draw, f"uneven {name}").initial_seed()
    return draw_context(subsample(table, np.random.default_rng(seed)), name, draw, labels)


class Reader:
    """Computes the features of one context, in any geometry and with any graphs."""

    def __init__(self, context, k):
        n, self.k, self.n_classes = len(context.y), k, context.n_classes
        self.encoder = ColumnEncoder().fit(context.table)
        rows = self.encoder.transform(context.table)
        self.x = torch.as_tensor(rows, dtype=dtype_for(n, "cpu"))[None]
        self.y = torch.as_tensor(context.y)[None]
        self.labelled = torch.as_tensor(context.labelled)[None]

    def features(self, column_scale="auto", views="all views", few_neighbours=True):
        """Return features of geometries and views, with graphs of few neighbours or not."""
        units = Units.of_encoder(self.encoder, column_scale).to(self.x)
        graphs = [
            graph
            for graph in units.graphs(views)
            if few_neighbours or graph.neighbours != FEW_NEIGHBOURS
        ]
        return features_of_tables(
            self.x, self.y, self.labelled, self.n_classes, graphs, self.k, units=units
        )


def offer(features, heads):
    """Return features with which the gate may use some heads only."""
    allowed = torch.tensor([head in heads for head in HEADS])
    inputs = features.inputs
    return replace(features, inputs=inputs._replace(offered=inputs.offered & allowed))


def fit_variants(context):
    """Return the fitted variants of the classifier by name."""
    model = deepcopy(released_model())
    reader = Reader(context, model.config.k)
    model = model.to(reader.x)
    as_released = reader.features()
    features = {
        RELEASED: as_released,
        'column_scale="each"': reader.features("each"),
        'column_scale="common"': reader.features("common"),
        'model="main views"': reader.features(views="main views"),
        "without graphs of 6 neighbours": reader.features(few_neighbours=False),
        "without the linear head": offer(as_released, GEOMETRIES),
        "linear head alone": offer(as_released, ["linear"]),
    }
    fitted = {name: model.fit_features(part) for name, part in features.items()}
    released = fitted[RELEASED]
    trained = model.train().fit_features(as_released)  # which corrects nothing
    as_trained = {
        "heads": {
            name: getattr(trained, name) for name in ("mixture", "weights", "coefficients")
        },
        "confidence": {"sharpness": trained.sharpness},
        "shares": {"shares": trained.shares},
    }
    for part, values in as_trained.items():
        fitted[f"{part} as trained"] = replace(released, **values)
    return {**fitted, "without corrections": trained}


def measure(task, folder):
    """Return one row of scores per variant, for one context."""
    kind, draw, name, labels = task
    context = context_of(folder, name, kind, draw, labels)
    with torch.no_grad():
        fitted = fit_variants(context)
        logits = {
            variant: each.predict_context().logits[0] for variant, each in fitted.items()
        }
    logs = {
        variant: each + fitted[variant].shares[0].log() for variant, each in logits.items()
    }
    counts = np.bincount(context.y[context.labelled]).astype(float)
    classes = np.arange(context.n_classes)
    true_shares = np.bincount(context.y) / len(context.y)
    for title, prior in (
        ("uniform", "uniform"),
        ("labels", "labels"),
        ("true shares", true_shares),
    ):
        shares = torch.as_tensor(prior_for(prior, counts, classes))
        logs[f"class_prior: {title}"] = logits[RELEASED] + shares.log()
    about = {"kind": kind, "draw": draw, "set": name, "labels": labels}
    return [
        {**about, "method": variant, **score(each.double().softmax(-1).numpy(), context)}
        for variant, each in logs.items()
    ]


def summarise(rows):
    """Return one line per variant: means, accuracy by labels and set, and what was lost."""
    table = pd.DataFrame(rows)
    cells = {metric: cells_of(table, metric) for metric in METRICS}
    calibration = calibration_of(table)
    accuracy = cells["accuracy"]
    by_labels, by_set = (
        accuracy.groupby(level=level, sort=False).mean() for level in ("labels", "set")
    )
    lines = []
    for variant in accuracy.columns:
        line = {"variant": variant}
        line |= {metric: round(float(cells[metric][variant].mean()), 4) for metric in cells}
        line["ece"] = round(float(calibration[variant].mean()), 4)
        for name, means in (("by_labels", by_labels), ("by_set", by_set)):
            line[name] = {
                str(cell): round(float(mean), 4) for cell, mean in means[variant].items()
            }
        if variant != RELEASED:
            gap = difference(accuracy, variant, RELEASED).difference
            line["minus_released"] = [round(gap.mean, 4), round(gap.half_width, 4)]
        lines.append(line)
    return lines


def markdown(kind, lines):
    """Return the table of one kind of context."""
    counts = list(lines[0]["by_labels"])
    header = [kind, "accuracy", "- released", "balanced", "log-loss", "ECE", *counts]
    text = [header, ["---"] * len(header)]
    for line in lines:
        gap = line.get("minus_released")
        shown = "" if gap is None else f"{gap[0]:+.4f} ± {gap[1]:.4f}"
        numbers = [line["balanced_accuracy"], line["log_loss"], line["ece"]]
        numbers += [line["by_labels"][count] for count in counts]
        first = [line["variant"], f"{line['accuracy']:.4f}", shown]
        text.append(first + [f"{number:.3f}" for number in numbers])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in text)


def main():
    """Measure every variant on every context and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--labels", nargs="+", type=int, default=list(LABELS))
    development = HALVES["development"]
    parser.add_argument("--sets", nargs="+", choices=development, default=development)
    parser.add_argument("--data", type=Path, default=Path("data/real"))
    parser.add_argument("--workers", type=int, default=1, help="Processes.")
    parser.add_argument("--json", type=Path, help="File for the JSON line.")
    options = parser.parse_args()
    draws = range(options.draws)
    tasks = list(product(options.kinds, draws, options.sets, options.labels))
    work = partial(measure, folder=options.data)
    rows = [row for part in map_in_processes(work, tasks, options.workers) for row in part]
    found = {"benchmark": "parts", "weights": weights_id(), "draws": options.draws}
    found["kinds"] = {
        kind: summarise([row for row in rows if row["kind"] == kind])
        for kind in options.kinds
    }
    for kind, lines in found["kinds"].items():
        print(markdown(kind, lines), end="\n\n")
    line = json.dumps(found)
    if options.json is not None:
        options.json.write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
