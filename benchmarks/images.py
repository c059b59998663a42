"""Measure how smooth the paths of the package's image generator are.

For each of 50 manifolds, computes the steps between neighbouring frames as fractions of the
distance from end to end, and pixel statistics to compare with Fashion-MNIST itself (mean
0.286, half of the pixels black). Writes results/benchmark-images.json and prints the same
JSON as its last line.

    python benchmarks/images.py [--count 50] [--root FOLDER]
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from icssl.episodes.images import FashionGenerator, make_image_manifolds, manifold_path


def path_statistics(frames):
    """Return the longest and mean step, and the distance from end to end, in pixels."""
    flat = frames.reshape(len(frames), -1) / 255
    steps = np.linalg.norm(np.diff(flat, axis=0), axis=1)
    return steps.max(), steps.mean(), np.linalg.norm(flat[-1] - flat[0])


def main():
    """Make manifolds, measure them and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_image_manifolds(FashionGenerator(), Path(folder), options.count)
        paths = [np.load(manifold_path(Path(folder), i)) for i in range(options.count)]
    longest, mean, ends = np.array([path_statistics(path) for path in paths]).T
    pixels = np.stack(paths) / 255
    summary = {
        "benchmark": "images",
        "manifolds": options.count,
        "end_to_end": round(float(ends.mean()), 3),
        "mean_step_over_end_to_end": round(float((mean / ends).mean()), 4),
        "longest_step_over_end_to_end": round(float((longest / ends).max()), 4),
        "longest_over_mean_step": round(float((longest / mean).mean()), 2),
        "pixel_mean": round(float(pixels.mean()), 3),
        "share_below_0.05": round(float((pixels < 0.05).mean()), 3),
    }
    line = json.dumps(summary)
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-images.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
