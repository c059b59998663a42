"""Synthetic tables with classes, which the released weights are trained on.

All tables of a batch have one shape, one kind of classes and one layout of columns, drawn
per batch; every table has its own random weights. Classes are distributions, strands,
parts of surfaces, or functions of the columns. Cells are then recorded as those of real
tables are: in one unit or in many, as categories, with cells missing.

Axis names: b = tables, n = rows (points), d = columns, c = classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from icssl._util.errors import check_at_least, check_choice
from icssl.classifier.pretraining.class_distributions import (
    draw_clusters,
    draw_counts,
    draw_dense_and_spread,
    draw_distant_clusters,
    draw_surface,
)
from icssl.classifier.pretraining.draws import Draws, TablePlan, standardise
from icssl.classifier.pretraining.functions_of_columns import (
    Points,
    draw_causal_classes,
    draw_linear_classes,
    draw_network_classes,
    draw_tree_classes,
)
from icssl.classifier.pretraining.real_columns import (
    corrupt_columns,
    draw_category_sizes,
    encode_categories,
    record_in_one_unit,
    record_in_own_units,
    remove_cells,
)
from icssl.classifier.pretraining.strands import draw_strands
from icssl.classifier.pretraining.surfaces import draw_closed_surfaces, draw_sheets
from icssl.classifier.pretraining.table_classes import (
    corrupt_labels,
    draw_shares,
    give_each_class_rows,
)

_STANDARDISED = 0.1  # of the batches: users often standardise columns themselves
_MISSING = 0.35  # of the batches that are not shapes have missing cells
_MISSING_OF_SHAPES = 0.05
_WRONG_LABELS = 0.3  # of the batches have some wrong labels
_WRONG_LABELS_OF_SHAPES = 0.1

KINDS: dict[str, Callable[[Draws, TablePlan], Points]] = {
    "clusters": draw_clusters,
    "apart": draw_distant_clusters,
    "surface": draw_surface,
    "strands": draw_strands,
    "closed_surfaces": draw_closed_surfaces,
    "sheets": draw_sheets,
    "linear": draw_linear_classes,
    "network": draw_network_classes,
    "trees": draw_tree_classes,
    "causal": draw_causal_classes,
    "dense_and_spread": draw_dense_and_spread,
    "counts": draw_counts,
}
"""Functions that draw cells and classes, by the name of the kind of table."""

_CLEAN = ("apart",)  # kinds whose labels have no noise
_SHAPES = ("strands", "closed_surfaces", "sheets")
# A shape that has too few points cannot be recognised, and has no use for many columns.
_LEAST_POINTS_OF_SHAPES, _MOST_COLUMNS_OF_SHAPES = 150, 30
# Many classes need many dimensions, or nobody could tell them apart.
_MOST_CLASSES = {
    **dict.fromkeys(("linear", "network", "trees", "causal"), 8),
    **dict.fromkeys(("dense_and_spread", *_SHAPES), 6),
}
# How often columns have one unit, each its own, or some one unit and some their own.
_UNITS = {
    "causal": (0.0, 0.8, 0.2),
    "counts": (0.8, 0.2, 0.0),
    **dict.fromkeys(_SHAPES, (1.0, 0.0, 0.0)),
}
_UNITS_OF_OTHERS = (0.36, 0.46, 0.18)


class SyntheticTables(NamedTuple):
    """A batch of tables of one shape and one layout of columns, in raw units.

    Parameters
    ----------
    cells : Tensor of shape (b, n, d)
        Numbers in their own units, NaN where a cell is missing, then encoded categories.
    is_category : Tensor of shape (d,)
        Columns of encoded categories, ``sqrt(1/2)`` where a row has the category, else 0.
        These are never scaled.
    y : Tensor of shape (b, n)
        Class of every row.
    n_classes : int
        Number of classes.
    one_unit : bool
        Whether all numbers have one unit, so that the differences between the spreads of
        columns tell something about the classes. False for tables that mix units, and
        for tables that were standardised.
    """

    cells: Float[Tensor, "b n d"]
    is_category: Bool[Tensor, " d"]
    y: Int[Tensor, "b n"]
    n_classes: int
    one_unit: bool


@dataclass(frozen=True)
class TaskSpec:
    """The distribution of synthetic tables; ranges are log-uniform, ends included.

    Half of the batches have two classes, where that is allowed.

    Parameters
    ----------
    points, columns, classes, labels_per_class : tuple of int
        Smallest and largest number. At most half of the points get a label. Within these
        ranges strands and surfaces have at least 150 points, at most 30 columns and at
        most 6 classes, and functions of columns at most 8 classes.
    most_numbers : int
        Largest product of points and columns; a wider table has fewer points.
    kinds : tuple of str
        Names from :data:`KINDS` to draw from; a name that occurs twice is drawn twice as
        often.
    """

    points: tuple[int, int] = (40, 600)
    columns: tuple[int, int] = (2, 300)
    classes: tuple[int, int] = (2, 20)
    labels_per_class: tuple[int, int] = (1, 20)
    most_numbers: int = 60_000
    kinds: tuple[str, ...] = (
        *3 * ("clusters",),
        *2 * ("strands",),
        *2 * ("dense_and_spread",),
        *("apart", "surface", "closed_surfaces", "sheets"),
        *("linear", "network", "trees", "causal", "counts"),
    )

    def __post_init__(self) -> None:
        for name, least in (("points", 8), ("columns", 1), ("classes", 2)):
            low, high = getattr(self, name)
            check_at_least(f"the smallest number of {name}", low, least)
            check_at_least(f"the largest number of {name}", high, low)
        check_at_least("labels_per_class", self.labels_per_class[0], 1)
        check_at_least("the most labels per class", self.labels_per_class[1], 1)
        check_at_least("most_numbers", self.most_numbers, 1)
        for kind in self.kinds:
            check_choice("kind of task", kind, KINDS)

    def draw_tables(self, b: int, *, generator: Generator) -> SyntheticTables:
        """Draw ``b`` tables on the generator's device.

        The same generator gives the same kind and shape again, so every batch needs a
        generator of its own.
        """
        draws = Draws(generator)
        kind = draws.choice(self.kinds)
        is_shape = kind in _SHAPES
        n, d, c = self._shape(draws, kind)
        sizes = () if is_shape else draw_category_sizes(draws, d)
        units = _draw_units(draws, kind)
        # Each column of categories is made from a column of numbers.
        width = d - sum(sizes) + len(sizes)
        shares = draw_shares(draws, b, c, n)
        plan = TablePlan(b, n, width, c, shares, one_unit=units != "own")
        x, y = KINDS[kind](draws, plan)
        if kind not in _CLEAN:
            wrong = _WRONG_LABELS_OF_SHAPES if is_shape else _WRONG_LABELS
            y = corrupt_labels(draws, y) if draws.chance(wrong) else y
        y = give_each_class_rows(y, c, generator=generator)
        is_standardised = draws.chance(_STANDARDISED)
        numbers, categories = _record(draws, x, y, c, sizes, units, is_shape=is_shape)
        numbers = standardise(numbers) if is_standardised else numbers
        if draws.chance(_MISSING_OF_SHAPES if is_shape else _MISSING):
            numbers = remove_cells(draws, numbers, y, c)
        cells = torch.cat([numbers, categories], dim=-1)
        one_unit = units == "one" and not is_standardised
        is_category = torch.arange(d) >= d - sum(sizes)
        is_category = is_category.to(cells.device, non_blocking=True)
        return SyntheticTables(cells, is_category, y, c, one_unit)

    def _shape(self, draws: Draws, kind: str) -> tuple[int, int, int]:
        points, columns, classes = self.points, self.columns, self.classes
        classes = (classes[0], _clip(_MOST_CLASSES.get(kind, classes[1]), classes))
        if kind in _SHAPES:
            points = (_clip(_LEAST_POINTS_OF_SHAPES, points), points[1])
            # Three columns hold most shapes; two are enough for spirals and circles.
            columns = (_clip(2 if draws.chance(0.2) else 3, columns), columns[1])
            columns = (columns[0], _clip(_MOST_COLUMNS_OF_SHAPES, columns))
        d = draws.whole(*columns)
        n = min(draws.whole(*points), max(self.points[0], self.most_numbers // d))
        is_binary = classes[0] == 2 and draws.chance(0.4)
        c = 2 if is_binary else draws.whole(*classes)
        return n, d, min(c, n // 4)


def _clip(value: int, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(value, bounds[1]))


def _draw_units(draws: Draws, kind: str) -> str:
    """Draw whether the columns of a batch have one unit, own units, or both."""
    one_share, own_share, _ = _UNITS.get(kind, _UNITS_OF_OTHERS)
    place = draws.between(0, 1)
    if place < one_share:
        return "one"
    return "own" if place < one_share + own_share else "mixed"


def _record(
    draws: Draws,
    x: Tensor,
    y: Tensor,
    c: int,
    sizes: tuple[int, ...],
    units: str,
    *,
    is_shape: bool,
) -> tuple[Tensor, Tensor]:
    """Return numbers in their units, and encoded categories of these sizes."""
    x = x[..., draws.order(x.shape[-1])]
    numbers, sources = x[..., len(sizes) :], x[..., : len(sizes)]
    # In one unit, what is useless is small, too.
    noise = 1.0 if units == "own" else draws.log_between(0.03, 0.5)
    if not is_shape:  # a shape has small useless columns already
        numbers = corrupt_columns(draws, numbers, noise=noise)
    # Mixed tables have a block of one unit, and beside it columns that have their own.
    share = {"one": 1.0, "own": 0.0, "mixed": draws.between(0.4, 0.9)}[units]
    block = round(share * numbers.shape[-1])
    parts = []
    if block:
        block_cells = numbers[..., :block]
        parts.append(record_in_one_unit(draws, block_cells, may_round=not is_shape))
    if block < numbers.shape[-1]:
        parts.append(record_in_own_units(draws, numbers[..., block:]))
    return torch.cat(parts, dim=-1), encode_categories(draws, sources, y, c, sizes)
