"""``icssl demo``: the model that needs no training, on two clouds with three labels each.

Lemmas 1 and 2 of the paper give its weights, so nothing is learned before it sees a cloud.
Logistic regression and scikit-learn's label spreading get the same labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from numpy import ndarray
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from icssl._util.files import replacing
from icssl.bench.plots import scatter_points
from icssl.episodes.episode import Episode
from icssl.evaluation.metrics import interval
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

_N_POINTS = 100
_N_LABELS = 3
METHODS = ("icssl, constructed", "label spreading", "logistic regression")


@dataclass(frozen=True)
class Cloud:
    """A source of points with two classes, and the bandwidth of its graph.

    ``sigma`` is in units of the distance to the sixth neighbour. It was chosen on draws
    with other seeds than those of the demo.
    """

    name: str
    draw: Callable[[np.random.Generator], tuple[ndarray, ndarray]]
    sigma: float


def swiss_roll(rng: np.random.Generator) -> tuple[ndarray, ndarray]:
    """Draw a narrow Swiss roll of one and a half turns; its two halves are the classes."""
    angle = 1.5 * np.pi * (1 + 2 * rng.uniform(size=_N_POINTS))
    height = 5 * rng.uniform(size=_N_POINTS)
    x = np.column_stack([angle * np.cos(angle), height, angle * np.sin(angle)])
    return x, (angle > np.median(angle)).astype(np.int64)


def two_moons(rng: np.random.Generator) -> tuple[ndarray, ndarray]:
    """Draw the two moons of scikit-learn."""
    seed = int(rng.integers(2**31))
    x, y = make_moons(_N_POINTS, noise=0.06, random_state=seed)
    return x, y.astype(np.int64)


CLOUDS = (
    Cloud("Swiss roll", swiss_roll, sigma=0.7),
    Cloud("two moons", two_moons, sigma=1.0),
)


@dataclass(frozen=True, eq=False)
class _DemoResult:
    """The result on one cloud: accuracies of every draw, and the first draw itself."""

    cloud: Cloud
    iterations: int
    accuracy: dict[str, Float[ndarray, " draws"]]
    x: Float[ndarray, "n d"]
    y: Int[ndarray, " n"]
    labelled: Bool[ndarray, " n"]
    eigenmap: Float[ndarray, "n k"]
    predicted: dict[str, Int[ndarray, " n"]]

    def interval(self, method: str) -> str:
        """Return the mean accuracy over draws, with Student's 95% interval."""
        return str(interval(torch.from_numpy(self.accuracy[method])))


def run_demo(
    cloud: Cloud, *, draws: int = 20, iterations: int = 30_000, seed: int = 0
) -> _DemoResult:
    """Label ``draws`` clouds with three labels each, by every method."""
    contexts = [
        _labelled_draw(cloud, np.random.default_rng([seed, i])) for i in range(draws)
    ]
    x, y, labelled = (np.stack(arrays) for arrays in zip(*contexts, strict=True))
    predicted = {name: np.empty_like(y) for name in METHODS}
    ours, features = _constructed_model(x, y, labelled, cloud.sigma, iterations)
    predicted[METHODS[0]] = ours
    for i, context in enumerate(contexts):
        predicted[METHODS[1]][i] = _label_spreading(*context)
        predicted[METHODS[2]][i] = _logistic_regression(*context)
    correct = {name: (guess == y) & ~labelled for name, guess in predicted.items()}
    return _DemoResult(
        cloud=cloud,
        iterations=iterations,
        accuracy={
            name: c.sum(axis=1) / (~labelled).sum(axis=1) for name, c in correct.items()
        },
        x=x[0],
        y=y[0],
        labelled=labelled[0],
        eigenmap=features[0],
        predicted={name: guess[0] for name, guess in predicted.items()},
    )


def _labelled_draw(
    cloud: Cloud, rng: np.random.Generator
) -> tuple[ndarray, ndarray, ndarray]:
    """Return points, classes, and three labels, at least one of them per class."""
    x, y = cloud.draw(rng)
    first = [rng.choice(np.flatnonzero(y == c)) for c in (0, 1)]
    others = np.setdiff1d(np.arange(len(y)), first)
    labelled = np.zeros(len(y), dtype=bool)
    labelled[[*first, *rng.choice(others, _N_LABELS - 2, replace=False)]] = True
    return x, y, labelled


@torch.no_grad()
def _constructed_model(
    x: ndarray, y: ndarray, labelled: ndarray, sigma: float, iterations: int
) -> tuple[ndarray, ndarray]:
    """Return predictions and eigenmap of the model with the weights of the lemmas."""
    config = ModelConfig.constructed(
        k=2, iterations=iterations, sigma=sigma, steps=20, step_size=3.0
    )
    model = ICSSLTransformer(config)
    points, classes, is_labelled = (torch.from_numpy(a) for a in (x, y, labelled))
    episode = Episode(points, classes, is_labelled)
    features = model.features(episode)
    logits = model.head(features, episode.y, episode.labelled)
    return logits.argmax(dim=-1).numpy(), features.numpy()


def _label_spreading(x: ndarray, y: ndarray, labelled: ndarray) -> ndarray:
    # With three labels, alpha = 0.99 does better than the default of 0.2.
    spreading = LabelSpreading(kernel="knn", n_neighbors=7, alpha=0.99, max_iter=10_000)
    return spreading.fit(x, np.where(labelled, y, -1)).transduction_


def _logistic_regression(x: ndarray, y: ndarray, labelled: ndarray) -> ndarray:
    scaled = (x - x.mean(axis=0)) / x.std()
    return LogisticRegression().fit(scaled[labelled], y[labelled]).predict(scaled)


def draw_demo(results: list[_DemoResult], path: Path) -> None:
    """Draw one row per cloud: points, eigenmap, and what each method predicted."""
    figure = Figure(figsize=(15, 3.4 * len(results)), layout="constrained")
    for row, result in enumerate(results):
        panels = [("classes and the three labels", result.x, result.y)]
        panels.append(
            (f"eigenmap, {result.iterations:,} iterations", result.eigenmap, result.y)
        )
        for name, guess in result.predicted.items():
            panels.append((name, result.x, guess))
        for column, (title, points, colour) in enumerate(panels):
            axes = figure.add_subplot(
                len(results),
                len(panels),
                row * len(panels) + column + 1,
                projection="3d" if points.shape[1] == 3 else None,
            )
            _scatter(axes, points, colour, result, title)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=110)


def _scatter(
    axes: Any, points: ndarray, colour: ndarray, result: _DemoResult, title: str
) -> None:
    scatter_points(axes, points, colour, result.labelled)
    if points.shape[1] == 3:
        axes.view_init(elev=10, azim=-85)
        axes.set_box_aspect((1, 0.5, 1), zoom=1.3)
    if title in result.predicted:
        share = (result.predicted[title] == result.y)[~result.labelled].mean()
        title = f"{title}: {share:.0%} right"
    axes.set_title(f"{result.cloud.name}\n{title}", fontsize=10)
