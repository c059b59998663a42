"""The first lines of a table: titles above the names of columns, and missing names."""

import csv
import re
from collections.abc import Sequence
from io import StringIO
from itertools import islice, pairwise
from typing import Any

from icssl.tables.table_warning import TableWarning, quote

_SAMPLE_ROWS = 200
_SEPARATOR_LINE = re.compile(r'"?sep=([^\w"\r\n])\1*"?[ \t]*(?:\r\n|\r|\n)', re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[0-9]+(?:[.,][0-9]+)?(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_TWO = 2  # columns: fewer than that have no title that could be told from them
_SORTED = 5  # names in order: wavelengths or years, which are numbers and names


def count_title_rows(rows: Sequence[Sequence[Any]]) -> int:
    """Return how many rows stand above the row with the names of the columns.

    One of them at least fills half as many cells as the widest rows do, or fewer, and none
    more than two thirds: titles, dates, blank rows.

    Examples
    --------
    >>> count_title_rows([["Sales"], [], ["age", "plan"], [31, "basic"], [40, "pro"]])
    2
    >>> count_title_rows([["age", "plan"], [31, "basic"], [40, None]])
    0
    """
    counts = [sum(map(_is_filled, row)) for row in rows[:_SAMPLE_ROWS]]
    full = sorted(counts)[-2] if len(counts) > 1 else 0  # one row may be too wide
    if full < _TWO:
        return 0
    first = next(place for place, count in enumerate(counts) if 3 * count > 2 * full)
    above, below = counts[:first], counts[first + 1 :]
    is_clear = not any(above) or any(0 < 2 * count <= full for count in above)
    is_full = below and sum(2 * count > full for count in below) >= len(below) / 2
    if not (is_clear and is_full and _may_be_names(rows[first])):
        return 0
    # Names of columns whose first has none: programs write row numbers in this way.
    least = 1 if full == _TWO else _TWO
    unnamed = any(
        count >= least and not _is_filled(row[0])
        for count, row in zip(above, rows, strict=False)
    )
    return 0 if unnamed else first


def title_warnings(rows: Sequence[Sequence[Any]]) -> list[TableWarning]:
    """Return a warning that names the rows that are left out, unless all are blank."""
    titles = [
        " ".join(str(cell).strip() for cell in row if _is_filled(cell)) for row in rows
    ]
    titles = [title for title in titles if title]
    if not titles:
        return []
    if len(titles) == 1:
        said = f"the first line, {quote(titles)}, is left out: it fills"
    else:
        said = f"the first {len(titles)} lines, {quote(titles)}, are left out: they fill"
    return [TableWarning(f"{said} fewer cells than the rows below.")]


def without_title_lines(text: str, separator: str) -> tuple[str, int, list[TableWarning]]:
    """Return a text from the names of the columns on, and how many lines are left out."""
    rows, ends = [], []
    reader = csv.reader(StringIO(text, newline=""), delimiter=separator)
    try:
        for row in islice(reader, _SAMPLE_ROWS):
            rows.append(row)
            ends.append(reader.line_num)
    except csv.Error:  # said where the whole text is checked
        return text, 0, []
    count = count_title_rows(rows)
    if not count:
        return text, 0, []
    rest = StringIO(text, newline="")
    for _ in range(ends[count - 1]):
        rest.readline()
    return rest.read(), ends[count - 1], title_warnings(rows[:count])


def split_separator_line(text: str) -> tuple[str, str]:
    r"""Return the separator of a first line such as ``sep=;``, and the text below it.

    Spreadsheet programs write such a line, and show no cell for it.

    Examples
    --------
    >>> split_separator_line("sep=;\na;b\n")
    (';', 'a;b\n')
    >>> split_separator_line("a;b\n")
    ('', 'a;b\n')
    """
    match = _SEPARATOR_LINE.match(text)
    return ("", text) if match is None else (match[1], text[match.end() :])


def doubts_about_names(header: Sequence[str]) -> list[TableWarning]:
    """Return a warning if the names of the columns look like the cells of a row.

    Examples
    --------
    >>> len(doubts_about_names(["5.1", "3.5", "1.4", "setosa"]))
    1
    >>> doubts_about_names(["0", "1", "2"]), doubts_about_names(["age", "2021"])
    ([], [])
    """
    cells = [cell.strip() for cell in header if cell.strip()]
    numbers = [cell for cell in cells if _NUMBER.fullmatch(cell)]
    if len(numbers) < _TWO:
        return []
    values = [float(cell.replace(",", ".")) for cell in numbers]
    steps = {after - before for before, after in pairwise(values)}
    counted = steps == {1.0} or (
        len(values) >= _SORTED and (min(steps) > 0 or max(steps) < 0)
    )
    parts = sum("." in cell or "," in cell for cell in numbers)
    if counted or not (len(numbers) == len(cells) or 2 * parts >= len(cells)):
        return []
    return [
        TableWarning(
            f"the first line, {quote(cells)}, holds numbers and is taken for the names "
            "of the columns: if it is a row, write a line with names above it."
        )
    ]


def _may_be_names(row: Sequence[Any]) -> bool:
    """Whether most cells of a row that are there are texts, and no numbers."""
    filled = [cell for cell in row if _is_filled(cell)]
    texts = [one for one in filled if isinstance(one, str) and not _NUMBER.fullmatch(one)]
    return 2 * len(texts) > len(filled)


def _is_filled(cell: Any) -> bool:
    return cell is not None and bool(str(cell).strip())
