"""Check what the released weights must be able to do, and how long a fit takes.

Measures the accuracy on unlabelled rows where the answer is known: blobs, two moons from
one label per class, linear classes compared with logistic regression, digits. Then measures
the time of fits of 1,000 and of 20,000 rows and 20 columns, compared with label spreading
and, where scripts/fetch_tabpfn.py has fetched it and rows are few, TabPFN v1, and of the
import. Writes results/benchmark-classifier.json and prints the same JSON as its last line.
Takes a few minutes.

    python benchmarks/classifier.py [--draws 10] [--repeats 5] [--many-rows 20000]
        [--root FOLDER]
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, make_blobs, make_classification, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from icssl import ICSSLClassifier
from icssl.classifier.weights import weights_id
from icssl.methods.peers import Context
from icssl.methods.registry import recipe_of
from icssl.methods.tabpfn import has_tabpfn


def few_labels(truth, per_class, rng):
    """Return labels in which all but ``per_class`` rows of each class are hidden."""
    y = np.full(len(truth), -1)
    for c in np.unique(truth):
        y[rng.choice(np.flatnonzero(truth == c), per_class, replace=False)] = c
    return y


def score(predicted, truth, y):
    """Return the accuracy on the rows without a label."""
    return float((predicted == truth)[y == -1].mean())


def ours(x, truth, per_class, rng):
    """Return the accuracy of the classifier."""
    y = few_labels(truth, per_class, rng)
    return score(ICSSLClassifier().fit(x, y).transduction_, truth, y)


def blobs(rng, seed):
    """Measure five clusters with one label each."""
    x, truth = make_blobs(300, 5, centers=5, cluster_std=0.5, random_state=seed)
    return {"ours": ours(x, truth, 1, rng)}


def moons(rng, seed):
    """Measure two moons with one label each."""
    x, truth = make_moons(300, noise=0.06, random_state=seed)
    return {"ours": ours(x, truth, 1, rng)}


def linear(rng, seed):
    """Measure classes by the sign of a linear score, with ten labels each."""
    x = rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8))
    truth = (x @ rng.normal(size=8) > 0).astype(int)
    y = few_labels(truth, 10, rng)
    z = StandardScaler().fit_transform(x)
    peer = LogisticRegression().fit(z[y != -1], y[y != -1])
    found = ICSSLClassifier().fit(x, y).transduction_
    return {"ours": score(found, truth, y), "peer": score(peer.predict(z), truth, y)}


def digits(per_class):
    """Measure a thousand digits."""

    def measure(rng, seed):
        x, truth = load_digits(return_X_y=True)
        rows = rng.permutation(len(x))[:1000]
        return {"ours": ours(x[rows], truth[rows], per_class, rng)}

    return measure


TASKS = {"blobs": blobs, "moons": moons, "linear": linear}
TASKS |= {f"digits, {m} per class": digits(m) for m in (1, 2, 5)}


def accuracies(draws):
    """Return the means over draws."""
    found = {}
    for name, measure in TASKS.items():
        each = [measure(np.random.default_rng(seed), seed) for seed in range(draws)]
        keys = each[0].keys()
        found[name] = {
            key: round(float(np.mean([e[key] for e in each])), 4) for key in keys
        }
        print(f"{name:>20}", found[name], flush=True)
    return found


def fit_tabpfn(x, y):
    """Predict all rows by TabPFN v1, with the settings of ``icssl bench real``."""
    context = Context(pd.DataFrame(x), np.maximum(y, 0), y >= 0, int(y.max()) + 1)
    recipe_of("real", "tabpfn").method(context, seed=0)


FITS = {
    "ours": lambda x, y: ICSSLClassifier().fit(x, y),
    "label spreading": lambda x, y: LabelSpreading().fit(x, y),
    "label spreading, knn": lambda x, y: LabelSpreading(kernel="knn").fit(x, y),
}


def time_fits(n, fits, repeats):
    """Return median seconds of a fit of ``n`` x 20, and of processors, taken in turns."""
    x, truth = make_classification(n, 20, n_informative=8, n_classes=3, random_state=0)
    y = few_labels(truth, 10, np.random.default_rng(0))
    times = {name: [] for name in fits}
    for _ in range(repeats + 1):  # the first warms up
        for name, fit in fits.items():
            began, worked = time.perf_counter(), time.process_time()
            fit(x, y)
            elapsed = time.perf_counter() - began, time.process_time() - worked
            times[name].append(elapsed)
    return {
        name: [round(median(column), 4) for column in zip(*each[1:], strict=True)]
        for name, each in times.items()
    }


def seconds(repeats, many_rows):
    """Return seconds of small and of large fits: [elapsed, of processors]."""
    small = {**FITS, "TabPFN v1": fit_tabpfn} if has_tabpfn() else FITS
    # Label spreading with a Gaussian kernel holds a matrix of all rows.
    large = {name: FITS[name] for name in ("ours", "label spreading, knn")}
    return {
        "1,000 x 20": time_fits(1000, small, repeats),
        f"{many_rows:,} x 20": time_fits(many_rows, large, min(repeats, 2)),
    }


def import_seconds(repeats):
    """Return the seconds that importing the classifier adds to torch and scikit-learn."""
    code = (
        "import torch, sklearn.semi_supervised, time; t = time.perf_counter(); "
        "from icssl import ICSSLClassifier; print(time.perf_counter() - t)"
    )
    run = [sys.executable, "-c", code]
    outputs = [
        subprocess.run(run, capture_output=True, text=True, check=True).stdout
        for _ in range(repeats)
    ]
    return round(median(map(float, outputs)), 4)


def main():
    """Measure everything and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5, help="Repeats per time.")
    parser.add_argument("--many-rows", type=int, default=20_000, help="Of a large fit.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    found = {
        "benchmark": "classifier",
        "weights": weights_id(),
        "accuracy": accuracies(options.draws),
        "fit_seconds": seconds(options.repeats, options.many_rows),
        "import_seconds": import_seconds(options.repeats),
    }
    line = json.dumps(found)
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-classifier.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
