"""CSV: cells as what they look like, and as they are written."""

import csv
import re
from collections.abc import Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import reason_of
from icssl.tables.cells import exact_number
from icssl.tables.table_file import (
    FileTable,
    ReadOptions,
    Source,
    check_names,
    without_blanks,
)

_SEPARATORS = ";\t|,"
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:e[-+]?[0-9]+)?|[-+]?inf(?:inity)?",
    re.IGNORECASE,
)
_BOOLEANS = {"true": True, "false": False}
_ENCODING = "utf-8-sig"  # without the mark that some programs put before a text


def read_csv(source: Source, options: ReadOptions) -> FileTable:
    """Read a CSV file; empty cells, NA, NaN and null are missing."""
    import pandas as pd

    _check_lines(source, options)
    # The target stays text: pandas makes floats of whole numbers where a cell is missing.
    dtype = {} if options.target is None else {options.target: str}
    try:
        with source.open() as file:
            frame = pd.read_csv(
                file,
                sep=options.separator,
                encoding=_ENCODING,
                index_col=False,
                low_memory=False,
                dtype=dtype,
            )
    except ValueError as error:
        raise ValueError(
            f"{source.name} cannot be read as .csv: {reason_of(error)}."
        ) from error
    return FileTable(
        frame,
        partial(_text_labels, frame),
        partial(_read_texts, source, options.separator),
        _other_separator([str(name) for name in frame.columns], options.separator),
    )


def write_csv(
    texts: Any, columns: Mapping[str, ndarray], path: Path, separator: str
) -> None:
    """Write the cells as they were read, and more columns."""
    frame = texts.assign(**columns)
    frame.to_csv(
        path,
        index=False,
        sep=separator,
        float_format="%.6g",
        # By default pandas writes one row at a time where there are 100,000 columns.
        chunksize=max(16, 100_000 // frame.shape[1]),
    )


def _read_texts(source: Source, separator: str) -> Any:
    """Return cells as they are written, so that 1.10 and 007 stay as they are."""
    import pandas as pd

    with source.open() as file:
        return pd.read_csv(
            file,
            sep=separator,
            encoding=_ENCODING,
            index_col=False,
            dtype=str,
            keep_default_na=False,
        )


def _text_labels(frame: Any, name: str) -> ndarray:
    """Return a column of texts as booleans or numbers, if all of its cells are such."""
    cells = without_blanks(frame[name].to_numpy(dtype=object))
    present = np.array([isinstance(cell, str) for cell in cells], dtype=bool)
    texts = cells[present]
    if all(_NUMBER.fullmatch(text.strip()) for text in texts):
        cells[present] = [exact_number(text) for text in texts]
    elif all(text.lower() in _BOOLEANS for text in texts):
        cells[present] = [_BOOLEANS[text.lower()] for text in texts]
    return cells


def _check_lines(source: Source, options: ReadOptions) -> None:
    """Refuse a file with lines cut short, which pandas would fill with missing cells.

    A file beyond the limits is refused here too: pandas needs 3 kB for every column.
    """
    name, limits, separator = source.name, options.limits, options.separator
    header: list[str] = []
    line, rows = 1, 0
    _allow_long_cells(source.size)
    try:
        with TextIOWrapper(source.open(), encoding=_ENCODING, newline="") as file:
            lines = csv.reader(file, delimiter=separator, strict=True)
            for cells in lines:
                line = lines.line_num
                if limits is not None:
                    limits.check_columns(name, len(cells))
                if not header:
                    header = cells
                    check_names(name, "column", cells, [])
                    continue
                if not cells:
                    continue  # a blank line, which pandas skips
                if len(cells) != len(header):
                    raise ValueError(
                        f"{name}, line {line}, has {len(cells)} fields and the header has "
                        f"{len(header)}: the file may be cut short."
                        f"{_other_separator(header, separator)}"
                    )
                rows += 1
                if limits is not None:
                    limits.check_rows(name, rows, f"more than {limits.rows:,}")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not text in UTF-8: {reason_of(error)}. Save it as UTF-8."
        ) from error
    except csv.Error as error:
        raise ValueError(
            f"{name} cannot be read from line {line + 1} on: {reason_of(error)}. The file "
            "may be cut short."
        ) from error


def _allow_long_cells(size: int) -> None:
    """Let ``csv`` read cells of up to ``size`` characters; its own limit is 131,072.

    The limit is one for all threads, so it is never lowered while another thread reads.
    """
    csv.field_size_limit(max(csv.field_size_limit(), min(size, 2**31 - 1)))


def _other_separator(header: Sequence[str], separator: str) -> str:
    """Return the end of a message about a header of one cell: which separator to try."""
    if len(header) != 1:
        return ""
    marks = [mark for mark in _SEPARATORS if mark in header[0] and mark != separator]
    return f" Try --separator {marks[0]!r}." if marks else " Is the separator right?"
