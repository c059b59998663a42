"""Accuracy against the number of training episodes, two ways, on the cylinder.

Models of scripts/train_table.py, one seed each, scored on the same test episodes. "Again":
102,400 draws in batches of 64 from a set of 10 to 100,000 episodes, each with labels drawn
anew. "Once": runs of 1,024 to 1,024,000 episodes, each seen once. Writes
results/benchmark-sample_efficiency.json and docs/figures/sample-efficiency.png and ends in
the same JSON as one line. A few minutes on two cores.

    python benchmarks/sample_efficiency.py MODELS [--episodes 300] [--root FOLDER]
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from icssl.bench.plots import COLOURS
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.predictors import METHODS, ModelMethod
from icssl.evaluation.scoring import evaluate
from icssl.model.build import load_model

LABELS = (3, 21)
WAYS = {
    "again": "different episodes, 102,400 drawn from them",
    "once": "episodes, each seen once",
}
SEED = 7  # of test episodes that no choice was made on


def models_of(folder):
    """Methods by (how training went, name, different training episodes)."""
    found = {}
    for pattern in ("again/*/*.safetensors", "once-*/*/*.safetensors"):
        for path in sorted(folder.glob(pattern)):
            training = json.loads(path.with_suffix(".json").read_text())["training"]
            fresh = training["steps"] * training["batch"]
            size = training["data"]["episodes"] or fresh
            way = path.parents[1].name.split("-")[0]
            found[way, path.parent.name, size] = ModelMethod(load_model(path))
    if not found:
        raise SystemExit(f"{folder} holds no curve: run scripts/train_table.py first.")
    return found


def draw(rows, path):
    """A panel a way of training and a label budget, a curve a method."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    panels = figure.subplots(len(WAYS), len(LABELS), sharex="row", sharey="col")
    names = list(dict.fromkeys(row["method"] for row in rows))
    for line, (way, title) in zip(panels, WAYS.items(), strict=True):
        for axes, labels in zip(line, LABELS, strict=True):
            for colour, name in zip(COLOURS, names, strict=False):
                key = (way, name, labels)
                own = [r for r in rows if (r["way"], r["method"], r["labels"]) == key]
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
            axes.set(xscale="log", xlabel=title, ylabel="accuracy")
            axes.set_title(f"cylinder, {labels} labels", fontsize=11)
            axes.grid(alpha=0.3)
    panels[0][-1].legend(fontsize=8)
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
        {"/".join(map(str, key)): method for key, method in models.items()},
        DataConfig(("cylinder",)),
        LABELS,
        episodes=options.episodes,
        tuning=2,
        seed=SEED,
    )
    rows = []
    for row in found:
        way, name, size = row.method.split("/")
        value = row.metrics["accuracy"]
        rows.append(
            {
                "way": way,
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
