"""The registry of file formats: a format is added here, and nowhere else.

``icssl classify``, the page of ``icssl explore``, and ``icssl features``, ``evaluate`` and
``train`` all read their tables through it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Literal

from numpy import ndarray

from icssl._util.errors import EXTRA
from icssl.tables.csv_text import read_csv, read_tsv, write_csv, write_tsv
from icssl.tables.feather import read_feather, write_feather
from icssl.tables.json_lines import read_json, write_json, write_json_lines
from icssl.tables.npz import read_npy, read_npz, write_npz
from icssl.tables.packed import PACKED, unpack
from icssl.tables.parquet import read_parquet, write_parquet
from icssl.tables.spreadsheets import read_xlsx, write_xlsx
from icssl.tables.table_file import FileTable, ReadOptions, Source


@dataclass(frozen=True)
class TableFormat:
    """The reader and the writer of files with one suffix.

    Parameters
    ----------
    read : callable
        Takes a :class:`Source` and :class:`ReadOptions`, returns a :class:`FileTable`.
        Raises ``ValueError`` with the name of the file where it cannot be read.
    write : callable, optional
        Takes what was stored in the file, the columns to add by their names, the path, and
        the separator. ``icssl classify`` takes only formats that can be written.
    on_page : bool
        Whether the page of ``icssl explore`` takes such files from strangers. They must be
        read as a data frame, and a compressed format must hold to ``options.limits`` before
        it unpacks anything.
    packages : tuple of str
        Packages to import, which the extra ``tables`` installs.
    stores : {"texts", "values", "arrow", "arrays"}
        What ``write`` takes: a data frame with cells as they stand in a text file, or with
        values; a table of Arrow; or named arrays.
    """

    read: Callable[[Source, ReadOptions], FileTable]
    write: Callable[[Any, Mapping[str, ndarray], Path, str], None] | None = None
    on_page: bool = False
    packages: tuple[str, ...] = ("pandas",)
    stores: Literal["texts", "values", "arrow", "arrays"] = "texts"


_ARROW = ("pandas", "pyarrow")
_JSON = TableFormat(read_json, write_json_lines, on_page=True, stores="values")
FORMATS: dict[str, TableFormat] = {
    ".csv": TableFormat(read_csv, write_csv, on_page=True),
    ".parquet": TableFormat(read_parquet, write_parquet, True, _ARROW, "arrow"),
    ".npz": TableFormat(read_npz, write_npz, packages=(), stores="arrays"),
    ".npy": TableFormat(read_npy, packages=(), stores="arrays"),
    ".tsv": TableFormat(read_tsv, write_tsv, on_page=True),
    ".xlsx": TableFormat(read_xlsx, write_xlsx, True, ("pandas", "openpyxl"), "values"),
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".json": TableFormat(read_json, write_json, on_page=True, stores="values"),
    ".feather": TableFormat(read_feather, write_feather, False, _ARROW, "arrow"),
}
"""All formats by their suffix."""


def suffix_of(path: PurePath | str) -> str:
    """Return the registered suffix of a file, or what follows its last dot.

    Examples
    --------
    >>> suffix_of("data/IRIS.CSV"), suffix_of("notes.txt"), suffix_of("folder")
    ('.csv', '.txt', '')
    """
    name = PurePath(path).name.lower()
    # The longest one, so that both .csv and .csv.gz could be formats.
    matches = [suffix for suffix in FORMATS if name.endswith(suffix)]
    return max(matches, key=len, default=PurePath(name).suffix)


def writable_suffixes() -> list[str]:
    """Return the suffixes of files that ``icssl classify`` reads and writes."""
    return [suffix for suffix, form in FORMATS.items() if form.write is not None]


def readable_suffixes() -> list[str]:
    """Return the suffixes of files with columns by name, packed ones too."""
    named = [suffix for suffix in FORMATS if suffix != ".npy"]  # its columns have no names
    return [*named, *PACKED]


def page_suffixes() -> list[str]:
    """Return the suffixes of files that the page of ``icssl explore`` takes."""
    return [*(suffix for suffix, form in FORMATS.items() if form.on_page), *PACKED]


def read_file(
    source: Source,
    options: ReadOptions | None = None,
    allowed: Iterable[str] | None = None,
) -> FileTable:
    """Read all cells of a file in the format of its suffix.

    Parameters
    ----------
    source : Source
        The file.
    options : ReadOptions, optional
        How to read it.
    allowed : iterable of str, optional
        Suffixes to take; by default all.
    """
    options = options or ReadOptions()
    options.check()
    suffixes, suffix = list(FORMATS if allowed is None else allowed), suffix_of(source.name)
    if suffix not in suffixes:
        raise ValueError(f"{source.name} must end in {', '.join(suffixes)}.")
    source.check()
    if suffix in PACKED:
        # One layer: what is packed twice is refused by its name.
        inside = [one for one in suffixes if one not in PACKED]
        return read_file(unpack(source, options), options, inside)
    form = FORMATS[suffix]
    _check_installed(suffix, form.packages)
    table = form.read(source, options)
    # Once more for formats that do not look at the limits themselves.
    if options.limits is not None:
        options.limits.check_columns(source.name, len(table.names))
        options.limits.check_rows(source.name, len(table.cells))
    return table


def _check_installed(suffix: str, packages: Iterable[str]) -> None:
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise ImportError(
                f"{suffix} files need {package}: {EXTRA.format('tables')}."
            ) from error
