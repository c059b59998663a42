"""What every layer of the paper's model computes on a cloud, for the page to walk through.

Two sets of weights: trained on the five manifolds to label points and nothing else, and
those that Lemmas 1 and 2 construct. The true graph joins six nearest neighbours.
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
from icssl.app.explore.play import Labels, codes_of, usable
from icssl.app.explore.sources import Cloud, draw_cloud, remembered
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import ground_truth
from icssl.evaluation.representations import principal_angles
from icssl.model.build import load_model
from icssl.model.inputs import scale_by_neighbours
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

MOST_SHOWN = 300  # points: walks are matrices of them
EIGENVECTORS = 4
ITERATIONS = 500  # of the constructed model; each is four layers
_STOPS = 14  # of the slider among these
_DESCENTS = (1, 2, 5, 10, 20)
_ALPHA = 1.0  # of the true graph, in units of the distance to the sixth neighbour
_REMEMBERED = 8


@dataclass(frozen=True, eq=False)
class Layer:
    """One stop of the slider.

    Parameters
    ----------
    stage : {"walks", "eigenmap", "descent"}
    name : str
        For the page.
    number : int
        Layers of this stage up to here, loops counted.
    value : ndarray
        Attention of every point to every point (n, n), the mean over heads; features
        (n, k); or logits (n, c).
    """

    stage: str
    name: str
    number: int
    value: Float[ndarray, "n columns"]


@dataclass(frozen=True, eq=False)
class Opened:
    """A model's layers on a cloud.

    Parameters
    ----------
    shown : ndarray
        Which points of the cloud take part.
    classes : ndarray
        Codes of the columns of the logits.
    layers : tuple of Layer
    to_truth, to_operator : ndarray
        Largest principal angle of the features, in radians, at the layers of stage 2: to
        eigenvectors of the true graph, and of the model's own R R^T.
    """

    shown: Int[ndarray, " n"]
    classes: Int[ndarray, " c"]
    layers: tuple[Layer, ...]
    to_truth: Float[ndarray, " s"]
    to_operator: Float[ndarray, " s"]

    @property
    def eigenmap_layers(self) -> list[Layer]:
        """Those that angles are of."""
        return [layer for layer in self.layers if layer.stage == "eigenmap"]


def open_model(weights: str, cloud: Cloud, labels: Labels) -> Opened:
    """Run a model on a cloud and keep what its layers gave.

    ``ValueError`` where fewer than two classes have a label.
    """
    check_choice("weights", weights, ("trained", "constructed"))
    return _opened(weights, cloud.key, usable(labels, len(cloud.y)))


@remembered(_REMEMBERED)
@torch.no_grad()
def _opened(weights: str, key: tuple[Any, ...], labels: Labels) -> Opened:
    cloud = draw_cloud(*key)
    classes = np.unique([code for _, code in labels])
    if len(classes) < 2:
        raise ValueError(
            f"Points of {len(classes)} class{'es' * (len(classes) != 1)} have a label: "
            "label points of two classes at least, on the page Play."
        )
    shown = _shown(len(cloud.y), [point for point, _ in labels])
    episode = _episode(cloud, shown, labels, classes)
    model = trained_model() if weights == "trained" else constructed_model()
    trace = model.trace(episode)
    layers = (*_walks(trace), *_features(trace, weights), *_descents(trace, weights))
    angles = _angles(layers, trace, episode.x)
    return Opened(shown, classes, layers, *angles)


@cache
def trained_model() -> ICSSLTransformer:
    """The paper's three stages, trained on the five manifolds; see its model card."""
    with as_file(files("icssl.app.explore") / "stages.safetensors") as path:
        model = load_model(path)
    assert isinstance(model, ICSSLTransformer)
    return model


@cache
def constructed_model() -> ICSSLTransformer:
    """The weights of Lemmas 1 and 2, and a head of twenty steps."""
    return ICSSLTransformer(
        ModelConfig.constructed(
            k=EIGENVECTORS, iterations=ITERATIONS, steps=_DESCENTS[-1], step_size=3.0
        )
    )


def _shown(n: int, labelled: list[int]) -> ndarray:
    """The labelled points and as many others as there is room for."""
    others = np.setdiff1d(np.arange(n), labelled)
    room = max(0, MOST_SHOWN - len(labelled))
    return np.sort(np.concatenate([labelled, others[:room]]).astype(np.int64))


def _episode(cloud: Cloud, shown: ndarray, labels: Labels, classes: ndarray) -> Episode:
    given = codes_of(labels, len(cloud.y))[shown]
    labelled = given >= 0
    y = np.where(labelled, np.searchsorted(classes, given), -1)
    return Episode.single(cloud.x[shown], y, labelled, n_classes=max(2, len(classes)))


def _walks(trace: dict[str, Tensor]) -> list[Layer]:
    found = [value for name, value in trace.items() if name.endswith(".walk")]
    return [
        Layer("walks", f"walk {i + 1} of {len(found)}", i + 1, _plain(walk.mean(dim=1)))
        for i, walk in enumerate(found)
    ]


def _features(trace: dict[str, Tensor], weights: str) -> list[Layer]:
    steps = [value for name, value in trace.items() if name.endswith(".F")]
    ends: list[int] = list(range(1, len(steps) + 1))
    if weights == "constructed":  # a layer for each column is one iteration
        iterations = np.geomspace(1, ITERATIONS, _STOPS).round().astype(int)
        ends = [EIGENVECTORS * int(i) for i in np.unique(iterations)]
    return [
        Layer("eigenmap", f"layer {end:,} of {len(steps):,}", end, _plain(steps[end - 1]))
        for end in ends
    ]


def _descents(trace: dict[str, Tensor], weights: str) -> list[Layer]:
    names = [name for name in trace if name.startswith("head.") and "logits" in name]
    kept = _DESCENTS if weights == "constructed" else range(1, len(names) + 1)
    return [
        Layer("descent", f"step {i} of {len(names)}", i, _plain(trace[names[i - 1]]))
        for i in kept
    ]


def _plain(value: Tensor) -> ndarray:
    return value[0].double().numpy()


def _angles(
    layers: tuple[Layer, ...], trace: dict[str, Tensor], x: Tensor
) -> tuple[ndarray, ndarray]:
    """Largest angles to the true graph's eigenvectors and to the operator's own."""
    own = [torch.from_numpy(layer.value) for layer in layers if layer.stage == "eigenmap"]
    features = torch.stack(own)[..., :EIGENVECTORS]
    r = [value for name, value in trace.items() if name.endswith(".R")][-1][0].double()
    bottom = torch.linalg.eigh(r @ r.mT).eigenvectors[:, :EIGENVECTORS]
    neighbours = min(6, x.shape[1] - 1)
    truth = ground_truth(scale_by_neighbours(x), EIGENVECTORS, neighbours, _ALPHA)[1][0]
    to_truth, to_own = (
        principal_angles(features, reference.expand_as(features))[:, 0].numpy()
        for reference in (truth, bottom)
    )
    return to_truth, to_own
