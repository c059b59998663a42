"""Rows with their labels, written in any format that can be written."""

import gzip
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy import ndarray

from icssl._util.files import replacing
from icssl.tables.formats import FORMATS, suffix_of, writable_suffixes
from icssl.tables.label_table import LabelTable
from icssl.tables.packed import PACKED


def write_table(table: LabelTable, columns: Mapping[str, ndarray], path: Path) -> None:
    """Write the rows with more columns; the file appears when it is whole.

    In the format that was read, cells are written as they stand in the file. In another
    one, numbers and dates are written as such.
    """
    suffix, packed = _suffixes(path)
    form = FORMATS[suffix]
    assert form.write is not None, path
    stored = _stored_for(form.stores, table)
    taken = stored.column_names if hasattr(stored, "column_names") else list(stored)
    named = {_free_name(name, taken): values for name, values in columns.items()}
    # The temporary file has a name of its own: the format is that of the final path.
    separator = table.separator if suffix == _suffixes(Path(table.name))[0] else ","
    with replacing(path) as unfinished:
        if not packed:
            form.write(stored, named, unfinished, separator)
            return
        with TemporaryDirectory() as folder:
            whole = Path(folder) / f"table{suffix}"
            form.write(stored, named, whole, separator)
            # With the final name inside, and not that of the unfinished file.
            name = path.name[: -len(packed)]
            with (
                whole.open("rb") as source,
                unfinished.open("wb") as raw,
                gzip.GzipFile(name, "wb", fileobj=raw, mtime=0) as target,
            ):
                shutil.copyfileobj(source, target)


def _suffixes(path: Path) -> tuple[str, str]:
    """Return the suffix of the table and that of its packing, which may be none.

    Examples
    --------
    >>> _suffixes(Path("iris.csv.gz")), _suffixes(Path("iris.csv"))
    (('.csv', '.gz'), ('.csv', ''))
    """
    suffix = suffix_of(path)
    if suffix != ".gz":
        return suffix, ""
    return suffix_of(path.name[: -len(suffix)]), suffix


def _stored_for(stores: str, table: LabelTable) -> Any:
    """Return what a format takes: as it was read, if it is of that kind."""
    stored = table.stored
    if stores == "arrow":
        return stored if hasattr(stored, "column_names") else _as_arrow(_frame(table))
    if stores == "arrays":
        return stored if isinstance(stored, dict) else _as_arrays(_frame(table))
    if stores == "texts" and hasattr(stored, "iloc"):
        return stored
    return _frame(table)


def _frame(table: LabelTable) -> Any:
    """Return all columns as a data frame, with values in place of texts."""
    import pandas as pd

    stored = table.stored
    if hasattr(stored, "to_pandas"):
        return stored.to_pandas()
    if isinstance(stored, dict):
        columns = {}
        for name, array in stored.items():
            if array.shape[:1] != (len(table.target),):
                continue
            flat = array.reshape(len(array), -1)
            names = [name] if flat.shape[1] == 1 else range(flat.shape[1])
            several = flat.shape[1] > 1
            for j, key in enumerate(names):
                columns[f"{name}.{key}" if several else name] = flat[:, j]
        return pd.DataFrame(columns)
    typed = {name: table.features[name] for name in table.features if name in stored}
    return stored.assign(**typed)


def _as_arrow(frame: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):  # a column of several kinds
        kinds = {name for name, column in frame.items() if column.dtype == object}
        texts = {name: frame[name].map(_text, na_action="ignore") for name in kinds}
        return pa.Table.from_pandas(frame.assign(**texts), preserve_index=False)


def _text(cell: Any) -> str:
    return str(cell)


def _as_arrays(frame: Any) -> dict[str, ndarray]:
    arrays = {}
    for name, column in frame.items():
        cells = column.to_numpy()
        if cells.dtype.kind not in "biufmM":
            cells = np.array(["" if cell is None else str(cell) for cell in column])
        arrays[str(name)] = cells
    return arrays


def _free_name(name: str, taken: Sequence[Any]) -> str:
    """Return the name, or ``icssl_label`` where the table has a column ``label``."""
    while name in taken:
        name = f"icssl_{name}"
    return name


def default_output(path: Path, word: str = "labelled") -> Path:
    """Return the same name with ``-labelled``, or another word, behind it, and not packed.

    Examples
    --------
    >>> print(default_output(Path("data/iris.csv")), default_output(Path("iris.csv.gz")))
    data/iris-labelled.csv iris-labelled.csv
    """
    if suffix_of(path) in PACKED:
        path = path.with_name(path.name[: -len(suffix_of(path))])
    suffix = path.name[len(path.name) - len(suffix_of(path)) :]
    stem = path.name.removesuffix(suffix)
    if suffix.lower() not in writable_suffixes():
        suffix = ".csv"
    return path.with_name(f"{stem}-{word}{suffix}")


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written, by its suffix."""
    if _suffixes(path)[0] not in writable_suffixes():
        listed = ", ".join(writable_suffixes())
        raise ValueError(f"{path} must end in {listed}, or one of these and .gz.")


def check_new(paths: Iterable[Path | None], source: Path | None, *, force: bool) -> None:
    """Refuse to write over the input, and over anything else unless ``force``."""
    wanted = [path for path in paths if path is not None]
    for path in wanted:
        if source is not None and os.path.realpath(path) == os.path.realpath(source):
            raise ValueError(f"{path} is the input: give another name for what is written.")
    there = [str(path) for path in wanted if path.exists()]
    if there and not force:
        does, them = ("exists", "it") if len(there) == 1 else ("exist", "them")
        listed = " and ".join([", ".join(there[:-1]), there[-1]] if there[1:] else there)
        raise ValueError(f"{listed} {does} already: --force writes over {them}.")
