"""``LabelOptions``: what a person asks of ``icssl classify``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONTEXT_ROWS = 2_000
"""Rows of a context for many pieces, by default. Every row of the table is compared with
all of these, so that more of them make every row slower; this many are read in all views,
however many columns they have."""

SUGGESTIONS = 10
"""Rows worth labelling that a report names, unless asked for."""


@dataclass(frozen=True)
class LabelOptions:
    """Options for labelling a table at once, or in pieces on a cluster.

    Parameters
    ----------
    data : Path, optional
        The table; by default the demo's own.
    target : str, optional
        Column with labels in some rows; by default it is guessed.
    output : Path, optional
        Where the labelled rows go: a file, or a folder if they are labelled in pieces.
    report, save : Path, optional
        Where a page about the result goes, and the classifier.
    drop : tuple of str
        Columns that the classifier must not see.
    separator, encoding, decimal, missing, types, relabel
        How the file is read, as for :func:`icssl.read_table`.
    column_scale, model, device : str
        As for :class:`icssl.ICSSLClassifier`.
    suggestions : int
        Number of rows worth labelling that are named.
    context_rows : int
        Rows of the context for pieces: every row that has a label, and as many others as
        make up this number.
    seed : int
        Seed that those others are drawn with.
    judge : bool, optional
        Whether to measure the accuracy on hidden labels; by default for short tables.
    gpus_per_task : float
        GPUs that each worker reserves to predict a piece; with 0 it predicts on the CPU.
    """

    data: Path | None = None
    target: str | None = None
    output: Path | None = None
    report: Path | None = None
    drop: tuple[str, ...] = ()
    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    relabel: Mapping[str, str] = field(default_factory=dict)
    column_scale: str = "auto"
    model: str = "auto"
    device: str = "auto"
    suggestions: int = SUGGESTIONS
    context_rows: int = CONTEXT_ROWS
    seed: int = 0
    gpus_per_task: float = 0.0
    judge: bool | None = None
    save: Path | None = None
