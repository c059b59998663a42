"""Measure how fast the eigenmap of Lemma 2 reaches the bottom eigenvectors of R R^T.

Computes the largest principal angle to the subspace that LAPACK's ``eigh`` finds, in
float64, after each iteration: 1 to 64 on four separated blobs, log-spaced to 100,000 on the
demo's Swiss roll. The dashed line is the rate that the spectrum allows, ((mu - l_5) / (mu -
l_4))^t. Draws docs/figures/convergence.png, writes results/benchmark-convergence.json and
prints the same JSON as its last line. About two minutes.

    python benchmarks/convergence.py [--most 100000] [--root FOLDER]
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import make_blobs

from icssl.app.demo import swiss_roll
from icssl.model.eigenmap import MU_MARGIN, EigenmapTransformer, largest_eigenvalue
from icssl.model.inputs import prepare
from icssl.model.laplacian import LaplacianTransformer

K = 4


def principal_angle(f, reference):
    """Return the largest angle between the span of f and that of the reference."""
    q = torch.linalg.qr(f).Q
    return (
        torch.linalg.matrix_norm(q - reference @ (reference.mT @ q), ord=2)
        .clamp(max=1)
        .asin()
    )


@torch.no_grad()
def converge(x, sigma, iterations):
    """Return angles after some iterations, and those that the spectral gap predicts."""
    x = torch.as_tensor(x)[None]
    operator = LaplacianTransformer.lemma1(sigma)(x).form()
    r = operator.dense()
    values, vectors = torch.linalg.eigh(r @ r.mT)
    bottom = vectors[..., :K]
    wanted = {t * K - 1: t for t in iterations}
    angles = {}

    def record(name, f):
        step = int(name.split(".")[1])
        if step in wanted:
            angles[wanted[step]] = principal_angle(f, bottom).item()

    EigenmapTransformer.lemma2(K, max(iterations))(operator, x, record=record)
    mu = MU_MARGIN * largest_eigenvalue(operator, x).item()
    rate = (mu - values[0, K].item()) / (mu - values[0, K - 1].item())
    return angles, rate


def main():
    """Run both clouds, draw the figure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=100_000, help="Iterations on the roll.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    centres = [[0, 0], [8, 0], [0, 8], [8, 8]]
    blobs, _ = make_blobs(100, centers=centres, cluster_std=0.5, random_state=0)
    roll, _ = swiss_roll(rng)
    roll = prepare(torch.as_tensor(roll)[None])[0]
    log_spaced = sorted({int(t) for t in np.geomspace(1, options.most, 51).round()})
    runs = {
        "four blobs": converge(blobs, 2.0, range(1, 65)),
        "Swiss roll": converge(roll, 0.7, log_spaced),
    }
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (name, (angles, rate)) in zip(
        figure.subplots(1, 2), runs.items(), strict=True
    ):
        t, angle = np.array(list(angles)), np.array(list(angles.values()))
        axes.plot(t, angle, label="constructed Transformer")
        floor = angle > 1e-13
        middle = floor.nonzero()[0][floor.sum() // 2]
        fit = angle[middle] * rate ** (t - t[middle])
        shown = (fit < 2) & (fit > 1e-15)
        axes.plot(t[shown], fit[shown], "--", label=f"rate of the spectrum, {rate:.6f}")
        axes.set(title=name, xlabel="iterations", ylabel="largest principal angle (rad)")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.axes[1].set_xscale("log")
    figures, results = options.root / "docs" / "figures", options.root / "results"
    figures.mkdir(parents=True, exist_ok=True)
    results.mkdir(exist_ok=True)
    figure.savefig(figures / "convergence.png", dpi=120)
    summary = {"benchmark": "convergence", "k": K, "torch": torch.__version__}
    for name, (angles, rate) in runs.items():
        shown = {t: a for t, a in angles.items() if t in (1, 8, 64, 1000, 10_000, 100_000)}
        print(name, *(f"{t:>7,}: {a:.2e}" for t, a in shown.items()), sep="\n  ")
        summary[name] = {"rate": rate, "angle": shown}
    line = json.dumps(summary)
    (results / "benchmark-convergence.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
