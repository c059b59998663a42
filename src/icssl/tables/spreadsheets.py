"""Excel files (.xlsx): the first sheet that has cells, and values instead of formulas."""

import re
import warnings as python_warnings
from collections.abc import Mapping
from datetime import UTC, datetime, time
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from numpy import ndarray

from icssl._util.errors import reason_of
from icssl.tables.cells import is_missing
from icssl.tables.csv_text import text_labels, unique_names
from icssl.tables.formulas import harmless
from icssl.tables.header_lines import (
    count_title_rows,
    doubts_about_names,
    title_warnings,
)
from icssl.tables.table_file import FileTable, Limits, ReadOptions, Source
from icssl.tables.table_warning import TableWarning, quote
from icssl.tables.text_files import kind_of_bytes

_MOST_UNPACKED = 2**30  # bytes of a file that a person reads on a machine of their own
_CELL_BYTES = 64  # of a cell in memory, about
_DAMAGED = (
    BadZipFile,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    RuntimeError,  # a file with a password
    SyntaxError,  # XML that is none
    ZlibError,
)
_CELLS = re.compile(rb"<c[ >]")


def read_xlsx(source: Source, options: ReadOptions) -> FileTable:
    """Read the first sheet with cells; its first row below any title has the names."""
    import pandas as pd
    from openpyxl import load_workbook

    try:
        _check_unpacked(source, options.limits)
        with source.open() as file, python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")  # of styles that are not read
            book = load_workbook(file, read_only=True, data_only=True)
            rows, notes, doubts = _first_rows(source.name, book, options.limits)
            book.close()
    except _DAMAGED as error:
        with source.open() as file:
            kind = kind_of_bytes(file.read(32).removeprefix(b"PK"))
        why = (
            f"it looks like {kind}."
            if kind
            else f"perhaps it is cut short: {reason_of(error)}."
        )
        raise ValueError(f"{source.name} cannot be read as .xlsx, {why}") from error
    header = ["" if cell is None else str(cell) for cell in rows[0]]
    names, renamed = unique_names(header)
    body = [row for row in rows[1:] if list(row) != list(rows[0])]
    cells = [[_plain(cell) for cell in row] for row in body]
    frame = pd.DataFrame(cells, columns=names, dtype=object)
    doubts += [*doubts_about_names(header), *renamed]
    if len(body) < len(rows) - 1:
        count = len(rows) - 1 - len(body)
        rows_are = (
            "1 row below it: it is" if count == 1 else f"{count:,} rows below it: they are"
        )
        doubts.append(TableWarning(f"the header is repeated in {rows_are} left out."))
    typed = frame.infer_objects()
    labels = partial(text_labels, frame, options)
    return FileTable(typed, labels, lambda: frame, "", (notes,), tuple(doubts))


def write_xlsx(stored: Any, columns: Mapping[str, ndarray], path: Path, _: str) -> None:
    """Write one sheet; a text that looks like a formula stays a text."""
    from openpyxl import Workbook

    frame = harmless(stored.assign(**columns))
    book = Workbook(write_only=True)
    sheet = book.create_sheet("labelled")
    sheet.append([str(name) for name in frame.columns])
    for row in frame.itertuples(index=False, name=None):
        sheet.append([_for_sheet(cell) for cell in row])
    book.save(path)


def _first_rows(
    name: str, book: Any, limits: Limits | None
) -> tuple[list[tuple[Any, ...]], str, list[TableWarning]]:
    """Return rows that are not blank, all of one width, of the first sheet with any."""
    filled: list[tuple[str, list[tuple[Any, ...]]]] = []
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # what a file says of its size may be wrong
        rows = [] if filled else _rows(name, sheet, limits)
        if rows or (filled and any(sheet.iter_rows(values_only=True, max_row=1))):
            filled.append((sheet.title, rows))
    if not filled:
        raise ValueError(f"{name} has no sheet with cells.")
    title, rows = filled[0]
    others = [other for other, _ in filled[1:]]
    doubts = []
    if others:
        doubts.append(
            TableWarning(
                f"only sheet {title!r} is read, the first of {len(filled)}: "
                f"{quote(others)} would need a file of its own."
            )
        )
    titles = count_title_rows(rows)
    doubts += title_warnings(rows[:titles])
    rows = rows[titles:]
    width = max(map(len, rows))
    padded = [row + (None,) * (width - len(row)) for row in rows]
    return padded, f"sheet {title!r}", doubts


def _rows(name: str, sheet: Any, limits: Limits | None) -> list[tuple[Any, ...]]:
    rows = []
    for row in sheet.iter_rows(values_only=True):
        cells = tuple(row)
        while cells and cells[-1] is None:
            cells = cells[:-1]
        if not cells:
            continue
        rows.append(cells)
        if limits is not None:
            limits.check_rows(name, len(rows) - 1, f"more than {limits.rows:,}")
            limits.check_columns(name, len(cells))
    return rows


def _check_unpacked(source: Source, limits: Limits | None) -> None:
    """Refuse a file whose parts unpack to too much, before any of them is understood."""
    total = 0
    most = _MOST_UNPACKED if limits is None else limits.unpacked
    with source.open() as file, ZipFile(file) as archive:
        for info in archive.infolist():
            with archive.open(info) as part:
                while piece := part.read(2**20):
                    cells = len(_CELLS.findall(piece))
                    total += max(len(piece), _CELL_BYTES * cells)
                    if limits is not None:
                        limits.check_unpacked(source.name, total)
                    if total > most:
                        raise ValueError(
                            f"{source.name} unpacks to more than {most // 2**20:,} MB: "
                            "save it as .csv or .parquet."
                        )


def _plain(cell: Any) -> Any:
    """Return a cell; a time of day is no moment, and becomes a text."""
    return cell.isoformat() if isinstance(cell, time) else cell


def _for_sheet(cell: Any) -> Any:
    """Return a cell as a sheet can hold it: no control characters, times without a zone."""
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    if is_missing(cell):
        return None
    if isinstance(cell, str):
        return ILLEGAL_CHARACTERS_RE.sub("", cell)
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        return cell.astimezone(UTC).replace(tzinfo=None)
    return cell.item() if isinstance(cell, np.generic) else cell
