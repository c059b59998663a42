"""Doubts about labels: spellings, placeholders, lone labels, and -1 beside empty cells."""

from collections import defaultdict
from difflib import get_close_matches
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from icssl.tables.cells import is_missing, plain_column
from icssl.tables.column_reading import MARKS
from icssl.tables.table_warning import TableWarning, quote

_PLACEHOLDERS = MARKS | {"unlabelled", "unlabeled", "no label", "not labelled", "todo"}
_MANY = 20  # whole numbers that differ: fewer may well be classes
_OFTEN = 3  # labels of a class that another one may be a misspelling of
_SHORT = 4  # letters: of shorter names, one letter can be all that tells two apart
_ALIKE = 0.8  # ratio of difflib from which on a name is taken for a misspelling
_OTHERS = 4  # labels per class, on average, beside which a single one is odd


def doubts_about_labels(
    y: Any, classes: ndarray, codes: Int[ndarray, " n"]
) -> list[TableWarning]:
    """Return what looks wrong among labels that could be read; nothing is changed.

    Parameters
    ----------
    y : array-like
        The target as it was given.
    classes, codes : ndarray
        What :func:`icssl.tables.targets.read_targets` makes of it.

    Examples
    --------
    >>> y = ["yes", "Yes", "no", None]
    >>> classes, codes = np.array(["Yes", "no", "yes"]), np.array([2, 0, 1, -1])
    >>> print(doubts_about_labels(y, classes, codes)[0].said)
    labels 'Yes' and 'yes' differ by case or blanks alone, and are several classes.
    """
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    often = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    texts = [name for name in classes if isinstance(name, str)]
    groups = _same_but_for_case(texts, often)
    doubts = [_spellings(group) for group in groups]
    absent = [name for name in texts if name.strip().casefold() in _PLACEHOLDERS]
    if absent:
        stand = "stands" if len(absent) == 1 else "stand"
        said = f"{quote(absent)} {stand} for no label, usually, and here for a class."
        doubts.append(TableWarning(said, "missing", absent))
    # Only of a text: a number is seldom misspelt.
    known = {*absent, *(name for group in groups for name in group[1:])}
    typos = _likely_typos([name for name in texts if name not in known], often)
    if typos:
        said = " and ".join(f"{wrong!r} looks like {right!r}" for wrong, right in typos)
        said = f"{said}, and counts as a class of its own."
        if len(typos) > 1:
            said = said.replace("counts as a class", "each counts as a class")
        pairs = [f"{wrong}={right}" for wrong, right in typos]
        doubts.append(TableWarning(said, "relabel", pairs))
    known |= {*dict(typos), *(group[0] for group in groups)}
    lone = [name for name in texts if often[name] == 1 and name not in known]
    if lone and counts.sum() >= _OTHERS * len(classes):
        has = "has one label" if len(lone) == 1 else "have one label each"
        it = "it" if len(lone) == 1 else "them"
        said = (
            f"{quote(lone)} {has}, and other classes many: label more such rows if you "
            f"can. Counted as no value, no row would be predicted as {it}."
        )
        doubts.append(TableWarning(said, "missing", lone))
    kind = _kind_if_many(classes, int(counts.sum()))
    if kind:
        said = (
            f"{len(classes):,} of {counts.sum():,} labels are different {kind}, as "
            f"{quote(classes[[0, -1]].tolist())} are, and each counts as a class: "
        )
        said += (
            "if they are names, this is no column of labels; if they are amounts, predict "
            "them with ICSSLRegressor."
            if kind == "texts"
            else "if they are amounts, predict them with ICSSLRegressor."
        )
        doubts.append(TableWarning(said))
    if _has_both_marks(y):
        said = (
            "the target has -1 beside empty cells, and rows with -1 count as rows without "
            "a label: if -1 is a class, give it another name."
        )
        doubts.append(TableWarning(said, "relabel", ["-1=negative"]))
    return doubts


def _same_but_for_case(texts: list[str], often: dict[Any, int]) -> list[list[str]]:
    """Return groups of labels that differ by case or blanks alone, the commonest first."""
    groups = defaultdict(list)
    for text in texts:
        groups[" ".join(text.casefold().split())].append(text)
    return [
        sorted(group, key=lambda text: (-often[text], text))
        for group in groups.values()
        if len(group) > 1
    ]


def _likely_typos(texts: list[str], often: dict[Any, int]) -> list[tuple[str, str]]:
    """Return labels that occur once and are nearly a commoner one, each with that one.

    Examples
    --------
    >>> _likely_typos(["Gouda", "Goudda", "Feta"], {"Gouda": 7, "Goudda": 1, "Feta": 5})
    [('Goudda', 'Gouda')]
    """
    common = [name for name in texts if often[name] >= _OFTEN]
    typos = []
    for name in texts:
        # Labels such as "stage 1" and "stage 2" differ in what matters.
        if often[name] > 1 or any(map(str.isdigit, name)) or len(name) < _SHORT:
            continue
        near = get_close_matches(name, common, n=1, cutoff=_ALIKE)
        typos += [(name, near[0])] if near else []
    return typos


def _spellings(group: list[str]) -> TableWarning:
    said = f"labels {quote(group)} differ by case or blanks alone, and are several classes."
    first, *others = group
    return TableWarning(said, "relabel", [f"{other}={first}" for other in others])


def _kind_if_many(classes: ndarray, labels: int) -> str:
    """Return what labels are if most are different and do not just count the classes."""
    if len(classes) < _MANY or 2 * len(classes) <= labels:
        return ""
    if classes.dtype.kind not in "iu":
        return "texts" if isinstance(classes[0], str) else ""
    counted = int(classes[-1]) - int(classes[0]) + 1 == len(classes)
    return "" if counted else "whole numbers"


def _has_both_marks(y: Any) -> bool:
    """Whether -1, as a number or a text, and missing cells are both there."""
    cells = np.asarray(plain_column(y)).ravel()
    if cells.dtype.kind in "iub":
        return False
    absent = any(is_missing(cell) or cell == "" for cell in cells.tolist())
    if not absent:
        return False
    if cells.dtype.kind == "f":
        return bool((cells == -1).any())
    return any(str(cell) in ("-1", "-1.0") for cell in cells.tolist())
