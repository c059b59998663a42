"""Parquet of any size, a file or a folder of files, in pieces that fit the memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from icssl.tables.parquet import check_flat, count_rows, open_parquet
from icssl.tables.table_file import Source, check_names
from icssl.tables.targets import blank_texts

_LEAST_ROWS = 2**10  # per piece, unless the table has fewer
MOST_ROWS, MOST_CELLS = 2**18, 2**24
"""Most rows and most cells per piece: 128 MB of float64."""

_SUFFIX = ".parquet"  # the one format whose files are read in pieces
_PART = "part-{:06}.parquet"


@dataclass(frozen=True)
class Piece:
    """The ``number``-th piece of a table: rows ``start`` to ``stop`` of a file."""

    number: int
    path: Path
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def part(self) -> str:
        """Name of the file that is written for it; names sort as the rows do."""
        return _PART.format(self.number)

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """Read the rows as a table of Arrow; row groups they lie in are read whole."""
        with open_parquet(Source(str(self.path))) as file:
            # Only the groups from that of the first row to that of the last one.
            groups = range(file.num_row_groups)
            ends = np.cumsum([file.metadata.row_group(i).num_rows for i in groups])
            first = int(np.searchsorted(ends, self.start, side="right"))
            last = int(np.searchsorted(ends, self.stop, side="left"))
            table = file.read_row_groups(groups[first : last + 1], columns=columns)
        before = int(ends[first - 1]) if first else 0
        return table.slice(self.start - before, len(self))


def pieces_of(
    path: Path,
    needed: Sequence[str] = (),
    *,
    unread: Sequence[str] = (),
    most: int | None = None,
    several: int = 1,
) -> list[Piece]:
    """Cut a Parquet file, or all files of a folder, into pieces.

    Parameters
    ----------
    path : Path
        The file or the folder, whose files must all have the same columns.
    needed : sequence of str
        Columns that must be there.
    unread : sequence of str
        Columns that the classifier does not see, so that their cells may be lists.
    most : int, optional
        Most rows per piece; by default as many as fit the memory easily.
    several : int
        Least number of pieces if ``most`` is not given and the table is not small.
    """
    schemas, rows = {}, {}
    for name in _files(path):
        with open_parquet(Source(str(name))) as file:
            schemas[name], rows[name] = file.schema_arrow, count_rows(file)
    _check_alike(schemas)
    first, schema = next(iter(schemas.items()))
    check_names(first, "column", schema.names, needed)
    check_flat(first, schema, unread)
    total = sum(rows.values())
    if not total:
        raise ValueError(f"{path} has no rows.")
    # So small that a worker has memory for one, and so many that all workers have some.
    fit = min(MOST_ROWS, MOST_CELLS // max(len(schema.names), 1), -(-total // several))
    most = most or max(_LEAST_ROWS, fit)
    ranges = [
        (name, start, min(start + most, count))
        for name, count in rows.items()
        for start in range(0, count, most)
    ]
    return [Piece(number, *rows_of_file) for number, rows_of_file in enumerate(ranges)]


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if not path.is_dir():
        if path.suffix != _SUFFIX:
            raise ValueError(f"{path} must end in {_SUFFIX}, or be a folder of such files.")
        return [path.absolute()]
    files = sorted(path.absolute().glob(f"*{_SUFFIX}"))
    if not files:
        raise ValueError(f"{path} is a folder without a {_SUFFIX} file.")
    return files


def _check_alike(schemas: Mapping[Path, Any]) -> None:
    """Refuse files whose columns differ in their names, or in types that do not match."""
    first, *others = schemas
    wanted = schemas[first]
    for path in others:
        schema = schemas[path]
        faults = [f"has no {name!r}" for name in wanted.names if name not in schema.names]
        faults += [
            f"has {name!r} more" for name in schema.names if name not in wanted.names
        ]
        for name in wanted.names:
            if name in schema.names and not _go_together(wanted, schema, name):
                kinds = schema.field(name).type, wanted.field(name).type
                faults.append(f"has {kinds[0]} in {name!r} and not {kinds[1]}")
        if faults:
            raise ValueError(
                f"{path} differs in its columns from {first}: it {', '.join(faults)}."
            )


def _go_together(first: Any, second: Any, name: str) -> bool:
    """Whether one type holds a column of both: integers and floats, or a blank column."""
    import pyarrow as pa

    fields = [pa.schema([schema.field(name)]) for schema in (first, second)]
    try:
        pa.unify_schemas(fields, promote_options="permissive")
    except (TypeError, ValueError):
        return False
    return True


def are_labels(cells: Any) -> Bool[ndarray, " n"]:
    """Return which cells of an Arrow column are labels: not missing, not -1, not blank.

    The rule is that of :func:`icssl.tables.targets.read_targets`, for any number of rows.
    """
    from pyarrow import array, compute, scalar, types

    if types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    absent = compute.is_null(cells, nan_is_null=True)
    kind, blank = cells.type, None
    if types.is_signed_integer(kind) or types.is_floating(kind):
        blank = compute.equal(cells, scalar(-1, kind))
    elif any(is_kind(kind) for is_kind in _text_kinds(types)):
        no_label = blank_texts(compute.unique(cells).to_pylist())
        blank = compute.is_in(cells, value_set=array(sorted(no_label), kind))
    if blank is not None:
        absent = compute.or_(absent, compute.fill_null(blank, True))
    return ~absent.to_numpy()


def _text_kinds(types: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the tests that tell texts and bytes of Arrow from other types."""
    texts = (types.is_string, types.is_large_string)
    return (*texts, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)


def check_parts(path: Path) -> None:
    """Refuse to write over anything but a folder of parts that were written before."""
    if not path.exists():
        return
    names = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
    other = names - {_PART.format(number) for number in range(len(names))}
    if other:
        raise ValueError(
            f"{path} holds {min(other)!r}, which is no part of a table that was written "
            "in pieces: give another name."
        )
