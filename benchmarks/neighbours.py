"""Compare indices that find nearest neighbours: time, recall, memory, reproducibility.

The rows have eight classes and 20 or 64 columns, as in the classifier's first view. Every
index finds the nearest neighbours of all rows, then those of 1,000 new rows. Each case runs
on one core in its own process, so that its peak memory can be measured; seconds are
processor time, because other work may run at the same time. Packages that are not installed
are skipped, and so is brute force above 20,000 rows. Writes
results/benchmark-neighbours.json and prints the same JSON as its last line. Takes about 15
minutes.

    pip install pynndescent faiss-cpu usearch hnswlib
    OMP_NUM_THREADS=1 python benchmarks/neighbours.py [--sizes 5000,20000] [--columns 20,64]
        [--largest 100000] [--root FOLDER]
"""

import argparse
import importlib.metadata
import json
import resource
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_classification

from icssl.bench.pool import run_in_subprocess
from icssl.classifier.graphs import SPARSE_NEIGHBOURS
from icssl.classifier.neighbour_search import BruteForceSearch, IndexSearch

COLUMNS, NEW, ALONE = 20, 1_000, 50
REQUIRED = {  # what installing a package brings that icssl does not have
    "faiss-cpu": ["faiss-cpu"],
    "hnswlib": ["hnswlib"],
    "usearch": ["usearch", "numkong"],
    "pynndescent": ["pynndescent", "numba", "llvmlite"],
}


def table(n, d):
    """Return clusters of eight classes with mean length one in float32, and new rows."""
    rows, _ = make_classification(
        n + NEW,
        d,
        n_informative=d // 2,
        n_redundant=d // 4,
        n_classes=8,
        n_clusters_per_class=2,
        class_sep=2.0,
        random_state=0,
    )
    rows = (rows - rows.mean(0)) / rows.std(0) / np.sqrt(d)
    return rows[:n].astype(np.float32), rows[n:].astype(np.float32)


class Torch:
    """Brute force in torch: distances by a product of matrices, then topk, in blocks."""

    def __init__(self, x, k):
        self.search, self.k = BruteForceSearch(torch.from_numpy(x)), k

    def query(self, rows):
        """Return the indices of the nearest rows."""
        return self.search(torch.from_numpy(rows), self.k).indices.numpy()


class ScikitLearn:
    """Brute force in scikit-learn, with heaps fused into the product of matrices."""

    def __init__(self, x, k):
        from sklearn.neighbors import NearestNeighbors

        self.index = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x)

    def query(self, rows):
        """Return the indices of the nearest rows."""
        return self.index.kneighbors(rows, return_distance=False)


class FaissFlat:
    """Brute force in faiss."""

    def __init__(self, x, k):
        import faiss

        faiss.omp_set_num_threads(1)
        self.index, self.k = faiss.IndexFlatL2(x.shape[1]), k
        self.index.add(x)

    def query(self, rows):
        """Return the indices of the nearest rows."""
        return self.index.search(rows, self.k)[1]


class FaissIVF(FaissFlat):
    """The inverted file (IVF) of faiss, with the settings of the package."""

    probes = 32

    def __init__(self, x, k):
        import faiss

        faiss.omp_set_num_threads(1)
        self.index, self.k = IndexSearch(torch.from_numpy(x)).index, k
        self.index.nprobe = self.probes


class FaissIVFMore(FaissIVF):
    """The same inverted file with more cells."""

    probes = 64


class FaissHNSW(FaissFlat):
    """The HNSW index of faiss: a graph in layers."""

    def __init__(self, x, k):
        import faiss

        faiss.omp_set_num_threads(1)
        self.index, self.k = faiss.IndexHNSWFlat(x.shape[1], 16), k
        self.index.hnsw.efConstruction, self.index.hnsw.efSearch = 80, 2 * k
        self.index.add(x)


class Hnswlib:
    """The HNSW index of hnswlib: a graph in layers."""

    def __init__(self, x, k):
        import hnswlib

        self.index, self.k = hnswlib.Index("l2", x.shape[1]), k
        self.index.init_index(len(x), M=16, ef_construction=80, random_seed=0)
        self.index.set_num_threads(1)
        self.index.add_items(x)
        self.index.set_ef(2 * k)

    def query(self, rows):
        """Return the indices of the nearest rows."""
        return self.index.knn_query(rows, self.k)[0].astype(np.int64)


class Usearch:
    """The HNSW index of usearch: a graph in layers."""

    def __init__(self, x, k):
        from usearch.index import Index

        self.index = Index(
            ndim=x.shape[1],
            metric="l2sq",
            dtype="f32",
            connectivity=16,
            expansion_add=80,
            expansion_search=2 * k,
        )
        self.k = k
        self.index.add(np.arange(len(x)), x, threads=1)

    def query(self, rows):
        """Return the indices of the nearest rows."""
        found = self.index.search(rows, self.k, threads=1).keys
        return found.astype(np.int64).reshape(len(rows), self.k)


class PyNNDescent:
    """The index of pynndescent: neighbours of neighbours; the time includes compilation."""

    def __init__(self, x, k):
        from pynndescent import NNDescent

        self.index, self.k = NNDescent(x, n_neighbors=k, random_state=0, n_jobs=1), k
        self.own, self.x = self.index.neighbor_graph[0], x

    def query(self, rows):
        """Return the indices of the nearest rows."""
        if rows is self.x:
            return self.own
        return self.index.query(rows, self.k)[0]


# Name: package that it needs, and how it is used.
INDEXES = {
    "torch topk": ("torch", Torch),
    "scikit-learn brute": ("scikit-learn", ScikitLearn),
    "faiss flat": ("faiss-cpu", FaissFlat),
    "faiss IVF, 32 cells": ("faiss-cpu", FaissIVF),
    "faiss IVF, 64 cells": ("faiss-cpu", FaissIVFMore),
    "faiss HNSW": ("faiss-cpu", FaissHNSW),
    "hnswlib": ("hnswlib", Hnswlib),
    "usearch": ("usearch", Usearch),
    "pynndescent": ("pynndescent", PyNNDescent),
}
MODULES = {"faiss-cpu": "faiss", "scikit-learn": "sklearn"}
BRUTE = ("torch topk", "scikit-learn brute", "faiss flat")


def peak():
    """Return the peak memory of the process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def recall(found, exact):
    """Return the fraction of the exact neighbours that were found."""
    hits = [np.isin(e, f).mean() for e, f in zip(exact, found, strict=True)]
    return float(np.mean(hits))


def measure(name, n, d, k):
    """Measure one index on one table; the neighbours of a row here include itself."""
    torch.set_num_threads(1)
    x, new = table(n, d)
    exact = FaissFlat if find_spec("faiss") else Torch
    some = np.random.default_rng(0).permutation(n)[:2_000]
    build = INDEXES[name][1]
    build(x[: 20 * k], k).query(x[:10])  # load what is needed before measuring
    before, began = peak(), time.process_time()
    index = build(x, k)
    built = time.process_time()
    own = index.query(x)
    asked = time.process_time()
    found = index.query(new)
    ended = time.process_time()
    memory = peak() - before
    alone = np.concatenate([index.query(new[i : i + 1]) for i in range(ALONE)])
    again = build(x, k).query(x)
    return {
        "index": name,
        "n": n,
        "d": d,
        "build_seconds": round(built - began, 2),
        "own_seconds": round(asked - built, 2),
        "new_microseconds": round(1e6 * (ended - asked) / NEW, 1),
        "recall": round(recall(own[some], exact(x, k).query(x[some])), 4),
        "recall_new": round(recall(found, exact(x, k).query(new)), 4),
        "megabytes": round(memory / 1e6, 1),
        "same_again": bool((own == again).all()),
        "same_alone": bool((alone == found[:ALONE]).all()),
    }


def megabytes(packages):
    """Return the sizes of packages on disk."""
    files = [f for p in packages for f in importlib.metadata.files(p) or ()]
    sizes = (f.locate().stat().st_size for f in files if f.locate().is_file())
    return round(sum(sizes) / 1e6, 1)


def cases(options):
    """Return sizes and columns for every index that is installed."""
    for name, (package, _) in INDEXES.items():
        if find_spec(MODULES.get(package, package)) is None:
            print(f"{name}: {package} is not installed")
            continue
        for d in map(int, options.columns.split(",")):
            for n in map(int, options.sizes.split(",")):
                yield name, n, d, options.neighbours + 1
        if options.largest and name not in BRUTE:
            yield name, options.largest, COLUMNS, options.neighbours + 1


def main():
    """Measure every case and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="5000,20000")
    parser.add_argument("--columns", default="20,64")
    largest = "Rows of the largest table, which has 20 columns."
    parser.add_argument("--largest", type=int, default=100_000, help=largest)
    parser.add_argument("--neighbours", type=int, default=SPARSE_NEIGHBOURS)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    rows = []
    for case in cases(options):
        rows.append(run_in_subprocess(measure, *case))
        print(*rows[-1].values(), sep="\t", flush=True)
    packages = {INDEXES[row["index"]][0] for row in rows}
    versions = {p: importlib.metadata.version(p) for p in sorted(packages)}
    disk = {p: megabytes(REQUIRED[p]) for p in versions if p in REQUIRED}
    summary = {"benchmark": "neighbours", "neighbours": options.neighbours}
    line = json.dumps({**summary, "versions": versions, "disk": disk, "rows": rows})
    (options.root / "results").mkdir(parents=True, exist_ok=True)
    (options.root / "results" / "benchmark-neighbours.json").write_text(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
