"""An Episode is checked once, where it is built, and says what is wrong."""

import numpy as np
import pytest
import torch

from icssl import Episode


def values(**changes):
    good = {
        "x": torch.zeros(2, 5, 3),
        "y": torch.tensor([[0, 1, 0, 1, -1]] * 2),
        "labelled": torch.tensor([[True, True, False, False, False]] * 2),
    }
    return {**good, **changes}


def with_value(tensor, place, value):
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


BAD = {
    "rank of x": ({"x": torch.zeros(5, 3)}, ValueError, r"shape \(b, n, d\), got \(5, 3\)"),
    "one point": (
        {
            "x": torch.zeros(2, 1, 3),
            "y": torch.zeros(2, 1, dtype=torch.long),
            "labelled": torch.ones(2, 1, dtype=torch.bool),
        },
        ValueError,
        "at least 2 points, got n = 1",
    ),
    "no coordinate": ({"x": torch.zeros(2, 5, 0)}, ValueError, r"\(2, 5, 0\)"),
    "shape of y": (
        {"y": torch.zeros(2, 4, dtype=torch.long)},
        ValueError,
        r"y must have shape \(2, 5\) to fit x, got \(2, 4\)",
    ),
    "shape of labelled": (
        {"labelled": torch.ones(2, 5, 1, dtype=torch.bool)},
        ValueError,
        r"labelled must have shape \(2, 5\)",
    ),
    "shape of laplacian": (
        {"laplacian": torch.zeros(2, 5, 4)},
        ValueError,
        r"laplacian must have shape \(2, 5, 5\)",
    ),
    "k > n": ({"features": torch.zeros(2, 5, 6)}, ValueError, "k = 6, n = 5"),
    "shape of features": ({"features": torch.zeros(2, 4, 2)}, ValueError, r"\(2, 4, 2\)"),
    "nan": (
        {"x": with_value(torch.zeros(2, 5, 3), (1, 2, 0), torch.nan)},
        ValueError,
        r"x must be finite, got nan at x\[1, 2, 0\] and 1 such value",
    ),
    "infinity": (
        {"x": with_value(torch.zeros(2, 5, 3), (0, 0, 0), -torch.inf)},
        ValueError,
        r"got -inf at x\[0, 0, 0\]",
    ),
    "nan in features": (
        {"features": torch.full((2, 5, 2), torch.nan)},
        ValueError,
        "features must be finite, got nan",
    ),
    "no labelled point": (
        {"labelled": torch.tensor([[True] * 5, [False] * 5])},
        ValueError,
        "every episode needs a labelled point, episode 1 has none",
    ),
    "label above the classes": (
        {"n_classes": 2, "y": torch.tensor([[0, 2, 0, 1, -1]] * 2)},
        ValueError,
        r"a labelled point must be from 0 to 1, got 2 at y\[0, 1\]",
    ),
    "labelled with -1": (
        {"labelled": torch.ones(2, 5, dtype=torch.bool)},
        ValueError,
        r"a labelled point must be from 0 to 1, got -1 at y\[0, 4\]",
    ),
    "truth below -1": (
        {"y": torch.tensor([[0, 1, 0, 1, -2]] * 2)},
        ValueError,
        r"an unlabelled point must be from 0 to 1, or -1 .* got -2",
    ),
    "one class": ({"n_classes": 1}, ValueError, "n_classes must be at least 2, got 1"),
    "integer x": (
        {"x": torch.zeros(2, 5, 3).long()},
        TypeError,
        "x must be a tensor of floats, got torch.int64",
    ),
    "float y": (
        {"y": torch.zeros(2, 5)},
        TypeError,
        "y must be a tensor of integers, got torch.float32",
    ),
    "integer labelled": (
        {"labelled": torch.ones(2, 5).long()},
        TypeError,
        "labelled must be a tensor of bools, got torch.int64",
    ),
    "array": (
        {"x": np.zeros((2, 5, 3))},
        TypeError,
        "x must be a tensor of floats, got ndarray",
    ),
}


@pytest.mark.parametrize(("changes", "error", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        Episode(**values(**changes))


def test_classes_are_read_off_the_labels():
    assert Episode(**values()).n_classes == 2
    assert Episode(**values(y=torch.zeros(2, 5, dtype=torch.long))).n_classes == 2
    assert Episode(**values(y=torch.full((2, 5), 6))).n_classes == 7
    assert Episode(**values(n_classes=4)).n_classes == 4


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8])
def test_any_integer_type_of_labels(dtype):
    episode = Episode(**values(y=torch.ones(2, 5, dtype=dtype)))
    assert episode.y.dtype == torch.int64


def test_one_class_among_the_labelled_points_is_valid():
    episode = Episode(**values(y=torch.zeros(2, 5, dtype=torch.long)))
    assert (episode.y[episode.labelled] == 0).all()


def test_single_adds_the_batch_axis():
    x = np.random.default_rng(0).normal(size=(4, 2))
    episode = Episode.single(x, [0, 1, -1, -1], np.array([True, True, False, False]))
    assert episode.x.shape == (1, 4, 2)
    assert episode.x.dtype == torch.float64
    assert episode.laplacian is None


def test_to_moves_and_converts_numbers_but_not_labels():
    episode = Episode(**values(features=torch.zeros(2, 5, 2)))
    moved = episode.to("cpu", torch.float64)
    assert moved.x.dtype == moved.features.dtype == torch.float64
    assert (moved.y.dtype, moved.labelled.dtype) == (torch.int64, torch.bool)
    assert moved.n_classes == 2


def test_unchecked_refuses_an_unknown_field():
    with pytest.raises(TypeError, match="Episode has no field 'z'"):
        Episode.unchecked(**values(), n_classes=2, z=1)


def test_frozen():
    with pytest.raises(AttributeError):
        Episode(**values()).x = torch.zeros(1)
