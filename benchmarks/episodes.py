"""Measure how many episodes are made per second, from every source.

Draws batches of 256 episodes of 100 points, with and without the ground truth, as training
does, on the CPU or on a GPU. For comparison it also measures plain forward and backward
passes of the full model. Writes results/benchmark-episodes-DEVICE.json and prints the same
JSON as its last line. Takes less than a minute.

    python benchmarks/episodes.py [--device cuda] [--seconds 1] [--root FOLDER]
"""

import argparse
import json
import time
from pathlib import Path

import torch

from icssl import ICSSLTransformer, ModelConfig
from icssl.episodes.manifolds import MANIFOLDS
from icssl.episodes.stream import EpisodeStream
from icssl.episodes.synthetic import ManifoldSpec

BATCH = 256


def rate(spec, device, seconds):
    """Return episodes per second over at least ``seconds``, after a warm-up batch."""
    stream = EpisodeStream(spec, batch=BATCH, device=device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    stream.at(0)
    wait()
    start, step = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step += 1
        stream.at(step)
        wait()
    return step * BATCH / (time.perf_counter() - start)


def training_rate(device, seconds):
    """Return episodes per second of forward and backward passes of the model ``free``."""
    torch.manual_seed(0)
    model = ICSSLTransformer(ModelConfig.preset("free")).to(device)
    episode = EpisodeStream(ManifoldSpec(), batch=BATCH, device=device).at(0)

    def step():
        logits = model(episode).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, episode.y.flatten())
        loss.backward()
        return loss.item()  # waits for the device

    step()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step()
        steps += 1
    return steps * BATCH / (time.perf_counter() - start)


def main():
    """Measure every source and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    rows = []
    for source in [*MANIFOLDS, "product"]:
        for eigenvectors in (0, 4):
            spec = ManifoldSpec(source, eigenvectors=eigenvectors)
            found = rate(spec, options.device, options.seconds)
            rows.append(
                {"source": source, "eigenvectors": eigenvectors, "per_second": found}
            )
            truth = "with ground truth" if eigenvectors else ""
            print(f"{source:>12} {found:>12,.0f} episodes/s {truth}", flush=True)
    training = training_rate(options.device, options.seconds)
    print(f"{'training':>12} {training:>12,.0f} episodes/s")
    machine = "cpu" if options.device == "cpu" else torch.cuda.get_device_name()
    line = json.dumps(
        {
            "benchmark": "episodes",
            "device": machine,
            "torch": torch.__version__,
            "batch": BATCH,
            "training_per_second": training,
            "rows": rows,
        }
    )
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / f"benchmark-episodes-{options.device}.json").write_text(
        line + "\n"
    )
    print(line)


if __name__ == "__main__":
    main()
