"""Time how fast synthetic tables are drawn, kind by kind, as pretraining needs them.

Prints tables per second for every kind and for the mixture that is the default, with two
draws of labels for each table, then the same as JSON.

    python benchmarks/synthetic_tables.py [--device cuda] [--batch 64] [--batches 20]
"""

import argparse
import json
import time

import torch

from icssl._util.random import generator_for
from icssl.classifier.pretraining.synthetic_tables import KINDS, TaskSpec
from icssl.classifier.pretraining.table_classes import draw_labels


def draw_batch(spec, batch, step, device):
    """Draw one batch of tables, and labels by both protocols."""
    generator = generator_for(0, "benchmark", step, device=device)
    tables = spec.draw_tables(batch, generator=generator)
    for random in (False, True):
        draw_labels(tables.y, tables.n_classes, 5, random=random, generator=generator)


def tables_per_second(spec, batch, batches, device):
    """Return how many tables are drawn per second, after one batch that warms up."""
    draw_batch(spec, batch, 0, device)
    if device != "cpu":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for step in range(1, batches + 1):
        draw_batch(spec, batch, step, device)
    if device != "cpu":
        torch.cuda.synchronize()
    return batch * batches / (time.perf_counter() - began)


def main():
    """Measure every kind and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=20)
    options = parser.parse_args()
    specs = {"all": TaskSpec(), **{kind: TaskSpec(kinds=(kind,)) for kind in KINDS}}
    results = {}
    for name, spec in specs.items():
        rate = tables_per_second(spec, options.batch, options.batches, options.device)
        results[name] = round(rate)
        print(f"{name:16} {rate:8,.0f} tables per second", flush=True)
    print(json.dumps({"benchmark": "synthetic tables", **vars(options), "rates": results}))


if __name__ == "__main__":
    main()
