"""Measure the Bayes ceiling of every manifold: the best accuracy that the labels allow.

600 episodes of 100 points under the median rule for each number of labels. Writes
results/benchmark-ceiling.json and prints the same JSON as its last line. A few seconds.

    python benchmarks/ceiling.py [--episodes 600] [--root FOLDER]
"""

import argparse
import json
from pathlib import Path

from icssl._util.random import generator_for
from icssl.episodes.synthetic import ManifoldSpec
from icssl.methods.simple import bayes_ceiling

LABELS = (3, 10, 21, 39)
SOURCES = ("cylinder", "torus", "sphere", "cone", "product")  # the roll's is one


def ceiling(source, labels, episodes):
    """Return the accuracy of the ceiling on the unlabelled points."""
    spec = ManifoldSpec(source, labels=labels, distances=True)
    episode = spec.draw(episodes, generator=generator_for(0, "ceiling", labels))
    right = bayes_ceiling(episode).argmax(dim=-1) == episode.y
    return round(right[~episode.labelled].double().mean().item(), 3)


def main():
    """Measure all manifolds and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=600)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    found = {s: [ceiling(s, m, options.episodes) for m in LABELS] for s in SOURCES}
    for source, values in found.items():
        print(f"{source:>10}", *values)
    line = json.dumps({"benchmark": "ceiling", "labels": LABELS, "accuracy": found})
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-ceiling.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
