"""Columns of synthetic tables as real tables record them.

Columns get units, ranges, steps and skews; some become categories; some cells are missing.

Axis names: b = tables, n = rows, d = columns, c = classes, k = categories.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from icssl.classifier.pretraining.draws import Draws, pick, standardise

_WIDEST = 6.0  # decades between the smallest and the largest unit of a table
_MOST_CATEGORIES = 12
_MISSING_CATEGORIES = 0.15  # of the columns of categories lack some
# Half of the square distance that two categories have: as ColumnEncoder encodes them.
_ONE_HOT = math.sqrt(0.5)
_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 100.0))
_STEPS = (16, 100, 255)


def corrupt_columns(
    draws: Draws, x: Float[Tensor, "b n d"], *, noise: float
) -> Float[Tensor, "b n d"]:
    """Replace some columns by noise of this size, or by copies of other columns."""
    d = x.shape[-1]
    some = max(1, d // draws.whole(2, 4))
    if d > 1 and draws.chance(0.3):  # useless
        useless = noise * draws.normal(*x.shape[:-1], some)
        x = torch.cat([x[..., some:], useless], dim=-1)
    if d > 1 and draws.chance(0.2):  # repeated, in place of others
        x = torch.cat([x[..., some:], x[..., some:].flip(-1)], dim=-1)[..., :d]
    return x


def record_in_one_unit(
    draws: Draws, x: Float[Tensor, "b n d"], *, may_round: bool
) -> Float[Tensor, "b n d"]:
    """Return all columns in one random unit, or in one range, in whole numbers or not."""
    mean, deviation = x.mean(dim=(1, 2), keepdim=True), x.std(dim=(1, 2), keepdim=True)
    low = torch.maximum(x.amin(dim=(1, 2), keepdim=True), mean - 4 * deviation)
    high = torch.minimum(x.amax(dim=(1, 2), keepdim=True), mean + 6 * deviation)
    place = ((x - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)
    form = draws.choice(("plain", "plain", "range", "whole" if may_round else "range"))
    if form == "range":
        least, most = draws.choice(_RANGES)
        return least + (most - least) * place
    if form == "whole":
        return (draws.choice(_STEPS) * place).round()
    return 10 ** draws.between(-3, 3) * (x + draws.choice((0.0, 0.0, 1.0, 10.0)))


def record_in_own_units(draws: Draws, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """Return every column in its own unit and form: skewed, whole, rounded, binary.

    Units do not depend on what a column tells about the classes.
    """
    x = standardise(x)
    d = x.shape[-1]
    # Units may also be alike by chance, as in some small tables.
    decades = 1.0 if draws.chance(0.15) else _WIDEST
    decades = decades * draws.between(0, 1) ** 0.5
    form = _forms_of_columns(draws, d)
    columns = torch.zeros_like(x)
    for number, record in enumerate(_FORMS):
        (which,) = torch.where(form == number)
        if len(which):
            which = which.to(x.device, non_blocking=True)
            columns[..., which] = record(draws, x[..., which], decades)
    return columns


def _forms_of_columns(draws: Draws, d: int) -> Int[Tensor, " d"]:
    """Draw the number of a form for each column; in some tables most have the same."""
    taste = 1.5 * torch.randn(len(_FORMS), generator=draws.single)
    taste[0] += 1.0  # plain numbers are the most frequent
    return torch.multinomial(taste.softmax(0), d, True, generator=draws.single)


def _units(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Draw the unit of every column of every table."""
    return 10 ** (decades * draws.uniform(len(x), 1, x.shape[-1], low=-0.5, high=0.5))


def _plain_numbers(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Return numbers, positive in half of the tables."""
    start = draws.uniform(len(x), 1, x.shape[-1], low=3.0, high=12.0)
    return _units(draws, x, decades) * (x + (start if draws.chance(0.5) else 0.0))


def _long_tail(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Return positive numbers with a long tail."""
    size = draws.uniform(len(x), 1, x.shape[-1], low=0.3, high=1.3)
    return _units(draws, x, decades) * (size * x).clamp(-6, 6).exp()


def _powers(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Return powers of the numbers, with the same sign."""
    power = draws.uniform(len(x), 1, x.shape[-1], low=0.5, high=2.5)
    return _units(draws, x, decades) * x.sign() * x.abs() ** power


def _whole_numbers(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Return whole numbers, as ages, counts and years are."""
    size = draws.log_uniform(len(x), 1, x.shape[-1], low=0.7, high=1 + 10 ** (decades / 2))
    start = draws.uniform(len(x), 1, x.shape[-1], low=0.0, high=4.0)
    return (size * (x + start)).round()


def _indicators(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Return zeros and ones."""
    return (x > draws.uniform(len(x), 1, x.shape[-1], low=-1.0, high=1.5)).to(x.dtype)


def _few_digits(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Return numbers with few digits."""
    step = draws.log_uniform(len(x), 1, x.shape[-1], low=0.02, high=0.6)
    start = draws.uniform(len(x), 1, x.shape[-1], low=0.0, high=6.0)
    return _units(draws, x, decades) * step * ((x + start) / step).round()


def _zero_inflation(draws: Draws, x: Tensor, decades: float) -> Tensor:
    """Return zero for most rows, and positive numbers for the others."""
    border = draws.uniform(len(x), 1, x.shape[-1], low=-0.5, high=1.2)
    return _units(draws, x, decades) * torch.relu(x - border)


_FORMS: tuple[Callable[[Draws, Tensor, float], Tensor], ...] = (
    _plain_numbers,
    _long_tail,
    _powers,
    _whole_numbers,
    _indicators,
    _few_digits,
    _zero_inflation,
)


def draw_category_sizes(draws: Draws, d: int) -> tuple[int, ...]:
    """Draw how many categories the columns of categories have; most tables have none.

    Encoded one-hot, all of them together take at most ``d - 1`` columns.
    """
    if d < 4 or not draws.chance(0.4):
        return ()
    room = d - 1 if draws.chance(0.3) else d // 2
    sizes: list[int] = []
    for _ in range(draws.whole(1, 12)):
        size = draws.whole(2, _MOST_CATEGORIES)
        if sum(sizes) + size <= room:
            sizes.append(size)
    return tuple(sizes)


def encode_categories(
    draws: Draws,
    sources: Float[Tensor, "b n m"],
    y: Int[Tensor, "b n"],
    c: int,
    sizes: tuple[int, ...],
) -> Float[Tensor, "b n k"]:
    """Return one-hot columns of categories, some of them rare.

    A missing category is zero in all of its columns.

    Parameters
    ----------
    draws : Draws
        Source of random numbers.
    sources : Tensor of shape (b, n, m)
        Columns of numbers. A category is an interval of its column, or drawn by the class.
    y : Tensor of shape (b, n)
        Classes.
    c : int
        Number of classes.
    sizes : tuple of int
        Number of categories of each column.
    """
    encoded = [sources.new_zeros(*y.shape, 0)]
    for column, size in enumerate(sizes):
        shares = (draws.between(0, 1.5) * draws.normal(len(y), size)).softmax(dim=-1)
        if draws.chance(0.6):
            category = _intervals(draws, sources[..., column], shares)
        else:
            strength = draws.between(0, 2)
            logits = shares.log()[:, None] + strength * draws.normal(len(y), c, size)
            gumbel = -(-draws.uniform(*y.shape, size, low=1e-6).log()).log()
            category = (pick(logits, y) + gumbel).argmax(dim=-1)
        block = _ONE_HOT * one_hot(category, size).to(sources.dtype)
        if draws.chance(_MISSING_CATEGORIES):
            is_known = draws.uniform(*y.shape, 1) >= draws.log_between(0.01, 0.3)
            block = block * is_known
        encoded.append(block)
    return torch.cat(encoded, dim=-1)


def _intervals(draws: Draws, source: Tensor, shares: Tensor) -> Tensor:
    """Return the interval of its column that each noisy value lies in."""
    source = standardise(source[..., None])[..., 0]
    source = source + draws.between(0.05, 1) * draws.normal(*source.shape)
    place = source.argsort(dim=1).argsort(dim=1) / source.shape[1]
    return (place[..., None] >= shares.cumsum(dim=1)[:, None, :-1]).sum(dim=-1)


def remove_cells(
    draws: Draws,
    cells: Float[Tensor, "b n d"],
    y: Int[Tensor, "b n"],
    c: int,
) -> Float[Tensor, "b n d"]:
    """Empty 1 to 30% of some columns, at random or more often in some classes.

    Parameters
    ----------
    draws : Draws
        Source of random numbers.
    cells : Tensor of shape (b, n, d)
        Columns of numbers.
    y : Tensor of shape (b, n)
        Classes.
    c : int
        Number of classes.
    """
    b, _, d = cells.shape
    rate = draws.log_uniform(b, 1, d, low=0.01, high=0.3)
    rate = rate * (draws.uniform(1, 1, d) < draws.between(0.1, 1))
    if draws.chance(0.4):
        rate = (rate * pick(draws.log_uniform(b, c, d, low=0.2, high=3), y)).clamp(max=0.6)
    return torch.where(draws.uniform(*cells.shape) < rate, math.nan, cells)
