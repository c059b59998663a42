"""The classifier by rows and backend: seconds, memory beside its estimate, accuracy.

Eight classes in 20 columns, ten labels a class, in one view and in all, with every backend;
each case in a process of its own, so that its peak memory is its own. Seconds are those of
the processor, of all threads together, since other work may run beside; with one thread
and nothing beside, they are those of the clock. Then how far the sparse backend is from the
dense one, by the neighbours that it keeps, on tables of scikit-learn. Writes
results/benchmark-scale-classifier.json and ends in the same JSON as one line. About ten
minutes.

    OMP_NUM_THREADS=1 python benchmarks/scale_classifier.py [--sizes 2000,5000]
        [--backends dense,exact,sparse] [--models "one view,all views"] [--kept 16,64]
        [--draws 3] [--root FOLDER]
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)

from icssl import ICSSLClassifier
from icssl.context.backends import Backend, Size, needed_memory
from icssl.estimator import MODELS
from icssl.weights.released import weights_id

COLUMNS, CLASSES, LABELS, NEW = 20, 8, 10, 1_000
SLOW_ROWS = 10_000  # more are not measured with backends that compare all with all
TABLES = {
    "digits": load_digits,
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "iris": load_iris,
}
SURE = 0.7


def few_labels(truth, per_class, seed):
    """All but so many of each class hidden."""
    rng, y = np.random.default_rng(seed), np.full(len(truth), -1)
    for c in np.unique(truth):
        y[rng.choice(np.flatnonzero(truth == c), per_class, replace=False)] = c
    return y


def clusters(n):
    """Two clusters a class; ten columns say something, five repeat them."""
    return make_classification(
        n,
        COLUMNS,
        n_informative=COLUMNS // 2,
        n_redundant=COLUMNS // 4,
        n_classes=CLASSES,
        n_clusters_per_class=2,
        class_sep=2.0,
        random_state=0,
    )


def peak():
    """Most memory that the process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(n, model, backend, threads):
    """One fit, and new rows."""
    torch.set_num_threads(threads)
    x, truth = clusters(n + NEW)
    x, new, truth, truth_new = x[:n], x[n:], truth[:n], truth[n:]
    small = few_labels(truth[:500], 2, 0)
    ICSSLClassifier(backend=backend).fit(x[:500], small)  # loads what is needed
    y, before = few_labels(truth, LABELS, 0), peak()
    began, clock = time.process_time(), time.perf_counter()
    found = ICSSLClassifier(model, backend=backend).fit(x, y)
    fitted, end = time.process_time(), time.perf_counter()
    predicted = found.predict(new)
    hidden = y == -1
    size = Size(n, COLUMNS, len(MODELS[model]), CLASSES * LABELS, CLASSES)
    return {
        "n": n,
        "model": model,
        "backend": found.backend_,
        "seconds": round(fitted - began, 2),
        "clock_seconds": round(end - clock, 2),
        "new_microseconds": round(1e6 * (time.process_time() - fitted) / NEW),
        "megabytes": round((peak() - before) / 1e6),
        "estimated_megabytes": round(needed_memory(Backend(backend), size) / 1e6),
        "accuracy": round(float((found.transduction_ == truth)[hidden].mean()), 4),
        "accuracy_new": round(float((predicted == truth_new).mean()), 4),
    }


def compare(name, kept, draws):
    """The sparse backend beside the dense one, on one table."""
    x, truth = TABLES[name](return_X_y=True)
    rows = {k: [] for k in kept}
    for per_class in (1, 5, 10):
        for seed in range(draws):
            y = few_labels(truth, per_class, seed)
            hidden = y == -1
            dense = ICSSLClassifier(backend="dense").fit(x, y)
            p = dense.label_distributions_[hidden]
            right = (dense.transduction_ == truth)[hidden].mean()
            for k in kept:
                thin = ICSSLClassifier(backend="sparse", n_neighbors=k).fit(x, y)
                q = thin.label_distributions_[hidden]
                gain = (thin.transduction_ == truth)[hidden].mean() - right
                same, sure = p.argmax(1) == q.argmax(1), p.max(1) >= SURE
                moved = np.abs(p - q).max(1)
                rows[k].append(
                    [same[sure].mean(), same.mean(), moved.mean(), moved.max(), gain]
                )
    keys = ("sure_agree", "agree", "moved", "moved_most", "gain")
    return [
        {"table": name, "kept": k, "worst_gain": round(float(np.min(each, 0)[-1]), 4)}
        | {
            key: round(float(v), 4)
            for key, v in zip(keys, np.mean(each, axis=0), strict=True)
        }
        for k, each in rows.items()
    ]


def cases(options):
    """Sizes, models and backends, less what would take too long."""
    return [
        (n, model, backend, torch.get_num_threads())
        for n in map(int, filter(None, options.sizes.split(",")))
        for model in options.models.split(",")
        for backend in options.backends.split(",")
        if n <= SLOW_ROWS or backend == "sparse" or model == "one view"
    ]


def main():
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="2000,5000,10000,20000")
    parser.add_argument("--backends", default="dense,exact,sparse")
    parser.add_argument("--models", default="one view,all views")
    parser.add_argument("--kept", default="16,32,64,96")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    context, rows = multiprocessing.get_context("spawn"), []
    for case in cases(options):
        with context.Pool(1) as pool:
            rows.append(pool.apply(measure, case))
        print(*rows[-1].values(), sep="\t", flush=True)
    compared, kept = [], [int(k) for k in filter(None, options.kept.split(","))]
    for name in TABLES if kept else ():
        compared += compare(name, kept, options.draws)
        print(*(row.values() for row in compared[-len(kept) :]), sep="\n", flush=True)
    summary = {"benchmark": "scale-classifier", "weights": weights_id()}
    summary["threads"] = torch.get_num_threads()
    line = json.dumps({**summary, "rows": rows, "compared": compared})
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-scale-classifier.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
