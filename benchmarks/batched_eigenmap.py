"""Time the solvers that give a batch of contexts its eigenmaps, as pretraining needs them.

Compares, on the device that is given, ``batched_eigenvectors``, torch's batched ``eigh`` of
whole matrices, and LAPACK one by one, on random blobs. Prints one line per size, with
problems per second and the error of two steps of diffusion, then the same as JSON.

    python benchmarks/batched_eigenmap.py [--device cuda] [--batches 64,512]
        [--rows 40,100,200,300,600] [--columns 20]
"""

import argparse
import json
import time

import torch

from icssl.classifier import eigensolvers
from icssl.classifier.eigenmap import EIGENFUNCTIONS, waves
from icssl.classifier.graphs import DenseGraph, neighbour_distances


def draw_graphs(b, n, d, device):
    """Return rows in blobs, and their normalised weights without the constant vector."""
    generator = torch.Generator().manual_seed(0)
    centres = 2 * torch.randn(b, 4, d, generator=generator)
    part = torch.randint(4, (b, n, 1), generator=generator).expand(-1, -1, d)
    x = (torch.randn(b, n, d, generator=generator) + centres.gather(1, part)).to(device)
    x = x / x.square().sum(-1).mean(-1).sqrt()[:, None, None]
    graph = DenseGraph(x, neighbour_distances(x, x, skip_self=True), hold=True)
    degrees = graph.regularised_degrees
    constant = (degrees / degrees.sum(-1, keepdim=True)).sqrt()[..., None]
    return x, graph.matrix().baddbmm_(constant, constant.mT, alpha=-1)


def subspace(x, matrix, k):
    """Solve by the filtered subspace, whatever the number of rows."""
    return eigensolvers.batched_eigenvectors(matrix, waves(x, k), k)


def whole(x, matrix, k):
    """Solve by a decomposition of the whole matrices."""
    values, vectors = torch.linalg.eigh(matrix)
    return values.flip(-1)[:, :k], vectors.flip(-1)[..., :k]


def whole_double(x, matrix, k):
    """Solve by a decomposition of the whole matrices in float64."""
    return whole(x, matrix.double(), k)


def lapack(x, matrix, k):
    """Solve by LAPACK, one after the other."""
    return eigensolvers.leading_eigenvectors(matrix, k)


SOLVERS = {
    "subspace": subspace,
    "whole": whole,
    "whole float64": whole_double,
    "lapack": lapack,
}


def diffusion(values, vectors):
    """Return how likely two steps of the walk lead from row to row, in float64."""
    features = vectors.double() * values.double().clamp(0, 1)[:, None]
    return features @ features.mT


def time_solver(solve, device, most_seconds=3.0):
    """Return the seconds of one call, after one that warms up."""
    seconds = []
    while len(seconds) < 2 or (len(seconds) < 6 and sum(seconds) < most_seconds):
        began = time.perf_counter()
        solve()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def measure(b, n, d, device):
    """Return problems per second and errors of every solver."""
    x, matrix = draw_graphs(b, n, d, device)
    k = min(EIGENFUNCTIONS, n)
    some = slice(min(b, 8))
    exact = diffusion(*lapack(x[some], matrix[some], k))
    measured = {}
    for name, solver in SOLVERS.items():
        few = some if name == "lapack" else slice(None)  # it takes a time per matrix
        rows, problems = x[few], matrix[few]
        found = diffusion(*(part[some] for part in solver(rows, problems, k)))
        error = float((found - exact).norm() / exact.norm())
        seconds = time_solver(lambda f=solver, r=rows, p=problems: f(r, p, k), device)
        measured[name] = {"per_second": round(len(rows) / seconds), "error": error}
    return measured


def main():
    """Measure every size and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default)
    parser.add_argument("--batches", default="64,512")
    parser.add_argument("--rows", default="40,100,200,300,600")
    parser.add_argument("--columns", type=int, default=20)
    options = parser.parse_args()
    results = []
    for b in map(int, options.batches.split(",")):
        for n in map(int, options.rows.split(",")):
            measured = measure(b, n, options.columns, options.device)
            results.append({"contexts": b, "rows": n, "solvers": measured})
            text = ", ".join(
                f"{name} {value['per_second']:,}/s ({value['error']:.0e})"
                for name, value in measured.items()
            )
            print(f"{b:4} contexts of {n:4} rows: {text}", flush=True)
    print(json.dumps({"benchmark": "batched eigenmap", "results": results}))


if __name__ == "__main__":
    main()
