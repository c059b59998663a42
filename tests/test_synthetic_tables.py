"""Synthetic tables: units, categories, missing cells, class shares, labels and shapes."""

import math

import pytest
import torch

from icssl._util.random import generator_for
from icssl.classifier.pretraining import synthetic_tables
from icssl.classifier.pretraining.draws import Draws, TablePlan, orthonormal_map
from icssl.classifier.pretraining.real_columns import (
    encode_categories,
    record_in_one_unit,
    record_in_own_units,
    remove_cells,
)
from icssl.classifier.pretraining.strands import chain_points, place_in_columns
from icssl.classifier.pretraining.surfaces import (
    draw_closed_surfaces,
    klein_functions,
    moebius_functions,
    torus_functions,
)
from icssl.classifier.pretraining.synthetic_tables import KINDS, TaskSpec
from icssl.classifier.pretraining.table_classes import (
    classes_of_scores,
    draw_labels,
    draw_shares,
    give_each_class_rows,
    stripes,
)


def draws_of(step=0):
    return Draws(generator_for(0, "tables", step))


def draw_tables(spec, step=0, b=4):
    return spec.draw_tables(b, generator=generator_for(0, "tables", step))


def count_classes(y, c):
    return torch.stack([torch.bincount(row, minlength=c) for row in y])


def spread_ratio(numbers):
    """Return the largest deviation of a column over the median one, per table."""
    deviations = torch.tensor(numbers.double().numpy()).std(dim=1)
    return deviations.amax(dim=1) / deviations.median(dim=1).values


@pytest.mark.parametrize("kind", KINDS)
def test_tables_have_the_shape_and_classes_that_the_spec_allows(kind):
    spec = TaskSpec(points=(40, 200), columns=(2, 40), classes=(2, 9), kinds=(kind,))
    for step in range(15):
        tables = draw_tables(spec, step, b=3)
        b, n, d = tables.cells.shape
        assert b == 3
        assert 40 <= n <= 200
        assert 2 <= d <= 40
        assert 2 <= tables.n_classes <= 9
        assert tables.y.shape == (b, n)
        assert tables.is_category.shape == (d,)
        assert not tables.cells.isinf().any()
        assert not tables.cells[..., tables.is_category].isnan().any()
        assert (~tables.cells.isnan()).any(dim=1).all()  # no column is all missing
        assert (count_classes(tables.y, tables.n_classes) >= 2).all()


def test_a_generator_decides_the_tables():
    spec = TaskSpec()
    for step in range(5):
        one, same, other = (draw_tables(spec, s) for s in (step, step, step + 1))
        assert torch.equal(one.cells.nan_to_num(-7.0), same.cells.nan_to_num(-7.0))
        assert torch.equal(one.y, same.y)
        is_same_shape = one.cells.shape == other.cells.shape
        assert not (is_same_shape and torch.equal(one.cells, other.cells))


def test_columns_of_one_unit_keep_their_spreads_up_to_a_common_factor():
    x = draws_of().normal(3, 400, 6) * torch.tensor([1.0, 1.0, 1.0, 2.0, 3.0, 0.5])
    for step in range(12):
        recorded = record_in_one_unit(draws_of(step), x, may_round=True)
        factor = recorded.std(dim=1) / x.std(dim=1)
        # Ranges clip the outermost cells, and whole numbers are rounded.
        assert (factor / factor.mean(dim=1, keepdim=True) - 1).abs().max() < 0.1


def test_own_units_differ_by_decades_whatever_the_spreads_were():
    x = draws_of().normal(4, 100, 20)
    same = [
        record_in_own_units(draws_of(step), unit * x)
        for step in range(30)
        for unit in (1.0, 1000.0)
    ]
    for small, large in zip(same[::2], same[1::2], strict=True):
        torch.testing.assert_close(small, large, rtol=1e-2, atol=1.0)
    ratios = torch.cat([spread_ratio(columns) for columns in same[::2]])
    assert ratios.median() > 14
    assert (ratios < 8).any()  # some are alike by chance


def test_spreads_tell_one_unit_from_many_as_in_real_tables():
    spec = TaskSpec(points=(100, 100), columns=(5, 40), kinds=("clusters", "network"))
    ratios = {True: [], False: []}
    for step in range(120):
        tables = draw_tables(spec, step, b=2)
        numbers = tables.cells[..., ~tables.is_category]
        if numbers.shape[-1] > 3 and not numbers.isnan().any():
            ratios[tables.one_unit].append(spread_ratio(numbers))
    one, many = (torch.cat(ratios[unit]) for unit in (True, False))
    assert (one < 8).double().mean() > 0.7
    assert one.median() < 8 < many.median()
    is_standardised = (many - 1).abs() < 1e-3
    assert 0.02 < is_standardised.double().mean() < 0.4


def test_categories_are_one_hot_blocks_at_half_a_square():
    sizes = (2, 5, 12)
    lacks_some = []
    for step in range(20):
        draws = draws_of(step)
        sources, y = draws.normal(4, 150, 3), draws.below(3, 4, 150)
        encoded = encode_categories(draws, sources, y, 3, sizes)
        assert encoded.shape == (4, 150, 19)
        for block in encoded.split(sizes, dim=-1):
            assert block.unique().tolist() == pytest.approx([0.0, math.sqrt(0.5)])
            categories = (block > 0).sum(dim=-1)
            assert categories.max() == 1
            assert categories.double().mean() > 0.6
            lacks_some.append(bool((categories == 0).any()))
    assert 0 < sum(lacks_some) < 30  # of 60 columns
    assert encode_categories(draws, sources, y, 3, ()).shape == (4, 150, 0)


def test_categories_carry_signal():
    """The most frequent class of a row's category is right more often than the largest."""
    gains = []
    for step in range(20):
        draws = draws_of(step)
        y = draws.below(2, 1, 600)
        sources = (2.0 * y + draws.normal(1, 600))[..., None]
        block = encode_categories(draws, sources, y, 2, (6,))[0] > 0
        counts = torch.stack([block[y[0] == k].sum(dim=0) for k in range(2)])
        gains.append(counts.amax(dim=0).sum() / 600 - count_classes(y, 2).max() / 600)
    assert sum(gains) / len(gains) > 0.1


def test_some_batches_have_categories_and_some_have_missing_cells():
    spec = TaskSpec(points=(60, 60), columns=(8, 40))
    batches = [draw_tables(spec, step, b=1) for step in range(150)]
    with_categories = sum(bool(t.is_category.any()) for t in batches) / 150
    with_missing = sum(bool(t.cells.isnan().any()) for t in batches) / 150
    assert 0.1 < with_categories < 0.5
    assert 0.15 < with_missing < 0.45
    for tables in batches:
        last = int((~tables.is_category).sum())
        assert not tables.is_category[:last].any()  # numbers first, as the encoder has them


def test_missing_cells_are_a_small_share_of_some_columns():
    shares = []
    for step in range(40):
        draws = draws_of(step)
        y = draws.below(3, 4, 300)
        share = remove_cells(draws, draws.normal(4, 300, 20), y, 3).isnan().double().mean(1)
        shares.append(share)
    share = torch.stack(shares)
    assert share.max() < 0.65
    assert 0.01 < share.mean() < 0.2
    assert (share == 0).any()


def test_shares_of_classes_are_uneven_as_often_as_planned():
    binary = [draw_shares(draws_of(step), 1, 2, 500).amin().item() for step in range(400)]
    assert min(binary) < 0.04
    assert 0.25 < sum(share < 0.35 for share in binary) / 400 < 0.6
    for step in range(50):
        shares = draw_shares(draws_of(step), 5, 7, 100)
        torch.testing.assert_close(shares.sum(dim=1), torch.ones(5))
        assert shares.min() >= 0.02


def test_classes_of_scores_have_the_planned_shares():
    draws = draws_of()
    shares = torch.tensor([[0.1, 0.3, 0.6], [0.8, 0.15, 0.05]])
    plan = TablePlan(2, 2000, 3, 3, shares, one_unit=False)
    y = classes_of_scores(draws, draws.normal(2, 2000, 3), plan, noise=0.3)
    got = count_classes(y, 3) / 2000
    assert (got - shares).abs().max() < 0.05


def test_stripes_repeat_in_bands():
    shares = torch.tensor([[0.5, 0.5]])
    value = torch.arange(8.0)[None]
    assert stripes(value, shares).tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    assert stripes(value, shares, 2).tolist() == [[0, 0, 1, 1, 0, 0, 1, 1]]


def test_each_class_gets_two_rows_and_only_spare_rows_move():
    y = torch.tensor([[0] * 17 + [1, 2, 2], [3] * 20])
    for seed in range(20):
        moved = give_each_class_rows(y, 4, generator=generator_for(seed, "rows"))
        counts = count_classes(moved, 4)
        assert (counts >= 2).all()
        assert (y != moved).sum(dim=1).tolist() == [3, 6]
    full = torch.tensor([[0, 0, 1, 1, 2, 2]])
    assert torch.equal(give_each_class_rows(full, 3, generator=torch.Generator()), full)


@pytest.mark.parametrize("random", [False, True])
def test_labels_reach_every_class_and_at_most_half_of_the_rows(random):
    y = torch.tensor([[0] * 30 + [1] * 6 + [2] * 4, [2] * 36 + [0] * 2 + [1] * 2])
    for seed in range(20):
        for per_class in (1, 2, 5, 50):
            generator = generator_for(seed, "labels", per_class)
            labelled = draw_labels(y, 3, per_class, random=random, generator=generator)
            counts = torch.stack(
                [torch.bincount(y[i][labelled[i]], minlength=3) for i in range(2)]
            )
            assert (counts >= 1).all()
            capped = min(per_class, 6)
            if random:
                extra = counts.sum(dim=1) - 3 * capped
                assert ((extra >= 0) & (extra <= 2)).all()
            else:
                rows = count_classes(y, 3)
                assert torch.equal(counts, torch.minimum(rows - 1, torch.tensor(capped)))
            again = draw_labels(y, 3, per_class, random=random, generator=generator)
            assert not torch.equal(labelled, again)  # another choice of the same tables


def test_random_labels_tell_the_shares_and_labels_per_class_do_not():
    y = (torch.arange(400) < 80).long().repeat(50, 1)
    for random, expected in ((True, 0.2), (False, 0.5)):
        generator = generator_for(0, "labels")
        labelled = draw_labels(y, 2, 10, random=random, generator=generator)
        share = (y * labelled).sum() / labelled.sum()
        assert abs(share.item() - expected) < 0.04


def test_linked_rings_are_as_far_apart_as_they_should_be():
    t = torch.linspace(0, 1, 721, dtype=torch.float64)[None, :-1]
    for spacing in (1.0, 1.3, 1.6):
        apart = torch.tensor([[spacing]], dtype=torch.float64)
        flat, upright, third = (
            chain_points(t, torch.full((1, 720), k), apart)[0] for k in range(3)
        )
        centre = torch.tensor([spacing, 0, 0], dtype=torch.float64)
        torch.testing.assert_close((upright - centre).norm(dim=1), torch.ones(720).double())
        distance = torch.cdist(flat, upright).min().item()
        assert distance == pytest.approx(2 - spacing, abs=1e-9)
        assert torch.cdist(flat, third).min().item() == pytest.approx(2 * spacing - 2)
        # The upright ring pierces the disc of the flat one once: they are linked.
        inside = upright[(upright[:, 2].abs() < 1e-9)][:, :2].norm(dim=1) < 1
        assert inside.sum() == 1


def test_functions_of_a_surface_agree_where_its_edges_are_glued():
    u, v = torch.rand(2, 1, 50, dtype=torch.float64, generator=torch.Generator()) * 6
    turn = 2 * math.pi
    for order in (1, 2):
        torus = torus_functions(u, v, order)
        torch.testing.assert_close(torus_functions(u + turn, v, order), torus)
        torch.testing.assert_close(torus_functions(u, v + turn, order), torus)
        klein = klein_functions(u, v, order)
        torch.testing.assert_close(klein_functions(u + turn, -v, order), klein)
        torch.testing.assert_close(klein_functions(u, v + turn, order), klein)
        band = moebius_functions(u, v, order)
        # The middle of the band is at v = pi, and gluing turns it around.
        torch.testing.assert_close(moebius_functions(u + turn, turn - v, order), band)


def test_maps_into_more_columns_keep_distances():
    draws = draws_of()
    maps = orthonormal_map(draws, 3, 4, 9).double()
    eye = torch.eye(4, dtype=torch.float64).expand(3, 4, 4)
    torch.testing.assert_close(maps @ maps.mT, eye, atol=1e-5, rtol=0)
    fewer = orthonormal_map(draws, 3, 4, 2).double()
    assert fewer.shape == (3, 4, 2)
    eye = torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
    torch.testing.assert_close(fewer.mT @ fewer, eye, atol=1e-5, rtol=0)


def test_a_shape_keeps_its_distances_in_its_columns():
    for step in range(20):
        draws = draws_of(step)
        t = draws.uniform(2, 100)
        circle = torch.stack([(7 * t).cos(), (7 * t).sin(), 0 * t], dim=-1)
        x = place_in_columns(draws, circle, 12)
        assert x.shape == (2, 100, 12)
        was, now = (torch.cdist(z, z).flatten(1) for z in (circle, x))
        ratio = now.sum(dim=1, keepdim=True) / was.sum(dim=1, keepdim=True)
        assert ((now / ratio - was).abs().mean(dim=1) < 0.25).all()


def test_spheres_within_each_other_have_one_radius_per_class(monkeypatch):
    monkeypatch.setattr(Draws, "chance", lambda self, probability: True)
    monkeypatch.setattr(
        "icssl.classifier.pretraining.surfaces.place_in_columns", lambda draws, x, d: x
    )
    plan = TablePlan(3, 300, 3, 3, torch.full((3, 3), 1 / 3), one_unit=True)
    x, y = draw_closed_surfaces(draws_of(), plan)
    for table, classes in zip(x, y, strict=True):
        radii = [table[classes == k].norm(dim=1) for k in range(3)]
        assert radii[0].max() < radii[1].min()
        assert radii[1].max() < radii[2].min()


def test_strands_are_for_neighbours_and_not_for_lines():
    """Nearest neighbours know the strand of a point where a linear model does not."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    spec = TaskSpec(points=(300, 300), columns=(3, 8), classes=(3, 3), kinds=("strands",))
    scores = []
    for step in range(12):
        tables = draw_tables(spec, step, b=1)
        x, y = tables.cells[0].nan_to_num(0.0).double().numpy(), tables.y[0].numpy()
        x = (x - x.mean(axis=0)) / x.std()
        models = KNeighborsClassifier(1), LogisticRegression(max_iter=1000)
        scores.append([m.fit(x[::2], y[::2]).score(x[1::2], y[1::2]) for m in models])
    near, line = torch.tensor(scores).mean(dim=0)
    assert near > 0.85
    assert near > line + 0.1


def test_every_kind_is_drawn_by_default():
    assert set(TaskSpec().kinds) == set(synthetic_tables.KINDS)
    with pytest.raises(ValueError, match=r"unknown kind of task 'strand'.*'strands'"):
        TaskSpec(kinds=("strand",))
