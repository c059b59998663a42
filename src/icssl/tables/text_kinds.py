"""What a column of texts holds: categories, amounts, free text, or names of the rows."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

TOO_FEW = 20
"""Rows: in a shorter table, any column may differ in every row."""

_AMOUNT = re.compile(
    r"[<>=\u2264\u2265~\u2248+\u2212-]*\s*(?P<money>[^\w\s]|[A-Z]{3}\s)?\s*[-+\u2212]?[.,]?\d"
)
_DIGITS = re.compile(r"\d+(?:[.,'\s]\d+)*")
_FORMS = 12  # ways in which such numbers are written, at most: as many as months
_WORDS, _LETTERS = 4, 40  # on average in free text
_SAMPLE = 1000  # cells from which free text is told


def kind_of_texts(values: Any) -> str:
    """Return "category", "amount", "free text" or "name of the row"."""
    sample = [str(cell) for cell in values.dropna().iloc[:_SAMPLE]]
    if len(sample) < TOO_FEW or len(set(sample)) < len(sample) / 2:
        return "category"
    if _are_amounts(sample):
        return "amount"
    words = np.mean([len(text.split()) for text in sample])
    if words >= _WORDS or np.mean([len(text) for text in sample]) >= _LETTERS:
        return "free text"
    all_differ = values.notna().all() and values.nunique() == len(values)
    return "name of the row" if all_differ else "category"


def _are_amounts(texts: Sequence[str]) -> bool:
    """Whether most texts begin with a number, and what stands around it repeats.

    Codes and addresses begin with digits too, and each is written in a way of its own.

    Examples
    --------
    >>> _are_amounts(["5 kg", "300 g", "1.5k"]), _are_amounts(["W001", "W002", "W003"])
    (True, False)
    """
    amounts = [text.strip() for text in texts if _AMOUNT.match(text.strip())]
    forms = {_DIGITS.sub("0", text) for text in amounts}
    most = max(_FORMS, len(texts) // 4)
    return 2 * len(amounts) > len(texts) and len(forms) <= most
