"""The reader of tables: rows to label, or features with a class for every row.

``read_table`` is for the classifier, ``read_features`` for episodes. Both read files by the
registry of :mod:`icssl.tables.formats`; every error names the file and the place in it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl._util.files import replacing
from icssl.tables.formats import (
    FORMATS,
    read_file,
    suffix_of,
    writable_suffixes,
)
from icssl.tables.table_file import FileTable, ReadOptions, Source, check_names

LABEL_NAMES = ("label", "target", "class", "y")
"""Names of columns that are taken for labels unless a person names the column."""

_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_SIDE = 32  # pixels of an image that is read as features


@dataclass(frozen=True, eq=False)
class LabelTable:
    """A table in which some rows have a label.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    features : data frame or ndarray of shape (n, d)
        Columns that the classifier sees.
    target : array-like of length n
        One label per row; -1, None, NaN or an empty text where there is none.
    stored : data frame of texts, table of Arrow or dict of arrays
        Cells to write back as they were read; which of these depends on the format.
    separator : str
        Character between the cells of a CSV file.
    truth : ndarray, optional
        True labels of all rows, where they are known.
    """

    name: str
    features: Any
    target: Any
    stored: Any
    separator: str = ","
    truth: ndarray | None = None

    def shown_cell(self, row: int, column: int) -> str:
        """Return a cell of the features, as it stands in the file where that is known."""
        features, stored = self.features, self.stored
        if not hasattr(features, "iloc"):
            return str(features[row, column])
        name = str(features.columns[column])
        if hasattr(stored, "column_names"):
            return str(stored.column(name)[row].as_py())
        return str((stored if hasattr(stored, "iloc") else features)[name].iloc[row])


def read_table(
    source: Path | Source, target: str, *, drop: Sequence[str] = (), separator: str = ","
) -> LabelTable:
    """Read a table in which some rows have a label.

    Parameters
    ----------
    source : Path or Source
        The file. In an NPZ file, arrays with as many rows as the target are the features,
        one column or several each; other arrays are only written back.
    target : str
        Name of the column, or of the array, with the labels.
    drop : sequence of str
        Columns that the classifier must not see, for example the number of a row.
    separator : str
        Character between the cells of a CSV file.
    """
    if isinstance(source, Path):
        source = Source(str(source))
    options = ReadOptions(target, tuple(drop), separator)
    file = read_file(source, options, writable_suffixes())
    return choose_target(source.name, file, target, drop, separator)


def choose_target(
    name: str,
    file: FileTable,
    target: str,
    drop: Sequence[str] = (),
    separator: str = ",",
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
    target, drop, separator
        As in :func:`read_table`.
    store : bool
        Whether the table will be written back.
    """
    if isinstance(file.cells, dict):
        features: Any = _stack_arrays(name, file.cells, target, drop)
    else:
        features = _feature_columns(name, file, target, drop)
    if not features.shape[1]:
        raise ValueError(f"{name} has nothing to learn from beside the target {target!r}.")
    stored = file.stored_cells if store else None
    return LabelTable(name, features, file.labels(target), stored, separator)


def _feature_columns(name: str, file: FileTable, target: str, drop: Sequence[str]) -> Any:
    """Return all columns of a data frame but the target and those to drop."""
    check_names(name, "column", file.names, [target, *drop], file.hint)
    frame = file.cells.set_axis(file.names, axis=1)
    if not len(frame):
        raise ValueError(f"{name} has a header and no rows.")
    return _with_times(frame.drop(columns=[target, *drop]))


def _stack_arrays(
    name: str, arrays: Mapping[str, ndarray], target: str, drop: Sequence[str]
) -> ndarray:
    """Return all arrays that have as many rows as the target, side by side."""
    check_names(name, "array", list(arrays), [target, *drop])
    n = len(arrays[target])
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


def _with_times(frame: Any) -> Any:
    """Return the columns with texts that are all dates (ISO 8601) made into times."""
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
    return frame.assign(**changed)  # in one call: each call copies the list of columns


def write_table(table: LabelTable, columns: Mapping[str, ndarray], path: Path) -> None:
    """Write the rows as they were read, with more columns; the file appears when whole."""
    stored = table.stored
    taken = stored.column_names if hasattr(stored, "column_names") else list(stored)
    named = {_free_name(name, taken): values for name, values in columns.items()}
    # The temporary file has a name of its own: the format is that of the final path.
    write = FORMATS[suffix_of(path)].write
    assert write is not None, path
    with replacing(path) as unfinished:
        write(stored, named, unfinished, table.separator)


def _free_name(name: str, taken: Sequence[Any]) -> str:
    """Return the name, or ``icssl_label`` where the table has a column ``label``."""
    while name in taken:
        name = f"icssl_{name}"
    return name


def default_output(path: Path) -> Path:
    """Return the same name with ``-labelled`` before its suffix.

    Examples
    --------
    >>> print(default_output(Path("data/iris.csv")))
    data/iris-labelled.csv
    """
    suffix = path.name[len(path.name) - len(suffix_of(path)) :]
    return path.with_name(f"{path.name.removesuffix(suffix)}-labelled{suffix}")


def check_output(path: Path, source: Path, *, force: bool) -> None:
    """Refuse an output of another kind, the input itself, and what exists already."""
    suffix = suffix_of(source)
    if suffix_of(path) != suffix:
        raise ValueError(f"{path} must end in {suffix}, as {source} does.")
    check_new(path, source, force=force)


def check_new(path: Path, source: Path | None, *, force: bool) -> None:
    """Refuse to write over the input, and over anything else unless ``force``."""
    if source is not None and os.path.realpath(path) == os.path.realpath(source):
        raise ValueError(f"{path} is the input: give another name for what is written.")
    if path.exists() and not force:
        raise ValueError(f"{path} exists already: --force writes over it.")


@dataclass(frozen=True, eq=False)
class _FeatureTable:
    """Rows of features, the class of each row, and the names of the classes."""

    x: Float[ndarray, "rows d"]
    y: Int[ndarray, " rows"]
    classes: tuple[str, ...]


@lru_cache(maxsize=8)
def read_features(path: Path, label: str | None = None) -> _FeatureTable:
    """Read features and the class of every row.

    Parameters
    ----------
    path : Path
        A table with a column of classes; ``.npz`` with the arrays ``x`` and ``y``; ``.npy``
        whose last column is the class; or a folder with one folder of images per class,
        read as 32 x 32 grey pixels in [0, 1]. ``"digits"`` stands for scikit-learn's
        digits.
    label : str, optional
        The column of classes; by default the one called label, target, class or y.
    """
    if str(path) == "digits":
        x, y = _digits()
    elif path.is_dir():
        x, y = _image_folder(path)
    elif path.exists() and suffix_of(path) not in FORMATS:
        raise ValueError(
            f"{path} must end in {', '.join(FORMATS)} or be a folder of images."
        )
    else:
        x, y = _split_classes(path, read_file(Source(str(path))), label)
    return _check_classes(path, x, y)


def _split_classes(
    path: Path, file: FileTable, label: str | None
) -> tuple[ndarray, ndarray]:
    """Return features and classes, both as they are in the file."""
    names = file.names
    if isinstance(file.cells, dict):
        if not {"x", "y"} <= set(names):
            listed = ", ".join(names) or "none"
            raise ValueError(f"{path} must hold the arrays x and y, got {listed}.")
        return file.cells["x"], file.cells["y"]
    matches = [name for name in ([label] if label else LABEL_NAMES) if name in names]
    if not matches:
        wanted = repr(label) if label else "one of " + ", ".join(LABEL_NAMES)
        raise ValueError(f"{path} has no column {wanted}: it has {', '.join(names)}.")
    frame = file.cells.set_axis(names, axis=1)
    return frame.drop(columns=matches[0]).to_numpy(), file.labels(matches[0])


def _check_classes(path: Path, x: ndarray, y: ndarray) -> _FeatureTable:
    """Return finite features, and classes as numbers; refuse anything else."""
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
        raise ValueError(
            f"{path}: features must have shape (rows, d) and labels (rows,), got {x.shape} "
            f"and {y.shape}."
        )
    try:
        x = x.astype(np.float32)
    except ValueError as error:
        raise ValueError(f"{path}: features must be numbers: {error}.") from error
    wrong = np.argwhere(~np.isfinite(x))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"{path}: row {row}, column {column} is {x[row, column]}; {len(wrong)} such "
            "value(s) in all."
        )
    # As texts, so that classes have the same order whatever the format stores them as.
    names, codes = np.unique(y.astype(str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{path}: needs two classes at least, got {len(names)}.")
    return _FeatureTable(x, codes.astype(np.int64), tuple(names.tolist()))


def _digits() -> tuple[ndarray, ndarray]:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def _image_folder(path: Path) -> tuple[ndarray, ndarray]:
    files = image_files(path)
    pixels = [
        np.asarray(open_image(file).convert("L").resize((_SIDE, _SIDE)))
        for file, _ in files
    ]
    x = np.stack(pixels).reshape(len(files), -1).astype(np.float32) / 255
    return x, np.array([name for _, name in files])


def image_files(path: Path) -> list[tuple[Path, str]]:
    """Return every image below ``path`` with its class, the name of its folder."""
    files = [
        (file, folder.name)
        for folder in sorted(path.iterdir())
        if folder.is_dir()
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in _IMAGE_SUFFIXES
    ]
    if not files:
        raise ValueError(
            f"{path} has no images in folders by class: expected {path}/CLASS/IMAGE with "
            f"IMAGE ending in {', '.join(_IMAGE_SUFFIXES)}."
        )
    return files


def open_image(path: Path) -> Any:
    """Return an image of PIL, read whole, so that one cut short is refused here."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            image.load()
            return image.copy()
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}.") from error
