"""Synthetic tables: shapes, repeatability, and that their classes can be learned."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler

from icssl._util.random import generator_for
from icssl.classifier.pretraining.synthetic_tables import KINDS, TaskSpec
from icssl.episodes.labels import choose_per_class

SMALL = TaskSpec(points=(200, 200), columns=(6, 6), classes=(3, 3))


def draw(spec, step=0, b=4):
    return spec.draw_tables(b, generator=generator_for(0, "tasks", step))


def cells_and_classes(tables):
    """Return the first table, missing cells at the mean of their column, and classes."""
    cells = tables.cells[0]
    cells = torch.where(cells.isnan(), cells.nanmean(dim=0), cells).nan_to_num(0.0)
    return cells.numpy(), tables.y[0].numpy()


def test_shapes_stay_in_their_ranges_and_vary():
    spec = TaskSpec(points=(30, 200), columns=(2, 64), classes=(2, 10))
    shapes = set()
    for step in range(40):
        tables = draw(spec, step, b=2)
        b, n, d = tables.cells.shape
        assert b == 2
        assert 30 <= n <= 200
        assert 2 <= d <= 64
        assert 2 <= tables.n_classes <= 10
        assert not torch.isinf(tables.cells).any()
        assert tables.y.min() >= 0
        assert tables.y.max() < tables.n_classes
        shapes.add((n, d, tables.n_classes))
    assert len(shapes) > 30


def test_wide_tables_have_fewer_points():
    spec = TaskSpec(points=(30, 1000), columns=(1000, 1000), most_numbers=50_000)
    assert {draw(spec, step, b=1).y.shape[1] for step in range(8)} <= set(range(30, 51))


def test_a_step_is_the_same_whatever_came_before():
    one, other = draw(SMALL, 5), draw(SMALL, 5)
    torch.testing.assert_close(one.cells, other.cells, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(one.y, other.y)
    assert not torch.equal(one.y, draw(SMALL, 6).y)


@pytest.mark.parametrize("kind", KINDS)
def test_classes_can_be_learned_from_the_columns(kind):
    """Some model that knows half of the rows is far above chance on the other half."""
    spec = TaskSpec(points=(400, 400), columns=(6, 6), classes=(3, 3), kinds=(kind,))
    gains = []
    for step in range(12):
        x, y = cells_and_classes(draw(spec, step, b=1))
        models = [
            make_pipeline(RobustScaler(), LogisticRegression(max_iter=5000)),
            KNeighborsClassifier(5),
            RandomForestClassifier(50, random_state=0),
        ]
        best = max(model.fit(x[::2], y[::2]).score(x[1::2], y[1::2]) for model in models)
        share = np.bincount(y, minlength=3).max() / 400
        gains.append((best - share) / (1 - share + 1e-9))
    assert sum(gains) / len(gains) > 0.2


def test_kinds_differ_in_which_model_learns_them():
    """Linear classes are for a linear model; on a surface neighbours know more."""

    def gain(kind):
        spec = TaskSpec(points=(400, 400), columns=(6, 6), classes=(3, 3), kinds=(kind,))
        apart = []
        for step in range(8):
            x, y = cells_and_classes(draw(spec, step, b=1))
            scores = [
                model.fit(x[::2], y[::2]).score(x[1::2], y[1::2])
                for model in (LogisticRegression(max_iter=1000), KNeighborsClassifier(5))
            ]
            apart.append(scores[0] - scores[1])
        return sum(apart) / len(apart)

    assert gain("linear") > 0.03
    assert gain("surface") < 0


def test_labels_of_each_class_are_as_many_as_asked_for():
    y = torch.tensor([[0, 0, 0, 0, 1, 1, 2], [1, 1, 1, 1, 1, 1, 1]])
    for seed in range(5):
        labelled = choose_per_class(y, 2, 3, generator=generator_for(seed, "labels"))
        for row, expected in ((0, [2, 2, 1]), (1, [0, 2, 0])):
            counts = torch.bincount(y[row][labelled[row]], minlength=3)
            assert counts.tolist() == expected
    chosen = [
        choose_per_class(y[:1], 1, 3, generator=generator_for(seed, "x"))[0, :4]
        for seed in range(200)
    ]
    shares = torch.stack(chosen).double().mean(dim=0)
    assert ((shares - 0.25).abs() < 0.1).all()  # every row of a class as likely


def test_bad_ranges_are_refused():
    with pytest.raises(ValueError, match="largest number of columns must be at least 9"):
        TaskSpec(columns=(9, 3))
    with pytest.raises(ValueError, match="smallest number of points must be at least 8"):
        TaskSpec(points=(3, 30))
