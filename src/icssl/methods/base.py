"""What every classical method shares: one signature, scaled inputs, tuning.

Axis names: b = episodes, n = points, d = coordinates, c = classes, m = labelled points.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_choice, check_positive
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import squared_distances

SCALINGS = ("isotropic", "coordinate")

Grid = Mapping[str, Sequence[Any]]
_TEMPERATURES = tuple(10 ** (step / 8) for step in range(-24, 9))  # 0.001 to 10
_CONSTANT = 1e-12  # of the largest entry; what remains of a constant after centring


@runtime_checkable
class Method(Protocol):
    """A way to classify the points of an episode, and to choose its own settings."""

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point, in the dtype and device of x."""
        ...

    def tune(self, training: Episode) -> "Method":
        """Return the method with settings chosen on episodes whose classes are known."""
        ...


class Tunable(ABC):
    """A method, a frozen dataclass, that is tuned by trying every setting of its grids.

    A class without grids has nothing to choose.
    """

    grids: ClassVar[tuple[Grid, ...]] = ()

    @abstractmethod
    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""

    def tune(self, training: Episode) -> Method:
        """Return the best setting of the grids by accuracy; of equals, the first."""
        if not self.grids:
            return self
        candidates = [self._with(**setting) for setting in settings(self.grids)]
        return max(candidates, key=lambda m: mean_accuracy(m(training), training))

    def _with(self, **setting: Any) -> Any:
        myself: Any = self
        return replace(myself, **setting)


class Scoring(Tunable):
    """A method whose scores become probabilities through a softmax.

    Its dataclass has a field ``temperature``, which is chosen last, by likelihood: it
    does not change which class is the most probable.
    """

    temperature: float

    @abstractmethod
    def scores(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return scores in float64, -inf for a class that no labelled point has."""

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        return (self.scores(episode) / self.temperature).softmax(-1).to(episode.x.dtype)

    def tune(self, training: Episode) -> Method:
        """Return the best setting by accuracy, with the best temperature by likelihood."""
        best: Any = super().tune(training)
        scores = best.scores(training)[~training.labelled]
        classes = training.y[~training.labelled]

        def loss(temperature: float) -> float:
            right = (scores / temperature).softmax(-1).gather(-1, classes[:, None])
            # A class that was never shown has probability 0 at every temperature.
            return -right.clamp(min=1e-12).log().mean().item()

        return best._with(temperature=min(_TEMPERATURES, key=loss))


def settings(grids: Sequence[Grid]) -> list[dict[str, Any]]:
    """Return every combination of each grid.

    Examples
    --------
    >>> settings([{"kernel": ["knn"], "k": [5, 9]}])
    [{'kernel': 'knn', 'k': 5}, {'kernel': 'knn', 'k': 9}]
    """
    return [
        dict(zip(grid, values, strict=True))
        for grid in grids
        for values in product(*grid.values())
    ]


def mean_accuracy(probabilities: Float[Tensor, "b n c"], episode: Episode) -> float:
    """Return the share of unlabelled points whose most probable class is right."""
    hidden = ~episode.labelled
    if not hidden.any() or (episode.y[hidden] < 0).any():
        raise ValueError(
            "tuning needs unlabelled points whose class is known: draw the training "
            "episodes with their classes and without -1."
        )
    right = probabilities.argmax(dim=-1) == episode.y
    return right[hidden].double().mean().item()


def label_matrix(episode: Episode) -> Float[Tensor, "b n c"]:
    """Return the labels as rows of ones and zeros, all zero where unlabelled.

    Methods read classes here and nowhere else, so that none can see a hidden one.
    """
    shown = torch.where(episode.labelled, episode.y, 0)
    rows = torch.nn.functional.one_hot(shown, episode.n_classes)
    return rows.double() * episode.labelled[..., None]


def class_shares(labels: Float[Tensor, "b n c"]) -> Float[Tensor, "b 1 c"]:
    """Return the share of each class among the labelled points."""
    counts = labels.sum(dim=1, keepdim=True)
    return counts / counts.sum(dim=-1, keepdim=True)


def scale_points(x: Float[Tensor, "b n d"], scaling: str) -> Float[Tensor, "b n d"]:
    """Return centred points of mean squared length one, in float64.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
        Points in any unit, anywhere.
    scaling : {"isotropic", "coordinate"}
        Whether all coordinates keep their proportions, or each first gets variance one:
        better where they have different units, as on a product of manifolds.
    """
    check_choice("scaling", scaling, SCALINGS)
    x = x.double()
    if scaling == "coordinate":
        x = _unit(x, (1,))
    return _unit(x, (1, 2)) / x.shape[-1] ** 0.5


def _unit(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Centre over the points, with mean square one over ``axes``; constants are zero."""
    largest = x.abs().amax(dim=axes, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1.0)  # squares of large numbers overflow
    x = x - x.mean(dim=1, keepdim=True)
    size = x.square().mean(dim=axes, keepdim=True).sqrt()
    return torch.where(size > _CONSTANT, x / size, 0.0)


def gaussian_kernel(x: Float[Tensor, "b n d"], bandwidth: float) -> Float[Tensor, "b n n"]:
    """Return exp(-d^2 / 2 h^2) with bandwidth h, ones on the diagonal."""
    check_positive("bandwidth", bandwidth)
    return (-squared_distances(x, x) / (2 * bandwidth**2)).exp()
