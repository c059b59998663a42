"""Cells that cannot be read in a column of numbers or dates, and what is said of them."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from icssl.tables.table_warning import TableWarning, quote

_FEW_MARKS = 3  # texts that may each stand for no value, at most


@dataclass(frozen=True)
class LostCells:
    """Cells of a column of numbers or dates that are neither, and count as missing.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : {"number", "date"}
        What the column is.
    texts : tuple of str
        What stands in these cells.
    count : int
        How many they are.
    all_lost : bool
        Whether the column has no other texts.
    """

    name: str
    kind: str
    texts: tuple[str, ...]
    count: int
    all_lost: bool

    @property
    def may_be_marks(self) -> bool:
        """Whether they are so few texts without digits that each may stand for no value."""
        has_digits = any(map(str.isdigit, "".join(self.texts)))
        return len(self.texts) <= _FEW_MARKS and not has_digits and not self.all_lost


def without_taken_marks(
    warnings: Iterable[TableWarning], texts: Collection[str]
) -> list[TableWarning]:
    """Return warnings that propose no mark for no value that is one of these texts.

    As a mark it would be no value there too.
    """
    taken = set(texts)
    return [
        TableWarning(f"{one.said} Make them empty to confirm this.")
        if one.confirms and taken & set(one.values)
        else one
        for one in warnings
    ]


def warnings_of_lost(
    lost: Iterable[LostCells | None], categories: Collection[str] = ()
) -> list[TableWarning]:
    """Return warnings of lost cells: one where the same marks stand in several columns.

    Texts that are categories elsewhere cannot be called marks for no value.
    """
    warnings, by_marks = [], defaultdict(list)
    for one in lost:
        if one is None:
            continue
        if one.may_be_marks:
            by_marks[frozenset(one.texts)].append(one)
            continue
        said = f"column {one.name!r} is read as {one.kind}s, and "
        if one.all_lost:
            said += f"all of its cells, {quote(one.texts)}, count as missing."
            warnings.append(TableWarning(said, "types", [f"{one.name}=category"]))
            continue
        is_one = one.count == 1
        said += f"{one.count:,} of its cells, {quote(one.texts)}, "
        said += f"count{'s' if is_one else ''} as missing: correct "
        said += f"{'it' if is_one else 'them'} in the file if that is wrong."
        warnings.append(TableWarning(said))
    for columns in by_marks.values():
        first, count = columns[0], sum(one.count for one in columns)
        where = f"column {first.name!r}"
        if len(columns) > 1:
            where = f"{len(columns):,} columns, {quote([one.name for one in columns])},"
        kinds = " or ".join(dict.fromkeys(one.kind for one in columns))
        is_no = "is no" if len(first.texts) == 1 else "are no"
        cells = "1 cell counts" if count == 1 else f"{count:,} cells count"
        said = f"{quote(first.texts)} in {where} {is_no} {kinds}: {cells} as missing."
        warnings.append(TableWarning(said, "missing", first.texts, confirms=True))
    return without_taken_marks(warnings, categories)
