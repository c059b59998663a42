"""CSV and its relatives: cells as they are written, by any separator."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import reason_of
from icssl.tables.cells import exact_number
from icssl.tables.column_reading import NOT_THERE
from icssl.tables.formulas import harmless
from icssl.tables.header_lines import (
    doubts_about_names,
    split_separator_line,
    without_title_lines,
)
from icssl.tables.table_file import (
    FileTable,
    ReadOptions,
    Source,
    without_blanks,
)
from icssl.tables.table_warning import TableWarning, quote
from icssl.tables.text_files import SEPARATORS, decode, guess_separator

_NUMBER = re.compile(
    r"[-+]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:e[-+]?[0-9]+)?|[-+]?inf(?:inity)?",
    re.IGNORECASE,
)
_BOOLEANS = {"true": True, "false": False}


def read_csv(source: Source, options: ReadOptions) -> FileTable:
    """Read a text file with one row per line, every cell as it is written."""
    import pandas as pd

    decoded = decode(source, options)
    if not decoded.text.strip():
        raise ValueError(f"{source.name} has blank lines alone.")
    _allow_long_cells(len(decoded.text))
    said, text = split_separator_line(decoded.text)
    separator = options.separator or said or guess_separator(text)
    text, above, titles = without_title_lines(text, separator)
    above += bool(said)
    header, repeats = _check_lines(source.name, text, separator, options, above)
    names, renamed = unique_names(header)
    warnings = [*titles, *doubts_about_names(header), *renamed]
    try:
        # The header is read as a row: pandas compares equal names with each other, which
        # takes minutes where there are very many.
        frame = pd.read_csv(
            StringIO(text),
            sep=separator,
            index_col=False,
            header=None,
            names=names,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=True,
        )
    except ValueError as error:
        raise ValueError(
            f"{source.name} cannot be read as .csv: {reason_of(error)}."
        ) from error
    frame = frame.iloc[1:].reset_index(drop=True)
    if repeats:
        frame, warning = _without_headers(frame, header)
        warnings.append(warning)
    notes = (
        f"{decoded.encoding_name}, separator {SEPARATORS.get(separator, repr(separator))}",
    )
    return FileTable(
        frame,
        partial(text_labels, frame, options),
        lambda: frame,
        "" if len(names) > 1 else " Is the separator right?",
        notes,
        (*decoded.warnings, *warnings),
        is_text=True,
        separator=separator,
    )


def read_tsv(source: Source, options: ReadOptions) -> FileTable:
    """Read a text file whose cells are separated by tabs, unless another is given."""
    return read_csv(source, replace(options, separator=options.separator or "\t"))


def write_csv(
    texts: Any, columns: Mapping[str, ndarray], path: Path, separator: str
) -> None:
    """Write the cells as they were read, and more columns; none that a program runs."""
    frame = harmless(texts.assign(**columns))
    frame.to_csv(
        path,
        index=False,
        sep=separator,
        float_format="%.6g",
        # By default pandas writes one row at a time where there are 100,000 columns.
        chunksize=max(16, 100_000 // frame.shape[1]),
    )


def write_tsv(texts: Any, columns: Mapping[str, ndarray], path: Path, _: str) -> None:
    """Write the cells as they were read, and more columns, with tabs between them."""
    write_csv(texts, columns, path, "\t")


def unique_names(header: Sequence[str]) -> tuple[list[str], list[TableWarning]]:
    """Return a name for every column, as pandas chooses them, and warn of equal ones.

    Examples
    --------
    >>> unique_names(["a", "", "a"])[0]
    ['a', 'Unnamed: 1', 'a.1']
    """
    taken, names, repeated = set(header), [], {}
    seen: dict[str, int] = {}
    for place, name in enumerate(header):
        unique = (name.strip() and name) or f"Unnamed: {place}"
        if unique in seen:
            count = seen[unique]
            while f"{unique}.{count}" in taken:
                count += 1
            seen[unique] = count + 1
            repeated[unique] = f"{unique}.{count}"
            unique = f"{unique}.{count}"
            taken.add(unique)
        seen.setdefault(unique, 1)
        names.append(unique)
    if not repeated:
        return names, []
    said = (
        f"{quote(list(repeated))} is the name of several columns: the later ones are "
        f"called {quote(list(repeated.values()))}."
    )
    return names, [TableWarning(said, "drop", [next(iter(repeated.values()))])]


def _without_headers(frame: Any, header: Sequence[str]) -> tuple[Any, TableWarning]:
    """Leave out rows that repeat the header, as files that were joined have them."""
    repeated = (frame == np.array(header, dtype=object)).all(axis=1)
    count, first = int(repeated.sum()), int(repeated.to_numpy().argmax())
    where = (
        f"row {first:,}: this line is"
        if count == 1
        else (f"the first in row {first:,}: these lines are")
    )
    said = f"the header is repeated in {count:,} of the lines below it, {where} left out."
    return frame[~repeated].reset_index(drop=True), TableWarning(said)


def text_labels(frame: Any, options: ReadOptions, name: str) -> ndarray:
    """Return a column of texts as booleans or numbers, if all of its cells are such.

    Words such as NA are no labels, unless a person gives them another name.
    """
    cells = without_blanks(np.array(frame[name], dtype=object))
    absent = NOT_THERE.difference(options.relabel)
    absent |= {text.strip() for text in options.missing}
    cells[[isinstance(cell, str) and cell.strip() in absent for cell in cells]] = None
    present = np.array([isinstance(cell, str) for cell in cells], dtype=bool)
    texts = [text.strip() for text in cells[present]]
    if all(map(_NUMBER.fullmatch, texts)):
        cells[present] = [exact_number(text) for text in texts]
    elif all(text.lower() in _BOOLEANS for text in texts):
        cells[present] = [_BOOLEANS[text.lower()] for text in texts]
    return cells


def _check_lines(
    name: str, text: str, separator: str, options: ReadOptions, above: int = 0
) -> tuple[list[str], int]:
    """Return the header, and how many lines repeat it; refuse lines that are cut short.

    A file beyond the limits is refused here too: pandas needs 3 kB for every column. The
    ``above`` lines that were left out before count in the numbers of lines.
    """
    limits = options.limits
    header: list[str] = []
    line, rows, repeats = above + 1, 0, 0
    lines = csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for cells in lines:
            line = above + lines.line_num
            if limits is not None:
                limits.check_columns(name, len(cells))
            if not header:
                header = cells
                continue
            if not cells:
                continue  # a blank line, which pandas skips
            if len(cells) != len(header):
                raise ValueError(
                    f"{name}, line {line}, has {len(cells)} fields and the header has "
                    f"{len(header)}: the file may be cut short, or its separator is not "
                    f"{separator!r}."
                )
            rows += 1
            repeats += cells == header
            if limits is not None:
                limits.check_rows(name, rows, f"more than {limits.rows:,}")
    except csv.Error as error:
        raise ValueError(
            f"{name} cannot be read from line {line + 1} on: {reason_of(error)}. The file "
            "may be cut short."
        ) from error
    return header, repeats


def _allow_long_cells(size: int) -> None:
    """Let ``csv`` read cells of up to ``size`` characters; its own limit is 131,072.

    The limit is one for all threads, so it is never lowered while another thread reads.
    """
    csv.field_size_limit(max(csv.field_size_limit(), min(size, 2**31 - 1)))
