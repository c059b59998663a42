"""What is measured at scale: our classifier and the graph methods that users would try."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from icssl._util.errors import check_choice
from icssl.classifier.estimator import ICSSLClassifier
from icssl.classifier.graph_sparse import all_neighbours, make_search

NEIGHBOURS = 10  # of the graphs of Laplace and Poisson learning, as their authors have it

Found = tuple[ndarray, str]  # classes of all rows, and how they were found
Run = Callable[[Float[ndarray, "n d"], Int[ndarray, " n"], str], Found]


def _ours(x: ndarray, y: ndarray, device: str) -> Found:
    fitted = ICSSLClassifier(device=device).fit(x, y)
    return fitted.transduction_, f"{fitted.backend_}, {fitted.model_name_}"


def _spreading(kernel: str) -> Run:
    """On standardised columns, with the alpha and width of :mod:`icssl.methods.peers`."""

    def run(x: ndarray, y: ndarray, device: str) -> Found:
        settings = {"alpha": 0.8, "gamma": 10 / x.shape[1], "n_neighbors": NEIGHBOURS}
        settings["max_iter"] = 100  # thirty, its default, are too few for this alpha
        model = LabelSpreading(kernel=kernel, **settings)
        fitted = model.fit(StandardScaler().fit_transform(x), y)
        return fitted.transduction_, kernel

    return run


def _graph_learning(name: str) -> Run:
    """A method of the package GraphLearning, on its own kind of graph.

    Neighbours are found by our index: the package would need one more for it.
    """

    def run(x: ndarray, y: ndarray, device: str) -> Found:
        import graphlearning

        known = np.flatnonzero(y >= 0)
        model = getattr(graphlearning.ssl, name)(_knn_graph(x))
        return model.fit_predict(known, y[known]), f"{NEIGHBOURS} neighbours"

    return run


def _knn_graph(x: ndarray) -> sparse.csr_matrix:
    """Gaussian weights, each row at the scale of its last neighbour; symmetric."""
    rows = torch.from_numpy(StandardScaler().fit_transform(x).astype(np.float32))
    found = all_neighbours(make_search(rows), NEIGHBOURS)
    squared = found.distances.numpy()
    weight = np.exp(-4 * squared / np.maximum(squared[:, -1:], 1e-12)).ravel()
    ends = np.arange(0, len(weight) + 1, NEIGHBOURS)
    shape = (len(x), len(x))
    graph = sparse.csr_matrix((weight, found.indices.numpy().ravel(), ends), shape=shape)
    return (graph + graph.T) / 2


METHODS: dict[str, Run] = {
    "icssl": _ours,
    "spreading_knn": _spreading("knn"),
    "spreading_rbf": _spreading("rbf"),
    "laplace": _graph_learning("laplace"),
    "poisson": _graph_learning("poisson"),
}

TITLES = {
    "icssl": "ICSSL",
    "spreading_knn": "Label spreading, nearest neighbours",
    "spreading_rbf": "Label spreading, Gaussian kernel",
    "laplace": "Laplace learning",
    "poisson": "Poisson learning",
}

MOST_ROWS = {"spreading_rbf": 20_000, "spreading_knn": 100_000}
"""Beyond, memory (the matrix of all pairs) or time (a tree in many columns) forbid it."""


def methods_named(names: str) -> list[str]:
    """Of names between commas; "all" are those that can run here."""
    missing = find_spec("graphlearning") is None
    if names == "all":
        lost = {"laplace", "poisson"} if missing else set()
        return [n for n in METHODS if n not in lost]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        check_choice("method", name, [*METHODS, "all"])
        if missing and name in ("laplace", "poisson"):
            raise ImportError(f"{name} needs GraphLearning: pip install 'icssl[peers]'.")
    return wanted


def sizes_for(method: str, sizes: list[int]) -> list[int]:
    """Those at which a method is run."""
    return [n for n in sizes if n <= MOST_ROWS.get(method, n)]


def known_settings(method: str) -> dict[str, Any]:
    """What decides a method's result beside the rows, for the key of its row."""
    from icssl.classifier.weights import weights_id

    return {"weights": weights_id()} if method == "icssl" else {"neighbours": NEIGHBOURS}
