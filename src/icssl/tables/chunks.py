"""The rows of a table some at a time, so that memory does not grow with their number."""

from collections.abc import Iterable, Iterator
from typing import Any

CELLS = 2**20
"""Of a table at once: 8 MB in float64, and a second or some of work."""


def chunks(X: Any, *, show: str | None = None) -> Iterator[tuple[slice, Any]]:
    """Which rows, and these rows of an array, a data frame or a sparse matrix.

    Anything else, a list say, comes whole: what its cells are is told by all of them.

    Parameters
    ----------
    X : table
    show : str, optional
        What a bar on the standard error says is done, where there are several chunks.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.zeros((10, 2**18))
    >>> [len(rows) for _, rows in chunks(table)]
    [4, 4, 2]
    """
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 2 or shape[0] * shape[1] <= CELLS:
        yield slice(None), X
        return
    size = max(1, CELLS // shape[1])
    parts = [slice(i, min(i + size, shape[0])) for i in range(0, shape[0], size)]
    table = X.tocsr() if hasattr(X, "tocsr") else X
    for part in parts if show is None else _shown(parts, show):
        yield part, table.iloc[part] if hasattr(table, "iloc") else table[part]


def _shown(parts: list[slice], what: str) -> Iterable[slice]:
    from rich.console import Console
    from rich.progress import track

    return track(parts, what, console=Console(stderr=True), transient=True)
