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
_TARGET = "target"


@cache
def read_set(folder: Path, name: str) -> Any:
    """Return the table of one set, with the column of targets as text."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: scripts/fetch_real_data.py makes it (its first lines "
            "say how), and --data names the folder."
        )
    table = read_file(Source(str(path))).cells
    if _TARGET not in table:
        columns = ", ".join(map(str, table.columns[:8]))
        raise ValueError(f"{path} has no column {_TARGET!r}: it begins with {columns}.")
    missing = int(table[_TARGET].isna().sum())
    if missing:
        raise ValueError(f"{path}: {missing} row(s) have no {_TARGET}.")
    return table.assign(**{_TARGET: table[_TARGET].astype(str)})


def fingerprint(table: Any) -> str:
    """Return a short hash of names and cells, the same for every way to store them."""
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
    """Draw at most 1,000 rows of a set, and label so many of each class.

    The set and the draw decide which rows, and in which order the rows of a class get
    their labels: with more labels, those of fewer are among them. A class that has one row
    in the context is left out of it; one with too few rows keeps an unlabelled row.
    """
    check_at_least("labels", labels, 1)
    generator = generator_for(draw, f"real {name}")
    rows = torch.randperm(len(table), generator=generator)[:MOST_ROWS].numpy()
    order = torch.randperm(len(rows), generator=generator).numpy()
    target = table[_TARGET].to_numpy()[rows]
    names, inverse, counts = np.unique(target, return_inverse=True, return_counts=True)
    in_context = counts[inverse] >= 2
    classes, y = np.unique(target[in_context], return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{name}, draw {draw}: needs two classes with two rows at least, got "
            f"{len(classes)} of {len(names)}."
        )
    place = np.argsort(order)[in_context]  # when each row's turn is
    labelled = np.zeros(len(y), dtype=bool)
    for c in range(len(classes)):
        members = np.flatnonzero(y == c)
        in_turn = members[np.argsort(place[members])]
        labelled[in_turn[: min(labels, len(members) - 1)]] = True
    features = table.drop(columns=_TARGET).iloc[rows[in_context]].reset_index(drop=True)
    return Context(features, y.astype(np.int64), labelled, len(classes))
