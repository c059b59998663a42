"""Tables in which some rows have a label: ``read_table`` and ``LabelTable``."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import did_you_mean, list_names
from icssl._util.warn import warn_caller
from icssl.tables.cells import is_missing
from icssl.tables.column_reading import ColumnReading, Hints
from icssl.tables.column_table import ColumnTable, describe_columns
from icssl.tables.formats import (
    read_file,
    readable_suffixes,
    suffix_of,
)
from icssl.tables.frame_reading import FrameReading, read_frame
from icssl.tables.leak_doubts import doubts_about_leaks
from icssl.tables.lost_cells import without_taken_marks
from icssl.tables.new_rows import all_readings, features_like
from icssl.tables.option_doubts import doubts_about_empty_labels, doubts_about_options
from icssl.tables.packed import suffix_by_content
from icssl.tables.table_file import FileTable, Limits, ReadOptions, Source, check_names
from icssl.tables.table_warning import TableWarning
from icssl.tables.target_guess import guess_target
from icssl.tables.targets import find_labels

STANDARD_INPUT = "-"
"""Stands for a table that comes through a pipe."""


@dataclass(frozen=True, eq=False)
class LabelTable:
    """A table in which some rows have a label.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    features : data frame or ndarray of shape (n, d)
        Columns that the classifier sees: numbers, times and categories.
    target : array-like of length n
        One label per row; -1, None, NaN or an empty text where there is none.
    stored : data frame, table of Arrow or dict of arrays
        Cells to write back as they were read; which of these depends on the format.
    separator : str
        Character between the cells of a CSV file.
    truth : ndarray, optional
        True labels of all rows, where they are known.
    target_name : str
        Name of the column of labels.
    notes : tuple of str
        What was found out about the file, such as its encoding.
    warnings : tuple of TableWarning
        What is doubtful; ``read_table`` has warned of it.
    readings : dict of str to ColumnReading
        How columns of texts were read, for rows that come later.
    columns : ColumnTable
        What was understood of every column, to show to a person.
    """

    name: str
    features: Any
    target: Any
    stored: Any
    separator: str = ","
    truth: ndarray | None = None
    target_name: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[TableWarning, ...] = ()
    readings: Mapping[str, ColumnReading] = field(default_factory=dict)
    columns: ColumnTable = field(default_factory=ColumnTable)

    def __repr__(self) -> str:
        """Return what it is in a line: the cells may be many."""
        rows, columns = self.features.shape
        shape = f"{rows:,} rows, {columns:,} columns of features"
        if self.target is None:
            return f"<LabelTable {self.name!r}: {shape}, no target>"
        labels = int(find_labels(self.target)[1].sum())
        of = f" in {self.target_name!r}" if self.target_name else ""
        return f"<LabelTable {self.name!r}: {shape}, {labels:,} labels{of}>"

    @property
    def shown_columns(self) -> list[str]:
        """Names of the columns to show beside a row: left out ones first.

        A column is often left out because it names the row, so that people find the row by
        it.
        """
        features, stored = self.features, self.stored
        if not hasattr(features, "iloc"):
            return [f"column {number}" for number in range(features.shape[1])]
        used = [str(name) for name in features.columns]
        held = getattr(stored, "column_names", getattr(stored, "columns", ()))
        others = [str(name) for name in held if str(name) not in {*used, self.target_name}]
        return [*others, *used]

    def shown_cell(self, row: int, name: str) -> str:
        """Return a cell of a shown column, as it stands in the file if that is known."""
        features, stored = self.features, self.stored
        if not hasattr(features, "iloc"):
            return _cell_text(features[row, self.shown_columns.index(name)])
        if hasattr(stored, "column_names"):
            return _cell_text(stored.column(name)[row].as_py())
        cells = stored if hasattr(stored, "iloc") else features
        return _cell_text(cells[name].iloc[row])


def _cell_text(cell: Any) -> str:
    """Return a cell as a text: none for a missing one, a date without its midnight."""
    if is_missing(cell):
        return ""
    if isinstance(cell, datetime) and cell.time() == time():
        return str(cell.date())
    return str(cell)


def read_table(
    source: Any,
    target: str | None = "auto",
    *,
    drop: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    relabel: Mapping[str, str] | None = None,
    like: LabelTable | None = None,
    limits: Limits | None = None,
) -> LabelTable:
    """Read a table in which some rows have a label, however a person has saved it.

    Separators, encodings, decimal commas, thousands, money, percents and dates are found
    out; what is doubtful is a warning that names the argument which changes it. ``icssl
    classify`` and the page of ``icssl explore`` read files by this function, and
    ``ICSSLClassifier.fit`` reads texts of data frames by the same rules.

    Parameters
    ----------
    source : str, Path, file or Source
        The file: .csv, .tsv, .xlsx, .jsonl, .json, .parquet, .feather or .npz; .gz or .zip
        of one of these; a file that is open for reading bytes; or "-", the standard input.
        In an NPZ file, arrays with as many rows as the target are the features, one column
        or several each; other arrays are only written back.
    target : str or None, default "auto"
        Name of the column, or of the array, with the labels. By default it is guessed, and
        a warning says which column it is. None for a table without labels.
    drop : sequence of str
        Columns that the classifier must not see, for example the number of a row.
    separator : str, optional
        Character between the cells of a text file.
    encoding : str, optional
        Encoding of a text file, such as "utf-8", "cp1252" or "utf-16".
    decimal : {".", ","}, optional
        The decimal mark of numbers in texts.
    missing : sequence of str
        Further texts that stand for no value, in features and in the target.
    types : dict of str to str, optional
        What columns are: "number", "category", "date", "text" or "ignore"; "day-first" or
        "month-first" for dates whose order is open. Free text and what is to be ignored are
        left out of the features.
    relabel : dict of str to str, optional
        Labels and what they are to be, such as {"Yes": "yes"}; all labels are then texts.
    like : LabelTable, optional
        A table that was read before, where this one has new rows for its classifier. Its
        columns are taken, each read as it was there, and no others; a target is not needed.
    limits : Limits, optional
        The largest table to read.

    Returns
    -------
    LabelTable
        Its ``features`` and ``target`` are what ``fit`` takes; ``columns`` says how every
        column was read.
    """
    source = as_source(source)
    if isinstance(missing, str) or isinstance(drop, str):
        raise ValueError("missing and drop must be lists of texts, such as ['?'].")
    options = ReadOptions(
        None if target == "auto" else target,
        tuple(drop),
        separator,
        encoding,
        decimal,
        tuple(missing),
        dict(types or {}),
        dict(relabel or {}),
        limits,
    )
    file = read_file(source, options, readable_suffixes())
    if like is not None:
        return _read_like(source.name, file, like, options)
    if target == "auto" and "auto" not in file.names:
        target, warning = guess_target(source.name, file, [*drop, *options.types])
        warn_caller(warning)
    table = choose_target(source.name, file, target, drop, options)
    unused = doubts_about_options(file, target, options)
    table = replace(table, warnings=(*table.warnings, *unused))
    for doubt in table.warnings:
        warn_caller(doubt)
    return table


def _read_like(
    name: str, file: FileTable, like: LabelTable, options: ReadOptions
) -> LabelTable:
    """Return new rows with the columns of an earlier table, and no labels."""
    if not isinstance(like, LabelTable):
        raise TypeError(
            f"like is a table that read_table returned, got {type(like).__name__}."
        )
    if not hasattr(like.features, "iloc"):
        raise ValueError(f"{like.name} has columns without names, so none can be like it.")
    # Columns to drop are those that are not read.
    names = {"unread": "drop"} | {n: n for n in ("target", "types", "relabel", "decimal")}
    given = [shown for name, shown in names.items() if getattr(options, name)]
    if given:
        raise ValueError(
            f"like and {given[0]} exclude each other: like says which columns are used, "
            "and how they are read."
        )
    readings = all_readings(like.features, like.readings)
    missing = {*options.missing, *(t for one in readings.values() for t in one.missing)}
    features, doubts = features_like(name, file, like.features, readings, missing)
    doubts = [*file.warnings, *doubts]
    for doubt in doubts:
        warn_caller(doubt)
    return LabelTable(
        name,
        features,
        None,
        file.stored_cells,
        file.separator,
        notes=file.notes,
        warnings=tuple(doubts),
        readings=readings,
        columns=describe_columns(features),
    )


def as_source(source: Any) -> Source:
    """Return a file by its name, one that is open, or the standard input."""
    if isinstance(source, Source):
        return source
    if str(source) == STANDARD_INPUT:
        return _source_of_bytes("standard-input", sys.stdin.buffer.read())
    if isinstance(source, (str, Path)):
        return Source(str(source))
    if not hasattr(source, "read"):
        raise TypeError(
            "read_table reads a file: give its name, or an open file, got "
            f"{type(source).__name__}. Give tables in memory to ICSSLClassifier.fit."
        )
    content = source.read()  # a file that is open
    if isinstance(content, str):
        content = content.encode()
    name = str(getattr(source, "name", "table"))
    return Source(name, content) if suffix_of(name) else _source_of_bytes(name, content)


def _source_of_bytes(name: str, content: bytes) -> Source:
    return Source(name + suffix_by_content(content), content)


def choose_target(
    name: str,
    file: FileTable,
    target: str | None,
    drop: Sequence[str] = (),
    options: ReadOptions | None = None,
    *,
    store: bool = True,
) -> LabelTable:
    """Return the cells of a file as features and labels.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    file : FileTable
        All of its cells.
    target, drop
        As in :func:`read_table`.
    options : ReadOptions, optional
        How columns are read.
    store : bool
        Whether the table will be written back.
    """
    options = options or ReadOptions()
    asked = [*([] if target is None else [target]), *drop]
    _check_options(name, file, asked, options)
    reading = None
    if isinstance(file.cells, dict):
        features: Any = _stack_arrays(name, file.cells, target, drop)
        columns = describe_columns(features)
    else:
        frame = file.cells.set_axis(file.names, axis=1)
        if not len(frame):
            raise ValueError(f"{name} has a header and no rows.")
        reading = read_features_of(frame.drop(columns=asked), file.is_text, options)
        features = reading.frame.drop(columns=list(reading.left_out))
        columns = describe_columns(frame, reading, target, drop)
    if not features.shape[1]:
        raise ValueError(f"{name} has nothing to learn from beside the target {target!r}.")
    doubts = [*file.warnings, *(reading.warnings if reading else ()), *columns.warnings]
    labels = None
    if target is not None:
        labels = _labels_of(file, target, options)
        columns = columns.with_labels(target, labels)
        doubts += doubts_about_empty_labels(file, target, labels, options.missing)
        named = {str(label).strip() for label in labels.tolist() if not is_missing(label)}
        doubts = without_taken_marks(doubts, named)
    if reading is not None:
        names = [str(name) for name in features]
        doubts += doubts_about_leaks(frame, names, labels, options.missing)
    return LabelTable(
        name,
        features,
        labels,
        file.stored_cells if store else None,
        file.separator,
        target_name=target or "",
        notes=file.notes,
        warnings=tuple(doubts),
        readings=reading.readings if reading else {},
        columns=columns,
    )


def read_features_of(frame: Any, is_text: bool, options: ReadOptions) -> FrameReading:
    """Return a frame of features with values in place of texts."""
    given = Hints(
        options.decimal or "",
        certain=options.decimal is not None,
        missing=frozenset(text.strip() for text in options.missing),
    )
    types = {name: kind for name, kind in options.types.items() if name in frame}
    return read_frame(frame, types, given, is_text=is_text)


def _check_options(
    name: str, file: FileTable, asked: Sequence[str], options: ReadOptions
) -> None:
    """Refuse names of columns that are not there."""
    kind = "array" if isinstance(file.cells, dict) else "column"
    if len(set(asked)) < len(asked):
        twice = [one for one in dict.fromkeys(asked) if asked.count(one) > 1]
        raise ValueError(
            f"{list_names(twice)} cannot be left out twice, nor be the target and left out."
        )
    check_names(name, kind, file.names, asked, file.hint)
    known = set(file.names)
    for column in options.types:
        if column not in known:
            raise ValueError(
                f"{name} has no {kind} {column!r} to give a type to: it has "
                f"{list_names(file.names)}.{did_you_mean(column, file.names)}"
            )


def _labels_of(file: FileTable, target: str, options: ReadOptions) -> ndarray:
    """Return the labels, as a person says that texts stand for none, or for others."""
    cells = file.labels(target)
    absent, named = {text.strip() for text in options.missing}, options.relabel
    if not absent and not named:
        return cells
    filled = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells.tolist()):
        text = None if is_missing(cell) else str(cell).strip()
        if text is None or text in absent:
            continue
        # Labels of one kind: where some are renamed, numbers are texts too.
        filled[row] = named.get(text, text) if named else cell
    return filled


def _stack_arrays(
    name: str, arrays: Mapping[str, ndarray], target: str | None, drop: Sequence[str]
) -> ndarray:
    """Return all arrays that have as many rows as the target, side by side."""
    n = max(map(len, arrays.values())) if target is None else len(arrays[target])
    # Images and other arrays of more dimensions become one row of numbers each.
    features = [
        array.reshape(n, -1)
        for key, array in arrays.items()
        if key not in (target, *drop) and array.shape[:1] == (n,)
    ]
    if not features:
        return np.empty((n, 0))
    if not all(array.dtype.kind in "biuf" for array in features):
        features = [array.astype(object) for array in features]
    return np.hstack(features)
