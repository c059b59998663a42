"""The classifier by rows and backend, and LabelSpreading beside it: time, memory, accuracy.

Eight classes in 20 columns, ten labels a class. Every case runs in a process of its own, so
that its peak memory is its own, which is given beside what the backend estimates; memory
that the process had before, with the table, is not in it. ``cpu_seconds`` are those of the
processor, of all threads together; ``seconds`` are those of the clock, and longer where
other work runs beside. Backends that compare all rows with all stop at 10,000 rows, and
LabelSpreading with a Gaussian kernel at 20,000. Writes
results/benchmark-scale-classifier.json and ends in the same JSON as one line. About five
minutes on two free cores; a million rows take about a quarter of an hour more.

    python benchmarks/scale_classifier.py [--sizes 2000,10000,100000]
        [--methods sparse,dense,exact,spreading_knn,spreading_rbf]
        [--models "one view,all views"] [--threads 2] [--root FOLDER]

``clusters`` and ``few_labels`` make the rows, ``METHODS`` are what is measured, and
``measured`` measures one of them in a process of its own.
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from icssl import ICSSLClassifier
from icssl.context.backends import BACKENDS, Backend, Size, needed_memory
from icssl.estimator import MODELS
from icssl.scale.bench import CLASSES, COLUMNS, clusters
from icssl.weights.released import weights_id

LABELS, NEW = 10, 1_000
MOST_ROWS = {"dense": 10_000, "exact": 10_000, "spreading_rbf": 20_000}


def few_labels(truth, per_class, seed):
    """All but so many of each class hidden."""
    rng, y = np.random.default_rng(seed), np.full(len(truth), -1)
    for c in np.unique(truth):
        y[rng.choice(np.flatnonzero(truth == c), per_class, replace=False)] = c
    return y


def ours(backend):
    """The classifier with one backend: something with ``fit`` of rows and labels."""
    return lambda model: ICSSLClassifier(model, backend=backend, device="cpu")


class Spreading(LabelSpreading):
    """LabelSpreading on standardised columns, as everyone would give them to it."""

    def fit(self, X, y):
        """Standardise, and fit."""
        self.scaler_ = StandardScaler().fit(X)
        return super().fit(self.scaler_.transform(X), y)

    def predict(self, X):
        """The classes of new rows."""
        return super().predict(self.scaler_.transform(X))


# Name: what makes the estimator, of the name of a model.
METHODS = {
    **{backend: ours(backend) for backend in BACKENDS},
    "spreading_knn": lambda _: Spreading(kernel="knn"),
    "spreading_rbf": lambda _: Spreading(kernel="rbf"),
}


def peak():
    """Most memory that the process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(n, method, model, threads):
    """One fit, and new rows."""
    torch.set_num_threads(threads)
    x, truth = clusters(n + NEW)
    x, new, truth, truth_new = x[:n], x[n:], truth[:n], truth[n:]
    make = METHODS[method]
    make(model).fit(x[:500], few_labels(truth[:500], 2, 0))  # loads what is needed
    y, before = few_labels(truth, LABELS, 0), peak()
    began, clock = time.process_time(), time.perf_counter()
    found = make(model).fit(x, y)
    fitted, end = time.process_time(), time.perf_counter()
    predicted = found.predict(new)
    asked, hidden = time.process_time() - fitted, y == -1
    size = Size(n, COLUMNS, len(MODELS.get(model, ())), CLASSES * LABELS, CLASSES)
    own = method in BACKENDS
    estimate = round(needed_memory(Backend(method), size) / 1e6) if own else None
    return {
        "n": n,
        "method": method,
        "model": model,
        "seconds": round(end - clock, 2),
        "cpu_seconds": round(fitted - began, 2),
        "new_microseconds": round(1e6 * asked / NEW),
        "megabytes": round((peak() - before) / 1e6),
        "estimated_megabytes": estimate,
        "whole_megabytes": round(peak() / 1e6),
        "accuracy": round(float((found.transduction_ == truth)[hidden].mean()), 4),
        "accuracy_new": round(float((predicted == truth_new).mean()), 4),
    }


def measured(*case):
    """:func:`measure` in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, case)


def cases(options):
    """Sizes, methods and models, less what would take too long."""
    return [
        (n, method, model, options.threads)
        for n in map(int, options.sizes.split(","))
        for method in options.methods.split(",")
        for model in (options.models.split(",") if method in BACKENDS else [""])
        if n <= MOST_ROWS.get(method, n)
    ]


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="2000,10000,100000")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--models", default="one view,all views")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    rows = []
    for case in cases(options):
        rows.append(measured(*case))
        print(*rows[-1].values(), sep="\t", flush=True)
    summary = {"benchmark": "scale-classifier", "weights": weights_id()}
    summary["threads"] = options.threads
    line = json.dumps({**summary, "rows": rows})
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-scale-classifier.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
