"""Tables with labels, from a file and back: CSV, Parquet and NPZ."""

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.errors import did_you_mean, list_names, reason_of
from icssl._util.files import replacing
from icssl.tables.cells import exact_number, plain_column
from icssl.tables.npz import read_arrays, read_headers, write_arrays
from icssl.tables.parquet import check_flat, opened_parquet, to_frame

SUFFIXES = (".csv", ".parquet", ".npz")
_SEPARATORS = ";\t|,"
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:e[-+]?[0-9]+)?|[-+]?inf(?:inity)?",
    re.IGNORECASE,
)
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, eq=False)
class LabelTable:
    """A table of which some rows have a label.

    Parameters
    ----------
    name : str
        Where it comes from, for messages.
    features : data frame or ndarray of shape (n, d)
        What the classifier reads.
    target : array-like of length n
        A label a row; -1, None, NaN or an empty text where there is none.
    kept : data frame of texts, table of Arrow or dict of arrays
        What is written back, cell for cell as it was read: of CSV, Parquet and NPZ.
    separator : str
        Of a CSV file.
    truth : ndarray, optional
        Labels of all rows, where they are known.
    """

    name: str
    features: Any
    target: Any
    kept: Any
    separator: str = ","
    truth: ndarray | None = None

    def shown_cell(self, row: int, column: int) -> str:
        """Return a cell of the features, as it stands in the file where that is known."""
        features, kept = self.features, self.kept
        if not hasattr(features, "iloc"):
            return str(features[row, column])
        name = str(features.columns[column])
        if hasattr(kept, "column_names"):
            return str(kept.column(name)[row].as_py())
        return str((features if not hasattr(kept, "iloc") else kept)[name].iloc[row])


def read_table(
    path: Path, target: str, *, drop: Sequence[str] = (), separator: str = ","
) -> LabelTable:
    """Read CSV, Parquet or NPZ; every error names the file and the place in it.

    Parameters
    ----------
    path : Path
        Of an NPZ file, arrays with as many rows as the target are the features, one column
        or several each; other arrays are only written back.
    target : str
        Name of the column, or of the array, with the labels.
    drop : sequence of str
        Columns that the classifier must not see, say the number of a row.
    separator : str
        Of a CSV file.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} must end in {', '.join(SUFFIXES)}.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty.")
    if path.suffix == ".npz":
        return _read_npz(path, target, drop)
    if path.suffix == ".parquet":
        table = _read_parquet(path, drop)
        return frame_table(
            path, to_frame(path, table), target, partial(arrow_labels, [table]), table, drop
        )
    frame, texts = _read_csv(path, separator, target), _read_text(path, separator)
    labels = partial(_text_labels, frame)
    return frame_table(path, frame, target, labels, texts, drop, separator)


def frame_table(
    path: Path,
    frame: Any,
    target: str,
    read_labels: Callable[[str], ndarray],
    kept: Any = None,
    drop: Sequence[str] = (),
    separator: str = ",",
) -> LabelTable:
    """A data frame as a table with labels; errors name the ``path`` it was read from.

    Parameters
    ----------
    path : Path
    frame : data frame
    target : str
        Name of the column with the labels.
    read_labels : callable
        Gives the cells of a column by its name, from where they are exact: the data frame
        has floats where some of a column's whole numbers are missing.
    kept, drop, separator
        As in :class:`LabelTable` and :func:`read_table`.
    """
    names = [str(name) for name in frame.columns]
    frame = frame.set_axis(names, axis=1)
    hint = _other_separator(names, separator) if path.suffix == ".csv" else ""
    check_names(path, "column", names, [target, *drop], hint)
    if not len(frame):
        raise ValueError(f"{path} has a header and no rows.")
    features = _with_times(frame.drop(columns=[target, *drop]))
    _check_features(path, features.shape[1], target)
    cells = _without_blanks(read_labels(target))
    return LabelTable(str(path), features, cells, kept, separator)


def _text_labels(frame: Any, name: str) -> ndarray:
    """Return a column of texts as truth values or numbers, if all of it are such."""
    cells = _without_blanks(frame[name].to_numpy(dtype=object))
    present = np.array([isinstance(cell, str) for cell in cells])
    texts = cells[present]
    if all(_NUMBER.fullmatch(text.strip()) for text in texts):
        cells[present] = [exact_number(text) for text in texts]
    elif all(text.lower() in _TRUTH for text in texts):
        cells[present] = [_TRUTH[text.lower()] for text in texts]
    return cells


def arrow_labels(tables: Sequence[Any], name: str) -> ndarray:
    """Return cells of a column over some tables of Arrow, whole numbers with all digits."""
    from pyarrow import types

    columns = [table.column(name) for table in tables]
    # Floats keep their type, which says how exact they are.
    return np.concatenate(
        [
            column.to_numpy() if types.is_floating(column.type) else plain_column(column)
            for column in columns
        ]
    )


def default_output(path: Path) -> Path:
    """The same name with ``-labelled`` before its suffix.

    Examples
    --------
    >>> print(default_output(Path("data/iris.csv")))
    data/iris-labelled.csv
    """
    return path.with_name(f"{path.stem}-labelled{path.suffix}")


def check_output(path: Path, source: Path, *, force: bool) -> None:
    """Refuse an output of another kind, the input itself, and what exists already."""
    if path.suffix != source.suffix:
        raise ValueError(f"{path} must end in {source.suffix}, as {source} does.")
    check_new(path, source, force=force)


def check_new(path: Path, source: Path | None, *, force: bool) -> None:
    """Refuse to write over the input, and over anything else unless ``force``."""
    if source is not None and os.path.realpath(path) == os.path.realpath(source):
        raise ValueError(f"{path} is the input: give another name for what is written.")
    if path.exists() and not force:
        raise ValueError(f"{path} exists already: --force writes over it.")


def write_table(table: LabelTable, columns: Mapping[str, ndarray], path: Path) -> None:
    """The rows as they were, with columns more; the file is whole or not there."""
    kept = table.kept
    taken = kept.column_names if hasattr(kept, "column_names") else list(kept)
    named = {_free_name(name, taken): values for name, values in columns.items()}
    with replacing(path) as unfinished:
        if path.suffix == ".npz":
            arrays = {name: _plain(values) for name, values in named.items()}
            write_arrays(unfinished, {**kept, **arrays})
        elif path.suffix == ".parquet":
            _write_parquet(kept, named, unfinished)
        else:
            frame = kept.assign(**named)
            frame.to_csv(
                unfinished,
                index=False,
                sep=table.separator,
                float_format="%.6g",
                # By default one row at a time where there are 100,000 columns.
                chunksize=max(16, 100_000 // frame.shape[1]),
            )


def _write_parquet(kept: Any, named: Mapping[str, ndarray], path: Path) -> None:
    """Write a table of Arrow, of which every column stays what it was, and columns more."""
    import pyarrow as pa
    from pyarrow.parquet import write_table as write

    for name, values in named.items():
        kept = kept.append_column(name, pa.array(values))
    write(kept, path)


def _free_name(name: str, taken: Sequence[Any]) -> str:
    """``label``, or ``icssl_label`` where the table has a column of that name."""
    while name in taken:
        name = f"icssl_{name}"
    return name


def _plain(values: ndarray) -> ndarray:
    """Without objects, which NPZ keeps only as pickles."""
    return values.astype(str) if values.dtype == object else values


def check_names(
    path: Path | str, kind: str, names: Sequence[str], wanted: Sequence[str], hint: str = ""
) -> None:
    """Every name occurs, and occurs once."""
    counts = Counter(names)
    for name, count in counts.items():
        if count > 1:
            raise ValueError(f"{path} has more than one {kind} {name!r}.")
    for name in wanted:
        if name not in counts:
            raise ValueError(
                f"{path} has no {kind} {name!r}: it has {list_names(names)}."
                f"{did_you_mean(name, names)}{hint}"
            )


def _check_features(path: Path, count: int, target: str) -> None:
    if not count:
        raise ValueError(f"{path} has nothing to learn from beside the target {target!r}.")


def _pandas(path: Path) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            f"{path.suffix} files need pandas: pip install 'icssl[tables]'."
        ) from error
    return pd


def _read_csv(path: Path, separator: str, target: str) -> Any:
    """Cells as what they look like; empty ones, NA, NaN and null are missing.

    The target stays text: pandas makes floats of whole numbers where a cell is missing.
    """
    pd = _pandas(path)
    _check_csv(path, separator)
    try:
        return pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            index_col=False,
            low_memory=False,
            dtype={target: str},
        )
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as .csv: {reason_of(error)}.") from error


def _read_text(path: Path, separator: str) -> Any:
    """Cells as they are written, so that 1.10 and 007 stay as they are."""
    return _pandas(path).read_csv(
        path,
        sep=separator,
        encoding="utf-8-sig",
        index_col=False,
        dtype=str,
        keep_default_na=False,
    )


def _check_csv(path: Path, separator: str) -> None:
    """Refuse a file with lines cut short, which pandas would fill with missing cells."""
    width, line, header = 0, 1, []
    allow_long_cells(path.stat().st_size)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=separator, strict=True)
            for cells in lines:
                line = lines.line_num
                if not width:
                    header = cells
                    check_names(path, "column", cells, [])
                width = width or len(cells)
                if cells and len(cells) != width:
                    raise ValueError(
                        f"{path}, line {line}, has {len(cells)} fields and the header has "
                        f"{width}: the file may be cut short."
                        f"{_other_separator(header, separator)}"
                    )
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: {reason_of(error)}. Save it as UTF-8."
        ) from error
    except csv.Error as error:
        raise ValueError(
            f"{path} cannot be read from line {line + 1} on: {reason_of(error)}. The file "
            "may be cut short."
        ) from error


def allow_long_cells(size: int) -> None:
    """Let ``csv`` read cells of up to ``size`` characters; its own limit is 131,072.

    The limit is one for all threads, so it is never put back while another one reads.
    """
    csv.field_size_limit(max(csv.field_size_limit(), min(size, 2**31 - 1)))


def _other_separator(header: Sequence[str], separator: str) -> str:
    """The end of a message: what may stand between cells, if the header is one of them."""
    if len(header) != 1:
        return ""
    there = [mark for mark in _SEPARATORS if mark in header[0] and mark != separator]
    return f" Try --separator {there[0]!r}." if there else " Is the separator right?"


def _read_parquet(path: Path, drop: Sequence[str]) -> Any:
    _pandas(path)
    with opened_parquet(path) as file:
        schema = file.schema_arrow
    check_names(path, "column", schema.names, [])
    check_flat(path, schema, drop)
    with opened_parquet(path) as file:
        return file.read()


def _read_npz(path: Path, target: str, drop: Sequence[str]) -> LabelTable:
    headers = read_headers(path)
    check_names(path, "array", list(headers), [target, *drop])
    shape = headers[target].shape
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"{path}: {target!r} must have a label a row, got {shape}.")
    arrays = read_arrays(path, headers)
    cells = arrays[target]
    used = [
        array.reshape(len(cells), -1)
        for name, array in arrays.items()
        if name not in (target, *drop) and array.shape[:1] == cells.shape
    ]
    _check_features(path, len(used), target)
    numeric = all(array.dtype.kind in "biuf" for array in used)
    features = np.hstack(used if numeric else [array.astype(object) for array in used])
    if cells.dtype.kind == "U":
        cells = _without_blanks(cells.astype(object))
    return LabelTable(str(path), features, cells, arrays)


def _without_blanks(cells: ndarray) -> ndarray:
    """None where there is nothing but blanks."""
    if cells.dtype.kind != "O":
        return cells
    filled = cells.copy()
    filled[[isinstance(cell, str) and not cell.strip() for cell in cells]] = None
    return filled


def _with_times(frame: Any) -> Any:
    """Text columns in which every cell is a date (ISO 8601) made into times."""
    import pandas as pd

    changed = {}
    for name, column in frame.items():
        if column.dtype.kind in "biufcmM":
            continue
        present = column.dropna()
        if not len(present) or not all(isinstance(cell, str) for cell in present):
            continue
        times = pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
        if times.notna().sum() == len(present):
            changed[name] = times.dt.tz_localize(None)
    return frame.assign(**changed)  # at once: each time it copies the list of columns
