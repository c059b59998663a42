"""Doubts about options of a reader that change nothing, and about lost labels."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import did_you_mean
from icssl.tables.cells import is_missing
from icssl.tables.table_file import FileTable, ReadOptions
from icssl.tables.table_warning import TableWarning, quote

_MOST_NAMES = 1000  # different texts among which a similar one is looked for


def doubts_about_options(
    file: FileTable, target: str | None, options: ReadOptions
) -> list[TableWarning]:
    """Return warnings of labels to rename, and of texts for no value, that do not occur."""
    labels = _texts(file.labels(target)) if target and options.relabel else {}
    doubts = []
    for name in options.relabel if target else ():
        if name not in labels:
            doubts.append(
                TableWarning(
                    f"no label of column {target!r} is {name!r}, so that none is renamed "
                    f"to {options.relabel[name]!r}.{_nearest(name, labels)}"
                )
            )
    missing = [text.strip() for text in options.missing]
    if not missing or isinstance(file.cells, dict):
        return doubts
    texts: dict[str, None] = {}
    for _, column in file.cells.items():
        if column.dtype.kind not in "biufcmM":
            texts |= _texts(column.array)
    for text in dict.fromkeys(missing):
        if text not in texts:
            doubts.append(
                TableWarning(
                    f"no text of the table is {text!r}, so that none counts as missing for "
                    f"it.{_nearest(text, texts)}{_numbers_advice(file, text)}"
                )
            )
    return doubts


def doubts_about_empty_labels(
    file: FileTable, target: str, labels: ndarray, missing: Sequence[str]
) -> list[TableWarning]:
    """Return a warning if words such as NA and empty cells both stand for no label."""
    if isinstance(file.cells, dict):
        return []
    column = file.cells.set_axis(file.names, axis=1)[target]
    if column.dtype.kind in "biufcmM":
        return []
    words: dict[str, int] = {}
    said, empty = {text.strip() for text in missing}, 0
    for cell, label in zip(column.array, labels.tolist(), strict=True):
        if not is_missing(label):
            continue
        word = cell.strip() if isinstance(cell, str) else ""
        if word in said:
            continue
        if word:
            words[word] = words.get(word, 0) + 1
        else:
            empty += 1
    if not words or not empty:
        return []
    count = sum(words.values())
    rows = "1 row" if count == 1 else f"{count:,} rows"
    return [
        TableWarning(
            f"{quote(list(words))} in column {target!r} and its empty cells both count "
            f"as no label, in {rows} and {empty:,}: if a word is a class, give it another "
            "name.",
            "relabel",
            [f"{word}=class {word}" for word in words],
        )
    ]


def _texts(cells: Iterable[Any]) -> dict[str, None]:
    """Return the different texts of cells that are there, without blanks around them."""
    return dict.fromkeys(str(cell).strip() for cell in cells if not is_missing(cell))


def _nearest(text: str, texts: dict[str, None]) -> str:
    return did_you_mean(text, list(texts)[:_MOST_NAMES])


def _numbers_advice(file: FileTable, text: str) -> str:
    """Return what to do if columns of numbers have a number that is to be missing."""
    try:
        number = float(text)
    except ValueError:
        return ""
    names = [
        str(name)
        for name, column in file.cells.items()
        if column.dtype.kind in "iuf" and bool(np.any(column.to_numpy() == number))
    ]
    if not names:
        return ""
    return f" Columns of numbers, such as {names[0]!r}, keep it: make those cells empty."
