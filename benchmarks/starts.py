r"""Compare starts of stage 2 and of the descent: what the preset `free` loses by them.

Trains the model with each start from the same seeds and on the same episodes, and scores
all on episodes that no training has seen and no result is reported on. Writes
results/benchmark-starts.json and prints the same JSON as its last line. About a minute of
one core for each start, source and seed; the real comparison needs a GPU:

    python benchmarks/starts.py --steps 500 --batch 128 --seeds 5 --episodes 500 \
        --sources sphere,cylinder,torus,cone,swiss_roll --device cuda
"""

import argparse
import json
from pathlib import Path

from icssl._util.provenance import made_with
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.predictors import ModelMethod
from icssl.evaluation.scoring import evaluate
from icssl.training.config import config_from
from icssl.training.loop import train

LABELS = (3, 21, 39)
TEST_SEED = 11  # not that of any table
_SCALED = {"preset": "paper_scalars", "centre": True, "scale": "neighbour"}
MODELS = {
    "free, fourier": {"preset": "free"},
    "free, waves": {"preset": "free", "start": "waves"},
    "free, hashed": {"preset": "free", "start": "hashed"},
    "free, polynomial": {"preset": "free", "start": "polynomial"},
    # The descent's step size at its start, which is 1 in the others.
    "free, fourier, step 16": {"preset": "free", "step_size": 16.0},
    "free, waves, step 16": {"preset": "free", "start": "waves", "step_size": 16.0},
    "paper_scalars, step 16": {"preset": "paper_scalars", "step_size": 16.0},
    "paper_scalars, learned": {"preset": "paper_scalars"},
    "paper_scalars, hashed": {"preset": "paper_scalars", "start": "hashed"},
    # What else differs between the two, one by one, from the model that learns its start.
    "paper_scalars, centred": {"preset": "paper_scalars", "centre": True},
    "paper_scalars, simplex": {"preset": "paper_scalars", "embedding": "simplex"},
    "paper_scalars, scaled": {**_SCALED, "sigma": 1.0},
    "paper_scalars, scaled, sigma 2": {**_SCALED, "sigma": 2.0},
    "paper_scalars, scaled, sigma 4": {**_SCALED, "sigma": 4.0},
}


def accuracies(model, source, options):
    """Return the mean accuracy at each number of labels, and the lowest of the seeds."""
    configs = [
        config_from(
            {
                "model": model,
                "data": {"sources": [source]},
                "steps": options.steps,
                "batch": options.batch,
                "seed": seed,
            }
        )
        for seed in range(options.seeds)
    ]
    trained = train(configs, device=options.device)
    methods = {str(i): ModelMethod(m.to(options.device)) for i, m in enumerate(trained)}
    rows = evaluate(
        methods,
        DataConfig((source,)),
        LABELS,
        episodes=options.episodes,
        tuning=2,
        seed=TEST_SEED,
        device=options.device,
    )
    by_labels = [
        [row.metrics["accuracy"].mean for row in rows if row.labels == m] for m in LABELS
    ]
    means = [round(sum(values) / len(values), 4) for values in by_labels]
    return {"mean": means, "lowest": [round(min(values), 4) for values in by_labels]}


def main():
    """Train and score every model on every source, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--sources", default="sphere")
    parser.add_argument("--models", default=";".join(MODELS), help="separated by ;")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    found = {}
    for source in options.sources.split(","):
        for name in options.models.split(";"):
            scores = accuracies(MODELS[name], source, options)
            found.setdefault(source, {})[name] = scores
            print(f"{source:>10} {name:<24}", *scores["mean"], flush=True)
    about = {"steps": options.steps, "batch": options.batch, "seeds": options.seeds}
    about |= {"episodes": options.episodes, **made_with(options.device)}
    line = json.dumps({"benchmark": "starts", "labels": LABELS, "accuracy": found, **about})
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-starts.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
