"""Draw docs/figures/wines.png: wine labelled from one label of each of three growers.

Two methods get the same labels, in forty random draws. The draw that is shown is the one
nearest to the mean accuracy of both, and the titles have the means. Prints these as JSON.

    python scripts/draw_wines.py [--draws 40] [--root FOLDER]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from icssl import ICSSLClassifier
from icssl._util.colours import COLOURS, principal_coordinates

COLOUR_OF = np.array(COLOURS[:3])
GREY = "#b0b0b0"


def draw_labels(truth, seed):
    """Return labels: one row of each class at random, and -1 for all others."""
    rng, y = np.random.default_rng(seed), np.full(len(truth), -1)
    for c in np.unique(truth):
        row = rng.choice(np.flatnonzero(truth == c))
        y[row] = c
    return y


def predictions(x, y):
    """Return the labels that two methods give to all rows."""
    scaled, known = StandardScaler().fit_transform(x), y >= 0
    regression = LogisticRegression(max_iter=1000).fit(scaled[known], y[known])
    classifier = ICSSLClassifier(device="cpu").fit(x, y)
    return {
        "logistic regression": regression.predict(scaled),
        "ICSSLClassifier": classifier.transduction_,
    }


def accuracies(x, truth, draws):
    """Return labels and accuracy on the other rows, per draw."""
    labels = [draw_labels(truth, seed) for seed in range(draws)]
    found = []
    for y in labels:
        others = y < 0
        by_method = predictions(x, y)
        found.append({m: float((p == truth)[others].mean()) for m, p in by_method.items()})
    return labels, found


def average_draw(found):
    """Return the number of the draw nearest to the mean of both methods."""
    values = np.array([list(one.values()) for one in found])
    return int(np.abs(values - values.mean(axis=0)).sum(axis=1).argmin())


def draw(points, truth, y, mean):
    """Return the figure: the labels, and what two methods make of them."""
    figure = Figure(figsize=(11, 3.7), layout="constrained")
    axes = figure.subplots(1, 3)
    known = y >= 0
    shown = {"178 wines, 3 labels": None, **predictions(load_wine().data, y)}
    for ax, (name, predicted) in zip(axes, shown.items(), strict=True):
        colours = GREY if predicted is None else COLOUR_OF[predicted[~known]]
        ax.scatter(*points[~known].T, c=colours, s=14)
        title = name
        if predicted is not None:
            wrong = (predicted != truth) & ~known
            ax.scatter(*points[wrong].T, marker="x", c="black", s=36, linewidths=1.2)
            right = (predicted == truth)[~known].mean()
            title = f"{name}: {right:.0%} right\n(mean of the draws: {mean[name]:.0%})"
        ax.scatter(
            *points[known].T, c=COLOUR_OF[y[known]], s=170, marker="*", edgecolors="black"
        )
        ax.set_title(title, fontsize=11)
        ax.set(xticks=[], yticks=[])
    return figure


def main():
    """Draw the figure and print its numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    given = parser.parse_args()
    x, truth = load_wine(return_X_y=True)
    labels, found = accuracies(x, truth, given.draws)
    chosen = average_draw(found)
    mean = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    points = principal_coordinates(StandardScaler().fit_transform(x))
    figures = given.root / "docs" / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    draw(points, truth, labels[chosen], mean).savefig(figures / "wines.png", dpi=110)
    spread = {name: float(np.std([one[name] for one in found])) for name in mean}
    print(json.dumps({"draws": given.draws, "shown": chosen, "mean": mean, "sd": spread}))


if __name__ == "__main__":
    main()
