"""What :class:`icssl.ICSSLClassifier` decides before it reads: device, views, prior."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import sparse

from icssl.context.backends import DENSE_ROWS, DENSE_ROWS_GPU
from icssl.context.neighbours import is_solved
from icssl.context.views import VIEWS
from icssl.errors import check_choice, check_device

MODELS = {
    "all views": VIEWS,
    "one view": VIEWS[:1],  # a few dozen passes over the rows, and no matrix of them
}
# Rows that are read in all views, unless asked for: a minute or two on two cores. Fewer of
# many columns, where neighbours take longer to find; fewer where all weights take part.
_MOST_ROWS, _MOST_CELLS = 200_000, 2**23
_WIDE_ROWS = 2_000  # however many columns they have
_MOST_WEIGHT = 1e18  # of a new row, where one is the largest in the graph
_GPU_ROWS = 2_000  # from which a GPU is worth its start


def check_model(asked: object) -> None:
    """Refuse what is neither a name nor a file of weights."""
    if not is_file(asked):
        also = "a file that ends in .safetensors"
        check_choice("model", asked, ["auto", *MODELS], also)


def is_file(model: object) -> bool:
    """Whether a model is a file of weights."""
    return str(model).endswith(".safetensors")


def device_for(asked: str, n: int) -> str:
    """The device on which so many rows are read."""
    if asked != "auto":
        check_device(str(asked))
        return str(asked)
    return "cuda" if n >= _GPU_ROWS and torch.cuda.is_available() else "cpu"


def dtype_for(n: int, device: str) -> torch.dtype:
    """Return the precision of so many rows: float64 where their eigenmap is exact."""
    return torch.float64 if is_solved(n, device) else torch.float32


def views_for(model: Any, backend: str, n: int, d: int, device: str) -> str:
    """The name of the views in which a table is read: of :data:`MODELS`.

    Parameters
    ----------
    model, backend : str
        As they were asked for.
    n, d : int
        Rows and columns.
    device : str
        The one on which the table is read.
    """
    if model in MODELS:
        return str(model)
    return "all views" if n <= _most_rows(backend, d, device) else "one view"


def _most_rows(backend: str, d: int, device: str) -> int:
    """That are read in all views."""
    if torch.device(device).type == "cuda":
        return DENSE_ROWS_GPU
    if backend in ("dense", "exact"):
        return DENSE_ROWS
    return min(_MOST_ROWS, max(_WIDE_ROWS, _MOST_CELLS // max(1, d)))


def without_diagonal(w: Any) -> Any:
    """Return a graph, dense or sparse, in which no row is its own neighbour."""
    w = w.copy()
    if sparse.issparse(w):
        w.setdiag(0.0)
        w.eliminate_zeros()
    else:
        np.fill_diagonal(w, 0.0)
    return w


def weight_exponent(w: Any) -> int:
    """Return the exponent of two of a graph's largest weight, dense or sparse."""
    cells = w.data if sparse.issparse(w) else w
    return int(np.frexp(cells.max(initial=0.0))[1])


def comparable_weights(w: Any, exponent: int) -> Any:
    """Return weights divided by a power of two, which no digit is lost by.

    The unit of a graph's weights does not matter, and sums of them must not overflow. New
    rows can have larger weights: above 1e18 times the graph's largest they are cut to that.
    """
    scaled = w.copy()
    cells = scaled.data if sparse.issparse(w) else scaled
    with np.errstate(over="ignore"):  # what is infinite is cut off in the next line
        np.minimum(np.ldexp(cells, -exponent), _MOST_WEIGHT, out=cells)
    return scaled


def symmetric_weights(w: Any) -> Float[ndarray, "n n"]:
    """Return a graph as a matrix in which either way counts, as of nearest neighbours."""
    w = w.toarray() if sparse.issparse(w) else w
    return np.maximum(w, w.T)


def prior_for(
    asked: Any, codes: Int[ndarray, " n"], count: int
) -> Float[ndarray, " classes"]:
    """How frequent each of so many classes is: as asked for, else by the labels."""
    if asked is None:
        share = np.bincount(codes[codes >= 0], minlength=count) + 1.0
    elif isinstance(asked, str):
        check_choice("class_prior", asked, ["uniform"], "an array with a number a class")
        share = np.ones(count)
    else:
        share = _as_numbers(asked)
    if share.shape != (count,) or not (np.isfinite(share) & (share > 0)).all():
        raise ValueError(
            f"class_prior must have a positive number for each of the {count} classes, got "
            f"{asked!r}."
        )
    share = share / share.max()  # or a sum of the largest floats would be infinite
    share = np.maximum(share, np.finfo(float).tiny)  # a ratio that underflows is not zero
    return share / share.sum()


def _as_numbers(asked: Any) -> ndarray:
    """Return numbers, or none at all where something else was given."""
    try:
        return np.asarray(asked, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)
