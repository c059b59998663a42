"""Label the rows of one table with the classifier, and sum up the result."""

import re
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl._util.errors import printable
from icssl._util.files import replacing, sync
from icssl.tables.reader import LabelTable, read_table, write_table
from icssl.tables.targets import read_targets

if TYPE_CHECKING:
    from icssl.classifier.estimator import ICSSLClassifier

UNREACHED = 0.1
"""Below this ``reach_``, walks of some steps hardly ever meet a labelled row."""

NAME = 80
"""Most characters of a name or a cell that are shown."""

CONTEXT_ROWS = 2_000
"""Rows of a context for many pieces, by default. Every row of the table is compared with
all of these, so that more of them make every row slower; this many are read in all views,
however many columns they have."""

SUGGESTIONS = 10
"""Rows worth labelling that a report names, unless asked for."""

_TOO_FEW = 20  # rows: in a shorter table, any column may differ in every row
_DEMO_LABELS = 3  # per class


@dataclass(frozen=True)
class LabelOptions:
    """Options for labelling a table at once, or in pieces on a cluster.

    Parameters
    ----------
    data : Path, optional
        The table; by default the demo's own.
    target : str, optional
        Column with labels in some rows.
    output : Path, optional
        Where the labelled rows go: a file, or a folder if they are labelled in pieces.
    report : Path, optional
        Where a page about the result goes.
    drop : tuple of str
        Columns that the classifier must not see.
    separator : str
        Character between the cells of a CSV file.
    model, device : str
        As for :class:`icssl.ICSSLClassifier`.
    suggestions : int
        Number of rows worth labelling that are named.
    context_rows : int
        Rows of the context for pieces: every row that has a label, and as many others as
        make up this number.
    seed : int
        Seed that those others are drawn with.
    gpus_per_task : float
        GPUs that each worker reserves to predict a piece; with 0 it predicts on the CPU.
    """

    data: Path | None = None
    target: str | None = None
    output: Path | None = None
    report: Path | None = None
    drop: tuple[str, ...] = ()
    separator: str = ","
    model: str = "auto"
    device: str = "auto"
    suggestions: int = SUGGESTIONS
    context_rows: int = CONTEXT_ROWS
    seed: int = 0
    gpus_per_task: float = 0.0


@dataclass(frozen=True, eq=False)
class Tally:
    """A labelling in numbers, which add up over the pieces of a table.

    Parameters
    ----------
    name : str
        Name of the table.
    features : int
        Number of its columns without the target.
    model : str
        Name of the model.
    classes : ndarray
        Names of the classes.
    labelled, rows : ndarray of int
        Rows per class: those that came with a label, and all.
    probability : ndarray of float
        Sum of probabilities per class, over rows that came without a label.
    confidence : float
        Sum of probabilities over all rows that came without a label.
    unreached : int
        Number of these rows that hardly any labelled evidence reached.
    """

    name: str
    features: int
    model: str
    classes: ndarray
    labelled: Int[ndarray, " c"]
    rows: Int[ndarray, " c"]
    probability: Float[ndarray, " c"]
    confidence: float
    unreached: int

    def __add__(self, other: "Tally") -> "Tally":
        return replace(
            self,
            labelled=self.labelled + other.labelled,
            rows=self.rows + other.rows,
            probability=self.probability + other.probability,
            confidence=self.confidence + other.confidence,
            unreached=self.unreached + other.unreached,
        )

    @property
    def lines(self) -> list[str]:
        """The answers to what a person asks first, one or two sentences per line."""
        rows, labelled = int(self.rows.sum()), int(self.labelled.sum())
        new = rows - labelled
        first = (
            f"{printable(self.name)}: {rows:,} rows, {labelled:,} labelled, "
            f"{self.features:,} columns, {len(self.classes):,} classes. Model: "
            f"{self.model}."
        )
        if not new:
            return [first, "Every row came with a label."]
        return [
            first,
            f"Mean confidence {self.confidence / new:.3f} over the {new:,} rows that came "
            f"without a label; {self.unreached:,} of them have a reach below "
            f"{UNREACHED:g}: hardly any labelled evidence.",
        ]

    @property
    def class_rows(self) -> tuple[tuple[str, ...], ...]:
        """The cells of a table with one line per class, below ``CLASS_HEADER``."""
        columns = (self.classes, self.labelled, self.rows, self.probability)
        return tuple(
            (
                printable(name, NAME),
                f"{labelled:,}",
                f"{rows:,}",
                _mean_text(float(total), int(rows - labelled)),
            )
            for name, labelled, rows, total in zip(*columns, strict=True)
        )


def _mean_text(total: float, count: int) -> str:
    return f"{total / count:.3f}" if count else "-"


@dataclass(frozen=True, eq=False)
class Labelling:
    """The classifier's answers about a table."""

    table: LabelTable
    classes: ndarray
    given_codes: Int[ndarray, " n"]  # -1 where the table has no label
    distributions: Float[ndarray, "n c"]
    embedding: Float[ndarray, "n k"]
    reach: Float[ndarray, " n"]
    suggested: tuple[int, ...]
    model: str

    @cached_property
    def codes(self) -> Int[ndarray, " n"]:
        """The class of every row: the one it was given, or else the likeliest."""
        likeliest = self.distributions.argmax(axis=1)
        return np.where(self.given_codes >= 0, self.given_codes, likeliest)

    @property
    def labels(self) -> ndarray:
        """The name of the class of every row."""
        return self.classes[self.codes]

    @property
    def unlabelled_rows(self) -> ndarray:
        """Rows that came without a label."""
        return np.flatnonzero(self.given_codes < 0)

    @cached_property
    def probability(self) -> Float[ndarray, " n"]:
        """The probability of the label of every row, also where it was given."""
        return self.distributions[np.arange(len(self.codes)), self.codes]

    @property
    def columns(self) -> dict[str, ndarray]:
        """The columns that are written beside the rows."""
        return {"label": self.labels, "probability": self.probability, "reach": self.reach}

    @property
    def tally(self) -> Tally:
        """The same in a few numbers."""
        c, is_labelled = len(self.classes), self.given_codes >= 0
        codes, probability = self.codes[~is_labelled], self.probability[~is_labelled]
        return Tally(
            self.table.name,
            self.table.features.shape[1],
            self.model,
            self.classes,
            np.bincount(self.given_codes[is_labelled], minlength=c),
            np.bincount(self.codes, minlength=c),
            np.bincount(codes, probability, c).astype(float),
            float(probability.sum()),
            int((self.reach[~is_labelled] < UNREACHED).sum()),
        )


def label_file(
    options: LabelOptions, on_progress: Callable[[str], None] = lambda _: None
) -> Labelling:
    """Read one table, label its rows, and write the rows and a report.

    Parameters
    ----------
    options : LabelOptions
        What to read, how, and where the results go; without ``data`` the demo's table is
        labelled.
    on_progress : callable, optional
        Called with a text before every stage.
    """
    on_progress("reading ...")
    if options.data is None or options.target is None:
        table = demo_table()
    else:
        table = read_table(
            options.data, options.target, drop=options.drop, separator=options.separator
        )
    on_progress(f"labelling {len(table.target):,} rows ...")
    labelling = label_rows(
        table, model=options.model, device=options.device, suggestions=options.suggestions
    )
    on_progress("writing ...")
    _write(labelling, options.output, options.report)
    return labelling


def _write(labelling: Labelling, output: Path | None, report: Path | None) -> None:
    """Write rows and report; after an error there is no new file."""
    with ExitStack() as stack:
        if report is not None:
            from icssl.app.labelling_report import report_html  # and with it matplotlib

            # The report is on the disk before the table is, and takes its place after it.
            unfinished = stack.enter_context(replacing(report))
            unfinished.write_text(report_html(labelling), encoding="utf-8")
            sync(unfinished)
        if output is not None:
            write_table(labelling.table, labelling.columns, output)


def demo_table() -> LabelTable:
    """Return wines of three growers by 13 measurements; three of each have a label."""
    from sklearn.datasets import load_wine

    wine = load_wine()
    names = np.array(["grower A", "grower B", "grower C"])[wine.target]
    rng = np.random.default_rng(0)
    target = np.full(len(names), None, dtype=object)
    for name in np.unique(names):
        chosen = rng.choice(np.flatnonzero(names == name), _DEMO_LABELS, replace=False)
        target[chosen] = name
    stored = {"target": target, "x": wine.data}
    return LabelTable("Wine (demo)", wine.data, target, stored, truth=names)


def label_rows(
    table: LabelTable,
    *,
    model: str = "auto",
    device: str = "auto",
    suggestions: int = SUGGESTIONS,
) -> Labelling:
    """Fit :class:`icssl.ICSSLClassifier` to a table, which trains nothing."""
    _warn_of_row_names(table)
    classifier = fit_classifier(table, model=model, device=device)
    labelling = labelling_of(table, classifier)
    count = min(suggestions, len(labelling.unlabelled_rows))
    suggested = [int(row) for row in classifier.suggest(count)] if count else []
    return replace(labelling, suggested=tuple(suggested))


def _warn_of_row_names(table: LabelTable) -> None:
    """Warn of columns that may only name the row: all their cells differ."""
    columns = table.features.items() if hasattr(table.features, "items") else ()
    for name, column in columns:
        if len(column) < _TOO_FEW or column.nunique() < len(column):
            continue
        if column.dtype.kind in "iu":
            names_rows = int(column.max()) - int(column.min()) + 1 == len(column)
        else:
            names_rows = all(isinstance(cell, str) for cell in column)
        if names_rows:
            warnings.warn(
                f"column {name!r} is different in every row: --drop it if it only says "
                "which row this is.",
                UserWarning,
                stacklevel=2,
            )


def fit_classifier(
    table: LabelTable, *, model: str = "auto", device: str = "auto"
) -> "ICSSLClassifier":
    """Return a classifier with the table as its context; an error names the table."""
    from icssl.classifier.estimator import ICSSLClassifier

    try:
        classifier = ICSSLClassifier(model, device=device)
        return classifier.fit(table.features, table.target)
    except ValueError as error:
        message = re.sub(r"^y has", "its target has", str(error))
        raise ValueError(f"{table.name}: {message}") from error


def labelling_of(table: LabelTable, classifier: "ICSSLClassifier") -> Labelling:
    """Return what a classifier says about the table to which it was fitted."""
    classes, codes = read_targets(table.target)
    return Labelling(
        table,
        classes,
        codes,
        classifier.label_distributions_,
        classifier.embedding_,
        classifier.reach_,
        (),
        classifier.model_name_,
    )


def summary_lines(labelling: Labelling) -> list[str]:
    """Return what a person asks first, one or two sentences per line."""
    lines, unlabelled = labelling.tally.lines, labelling.unlabelled_rows
    if labelling.table.truth is not None and len(unlabelled):
        hits = (labelling.labels == labelling.table.truth)[unlabelled]
        lines.append(f"The demo knows the truth: {hits.mean():.3f} of these are right.")
    return lines


CLASS_HEADER = ("class", "labels given", "rows in all", "mean probability of the others")


def class_rows(labelling: Labelling) -> tuple[tuple[str, ...], ...]:
    """Return the cells of a table with one line per class, below ``CLASS_HEADER``."""
    return labelling.tally.class_rows
