"""Doubts about labels: spellings, placeholders, lone labels, and -1 beside empty cells."""

from collections import defaultdict
from itertools import islice, takewhile, zip_longest
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
_LONG = 5  # letters: in shorter words, one letter can be all that tells two apart
_SHOWN = 3  # of misspelt labels
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
    kind = _kind_if_many(classes, int(counts.sum()))
    names = [] if kind else [name for name in texts if name not in known]
    typos = _likely_typos(names, often)
    if typos:
        doubts.append(_misspelt(typos))
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


def _likely_typos(names: list[str], often: dict[Any, int]) -> list[tuple[str, str]]:
    """Return labels that occur once and are a slip away from a commoner one, with that.

    Examples
    --------
    >>> _likely_typos(["Gouda", "Goudda", "Feta"], {"Gouda": 7, "Goudda": 1, "Feta": 5})
    [('Goudda', 'Gouda')]
    """
    common = defaultdict(list)  # by their first letter, which a slip seldom concerns
    for name in names:
        if often[name] >= _OFTEN:
            common[name[:1].casefold()].append(name)
    typos = []
    for name in names:
        if often[name] == 1:
            near = (one for one in common[name[:1].casefold()] if is_slip(name, one))
            typos += [(name, one) for one in islice(near, 1)]
    return typos


def is_slip(name: str, other: str) -> bool:
    """Whether two names differ by one letter of one long word, or by marks alone.

    Short words and digits tell classes apart: "stage II" is not a misspelt "stage I".

    Examples
    --------
    >>> is_slip("Goudda", "Gouda"), is_slip("Berg-Käse", "Bergkäse")
    (True, True)
    >>> is_slip("stage II", "stage I"), is_slip("Australia", "Austria")
    (False, False)
    """
    a, b = name.casefold(), other.casefold()
    letters = ["".join(filter(str.isalnum, text)) for text in (a, b)]
    if letters[0] == letters[1]:
        return len(letters[0]) >= _LONG
    words = [
        pair for pair in zip_longest(a.split(), b.split(), fillvalue="") if len({*pair}) > 1
    ]
    return len(words) == 1 and _is_one_letter_off(*words[0])


def _is_one_letter_off(a: str, b: str) -> bool:
    """Whether a letter, not the first, is left out, doubled, swapped or another one."""
    if min(len(a), len(b)) < _LONG or not (a + b).isalpha() or a[0] != b[0]:
        return False
    start = _same_letters(a, b)
    end = _same_letters(a[start:][::-1], b[start:][::-1])
    left, right = a[start : len(a) - end], b[start : len(b) - end]
    swapped = len(left) == 2 and left == right[::-1]
    return swapped or max(len(left), len(right)) == 1


def _same_letters(a: str, b: str) -> int:
    """Return how many letters two words have in common from the start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b)))  # noqa: B905


def _misspelt(typos: list[tuple[str, str]]) -> TableWarning:
    """Return a warning of labels that look like others, and how to rename them."""
    pairs = [f"{quote([wrong])} looks like {quote([right])}" for wrong, right in typos]
    more = f", and {len(pairs) - _SHOWN:,} more" if len(pairs) > _SHOWN else ""
    each = "counts" if len(pairs) == 1 else "each counts"
    said = (
        f"label {', '.join(pairs[:_SHOWN])}{more}, and {each} as a class of its own: "
        "rename it if it is misspelt."
    )
    return TableWarning(said, "relabel", [f"{wrong}={right}" for wrong, right in typos])


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
