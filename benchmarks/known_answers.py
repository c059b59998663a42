"""Compare with other methods on shapes whose classes are known, with few labels.

Spirals, rings, circles, spheres, helices, sheets in stripes, moons and blobs, with 2 and 5
labels per class. Every method gets the same points and labels in the same run and is scored
on the unlabelled points. The peers read the coordinates with one common scale, which suits
these shapes. Prints a table of mean accuracies, with our mean minus that of the best peer
of each line, and as its last line the same as JSON. Takes some minutes.

    python benchmarks/known_answers.py [--quick] [--draws 10] [--points 600]
        [--shapes NAME ...] [--labels 2 5] [--workers 1] [--output FILE]
"""

import argparse
import json
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from icssl import ICSSLClassifier
from icssl.classifier.weights import weights_id
from icssl.episodes.episode import Episode
from icssl.methods.propagation import PoissonLearning
from processes import map_in_processes

OURS = "icssl"


def spirals(arms, turns=1.5):
    """Return a shape of spiral arms around one centre, in two dimensions."""

    def sample(n, rng):
        truth = np.arange(n) % arms
        # The root of a uniform number spreads points evenly along an arm, not by angle.
        radius = np.sqrt(rng.uniform(0.04, 1.0, n))
        angle = 2 * np.pi * (turns * radius + truth / arms)
        x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return x + rng.normal(scale=0.015, size=x.shape), truth

    return sample


def interlocked_rings(n, rng):
    """Sample two linked rings in three dimensions."""
    truth = np.arange(n) % 2
    angle = rng.uniform(0, 2 * np.pi, n)
    first = np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], axis=1)
    second = np.stack([1 + np.cos(angle), np.zeros(n), np.sin(angle)], axis=1)
    x = np.where(truth[:, None] == 0, first, second)
    return x + rng.normal(scale=0.06, size=x.shape), truth


def concentric(dimension, radii, noise):
    """Return a shape of circles or spheres around one centre."""

    def sample(n, rng):
        sizes = np.asarray(radii)
        # Shares by area, so that all of them are equally dense.
        share = sizes ** (dimension - 1) / (sizes ** (dimension - 1)).sum()
        truth = np.repeat(np.arange(len(radii)), np.round(share * n).astype(int))
        x = rng.normal(size=(len(truth), dimension))
        x *= (sizes[truth] / np.linalg.norm(x, axis=1))[:, None]
        return x + rng.normal(scale=noise, size=x.shape), truth

    return sample


def helices(strands, turns=2.0):
    """Return a shape of strands that wind around one axis, in three dimensions."""

    def sample(n, rng):
        truth = np.arange(n) % strands
        height = rng.uniform(0, 1, n)
        angle = 2 * np.pi * (turns * height + truth / strands)
        x = np.stack([np.cos(angle), np.sin(angle), 2 * turns * height], axis=1)
        return x + rng.normal(scale=0.06, size=x.shape), truth

    return sample


def s_curve_stripes(n, rng):
    """Sample three stripes along a sheet that is bent like an S."""
    position = rng.uniform(-1, 1, n)
    angle = 1.5 * np.pi * position
    x = np.stack(
        [np.sin(angle), rng.uniform(0, 2, n), np.sign(angle) * (np.cos(angle) - 1)], axis=1
    )
    return x + rng.normal(scale=0.03, size=x.shape), stripes(position, -1, 1, 3)


def swiss_roll_stripes(n, rng):
    """Sample four stripes along a rolled sheet."""
    low, high = 1.5 * np.pi, 4.5 * np.pi
    angle = np.sqrt(rng.uniform(low**2, high**2, n))
    x = np.stack(
        [angle * np.cos(angle), rng.uniform(0, 20, n), angle * np.sin(angle)], axis=1
    )
    return x + rng.normal(scale=0.2, size=x.shape), stripes(angle**2, low**2, high**2, 4)


def stripes(position, low, high, count):
    """Return the number of the stripe of each position; all stripes are equally wide."""
    share = (position - low) / (high - low)
    return np.minimum((share * count).astype(int), count - 1)


def two_moons(n, rng):
    """Sample two half circles that reach into each other."""
    truth = np.arange(n) % 2
    angle = rng.uniform(0, np.pi, n)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    x = np.where(truth[:, None] == 0, upper, lower)
    return x + rng.normal(scale=0.08, size=x.shape), truth


def blobs(n, rng):
    """Sample five round clusters in five dimensions."""
    truth = np.arange(n) % 5
    centres = rng.uniform(-10, 10, size=(5, 5))
    return centres[truth] + rng.normal(size=(n, 5)), truth


SHAPES = {
    "two spirals": spirals(2),
    "three spirals": spirals(3, turns=1.0),
    "interlocked rings": interlocked_rings,
    "concentric circles": concentric(2, (1.0, 2.0, 3.0), 0.08),
    "concentric spheres": concentric(3, (1.0, 2.0), 0.08),
    "S-curve in stripes": s_curve_stripes,
    "Swiss roll in stripes": swiss_roll_stripes,
    "double helix": helices(2),
    "long double helix": helices(2, turns=5.0),
    "triple helix": helices(3),
    "two moons": two_moons,
    "blobs": blobs,
}


def draw_shape(name, points, labels_per_class, seed):
    """Draw a shape and its labels.

    Parameters
    ----------
    name : str
        A name of ``SHAPES``.
    points, labels_per_class, seed : int
        The points do not depend on the number of labels, and the labels of a larger number
        contain those of a smaller one.

    Returns
    -------
    x : ndarray of shape (n, d)
    truth : ndarray of shape (n,)
        Classes of all points.
    y : ndarray of shape (n,)
        Classes of the labelled points, -1 elsewhere.
    """
    rng = np.random.default_rng([seed, list(SHAPES).index(name)])
    x, truth = SHAPES[name](points, rng)
    order = rng.permutation(len(x))
    x, truth = x[order], truth[order]
    y = np.full(len(x), -1)
    for c in np.unique(truth):
        y[np.flatnonzero(truth == c)[:labels_per_class]] = c
    return x, truth, y


def common_scale(x):
    """Return centred points, all coordinates divided by one number."""
    centred = x - x.mean(axis=0)
    return centred / np.sqrt(np.mean(centred**2))


def predict_icssl(x, y):
    """Predict with all defaults, from the points as they are."""
    return ICSSLClassifier().fit(x, y).transduction_


def predict_poisson(x, y):
    """Predict by Poisson learning on the graph of ten neighbours."""
    method = PoissonLearning(neighbours=10)
    scores = method(Episode.single(x, y, y >= 0, n_classes=int(y.max()) + 1))
    return scores[0].argmax(dim=-1).numpy()


def predict_spreading(**settings):
    """Return a method that spreads labels on one kind of graph."""

    def predict(x, y):
        model = LabelSpreading(max_iter=1000, **settings)
        return model.fit(common_scale(x), y).transduction_

    return predict


def predict_supervised(make):
    """Return a method that reads the labelled points alone."""

    def predict(x, y):
        x = common_scale(x)
        return make().fit(x[y >= 0], y[y >= 0]).predict(x)

    return predict


METHODS = {
    OURS: predict_icssl,
    "poisson": predict_poisson,
    "spread knn": predict_spreading(kernel="knn", n_neighbors=7, alpha=0.95),
    "spread rbf": predict_spreading(kernel="rbf", gamma=20, alpha=0.95),
    "svc": predict_supervised(lambda: SVC(C=10)),
    "1-nn": predict_supervised(lambda: KNeighborsClassifier(n_neighbors=1)),
}


def measure(line, draws, points):
    """Return accuracies of every method on a shape with some labels, and its seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _measure(line, draws, points)


def _measure(line, draws, points):
    name, labels_per_class = line
    accuracies = {method: [] for method in METHODS}
    seconds = dict.fromkeys(METHODS, 0.0)
    for seed in range(draws):
        x, truth, y = draw_shape(name, points, labels_per_class, seed)
        hidden = y == -1
        for method, predict in METHODS.items():
            began = time.perf_counter()
            predicted = predict(x, y)
            seconds[method] += time.perf_counter() - began
            accuracies[method].append(float((predicted == truth)[hidden].mean()))
    return accuracies, seconds


def summarise(name, labels_per_class, accuracies):
    """Return one line of the table: means, the best peer, and our mean minus its mean."""
    means = {method: float(np.mean(each)) for method, each in accuracies.items()}
    best = max((m for m in means if m != OURS), key=means.get)
    gaps = np.subtract(accuracies[OURS], accuracies[best])
    error = float(gaps.std(ddof=1) / len(gaps) ** 0.5) if len(gaps) > 1 else None
    return {
        "shape": name,
        "labels": labels_per_class,
        "accuracy": {method: round(mean, 4) for method, mean in means.items()},
        "best_peer": best,
        "minus_best": round(means[OURS] - means[best], 4),
        "standard_error": None if error is None else round(error, 4),
    }


def print_line(line):
    """Print one line of the table."""
    cells = "".join(f"{mean:>11.3f}" for mean in line["accuracy"].values())
    gap = f"{line['minus_best']:+.3f}"
    print(f"{line['shape']:<23}{line['labels']:>6}{cells}{gap:>9}", flush=True)


def main():
    """Measure every shape and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="Two draws of 200 points.")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--points", type=int, default=600)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--labels", nargs="+", type=int, default=[2, 5])
    parser.add_argument("--workers", type=int, default=1, help="Processes.")
    parser.add_argument("--output", type=Path, help="File for the JSON line.")
    options = parser.parse_args()
    draws, points = (2, 200) if options.quick else (options.draws, options.points)
    header = "".join(f"{method:>11}" for method in METHODS)
    print(f"{'shape':<23}{'labels':>6}{header}{'- best':>9}", flush=True)
    lines, seconds = [], dict.fromkeys(METHODS, 0.0)
    pairs = list(product(options.shapes, options.labels))
    run = partial(measure, draws=draws, points=points)
    measured = map_in_processes(run, pairs, options.workers)
    for pair, (accuracies, spent) in zip(pairs, measured, strict=True):
        lines.append(summarise(*pair, accuracies))
        print_line(lines[-1])
        seconds = {method: seconds[method] + spent[method] for method in METHODS}
    fits = draws * len(lines)
    means = {m: np.mean([line["accuracy"][m] for line in lines]) for m in METHODS}
    summary = {
        "benchmark": "known_answers",
        "weights": weights_id(),
        "draws": draws,
        "points": points,
        "mean": {method: round(float(mean), 4) for method, mean in means.items()},
        "worst_gap": min(line["minus_best"] for line in lines),
        "fit_seconds": {m: round(spent / fits, 4) for m, spent in seconds.items()},
        "lines": lines,
    }
    line = json.dumps(summary)
    if options.output is not None:
        options.output.write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
