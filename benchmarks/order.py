"""Test whether the order of rows or columns or the names of classes change a prediction.

Draws random tables of mixed columns (numbers, whole numbers with many ties, dates,
booleans, few and many categories, constant columns, repeated rows, missing cells) with few
labels, random ones or such that depend on the columns. Each table is read as it is and
three times more: with its rows, its columns, and the names of its classes permuted. The
answer moved if a probability of any row differs by more than 1e-4. Every fifth table is
read by the exact and every fifth by the sparse backend, the others by the default one.
Since the classifier sorts rows and columns before it reads them, it would give one answer
for all orders even if it were unstable: so every table is also read with the tenth digit of
its numbers changed ("digits"), and `--as-given` reads all tables unsorted.

Seeds are fixed, so that two versions of the package see the same tables; `--source` reads
another version. Writes results/benchmark-order.json, one line of figures at the end. Half
an hour on two cores.

    OMP_NUM_THREADS=1 python benchmarks/order.py [--tables 3000] [--processes 2]
        [--as-given] [--source FOLDER] [--name after] [--output FILE]
"""

import argparse
import json
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

MOVED = 1e-4
WAYS = ("rows", "columns", "classes")
BACKENDS = ("auto", "auto", "auto", "exact", "sparse")


def draw_column(rng, n):
    """Return one column of a random kind."""
    kind = rng.choice(
        ["normal", "skewed", "whole", "date", "boolean", "category", "text", "constant"],
        p=[0.22, 0.08, 0.15, 0.08, 0.1, 0.17, 0.15, 0.05],
    )
    if kind == "normal":
        cells = rng.normal(size=n)
    elif kind == "skewed":
        cells = rng.lognormal(sigma=rng.uniform(0.5, 3), size=n)
    elif kind == "whole":
        cells = rng.integers(0, rng.integers(2, 30), n)
    elif kind == "date":
        days = rng.integers(0, rng.integers(2, 5000), n)
        cells = np.datetime64("2020-01-01", "s") + days * np.timedelta64(86_400, "s")
    elif kind == "boolean":
        cells = rng.random(n) < rng.uniform(0.1, 0.9)
    elif kind == "constant":
        cells = np.zeros(n)
    else:
        most = 8 if kind == "category" else 201
        words = np.array([f"w{i}" for i in range(rng.integers(2, most))], dtype=object)
        cells = rng.choice(words, n)
    return pd.Series(cells)


def draw_labels(rng, frame):
    """Return class numbers: at random, or by the order of a mixture of the columns."""
    n, c = len(frame), int(rng.integers(2, 7))
    if rng.random() < 0.4:
        return rng.integers(0, c, n), c
    score = np.zeros(n)
    for name in frame:
        codes = pd.factorize(frame[name], sort=True)[0].astype(float)
        score += rng.normal() * codes / max(codes.std(), 1e-9)
    ranks = (score + 0.3 * score.std() * rng.normal(size=n)).argsort().argsort()
    return ranks * c // n, c


def draw_table(seed):
    """Return a data frame, class numbers with -1 for no label, and the backend."""
    rng = np.random.default_rng([17, seed])
    n = int(
        rng.choice(
            [rng.integers(12, 60), rng.integers(60, 400), rng.integers(400, 900)],
            p=[0.3, 0.6, 0.1],
        )
    )
    columns = [draw_column(rng, n) for _ in range(rng.integers(1, 9))]
    frame = pd.concat(columns, axis=1, keys=[f"column {j}" for j in range(len(columns))])
    if rng.random() < 0.25:  # repeated rows
        frame = frame.iloc[rng.integers(0, max(2, n // 3), n)].reset_index(drop=True)
    y, c = draw_labels(rng, frame)
    if rng.random() < 0.3:
        frame = frame.mask(rng.random(frame.shape) < 0.1)
    known = rng.permutation(n)[: max(2 * c, int(n * rng.uniform(0.02, 0.2)))]
    shown = np.full(n, -1)
    shown[known] = y[known]
    return frame, shown, BACKENDS[seed % len(BACKENDS)]


def read(frame, y, backend):
    """Return the probabilities of all rows."""
    from icssl import ICSSLClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            ICSSLClassifier(backend=backend, device="cpu")
            .fit(frame, y)
            .label_distributions_
        )


def changed_digits(frame, rng):
    """Return the table with another tenth digit of its numbers; equal cells stay so."""
    frame = frame.copy()
    for name in frame.select_dtypes("floating"):
        codes, values = pd.factorize(frame[name], use_na_sentinel=True)
        values = values * (1 + 1e-10 * rng.uniform(-1, 1, len(values)))
        frame[name] = np.append(values, np.nan)[codes]
    return frame


def measure_digits(seed):
    """Return how far the answer of one table moves if its last digits change.

    NaN where it has no numbers with such digits.
    """
    frame, y, backend = draw_table(seed)
    changed = changed_digits(frame, np.random.default_rng([19, seed]))
    if changed.equals(frame):
        return float("nan")
    return float(np.abs(read(changed, y, backend) - read(frame, y, backend)).max())


def measure(seed):
    """Return how far the answer of one table moves in each way."""
    frame, y, backend = draw_table(seed)
    if len(set(y[y >= 0])) < 2:
        return {"seed": seed, "backend": backend, "fitted": False}
    rng = np.random.default_rng([18, seed])
    plain = read(frame, y, backend)
    rows = rng.permutation(len(y))
    shuffled = read(frame.iloc[rows].reset_index(drop=True), y[rows], backend)
    columns = rng.permutation(frame.shape[1])
    turned = read(frame.iloc[:, columns], y, backend)
    present = np.unique(y[y >= 0])
    names = rng.permutation(len(present))
    renamed = np.full(len(y), -1)
    for place, code in enumerate(present):
        renamed[y == code] = names[place]
    other = read(frame, renamed, backend)
    moved = {
        "rows": np.abs(shuffled - plain[rows]).max(),
        "columns": np.abs(turned - plain).max(),
        "classes": np.abs(other[:, names] - plain).max(),
    }
    moved = {way: float(value) for way, value in moved.items()}
    return {"seed": seed, "backend": backend, "fitted": True, **moved}


def measure_all_ways(seed, source=None, as_given=False):
    """Return the same with changed digits, of another version or unsorted."""
    import torch

    torch.set_num_threads(1)
    if source is not None and source not in sys.path:
        sys.path.insert(0, source)
    if as_given:
        from icssl.classifier import estimator

        estimator.Order.of_cells = estimator.Order.as_given
    moved = measure(seed)
    return {**moved, "digits": measure_digits(seed)} if moved["fitted"] else moved


def count_beyond(rows, ways, limit):
    """Return how many tables move by more in any of the ways."""
    return sum(max(row[way] for way in ways) > limit for row in rows)


def summarise(found):
    """Return counts of tables that moved, by way and by backend, and the worst."""
    fitted = [row for row in found if row["fitted"]]
    all_ways = (*WAYS, "digits")
    by_backend = {
        backend: [row for row in fitted if row["backend"] == backend]
        for backend in sorted(set(BACKENDS))
    }
    worst = {way: max(fitted, key=lambda row: np.nan_to_num(row[way])) for way in all_ways}
    return {
        "drawn": len(found),
        "fitted": len(fitted),
        "with digits": sum(not np.isnan(row["digits"]) for row in fitted),
        "moved": count_beyond(fitted, WAYS, MOVED),
        "beyond .01": count_beyond(fitted, WAYS, 1e-2),
        "beyond .1": count_beyond(fitted, WAYS, 1e-1),
        **{f"moved by {way}": count_beyond(fitted, [way], MOVED) for way in all_ways},
        "backends": {
            name: {
                "tables": len(rows),
                "moved": count_beyond(rows, WAYS, MOVED),
                "moved by digits": count_beyond(rows, ["digits"], MOVED),
            }
            for name, rows in by_backend.items()
        },
        "worst": {
            way: [row["seed"], float(f"{row[way]:.2g}")] for way, row in worst.items()
        },
    }


def main():
    """Measure all tables and print one line of figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tables", type=int, default=3000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--as-given", action="store_true", help="Do not sort rows.")
    parser.add_argument("--source", help="Folder with another version of the package.")
    parser.add_argument("--name", default="after")
    parser.add_argument("--output", type=Path, default=Path("results/benchmark-order.json"))
    options = parser.parse_args()
    one = partial(measure_all_ways, source=options.source, as_given=options.as_given)
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        found = list(pool.map(one, range(options.tables), chunksize=8))
    summary = summarise(found)
    kept = json.loads(options.output.read_text()) if options.output.exists() else {}
    options.output.write_text(json.dumps({**kept, options.name: summary}, indent=1) + "\n")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
