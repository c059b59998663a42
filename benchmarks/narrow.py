"""Compare our kernel for RBF attention of narrow points with torch's, on a GPU.

Measures time and error of P G, P^T G and the gradients of P G, with 6 coordinates and 8
value columns. Errors are measured on some of the rows, against float64, as a fraction of
the largest entry. Writes results/benchmark-narrow.json and prints the same JSON as its last
line. Takes two minutes on an H200.

    python benchmarks/narrow.py [--sizes 100000,1000000] [--root FOLDER]
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from icssl.model import attention as module
from icssl.model.attention import attention, attention_transposed, bilinear

D, V, REPEATS, CHECKED = 6, 8, 3, 512
SLOW = 200_000  # beyond, the transpose and gradients of torch's take minutes


def by_torch(function, *inputs):
    """Return the same function with our kernel switched off."""
    kept = module.is_narrow
    module.is_narrow = lambda *_: False
    try:
        return function("rbf", *inputs, backend="matrix_free")
    finally:
        module.is_narrow = kept


def by_kernel(function, *inputs):
    """Return attention as the package computes it."""
    return function("rbf", *inputs, backend="matrix_free")


def in_float16(function, *inputs):
    """Return torch's fastest attention, with the digits of float16."""
    assert function is attention
    query, key = bilinear("rbf", *inputs[:2])
    parts = [pad(t, (0, 8 - t.shape[-1])).half()[:, None] for t in (query, key, inputs[2])]
    return scaled_dot_product_attention(*parts, scale=1.0)[:, 0, :, :V]


def gradients(way, *inputs):
    """Return the gradients of a sum of P G with respect to all three inputs."""
    inputs = [t.detach().requires_grad_() for t in inputs]
    return torch.autograd.grad(way(attention, *inputs).square().sum(), inputs)


def seconds(run):
    """Return the median time of a run."""
    run()
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def error(way, x, value):
    """Return the error of what some of the points read."""
    some = x[:, :: x.shape[1] // CHECKED]
    expected = attention("rbf", some.double(), x.double(), value.double())
    found = way(attention, x, x, value)[:, :: x.shape[1] // CHECKED]
    return ((found - expected).abs().max() / expected.abs().max()).item()


def measure(n):
    """Return one row for every implementation and pass."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, n, D, generator=generator).cuda()
    value = torch.randn(1, n, V, generator=generator).cuda()
    ways = {"torch": by_torch, "kernel": by_kernel, "torch, float16": in_float16}
    for name, way in ways.items():
        row = {"n": n, "way": name, "error": error(way, x, value)}
        yield {
            **row,
            "pass": "P G",
            "seconds": seconds(lambda w=way: w(attention, x, x, value)),
        }
        if way is in_float16 or (way is by_torch and n > SLOW):
            continue
        transposed = seconds(lambda w=way: w(attention_transposed, x, x, value))
        yield {**row, "pass": "P^T G", "seconds": transposed}
        both = seconds(lambda w=way: gradients(w, x, x, value))
        yield {**row, "pass": "P G and gradients", "seconds": both}


def main():
    """Measure every size and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="100000,1000000")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    rows = []
    for n in map(int, options.sizes.split(",")):
        for row in measure(n):
            rows.append(row)
            print(
                f"n = {n:>9,} {row['pass']:<18} {row['way']:<15}"
                f" {row['seconds']:9.4f} s  error {row['error']:.1e}",
                flush=True,
            )
    machine = torch.cuda.get_device_name()
    line = json.dumps(
        {"benchmark": "narrow", "device": machine, "torch": torch.__version__, "rows": rows}
    )
    results = options.root / "results"
    results.mkdir(exist_ok=True)
    (results / "benchmark-narrow.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
