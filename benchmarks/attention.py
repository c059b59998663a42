"""Compare dense and matrix-free RBF attention: time and peak memory as n grows.

The products P G and P^T G have 6 coordinates and 8 value columns in float32. Each size runs
in its own process, so that its peak memory can be measured. Draws
docs/figures/attention-cpu.png (or -cuda.png), writes results/benchmark-attention-cpu.json
and prints the same JSON as its last line. About five minutes on two cores.

    python benchmarks/attention.py [--device cuda] [--sizes 1000,10000] [--root FOLDER]
"""

import argparse
import json
import resource
import statistics
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

from icssl.bench.pool import run_in_subprocess
from icssl.model.attention import attention, attention_transposed

D, V, REPEATS = 6, 8, 3
SIZES = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000]
DENSE_LIMIT = 20_000  # beyond it the matrix and its temporaries take many gigabytes
FUNCTIONS = {"P G": attention, "P^T G": attention_transposed}


def peak_bytes(device):
    """Return the peak memory so far, of the process or of the GPU's allocator."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(device, backend, function, n):
    """Return the median seconds of a pass, and the memory that it added at its peak."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, n, D, generator=generator).to(device)
    value = torch.randn(1, n, V, generator=generator).to(device)

    def run(points, columns):
        result = FUNCTIONS[function]("rbf", points, points, columns, backend=backend)
        return result.sum().item()  # waits for the device

    run(x[:, :100], value[:, :100])  # load kernels before measuring
    before = peak_bytes(device)
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run(x, value)
        seconds.append(time.perf_counter() - start)
    return {
        "backend": backend,
        "function": function,
        "n": n,
        "seconds": statistics.median(seconds),
        "megabytes": (peak_bytes(device) - before) / 1e6,
    }


def draw(rows, device, path):
    """Draw time and memory against n, one line per backend and function."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, quantity in zip(figure.subplots(1, 2), ("seconds", "megabytes"), strict=True):
        for backend, colour in (("dense", "#d55e00"), ("matrix_free", "#0072b2")):
            for function, style in zip(FUNCTIONS, ("-", "--"), strict=True):
                own = [
                    r for r in rows if (r["backend"], r["function"]) == (backend, function)
                ]
                axes.loglog(
                    [r["n"] for r in own],
                    [max(r[quantity], 0.1 if quantity == "megabytes" else 0) for r in own],
                    style + "o",
                    color=colour,
                    label=f"{backend}, {function}",
                )
        axes.set(xlabel="points n", ylabel=quantity, title=f"{quantity}, {device}")
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main():
    """Measure every size, draw the figure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    cases = [
        (options.device, backend, function, n)
        for backend in ("dense", "matrix_free")
        for function in FUNCTIONS
        for n in sizes
        if backend == "matrix_free" or n <= DENSE_LIMIT
    ]
    rows = []
    for case in cases:
        rows.append(run_in_subprocess(measure, *case))
        row = rows[-1]
        print(
            f"{row['backend']:>12} {row['function']:>6} n = {row['n']:>7,}"
            f" {row['seconds']:9.4f} s {row['megabytes']:9.1f} MB",
            flush=True,
        )
    figures, results = options.root / "docs" / "figures", options.root / "results"
    draw(rows, options.device, figures / f"attention-{options.device}.png")
    machine = "cpu" if options.device == "cpu" else torch.cuda.get_device_name()
    summary = {"benchmark": "attention", "device": machine, "torch": torch.__version__}
    line = json.dumps({**summary, "d": D, "v": V, "rows": rows})
    results.mkdir(exist_ok=True)
    (results / f"benchmark-attention-{options.device}.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
