"""The reader of features with a class for every row, as episodes need them.

:mod:`icssl.tables.label_table` reads tables in which some rows have a label. Both read
files by the registry of :mod:`icssl.tables.formats`; every error names the file and the
place in it.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from icssl.tables.column_reading import Hints
from icssl.tables.formats import FORMATS, read_file, suffix_of
from icssl.tables.frame_reading import read_frame
from icssl.tables.table_file import FileTable, Source
from icssl.tables.target_guess import LABEL_NAMES

_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_SIDE = 32  # pixels of an image that is read as features


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
    frame = file.cells.set_axis(names, axis=1).drop(columns=matches[0])
    if file.is_text:
        frame = read_frame(frame, {}, Hints(), is_text=True).frame
    return frame.to_numpy(), file.labels(matches[0])


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
