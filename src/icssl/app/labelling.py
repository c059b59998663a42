"""Label the rows of one table with the classifier, and sum up the result."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl._util.files import replacing, sync
from icssl.app.label_options import SUGGESTIONS, LabelOptions
from icssl.app.quality import not_measured, quality_lines
from icssl.app.tally import UNREACHED, Tally
from icssl.tables.label_table import LabelTable, read_table
from icssl.tables.output import write_table
from icssl.tables.targets import read_targets

if TYPE_CHECKING:
    from icssl.classifier.estimator import ICSSLClassifier
    from icssl.classifier.explanation import Explanation
    from icssl.classifier.label_score import LabelScore


MOST_JUDGED = 3_000
"""Rows up to which the accuracy is measured unless asked for: it takes ten refits."""

_ASK_FOR_SCORE = not_measured(
    MOST_JUDGED, "Add --score to icssl classify: it takes up to ten times as long."
)
_DEMO_LABELS = 3  # per class
_MOST_PARTS = 2**24  # numbers of an explanation that is kept beside a table


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
    why: "Explanation | None" = None  # where the table is not too large for it
    score: "LabelScore | None" = None  # on labels that were hidden, if it was asked for
    baseline: "LabelScore | None" = None  # of logistic regression, on the same
    unmeasured: str = ""  # without a score: why there is none, and how to get one
    warnings: tuple[Warning, ...] = ()  # of reading the table and of the fit

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
    with _kept_warnings() as doubts:
        table = _table_of(options)
        is_short = len(table.target) <= MOST_JUDGED
        # Refits of a long table take as many times as long.
        judge = is_short if options.judge is None else options.judge
        labelling = label_rows(
            table,
            model=options.model,
            column_scale=options.column_scale,
            device=options.device,
            suggestions=options.suggestions,
            judge=judge,
            on_progress=on_progress,
        )
    unmeasured = "" if is_short or options.judge is not None else _ASK_FOR_SCORE
    labelling = replace(labelling, warnings=tuple(doubts), unmeasured=unmeasured)
    on_progress("writing ...")
    _write(labelling, options)
    return labelling


def _table_of(options: LabelOptions) -> LabelTable:
    if options.data is None:
        return demo_table()
    return read_table(
        options.data,
        options.target or "auto",
        drop=options.drop,
        separator=options.separator,
        encoding=options.encoding,
        decimal=options.decimal,
        missing=options.missing,
        types=options.types,
        relabel=options.relabel,
    )


@contextmanager
def _kept_warnings(said_before: Sequence[Warning] = ()) -> Iterator[list[Warning]]:
    """Keep warnings for the user, and raise all warnings again when the block ends.

    Those that were said before are dropped: reading and ``fit`` both look at columns.
    """
    kept: list[Warning] = []
    known = [warning.args for warning in said_before]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield kept
        finally:
            new = [
                one
                for one in caught
                if isinstance(one.message, Warning) and one.message.args not in known
            ]
            kept += [one.message for one in new if isinstance(one.message, UserWarning)]
    for one in new:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _write(labelling: Labelling, options: LabelOptions) -> None:
    """Write rows, report and classifier; after an error there is no new file."""
    output, report = options.output, options.report
    with ExitStack() as stack:
        if report is not None:
            from icssl.app.labelling_report import report_html  # and with it matplotlib

            # The report is on the disk before the table is, and takes its place after it.
            unfinished = stack.enter_context(replacing(report))
            unfinished.write_text(report_html(labelling), encoding="utf-8")
            sync(unfinished)
        if options.save is not None:
            from icssl.app.saved_classifier import save_classifier

            unfinished = stack.enter_context(replacing(options.save))
            save_classifier(unfinished, labelling.table, options)
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
    features = _with_names(wine.data, wine.feature_names)
    return LabelTable("Wine (demo)", features, target, stored, truth=names)


def _with_names(values: ndarray, names: list[str]) -> Any:
    """Return a data frame, or the values alone if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        return values
    return pd.DataFrame(values, columns=names)


def label_rows(
    table: LabelTable,
    *,
    model: str = "auto",
    column_scale: str = "auto",
    device: str = "auto",
    suggestions: int = SUGGESTIONS,
    judge: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Labelling:
    """Fit :class:`icssl.ICSSLClassifier` to a table, which trains nothing.

    Parameters
    ----------
    table : LabelTable
    model, column_scale, device : str
        As for the classifier.
    suggestions : int
        Number of rows worth labelling that are named.
    judge : bool
        Whether to measure the accuracy on labels that are hidden, in up to ten refits.
    on_progress : callable, optional
        Called with a text before every stage.
    """
    on_progress(f"labelling {len(table.target):,} rows ...")
    with _kept_warnings(table.warnings) as doubts:
        classifier = fit_classifier(
            table, model=model, column_scale=column_scale, device=device
        )
    labelling = labelling_of(table, classifier)
    labelling = replace(labelling, warnings=(*table.warnings, *doubts))
    count = min(suggestions, len(labelling.unlabelled_rows))
    suggested = [int(row) for row in classifier.suggest(count)] if count else []
    why = _explain(labelling, classifier)
    labelling = replace(labelling, suggested=tuple(suggested), why=why)
    if not judge:
        return labelling
    on_progress("predicting labels that are hidden, to see how good it is ...")
    return replace(
        labelling, score=classifier.label_score_, baseline=classifier.label_baseline_
    )


def _explain(labelling: Labelling, classifier: "ICSSLClassifier") -> "Explanation | None":
    """Return why all rows get their classes, unless that is too much to hold."""
    labelled = int((labelling.given_codes >= 0).sum())
    parts = labelled * labelling.distributions.size
    return classifier.explain() if parts <= _MOST_PARTS else None


def fit_classifier(
    table: LabelTable,
    *,
    model: str = "auto",
    column_scale: str = "auto",
    device: str = "auto",
) -> "ICSSLClassifier":
    """Return a classifier with the table as its context; an error names the table."""
    from icssl.classifier.estimator import ICSSLClassifier

    try:
        scale: Any = column_scale  # any text: fit says which there are
        classifier = ICSSLClassifier(model, column_scale=scale, device=device)
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
    if labelling.score is not None:
        lines += quality_lines(labelling.score, labelling.baseline)
    elif labelling.unmeasured:
        lines.append(labelling.unmeasured)
    if labelling.table.truth is not None and len(unlabelled):
        hits = (labelling.labels == labelling.table.truth)[unlabelled]
        lines.append(f"The demo knows the truth: {hits.mean():.3f} of these are right.")
    return lines


def class_rows(labelling: Labelling) -> tuple[tuple[str, ...], ...]:
    """Return the cells of a table with one line per class, below ``CLASS_HEADER``."""
    return labelling.tally.class_rows
