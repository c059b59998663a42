"""Units of columns: which columns of a table share one, and what their spreads say of it.

Where columns share a unit, as pixels, coordinates or embeddings do, the differences between
their spreads are part of the table's geometry, and dividing each by its own deviation
destroys them. Nothing in a table says what its units are; its spreads nearly do.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

UNIT_NUMBERS = 6
"""Numbers that :func:`unit_numbers` gives about the units of a table."""

EXCESS = 0
"""Place, among the numbers, of half the logarithm of largest over median deviation."""

SHARED = 2
"""Place, among the numbers, of the share of columns that share a unit with others."""

ROUNDING = 1e-10
"""Share of a column's largest value that is taken for rounding."""

COMPARABLE = 8.0
"""Largest deviation over the median one up to which all columns may share a unit. It is 1
to 8 for pixels, coordinates, features and counts, and 14 to millions for other tables."""

_STEP = 2.0  # factor between the deviations of neighbours in a group, at most
_LEAST_GROUP = 4  # columns that make a group within a table of several units
_LEAST_DIFFERENCE = 1.2  # factors nearer to one than this change no geometry
_MOST = 8.0  # largest difference of logarithms that is told apart


def column_kinds(values: Float[ndarray, "*b d n"]) -> Int[ndarray, "*b d"]:
    """Return a code for columns of whole numbers (2), and of one sign (1).

    That a column has one sign is what lengths and counts have in common, and it does not
    depend on the sign that a table happens to give them.
    """
    missing = np.isnan(values)
    largest = np.fmax.reduce(np.abs(values), axis=-1, initial=0.0)[..., None]
    slack = ROUNDING * largest  # the last digits of numbers must not decide
    whole = (missing | (np.abs(values - np.round(values)) <= slack)).all(axis=-1)
    sides = (values >= -slack, values <= slack)
    one_sign = [(missing | side).all(axis=-1) for side in sides]
    return 2 * whole + (one_sign[0] | one_sign[1])


def common_factors(
    spread: Float[ndarray, "b d"], kinds: Int[ndarray, "b d"]
) -> Float[ndarray, "b d"]:
    """Return what to multiply standardised columns with, so that units are kept.

    A column becomes as wide as it is, in units of the root mean square deviation of all
    columns that share its unit. A column that shares its unit with no other keeps factor
    one, and so does one that has no spread.

    Parameters
    ----------
    spread : ndarray
        Logarithms of the columns' standard deviations; -inf for columns that have none,
        or that are categories.
    kinds : ndarray
        Their :func:`column_kinds`.

    Examples
    --------
    >>> spread, kinds = np.log([[1.0, 2.0, 2.0]]), np.zeros((1, 3), dtype=int)
    >>> common_factors(spread, kinds).round(2)
    array([[0.58, 1.15, 1.15]])
    >>> common_factors(np.log([[1.0, 2.0, 5000.0]]), kinds)
    array([[1., 1., 1.]])
    """
    factors = np.ones(spread.shape)
    for table, (logs, kind) in enumerate(zip(spread, kinds, strict=True)):
        for group in _groups(logs, kind):
            mean_square = np.logaddexp.reduce(2 * logs[group]) - np.log(len(group))
            factors[table, group] = np.exp(logs[group] - mean_square / 2)
    return factors


def _groups(logs: Float[ndarray, " d"], kinds: Int[ndarray, " d"]) -> list[ndarray]:
    """Return the places of columns that are taken to share a unit, group by group."""
    has_spread = np.flatnonzero(np.isfinite(logs))
    if len(has_spread) < 2:
        return []
    if _excess(logs[has_spread]) <= np.log(COMPARABLE):
        return [has_spread]
    groups = []
    for kind in np.unique(kinds[has_spread]):
        places = has_spread[kinds[has_spread] == kind]
        places = places[np.argsort(logs[places], kind="stable")]
        gaps = np.diff(logs[places]) > np.log(_STEP)
        groups += [
            group
            for group in np.split(places, np.flatnonzero(gaps) + 1)
            if len(group) >= _LEAST_GROUP and _excess(logs[group]) <= np.log(COMPARABLE)
        ]
    return groups


def _excess(logs: Float[ndarray, " g"]) -> float:
    return float(logs.max() - np.median(logs))


def differs(factors: Float[ndarray, "b d"]) -> Bool[ndarray, " b"]:
    """Return which tables have another geometry if units are kept."""
    return np.abs(np.log(factors)).max(axis=-1, initial=0.0) > np.log(_LEAST_DIFFERENCE)


def is_one_group(numbers: Float[ndarray, " 6"]) -> bool:
    """Return whether all columns with a spread share one unit, not each some unit.

    Examples
    --------
    >>> kinds = np.zeros((2, 8), dtype=int)
    >>> spread = np.log([[1, 1.5] * 4, [1, 1.5] * 2 + [1000, 1500] * 2])
    >>> numbers = unit_numbers(spread, kinds, common_factors(spread, kinds))
    >>> numbers[:, SHARED].tolist(), [is_one_group(table) for table in numbers]
    ([1.0, 1.0], [True, False])
    """
    all_shared = bool(numbers[SHARED] == 1)
    return all_shared and bool(2 * numbers[EXCESS] <= np.log(COMPARABLE))


def unit_numbers(
    spread: Float[ndarray, "b d"],
    kinds: Int[ndarray, "b d"],
    factors: Float[ndarray, "b d"],
) -> Float[ndarray, "b 6"]:
    """Return what the spreads, ranges and types of a table's columns say of its units.

    The largest deviation against the median one; how much the factors differ; the shares
    of columns that share a unit, that hold whole numbers, that have one sign, and that are
    numbers at all.
    """
    has_spread = np.isfinite(spread)
    count = np.maximum(has_spread.sum(axis=1), 1)
    shared = np.zeros(spread.shape, dtype=bool)
    for table, (logs, kind) in enumerate(zip(spread, kinds, strict=True)):
        # Not `factors != 1`: for standardised columns rounding would decide that.
        for group in _groups(logs, kind):
            shared[table, group] = True
    known = np.where(has_spread, spread, np.nan)
    known[~has_spread.any(axis=1)] = 0.0
    excess = np.nanmax(known, axis=1) - np.nanmedian(known, axis=1)
    return np.stack(
        [
            np.minimum(excess, _MOST) / 2,
            np.minimum(np.log(factors).std(axis=1), 2.0),
            shared.sum(axis=1) / count,
            (has_spread & (kinds >= 2)).sum(axis=1) / count,
            (has_spread & (kinds % 2 == 1)).sum(axis=1) / count,
            has_spread.mean(axis=1),
        ],
        axis=1,
    )
