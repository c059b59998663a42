"""JSON: one object per line, or one list of objects."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icssl.tables.cells import is_missing
from icssl.tables.csv_text import text_labels
from icssl.tables.table_file import FileTable, ReadOptions, Source
from icssl.tables.text_files import decode


def read_json(source: Source, options: ReadOptions) -> FileTable:
    """Read objects as rows, their keys as columns; a row may lack some of them."""
    import pandas as pd

    decoded = decode(source, options)
    rows = _objects(source.name, decoded.text, options)
    names = list(dict.fromkeys(key for row in rows for key in row))
    if options.limits is not None:
        options.limits.check_columns(source.name, len(names))
        # One key per row, and nearly all cells would be missing.
        options.limits.check_unpacked(source.name, 8 * len(names) * len(rows))
    columns = {name: [row.get(name) for row in rows] for name in names}
    for name, cells in columns.items():
        nested = next((c for c in cells if isinstance(c, (list, dict))), None)
        if nested is not None and name not in options.unread:
            raise ValueError(
                f"{source.name}: cells of column {name!r} are not single values but "
                f"{'lists' if isinstance(nested, list) else 'objects'}. Leave it out "
                "(drop), or make a column of each part."
            )
    frame = pd.DataFrame(columns, dtype=object)
    labels = partial(text_labels, frame, options)
    notes = (decoded.encoding_name,)
    stored = frame
    return FileTable(
        frame.infer_objects(), labels, lambda: stored, "", notes, decoded.warnings
    )


def write_json_lines(
    stored: Any, columns: Mapping[str, ndarray], path: Path, _: str
) -> None:
    """Write one object per line, with the values as they were read."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(text + "\n" for text in _object_texts(stored, columns))


def write_json(stored: Any, columns: Mapping[str, ndarray], path: Path, _: str) -> None:
    """Write one list of objects, with the values as they were read."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(_object_texts(stored, columns)):
            file.write((",\n" if number else "[\n") + text)
        file.write("\n]\n")


def _object_texts(stored: Any, columns: Mapping[str, ndarray]) -> Iterator[str]:
    for row in stored.assign(**columns).to_dict("records"):
        values = {str(name): _value(cell) for name, cell in row.items()}
        yield json.dumps(values, ensure_ascii=False, default=str)


def _objects(name: str, text: str, options: ReadOptions) -> list[dict[str, Any]]:
    """Return the objects of a text, each from a line or all from one list."""
    rows: list[Any] = []
    if text.lstrip().startswith("["):
        rows = _parse(name, text, 1)
    else:
        _refuse_other_orders(name, text)
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                rows.append(_parse(name, line, number))
                if options.limits is not None:
                    most = options.limits.rows
                    options.limits.check_rows(name, len(rows), f"more than {most:,}")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ValueError(
                f"{name}: row {number} is no object with names and values, as in "
                '{"age": 3, "species": "cat"}.'
            )
    if not rows:
        raise ValueError(f"{name} has no rows.")
    return rows


def _refuse_other_orders(name: str, text: str) -> None:
    """Refuse one object that holds all rows, or all columns, and say how to write rows."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return  # most files have one object per line
    if not isinstance(whole, dict):
        return
    lists = [key for key, value in whole.items() if _is_rows(value)]
    if lists:
        raise ValueError(
            f"{name} is one object, and its rows are in {lists[0]!r}: save that list "
            'alone, as in [{"age": 3, "species": "cat"}].'
        )
    if whole and all(isinstance(value, (list, dict)) for value in whole.values()):
        raise ValueError(
            f"{name} holds columns, and rows are needed: save a list of objects, as in "
            '[{"age": 3, "species": "cat"}]; pandas does so by '
            'to_json(..., orient="records").'
        )


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _parse(name: str, text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{name} cannot be read as JSON, line {line}: {error}. It may be cut short."
        ) from error


def _value(cell: Any) -> Any:
    if isinstance(cell, (float, np.floating)):
        return float(cell) if np.isfinite(cell) else None
    if isinstance(cell, np.generic):
        return cell.item()
    return None if is_missing(cell) else cell
