"""Accuracy against the number of training episodes, from a thousand to a million.

The curve models of scripts/train_table.py on the cylinder. Up to 100,000, a model draws
102,400 times from a training set of so many episodes, with labels drawn anew each time, in
batches of 64; the last point is a longer run, in batches of 512, in which every episode is
a fresh one. One seed each. Scored on the same test episodes. Writes
results/benchmark-sample_efficiency.json and docs/figures/sample-efficiency.png and ends in
the same JSON as one line. A few minutes on two cores.

    python benchmarks/sample_efficiency.py MODELS [--episodes 300] [--root FOLDER]
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from icssl.data.sources import DataConfig
from icssl.evaluation.evaluate import evaluate
from icssl.evaluation.methods import METHODS, ModelMethod
from icssl.plots import COLOURS
from icssl.weights import load_model

LABELS = (3, 21)
SEED = 7  # of test episodes that no choice was made on


def models_of(folder):
    """Methods by (name, different training episodes)."""
    found = {}
    for kind in ("curve", "million"):
        for path in sorted(folder.glob(f"{kind}/*/cylinder-*.safetensors")):
            training = json.loads(path.with_suffix(".json").read_text())["training"]
            fresh = training["steps"] * training["batch"]
            size = training["data"]["episodes"] or fresh
            found[path.parent.name, size] = ModelMethod(load_model(path))
    if not found:
        raise SystemExit(f"{folder} holds no curve: run scripts/train_table.py first.")
    return found


def draw(rows, path):
    """A panel a label budget, a curve a method."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, len(LABELS))
    names = list(dict.fromkeys(row["method"] for row in rows))
    for axes, labels in zip(panels, LABELS, strict=True):
        for colour, name in zip(COLOURS, names, strict=False):
            own = [r for r in rows if r["method"] == name and r["labels"] == labels]
            own.sort(key=lambda r: r["training_episodes"])
            axes.errorbar(
                [r["training_episodes"] for r in own],
                [r["accuracy"] for r in own],
                yerr=[r["half_width"] for r in own],
                color=colour,
                marker="o",
                markersize=4,
                capsize=2,
                label=METHODS[name],
            )
        axes.set(
            xscale="log",
            xlabel="size of the training set (last: fresh episodes)",
            ylabel="accuracy",
        )
        axes.set_title(f"cylinder, {labels} labels", fontsize=11)
        axes.grid(alpha=0.3)
    panels[-1].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main():
    """Score every model, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    models = models_of(options.models)
    found = evaluate(
        {f"{name}/{size}": method for (name, size), method in models.items()},
        DataConfig(("cylinder",)),
        LABELS,
        episodes=options.episodes,
        tuning=2,
        seed=SEED,
    )
    rows = []
    for row in found:
        name, size = row.method.split("/")
        value = row.metrics["accuracy"]
        rows.append(
            {
                "method": name,
                "training_episodes": int(size),
                "labels": row.labels,
                "accuracy": round(value.mean, 4),
                "half_width": round(value.half_width, 4),
            }
        )
    draw(rows, options.root / "docs" / "figures" / "sample-efficiency.png")
    line = {"benchmark": "sample_efficiency", "episodes": options.episodes, "rows": rows}
    path = options.root / "results" / "benchmark-sample_efficiency.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(line) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
