"""Check what the released weights must be able to do, and how long a fit takes.

Measures the accuracy on unlabelled rows where the answer is known: blobs, two moons from
one label per class, linear classes compared with logistic regression, digits. Then measures
the time of a fit of 1,000 rows and 20 columns, compared with label spreading and, where
scripts/fetch_tabpfn.py has fetched it, TabPFN v1, and of the import. Writes
results/benchmark-classifier.json and prints the same JSON as its last line. Takes a minute
or two.

    python benchmarks/classifier.py [--draws 10] [--repeats 5] [--root FOLDER]
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
TASKS |= {f"digits, {m} a class": digits(m) for m in (1, 2, 5)}


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


def seconds(repeats):
    """Return the median time of a fit, ours and those of the peers in turns."""
    x, truth = make_classification(1000, 20, n_informative=8, n_classes=3, random_state=0)
    y = few_labels(truth, 10, np.random.default_rng(0))
    fits = {**FITS, "TabPFN v1": fit_tabpfn} if has_tabpfn() else FITS
    times = {name: [] for name in fits}
    for _ in range(repeats + 1):
        for name, fit in fits.items():
            began = time.perf_counter()
            fit(x, y)
            times[name].append(time.perf_counter() - began)
    return {name: round(median(each[1:]), 4) for name, each in times.items()}


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
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    found = {
        "benchmark": "classifier",
        "weights": weights_id(),
        "accuracy": accuracies(options.draws),
        "fit_seconds": seconds(options.repeats),
        "import_seconds": import_seconds(options.repeats),
    }
    line = json.dumps(found)
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-classifier.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
