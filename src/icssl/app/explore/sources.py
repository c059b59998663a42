"""Where the page's points come from, and how the page computes.

Answers are computed once for the same question, one at a time, in one thread. The server
has a thread per request, and a click makes several requests. Warnings are caught for the
whole process, so two threads that fit at once would mix theirs up; and threads that wait
for each other on few cores are slower than one.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from threadpoolctl import threadpool_limits

from icssl._util.errors import check_choice
from icssl._util.random import generator_for
from icssl.episodes.images import SIDE, FashionGenerator, process_frames, slerp
from icssl.episodes.manifolds import MANIFOLDS
from icssl.episodes.synthetic import ManifoldSpec

Found = TypeVar("Found")

_COMPUTING = threading.RLock()


def remembered(count: int) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """Keep the last ``count`` answers of a function that fits or runs a model."""

    def decorate(compute: Callable[..., Found]) -> Callable[..., Found]:
        @lru_cache(maxsize=count)
        def alone(*question: Hashable) -> Found:
            # OpenMP has a number for every thread: what the main one set holds for it only.
            with threadpool_limits(1):
                return compute(*question)

        @wraps(compute)
        def found(*question: Hashable) -> Found:
            with _COMPUTING:
                return alone(*question)

        return found

    return decorate


def use_one_thread() -> None:
    """For all that is not :func:`remembered`: PyTorch and BLAS, in the whole process."""
    torch.set_num_threads(1)
    threadpool_limits(1)


_REMEMBERED = 16  # clouds; each is small


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points with their true classes.

    Parameters
    ----------
    key : tuple
        What it was drawn from: equal keys are equal clouds.
    x : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    classes : tuple of str
        Names of the classes.
    pictures : ndarray of shape (n, side, side), optional
        What the points look like, in [0, 1].
    """

    key: tuple[Any, ...]
    x: Float[ndarray, "n d"]
    y: Int[ndarray, " n"]
    classes: tuple[str, ...]
    pictures: Float[ndarray, "n side side"] | None = None


SOURCES = {
    **{name: name.replace("_", " ").capitalize() for name in MANIFOLDS},
    "product": "Product of all five",
    "two_moons": "Two moons",
    "images": "Image manifold",
    "iris": "Iris (150 flowers)",
    "wine": "Wine (178 bottles)",
    "breast_cancer": "Breast cancer (569 cases)",
    "digits": "Digits (1,797 pictures)",
}
"""Names for the page; real tables have so many rows, and no more are drawn."""


@lru_cache(maxsize=_REMEMBERED)
def draw_cloud(source: str, n: int, noise: float, seed: int) -> Cloud:
    """The cloud of these settings, always the same one.

    A table with fewer than ``n`` rows gives all of them.
    """
    check_choice("source", source, SOURCES)
    x, y, classes, pictures = _drawer(source)(n, seed)
    moved = x + _disturbance(x, noise, seed)
    return Cloud((source, n, noise, seed), moved, y, classes, pictures)


def one_label_a_class(cloud: Cloud) -> tuple[tuple[int, int], ...]:
    """A point of every class, the same ones every time: something to begin with."""
    generator = generator_for(cloud.key[-1], "explore labels")
    order = torch.randperm(len(cloud.y), generator=generator).numpy()
    first = [int(order[cloud.y[order] == code][0]) for code in np.unique(cloud.y)]
    return tuple(sorted((point, int(cloud.y[point])) for point in first))


_Drawn = tuple[ndarray, ndarray, tuple[str, ...], ndarray | None]


def _drawer(source: str) -> Callable[[int, int], _Drawn]:
    if source == "two_moons":
        return _two_moons
    if source == "images":
        return _images
    if source == "product" or source in MANIFOLDS:
        return lambda n, seed: _manifold(source, n, seed)
    return lambda n, seed: _table(source, n, seed)


def _disturbance(x: ndarray, noise: float, seed: int) -> ndarray:
    """Of every column in proportion to what its values vary; pictures, columns alike."""
    rng = np.random.default_rng([seed, 1])
    spread = x.std(axis=0)
    like = np.sqrt((spread**2).mean()) if x.shape[1] == SIDE * SIDE else spread
    return noise * like * rng.standard_normal(x.shape)


def _manifold(source: str, n: int, seed: int) -> _Drawn:
    spec = ManifoldSpec(source, n=n, labels=1)
    generator = generator_for(seed, f"explore {source}")
    episode = spec.draw(1, generator=generator, dtype=torch.float64)
    return episode.x[0].numpy(), episode.y[0].numpy(), ("outside", "inside"), None


def _two_moons(n: int, seed: int) -> _Drawn:
    from sklearn.datasets import make_moons

    x, y = make_moons(n, noise=0.0, random_state=seed)
    return x, y.astype(np.int64), ("upper", "lower"), None


def _images(n: int, seed: int) -> _Drawn:
    """Pictures on the way between two of the generator's latents; classes are halves."""
    generator, source = FashionGenerator(), generator_for(seed, "explore images")
    a, b = torch.randn(2, *generator.latent_shape, generator=source)
    frames = process_frames(generator.decode(slerp(a, b, n))).astype(np.float64) / 255
    order = torch.randperm(n, generator=source).numpy()
    y = (np.arange(n) >= n // 2).astype(np.int64)
    return frames.reshape(n, -1)[order], y[order], ("first", "second"), frames[order]


def _table(source: str, n: int, seed: int) -> _Drawn:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{source}")()
    x, y = np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target, np.int64)
    order = torch.randperm(len(x), generator=generator_for(seed, f"explore {source}"))
    rows = order[:n].numpy()
    pictures = x[rows].reshape(-1, 8, 8) / 16 if source == "digits" else None
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)  # units mean nothing here
    return x[rows], y[rows], tuple(str(name) for name in bunch.target_names), pictures
