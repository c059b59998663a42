"""A fitted classifier as a file that is data alone, and its predictions of new rows.

The file is an archive of the training table (Parquet) and of settings (JSON). Fitting is
deterministic and takes moments, so the classifier is fitted again when it is read: nothing
in the file is run, as in a pickle, and a later version of icssl can read it.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from numpy import ndarray

from icssl import __version__
from icssl._util.errors import DamagedFileError
from icssl._util.hardware import free_bytes
from icssl._util.warn import warn_caller
from icssl.app.label_options import LabelOptions
from icssl.app.labelling import fit_classifier
from icssl.app.tally import UNREACHED, unreached_text
from icssl.classifier.estimator import ICSSLClassifier
from icssl.classifier.plan import MODELS
from icssl.tables.column_reading import ColumnReading
from icssl.tables.formats import read_file, readable_suffixes
from icssl.tables.label_table import LabelTable, as_source
from icssl.tables.new_rows import all_readings, features_like
from icssl.tables.parquet import open_parquet
from icssl.tables.table_file import ReadOptions, Source
from icssl.tables.table_warning import quote

SUFFIX = ".icssl"
"""Suffix of the file."""

_FORMAT = 1  # of the settings, for files that a later version writes
_TABLE, _SETTINGS = "table.parquet", "settings.json"
_MOST_SETTINGS = 2**28  # bytes that are read of a file's settings
_DAMAGED = (
    AttributeError,
    BadZipFile,
    EOFError,
    LookupError,
    RuntimeError,  # a file with a password
    TypeError,
    ValueError,
    ZlibError,
)


@dataclass(frozen=True)
class SavedClassifier:
    """A classifier that was fitted to a table, and what new tables are read by.

    Parameters
    ----------
    classifier : ICSSLClassifier
    features : data frame
        The columns of the training table.
    readings : dict of str to ColumnReading
        How texts of every column are read.
    missing : tuple of str
        Texts that a person said stand for no value.
    target : str
        Name of the column of labels.
    """

    classifier: ICSSLClassifier
    features: Any
    readings: dict[str, ColumnReading]
    missing: tuple[str, ...]
    target: str

    def read_new(self, source: Any, options: ReadOptions) -> tuple[LabelTable, Any]:
        """Read a table of new rows: all of it, to write back, and the columns to use."""
        source = as_source(source)
        file = read_file(source, options, readable_suffixes())
        missing = (*self.missing, *options.missing)
        features, doubts = features_like(
            source.name, file, self.features, self.readings, missing
        )
        for doubt in (*file.warnings, *doubts):
            warn_caller(doubt)
        none = np.full(len(features), None, dtype=object)
        unused = [name for name in file.names if name not in {*features, self.target}]
        notes = (f"Columns that are not used: {quote(unused, 5)}.",) if unused else ()
        stored, mark = file.stored_cells, file.separator
        return LabelTable(source.name, features, none, stored, mark, notes=notes), features

    def predict(self, features: Any) -> dict[str, ndarray]:
        """Return the columns to write beside new rows: label, probability and reach."""
        p, reach = self.classifier.predict_proba_and_reach(features)
        best = p.argmax(axis=1)
        return {
            "label": self.classifier.classes_[best],
            "probability": p[np.arange(len(p)), best],
            "reach": reach,
        }


def check_saved_path(path: Path, options: LabelOptions) -> None:
    """Refuse to save by another suffix, or a classifier whose weights are in a file."""
    if path.suffix != SUFFIX:
        raise ValueError(f"{path} must end in {SUFFIX}.")
    if options.model not in ("auto", *MODELS):
        raise ValueError(
            f"--save keeps a table and settings, and no weights: {options.model} cannot be "
            "saved with it."
        )


def save_classifier(path: Path, table: LabelTable, options: LabelOptions) -> None:
    """Write what fits the classifier again: the table, its labels and settings.

    The caller has the file replaced when it is whole (:func:`icssl._util.files.replacing`).
    """
    import pyarrow as pa
    from pyarrow.parquet import write_table

    if not hasattr(table.features, "iloc"):
        raise ValueError("--save needs a table whose columns have names.")
    settings = {
        "format": _FORMAT,
        "icssl": __version__,
        "model": options.model,
        "column_scale": options.column_scale,
        "target": table.target_name,
        "missing": list(options.missing),
        "labels": [_plain_label(cell) for cell in np.asarray(table.target, dtype=object)],
        "readings": {
            str(name): {**asdict(reading), "missing": sorted(reading.missing)}
            for name, reading in all_readings(table.features, table.readings).items()
        },
    }
    content = BytesIO()
    write_table(pa.Table.from_pandas(table.features, preserve_index=False), content)
    with ZipFile(path, "w", ZIP_STORED) as archive:
        archive.writestr(_SETTINGS, json.dumps(settings, ensure_ascii=False))
        archive.writestr(_TABLE, content.getvalue())


def load_classifier(path: Path, device: str = "auto") -> SavedClassifier:
    """Read what :func:`save_classifier` wrote, and fit the classifier again."""
    source = Source(str(path))
    source.check()
    try:
        with source.open() as file, ZipFile(file) as archive:
            with archive.open(_SETTINGS) as part:
                settings = json.loads(part.read(_MOST_SETTINGS))
            with archive.open(_TABLE) as part:
                content = part.read(free_bytes() // 2)
        if settings["format"] != _FORMAT:
            raise DamagedFileError(
                f"{path} was written by icssl {settings['icssl']}, which is newer: update."
            )
        with open_parquet(Source(f"{path}/{_TABLE}", content)) as parquet:
            features = parquet.read().to_pandas()
        readings = {
            name: ColumnReading(**{**stored, "missing": frozenset(stored["missing"])})
            for name, stored in settings["readings"].items()
        }
        target = np.empty(len(features), dtype=object)
        target[:] = settings["labels"]
        missing = tuple(settings["missing"])
    except DamagedFileError:
        raise
    except _DAMAGED as error:
        raise DamagedFileError(
            f"{path} is not as icssl classify --save wrote it: {error}"
        ) from error
    table = LabelTable(str(path), features, target, None)
    with warnings.catch_warnings():
        # Doubts about the table were said when it was saved, with options of that command.
        warnings.simplefilter("ignore", UserWarning)
        classifier = fit_classifier(
            table,
            model=settings["model"],
            column_scale=settings["column_scale"],
            device=device,
        )
    return SavedClassifier(classifier, features, readings, missing, settings["target"])


def _plain_label(cell: Any) -> Any:
    """Return a label as JSON has it; None where there is none."""
    from icssl.tables.cells import is_missing

    if is_missing(cell):
        return None
    return cell.item() if isinstance(cell, np.generic) else cell


def prediction_lines(columns: dict[str, ndarray], classes: Sequence[Any]) -> list[str]:
    """Return what a person asks first about predictions."""
    labels, probability = columns["label"], columns["probability"]
    counts = ", ".join(f"{name}: {int((labels == name).sum()):,}" for name in classes[:20])
    mean = float(np.mean(probability))
    far = unreached_text(int((columns["reach"] < UNREACHED).sum()))
    return [
        f"{len(labels):,} rows, mean confidence {mean:.3f}; {far}",
        f"Rows by label: {counts}.",
    ]
