"""What every layer of the paper's model computes on a cloud, for the page to walk through.

There are two sets of weights: weights that were trained on the five manifolds to label
points, and those that Lemmas 1 and 2 construct. The true graph joins the six nearest
neighbours.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from icssl._util.errors import check_choice
from icssl.app.explore.clouds import (
    Cloud,
    Labels,
    cache_last,
    draw_cloud,
    existing_labels,
    label_codes,
)
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import ground_truth
from icssl.evaluation.representations import principal_angles
from icssl.model.build import load_model
from icssl.model.inputs import scale_by_neighbours
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

MOST_SHOWN = 300  # points, since walks are n x n matrices
_EIGENVECTORS = 4
_ITERATIONS = 500  # of the constructed model; each is four layers
_STOPS = 14  # of the slider among these iterations
_DESCENT_STEPS = (1, 2, 5, 10, 20)  # shown ones, of the constructed model
_ALPHA = 1.0  # bandwidth of the true graph, in distances to the sixth neighbour
_CACHED = 8


@dataclass(frozen=True, eq=False)
class Layer:
    """One stop of the slider.

    Parameters
    ----------
    stage : {"walks", "eigenmap", "descent"}
        The stage of the model.
    name : str
        Its name on the page.
    number : int
        Number of layers of this stage up to here, each pass of a loop counted.
    value : ndarray
        Attention of every point to every point (n, n), averaged over heads; features
        (n, k); or logits (n, c).
    """

    stage: str
    name: str
    number: int
    value: Float[ndarray, "n columns"]


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """What a model's layers computed on a cloud.

    Parameters
    ----------
    points : ndarray
        Numbers of the points of the cloud that take part.
    classes : ndarray
        Codes of the classes, in the order of the columns of the logits.
    layers : tuple of Layer
        The stops of the slider.
    to_truth, to_operator : ndarray
        Largest principal angle of the features, in radians, at the layers of stage 2: to
        eigenvectors of the true graph, and of the model's operator R R^T.
    """

    points: Int[ndarray, " n"]
    classes: Int[ndarray, " c"]
    layers: tuple[Layer, ...]
    to_truth: Float[ndarray, " s"]
    to_operator: Float[ndarray, " s"]

    @property
    def eigenmap_layers(self) -> list[Layer]:
        """The layers of stage 2, which have angles."""
        return [layer for layer in self.layers if layer.stage == "eigenmap"]


def trace_layers(weights: str, cloud: Cloud, labels: Labels) -> LayerTrace:
    """Run a model on a cloud and return what its layers computed.

    Raise ``ValueError`` if fewer than two classes have a label.
    """
    check_choice("weights", weights, ("trained", "constructed"))
    return _trace(weights, cloud.key, existing_labels(labels, len(cloud.y)))


@cache_last(_CACHED)
@torch.no_grad()
def _trace(weights: str, key: tuple[Any, ...], labels: Labels) -> LayerTrace:
    cloud = draw_cloud(*key)
    classes = np.unique([code for _, code in labels])
    if len(classes) < 2:
        raise ValueError(
            f"Points of {len(classes)} class{'es' * (len(classes) != 1)} have a label: "
            "label points of at least two classes on the page Play."
        )
    points = _some_points(len(cloud.y), [point for point, _ in labels])
    episode = _episode(cloud, points, labels, classes)
    model = trained_model() if weights == "trained" else constructed_model()
    trace = model.trace(episode)
    layers = (*_walks(trace), *_features(trace, weights), *_descents(trace, weights))
    angles = _angles(layers, trace, episode.x)
    return LayerTrace(points, classes, layers, *angles)


@cache
def trained_model() -> ICSSLTransformer:
    """Load the paper's three stages, trained on the five manifolds (see stages.md)."""
    with as_file(files("icssl.app.explore") / "stages.safetensors") as path:
        model = load_model(path)
    assert isinstance(model, ICSSLTransformer)
    return model


@cache
def constructed_model() -> ICSSLTransformer:
    """Build the model with the weights of Lemmas 1 and 2 and a head of twenty steps."""
    return ICSSLTransformer(
        ModelConfig.constructed(
            k=_EIGENVECTORS,
            iterations=_ITERATIONS,
            steps=_DESCENT_STEPS[-1],
            step_size=3.0,
        )
    )


def _some_points(n: int, labelled: list[int]) -> ndarray:
    """Return the labelled points and as many others as there is room for."""
    others = np.setdiff1d(np.arange(n), labelled)
    room = max(0, MOST_SHOWN - len(labelled))
    return np.sort(np.concatenate([labelled, others[:room]]).astype(np.int64))


def _episode(cloud: Cloud, points: ndarray, labels: Labels, classes: ndarray) -> Episode:
    codes = label_codes(labels, len(cloud.y))[points]
    labelled = codes >= 0
    y = np.where(labelled, np.searchsorted(classes, codes), -1)
    return Episode.single(cloud.x[points], y, labelled, n_classes=max(2, len(classes)))


def _walks(trace: dict[str, Tensor]) -> list[Layer]:
    walks = [value for name, value in trace.items() if name.endswith(".walk")]
    return [
        Layer("walks", f"walk {i + 1} of {len(walks)}", i + 1, _as_array(walk.mean(dim=1)))
        for i, walk in enumerate(walks)
    ]


def _features(trace: dict[str, Tensor], weights: str) -> list[Layer]:
    steps = [value for name, value in trace.items() if name.endswith(".F")]
    ends: list[int] = list(range(1, len(steps) + 1))
    if weights == "constructed":  # an iteration has one layer for each column
        iterations = np.geomspace(1, _ITERATIONS, _STOPS).round().astype(int)
        ends = [_EIGENVECTORS * int(i) for i in np.unique(iterations)]
    return [
        Layer(
            "eigenmap", f"layer {end:,} of {len(steps):,}", end, _as_array(steps[end - 1])
        )
        for end in ends
    ]


def _descents(trace: dict[str, Tensor], weights: str) -> list[Layer]:
    names = [name for name in trace if name.startswith("head.") and "logits" in name]
    steps = _DESCENT_STEPS if weights == "constructed" else range(1, len(names) + 1)
    return [
        Layer("descent", f"step {i} of {len(names)}", i, _as_array(trace[names[i - 1]]))
        for i in steps
    ]


def _as_array(value: Tensor) -> ndarray:
    return value[0].double().numpy()


def _angles(
    layers: tuple[Layer, ...], trace: dict[str, Tensor], x: Tensor
) -> tuple[ndarray, ndarray]:
    """Return the largest angles to eigenvectors of the true graph and of the operator."""
    values = [layer.value for layer in layers if layer.stage == "eigenmap"]
    features = torch.from_numpy(np.stack(values))[..., :_EIGENVECTORS]
    r = [value for name, value in trace.items() if name.endswith(".R")][-1][0].double()
    bottom = torch.linalg.eigh(r @ r.mT).eigenvectors[:, :_EIGENVECTORS]
    neighbours = min(6, x.shape[1] - 1)
    truth = ground_truth(scale_by_neighbours(x), _EIGENVECTORS, neighbours, _ALPHA)[1][0]
    to_truth, to_operator = (
        principal_angles(features, reference.expand_as(features))[:, 0].numpy()
        for reference in (truth, bottom)
    )
    return to_truth, to_operator
