"""The nineteen real datasets, split once and beforehand, and contexts drawn from them."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray

from icssl._util.errors import check_at_least, check_choice
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
# How rows get their labels: so many of each class, or as many in all, drawn at random.
PER_CLASS, RANDOM = PROTOCOLS = ("per-class", "random")
# Contexts per set and number of labels, unless a number is given.
DRAWS = {PER_CLASS: 10, RANDOM: 1}
# Of methods that need several seconds per context, whatever the protocol.
FEWER_DRAWS = {"tabpfn": 1}
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


def draw_context(
    table: Any, name: str, draw: int, labels: int, protocol: str = PER_CLASS
) -> Context:
    """Draw at most 1,000 rows of a set, and label some of them.

    The set and the draw decide which rows, and in which order they get their labels: with
    more labels, those of fewer are among them. A class that has one row in the context is
    left out of it; every other class keeps an unlabelled row.

    Parameters
    ----------
    table : DataFrame
        The whole set, with the column of targets.
    name : str
        Name of the set.
    draw : int
    labels : int
        Labels per class; with ``"random"`` their mean over classes.
    protocol : {"per-class", "random"}
        Whether every class gets so many labels, or rows are drawn at random whatever their
        class, so that the labels tell how frequent classes are. A class without a label
        then gets one more.
    """
    check_at_least("labels", labels, 1)
    check_choice("protocol", protocol, PROTOCOLS)
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
    places = np.argsort(order)[in_context]
    turns = np.argsort(np.argsort(places))  # the rank of each row's place
    labelled = _label_rows(y, turns, labels, protocol)
    features = table.drop(columns=_TARGET).iloc[rows[in_context]].reset_index(drop=True)
    return Context(features, y.astype(np.int64), labelled, len(classes))


def _label_rows(
    y: Int[ndarray, " n"], turns: Int[ndarray, " n"], labels: int, protocol: str
) -> Bool[ndarray, " n"]:
    """Return which rows are labelled.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Classes from 0 on, each with two rows at least.
    turns : ndarray of shape (n,)
        The order in which rows get their labels, as numbers from 0 to n - 1.
    """
    count = int(y.max()) + 1
    labelled = np.zeros(len(y), dtype=bool)
    for c in range(count):
        members = np.flatnonzero(y == c)
        in_turn = members[np.argsort(turns[members])]
        if protocol == PER_CLASS:
            wanted = labels
        else:
            wanted = max(1, int((turns[members] < labels * count).sum()))
        labelled[in_turn[: min(wanted, len(members) - 1)]] = True
    return labelled
