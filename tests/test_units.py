"""Units of columns: what their spreads tell, in the encoder and in pretraining alike."""

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import F64
from icssl.classifier.geometry import Units
from icssl.classifier.kernels import GRAPHS, graphs_of_geometry
from icssl.classifier.pretraining.tasks import encode_tables
from icssl.tables.columns import CATEGORY, OFTEN_MISSING, ColumnEncoder
from icssl.tables.units import (
    UNIT_NUMBERS,
    column_kinds,
    common_factors,
    differs,
    unit_numbers,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def with_deviations(rng, deviations, n=80):
    """Columns of numbers that have exactly these standard deviations."""
    z = rng.normal(size=(n, len(deviations)))
    return (z - z.mean(axis=0)) / z.std(axis=0) * np.asarray(deviations)


def factors_of(deviations, kinds=None):
    """Factors of one table, from its standard deviations; zero for none."""
    with np.errstate(divide="ignore"):
        spread = np.log(np.asarray([deviations], dtype=float))
    codes = np.zeros(spread.shape, dtype=int) if kinds is None else np.asarray([kinds])
    return common_factors(spread, codes)[0]


# Factors


def test_columns_of_one_unit_are_divided_by_their_root_mean_square_deviation():
    deviations = np.array([0.5, 3.0, 1.0, 2.0, 4.0])
    expected = deviations / np.sqrt((deviations**2).mean())
    np.testing.assert_allclose(factors_of(deviations), expected, **F64)


@pytest.mark.parametrize(("largest", "share"), [(7.9, True), (8.1, False)])
def test_one_unit_ends_where_the_largest_deviation_is_eight_times_the_median(
    largest, share
):
    found = factors_of([1.0, 1.0, 1.0, 1.0, largest])
    assert bool((found != 1).all()) is share


def test_pixels_beside_an_age_are_a_group_of_their_own():
    """Sixteen columns of one kind, and three that share their unit with no other."""
    pixels = np.linspace(2.0, 6.0, 16)
    deviations = [*pixels, 1e4, 1e-3, 400.0]
    found = factors_of(deviations, kinds=[3] * 16 + [0, 0, 3])
    np.testing.assert_allclose(found[:16], pixels / np.sqrt((pixels**2).mean()), **F64)
    assert (found[16:] == 1).all()


def test_groups_are_of_one_kind_of_at_least_four_columns_and_have_no_gap():
    huge = [1e6]  # so that the table is not all one unit
    assert (factors_of([1.0, 1.9, 3.0, *huge]) == 1).all()  # three are no group
    assert (factors_of([1.0, 1.9, 3.0, 4.0, *huge])[:4] != 1).all()
    kinds = [0, 0, 3, 3, 0]  # two of each kind are no group
    assert (factors_of([1.0, 1.9, 3.0, 4.0, *huge], kinds) == 1).all()
    apart = [1.0, 1.1, 1.2, 1.3, 30.0, 31.0, 32.0, 33.0, 1e4, 1e4, 1e4, 1e4]
    found = factors_of(apart)
    for part in (slice(0, 4), slice(4, 8)):
        own = np.asarray(apart[part])
        np.testing.assert_allclose(found[part], own / np.sqrt((own**2).mean()), **F64)


def test_columns_without_a_spread_keep_factor_one():
    found = factors_of([0.0, 1.0, 2.0, 0.0])
    assert (found[[0, 3]] == 1).all()
    np.testing.assert_allclose(found[1:3], np.array([1, 2]) / np.sqrt(2.5), **F64)
    assert (factors_of([0.0, 0.0]) == 1).all()
    assert (factors_of([3.0]) == 1).all()  # there is nothing to share a unit with


@pytest.mark.parametrize("unit", [1e-150, 1e-3, 1e3])
def test_the_unit_of_the_whole_table_changes_nothing(rng, unit):
    tables = [
        with_deviations(rng, [1.0, 2.0, 3.0]),
        with_deviations(rng, [1.0, 1.9, 3.0, 4.0, 1e5]),
    ]
    for X in tables:
        plain, other = ColumnEncoder().fit(X), ColumnEncoder().fit(unit * X)
        np.testing.assert_allclose(other.common_factors_, plain.common_factors_, rtol=1e-9)
        np.testing.assert_allclose(other.unit_numbers_, plain.unit_numbers_, rtol=1e-9)
        assert plain.common_factors_.std() > 0.1


# What is told of units


def test_kinds_tell_whole_numbers_and_those_of_one_sign_and_skip_missing_cells():
    nan = np.nan
    columns = [[0.5, -1.0, 2.0], [0.5, 0.0, nan], [-3.0, nan, 2.0], [nan, 7.0, 0.0]]
    for sign in (1, -1):
        assert column_kinds(sign * np.array(columns)).tolist() == [0, 1, 2, 3]


def test_numbers_of_a_table_by_hand():
    """Four columns share a unit, one does not, one is a category."""
    spread = np.log([[1.0, 2.0, 2.0, 4.0, 1e3]])
    spread = np.append(spread, [[-np.inf]], axis=1)
    kinds = np.array([[3, 3, 3, 3, 0, 0]])
    factors = common_factors(spread, kinds)
    found = unit_numbers(spread, kinds, factors)
    assert found.shape == (1, UNIT_NUMBERS)
    expected = [
        np.log(1e3 / 2) / 2,  # the largest deviation against the median one
        np.log(factors[0]).std(),
        4 / 5,  # share a unit
        4 / 5,  # hold whole numbers
        4 / 5,  # have one sign
        5 / 6,  # are numbers
    ]
    np.testing.assert_allclose(found[0], expected, **F64)


def test_columns_share_a_unit_whatever_rounding_makes_of_their_factors(rng):
    """Standardised ones all have factor one, but for a last digit."""
    X = with_deviations(rng, [1.0, 2.0, 4.0])
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for table in (scaled, -scaled, scaled[::-1]):
        encoder = ColumnEncoder().fit(table)
        np.testing.assert_allclose(encoder.common_factors_, np.ones(3), **F64)
        np.testing.assert_allclose(encoder.unit_numbers_, [0, 0, 1, 0, 0, 1], atol=1e-12)


def test_numbers_of_each_scale_are_those_of_standardised_columns(rng):
    X = np.round(with_deviations(rng, [1.0, 30.0, 4000.0]) + 1e5)
    X = pd.DataFrame(X, columns=["a", "b", "c"]).assign(colour=["red", "blue"] * 40)
    numbers = [name for name in X if name != "colour"]
    scaled = X.assign(**{n: (X[n] - X[n].mean()) / X[n].std(ddof=0) for n in numbers})
    given, standard = ColumnEncoder().fit(X), ColumnEncoder().fit(scaled)
    assert np.abs(given.unit_numbers_ - standard.unit_numbers_).max() > 0.5
    for encoder in (given, standard):
        found = encoder.standard_unit_numbers_
        np.testing.assert_allclose(found, standard.unit_numbers_, atol=1e-12)
        units = Units.of_encoder(encoder, "each")
        np.testing.assert_array_equal(units.numbers[0], found)


def test_numbers_are_finite_where_no_column_has_a_spread():
    spread, kinds = np.full((1, 3), -np.inf), np.zeros((1, 3), dtype=int)
    found = unit_numbers(spread, kinds, common_factors(spread, kinds))
    assert (found == 0).all()


@pytest.mark.parametrize(("largest", "expected"), [(1.1, False), (2.0, True)])
def test_another_geometry_needs_factors_that_differ(largest, expected):
    found = differs(factors_of([1.0, 1.0, largest])[None])
    assert found.tolist() == [expected]


# Of the encoder


def test_categories_keep_factor_one_and_numbers_are_measured(rng):
    X = pd.DataFrame(with_deviations(rng, [1.0, 3.0]), columns=["a", "b"])
    X.insert(1, "colour", ["red", "blue"] * 40)
    encoder = ColumnEncoder().fit(X)
    expected = [*np.array([1.0, 3.0]) / np.sqrt(5), 1, 1]
    np.testing.assert_allclose(encoder.common_factors_, expected, **F64)
    assert encoder.unit_numbers_[-1] == 2 / 4


def test_a_further_column_says_which_cells_are_missing(rng):
    X = rng.normal(size=(100, 3))
    X[:5, 0] = np.nan  # a twentieth, from which on it is said
    X[:4, 1] = np.nan
    encoder = ColumnEncoder().fit(X)
    found = encoder.transform(X)
    assert OFTEN_MISSING == 0.05
    assert found.shape == (100, 4)
    np.testing.assert_array_equal(found[:, 3], CATEGORY * np.isnan(X[:, 0]))
    new = encoder.transform([[np.nan, np.nan, 0.0], [0.0, np.nan, 0.0]])
    np.testing.assert_array_equal(new[:, 3], [CATEGORY, 0.0])
    assert encoder.common_factors_.shape == (4,)
    assert encoder.common_factors_[3] == 1


def test_a_column_without_a_number_has_no_column_of_missing_cells(rng):
    X = rng.normal(size=(30, 2))
    X[:, 1] = np.nan
    assert ColumnEncoder().fit_transform(X).shape == (30, 2)


# Of the classifier


@pytest.mark.parametrize("column_scale", ["auto", "each", "common"])
def test_standardised_columns_offer_one_geometry(rng, column_scale):
    """Whoever scales columns has decided; only what is asked for is offered then."""
    given, scaled = (
        ColumnEncoder().fit(with_deviations(rng, deviations))
        for deviations in ([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    )
    expected = {
        "auto": ([True, True], [True, False]),
        "each": ([True, False], [True, False]),
        "common": ([False, True], [False, True]),
    }[column_scale]
    for encoder, offered in zip((given, scaled), expected, strict=True):
        units = Units.of_encoder(encoder, column_scale)
        assert units.offered.tolist() == [offered]
        used = {graph.geometry for graph in units.graphs("all views")}
        assert ("common" in used) is offered[1]
        if offered[0]:
            assert "each" in used
        else:  # whitening undoes any scale
            both = [g for g in units.graphs("all views") if g.geometry == "each"]
            assert {graph.view for graph in both} == {"white"}


def test_one_view_is_in_common_where_all_columns_share_a_unit(rng):
    for deviations, geometry in (
        ([1.0, 2.0, 4.0], "common"),
        ([1.0, 1.9, 3.0, 4.0, 1e5], "each"),  # one column has a unit of its own
        ([1.0, 1.0, 1.0], "each"),
        # Every column shares a unit with others, but there are two units.
        ([1.0, 1.5, 1.0, 1.5, 1000.0, 1500.0, 1000.0, 1500.0], "each"),
    ):
        encoder = ColumnEncoder().fit(with_deviations(rng, deviations))
        found = Units.of_encoder(encoder, "auto").graphs("one view")
        assert found == graphs_of_geometry(geometry)[:1]


@pytest.mark.parametrize("column_scale", ["auto", "each", "common"])
def test_main_views_leave_out_whitened_ones_and_nothing_else(rng, column_scale):
    encoder = ColumnEncoder().fit(with_deviations(rng, [1.0, 2.0, 4.0]))
    units = Units.of_encoder(encoder, column_scale)
    expected = [g for g in units.graphs("all views") if g.view not in ("half", "white")]
    assert list(units.graphs("main views")) == expected
    assert expected


def test_units_follow_columns_and_tables(rng):
    encoder = ColumnEncoder().fit(with_deviations(rng, [1.0, 2.0, 4.0]))
    units = Units.of_encoder(encoder, "auto")
    order = np.array([2, 0, 1])
    turned = units.order_columns(order)
    np.testing.assert_array_equal(turned.factors[0], encoder.common_factors_[order])
    assert turned.graphs("all views") == GRAPHS
    both = units.restrict_to("common").repeat(3)
    assert both.offered.tolist() == [[False, True]] * 3
    assert both.some(slice(1, 3)).factors.shape == (2, 3)


# Of pretraining


def raw_table(rng, n=60):
    """Numbers, some missing, whole numbers, a constant; and the places of a category."""
    numbers = with_deviations(rng, [1.0, 2.5, 40.0, 3.0], n)
    numbers += np.array([5.0, -1.0, 0.0, 100.0])
    numbers[:, 1] = np.round(numbers[:, 1])
    numbers[: n // 6, 3] = np.nan
    rng.shuffle(numbers)
    return np.hstack([numbers, np.full((n, 1), 4.0)]), rng.integers(0, 3, size=n)


def test_pretraining_encodes_tables_as_the_classifier_does(rng):
    """The same tables by tensors and by the encoder, fitted to the first rows."""
    numbers, places = zip(*(raw_table(rng) for _ in range(3)), strict=True)
    one_hot = CATEGORY * np.eye(3)[np.stack(places)]
    cells = torch.tensor(np.concatenate([np.stack(numbers), one_hot], axis=2))
    is_category = torch.arange(8) >= 5
    context, new, units = encode_tables(cells[:, :45], cells[:, 45:], is_category)
    assert context.shape == (3, 45, 9)  # of one column it is said where cells are missing
    for i in range(3):
        table = pd.DataFrame(numbers[i])
        table["category"] = np.array(["a", "b", "c"])[places[i]]
        table.columns = table.columns.astype(str)
        encoder = ColumnEncoder().fit(table[:45])
        np.testing.assert_allclose(context[i], encoder.transform(table[:45]), **F64)
        np.testing.assert_allclose(new[i], encoder.transform(table[45:]), **F64)
        np.testing.assert_allclose(units.factors[i], encoder.common_factors_, **F64)
        np.testing.assert_allclose(units.numbers[i], encoder.unit_numbers_, **F64)
        expected = Units.of_encoder(encoder, "auto").offered[0]
        assert torch.equal(units.offered[i], expected)


def test_pretraining_keeps_the_spreads_of_columns_of_one_unit(rng):
    """In the common geometry columns are as wide as they were, up to one number."""
    cells = torch.tensor(with_deviations(rng, [1.0, 2.0, 6.0])[None])
    nothing = torch.zeros(3, dtype=torch.bool)
    context, _, units = encode_tables(cells, cells[:, :0], nothing)
    np.testing.assert_allclose(context[0].std(0, correction=0), np.ones(3), **F64)
    common = (context * units.factors[:, None])[0].std(0, correction=0)
    np.testing.assert_allclose(common / common[0], [1, 2, 6], **F64)
    assert units.offered.tolist() == [[True, True]]
