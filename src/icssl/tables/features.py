"""Features with labels, from a file or a folder of images by class."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from PIL import Image, UnidentifiedImageError

SUFFIXES = (".npz", ".npy", ".csv", ".parquet")
LABEL_NAMES = ("label", "target", "class", "y")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
SIDE = 32


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Rows of features, the class of each row, and the names of the classes."""

    x: Float[ndarray, "rows d"]
    y: Int[ndarray, " rows"]
    classes: tuple[str, ...]


@lru_cache(maxsize=8)
def read_features(path: Path, label: str | None = None) -> FeatureTable:
    """Read a table of features with labels; every error names the file and the row.

    Parameters
    ----------
    path : Path
        ``.npz`` with the arrays ``x`` and ``y``; ``.npy`` whose last column is the class;
        ``.csv`` or ``.parquet`` with a column of classes; or a folder with a folder of
        images for each class, read as 32 x 32 grey pixels in [0, 1]. ``"digits"`` stands
        for scikit-learn's digits.
    label : str, optional
        The column of classes; by default the one called label, target, class or y.
    """
    if str(path) == "digits":
        x, y = _digits()
    elif path.is_dir():
        x, y = _image_folder(path)
    elif not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    elif path.suffix == ".npz":
        x, y = _npz(path)
    elif path.suffix == ".npy":
        x, y = _npy(path)
    elif path.suffix in (".csv", ".parquet"):
        x, y = _table(path, label)
    else:
        allowed = ", ".join(SUFFIXES)
        raise ValueError(f"{path} must end in {allowed} or be a folder of images.")
    return _checked(path, x, y)


def _checked(path: Path, x: ndarray, y: ndarray) -> FeatureTable:
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
    names, codes = np.unique(y.astype(str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{path}: needs two classes at least, got {len(names)}.")
    return FeatureTable(x, codes.astype(np.int64), tuple(names.tolist()))


def _digits() -> tuple[ndarray, ndarray]:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def _npz(path: Path) -> tuple[ndarray, ndarray]:
    try:
        with path.open("rb") as file, np.load(file) as found:
            arrays = dict(found)
    except (OSError, EOFError, ValueError, BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}.") from error
    for name in ("x", "y"):
        if name not in arrays:
            given = ", ".join(arrays) or "none"
            raise ValueError(f"{path} must hold the arrays x and y, got {given}.")
    return arrays["x"], arrays["y"]


def _npy(path: Path) -> tuple[ndarray, ndarray]:
    try:
        with path.open("rb") as file:
            table = np.load(file)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as .npy: {error}.") from error
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(
            f"{path} must have shape (rows, d + 1) with the class in the last column, got "
            f"{table.shape}."
        )
    return table[:, :-1], table[:, -1].astype(np.int64)


def _table(path: Path, label: str | None) -> tuple[ndarray, ndarray]:
    frame = _read_frame(path)
    columns = [str(column) for column in frame.columns]
    found = [name for name in ([label] if label else LABEL_NAMES) if name in columns]
    if not found:
        wanted = repr(label) if label else "one of " + ", ".join(LABEL_NAMES)
        raise ValueError(f"{path} has no column {wanted}: it has {', '.join(columns)}.")
    features = frame.drop(columns=found[0])
    return features.to_numpy(), frame[found[0]].to_numpy()


def _read_frame(path: Path) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            f"{path.suffix} files need pandas: pip install 'icssl[tables]'."
        ) from error
    try:
        return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as {path.suffix}: {error}.") from error


def _image_folder(path: Path) -> tuple[ndarray, ndarray]:
    files = image_files(path)
    pixels = [
        np.asarray(open_image(file).convert("L").resize((SIDE, SIDE))) for file, _ in files
    ]
    x = np.stack(pixels).reshape(len(files), -1).astype(np.float32) / 255
    return x, np.array([name for _, name in files])


def image_files(path: Path) -> list[tuple[Path, str]]:
    """Every image below ``path`` with the name of its class, the folder it lies in."""
    found = [
        (file, folder.name)
        for folder in sorted(path.iterdir())
        if folder.is_dir()
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]
    if not found:
        raise ValueError(
            f"{path} has no images in folders by class: expected {path}/CLASS/IMAGE with "
            f"IMAGE ending in {', '.join(IMAGE_SUFFIXES)}."
        )
    return found


def open_image(path: Path) -> Image.Image:
    """The image, read whole, so that one cut short is found here."""
    try:
        with Image.open(path) as image:
            image.load()
            return image.copy()
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}.") from error
