"""The nineteen real datasets, split once and beforehand, and contexts drawn from them."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icssl._util.errors import check_at_least
from icssl._util.random import generator_for
from icssl.methods.peers import Context
from icssl.tables.formats import read_file
from icssl.tables.table_file import Source

# Anything may be chosen on the development half, and nothing on the report half.
HALVES: dict[str, tuple[str, ...]] = {
    "development": (
        "digits",
        "iris",
        "cifar10",
        "satimage",
        "vowel",
        "pima",
        "magic",
        "saheart",
        "penguins",
    ),
    "report": (
        "wine",
        "breast_cancer",
        "fashion_mnist",
        "movie_reviews",
        "segment",
        "bupa",
        "mammographic",
        "contraceptive",
        "german",
        "olive",
    ),
}
SETS = tuple(name for half in HALVES.values() for name in half)
LABELS = (1, 2, 5, 10)
MOST_ROWS = 1000
TARGET = "target"


@cache
def read_set(folder: Path, name: str) -> Any:
    """The table of one set, with the column of targets as text."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: scripts/fetch_real_data.py makes it (its first lines "
            "say how), and --data names the folder."
        )
    table = read_file(Source(str(path))).cells
    if TARGET not in table:
        columns = ", ".join(map(str, table.columns[:8]))
        raise ValueError(f"{path} has no column {TARGET!r}: it begins with {columns}.")
    missing = int(table[TARGET].isna().sum())
    if missing:
        raise ValueError(f"{path}: {missing} row(s) have no {TARGET}.")
    return table.assign(**{TARGET: table[TARGET].astype(str)})


def fingerprint(table: Any) -> str:
    """A short hash of names and cells, the same for every way to store them."""
    digest = hashlib.sha256()
    for name, column in table.items():
        digest.update(f"\0{name}\0".encode())
        if column.dtype.kind in "iufb":
            digest.update(column.to_numpy(np.float64).tobytes())
        else:
            # As objects: pandas 2 refuses to fill categories with what is none of them.
            filled = column.astype(object).fillna("")
            digest.update("\n".join(map(str, filled)).encode())
    return digest.hexdigest()[:16]


def draw_context(table: Any, name: str, draw: int, labels: int) -> Context:
    """At most 1,000 rows at random, so many of each class labelled.

    The set and the draw decide which rows, and in which order the rows of a class get
    their labels: with more labels, those of fewer are among them. A class that has one row
    in the context is left out of it; one with too few rows keeps an unlabelled row.
    """
    check_at_least("labels", labels, 1)
    generator = generator_for(draw, f"real {name}")
    rows = torch.randperm(len(table), generator=generator)[:MOST_ROWS].numpy()
    order = torch.randperm(len(rows), generator=generator).numpy()
    target = table[TARGET].to_numpy()[rows]
    names, inverse, counts = np.unique(target, return_inverse=True, return_counts=True)
    kept = counts[inverse] >= 2
    classes, y = np.unique(target[kept], return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{name}, draw {draw}: needs two classes with two rows at least, got "
            f"{len(classes)} of {len(names)}."
        )
    place = np.argsort(order)[kept]  # when each row's turn is
    labelled = np.zeros(len(y), dtype=bool)
    for c in range(len(classes)):
        own = np.flatnonzero(y == c)
        labelled[own[np.argsort(place[own])][: min(labels, len(own) - 1)]] = True
    features = table.drop(columns=TARGET).iloc[rows[kept]].reset_index(drop=True)
    return Context(features, y.astype(np.int64), labelled, len(classes))
