"""Compare the memory that each backend of the classifier uses with its estimate.

The tables have eight classes in 20 columns and ten labels per class, as in ``icssl bench
scale``, which compares other methods. Every case runs in its own process, so that its peak
memory can be measured; memory that the process had before, including the table, is not
counted. ``cpu_seconds`` is processor time of all threads together; ``seconds`` is wall
time, which is longer if other work runs at the same time. Backends that compare all rows
with all rows stop at 10,000 rows. Writes results/benchmark-scale-classifier.json and prints
the same JSON as its last line. Takes some minutes on two free cores.

    python benchmarks/scale_classifier.py [--sizes 2000,10000,100000]
        [--backends sparse,dense,exact] [--models "one view,all views"] [--threads 2]
        [--root FOLDER]
"""

import argparse
import json
import time
from pathlib import Path

import torch

from icssl import ICSSLClassifier
from icssl.bench.pool import run_in_subprocess
from icssl.bench.scale.cost import (
    CLASSES,
    COLUMNS,
    clusters,
    few_labels,
    track_memory,
)
from icssl.classifier.graphs import Backend
from icssl.classifier.plan import BACKENDS, MODELS, Size, needed_memory
from icssl.classifier.weights import weights_id

LABELS, NEW = 10, 1_000
MOST_ROWS = {"dense": 10_000, "exact": 10_000}


def measure(n, backend, model, threads):
    """Measure one fit, and the prediction of new rows."""
    torch.set_num_threads(threads)
    x, truth = clusters(n + NEW)
    x, new, truth, truth_new = x[:n], x[n:], truth[:n], truth[n:]
    classifier = ICSSLClassifier(model, backend=backend, device="cpu")
    classifier.fit(x[:500], few_labels(truth[:500], 2, 0))  # loads what is needed
    y = few_labels(truth, LABELS, 0)
    with track_memory() as memory:
        began, clock = time.process_time(), time.perf_counter()
        classifier.fit(x, y)
        fitted, end = time.process_time(), time.perf_counter()
    predicted = classifier.predict(new)
    asked, hidden = time.process_time() - fitted, y == -1
    size = Size(n, COLUMNS, MODELS[model], CLASSES * LABELS, CLASSES)
    return {
        "n": n,
        "backend": backend,
        "model": model,
        "seconds": round(end - clock, 2),
        "cpu_seconds": round(fitted - began, 2),
        "new_microseconds": round(1e6 * asked / NEW),
        "megabytes": round(memory["added"] / 1e6),
        "estimated_megabytes": round(needed_memory(Backend(backend), size) / 1e6),
        "whole_megabytes": round(memory["whole"] / 1e6),
        "accuracy": round(float((classifier.transduction_ == truth)[hidden].mean()), 4),
        "accuracy_new": round(float((predicted == truth_new).mean()), 4),
    }


def cases(options):
    """Return sizes, backends and models, without those that would take too long."""
    return [
        (n, backend, model, options.threads)
        for n in map(int, options.sizes.split(","))
        for backend in options.backends.split(",")
        for model in options.models.split(",")
        if n <= MOST_ROWS.get(backend, n)
    ]


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="2000,10000,100000")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--models", default="one view,all views")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    rows = []
    for case in cases(options):
        rows.append(run_in_subprocess(measure, *case))
        print(*rows[-1].values(), sep="\t", flush=True)
    summary = {"benchmark": "scale-classifier", "weights": weights_id()}
    summary["threads"] = options.threads
    line = json.dumps({**summary, "rows": rows})
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-scale-classifier.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
