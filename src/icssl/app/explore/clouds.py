"""Clouds of points, and what the classifier and other methods predict on them.

Results are cached, and computed one at a time in one thread. The server has a thread per
request, and a click makes several requests. Warnings are caught for the whole process, so
two threads that fit at once would mix theirs up; and threads that wait for each other on
few cores are slower than one.
"""

import threading
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from icssl._util.colours import plane_coordinates
from icssl._util.errors import check_choice
from icssl._util.random import generator_for
from icssl.classifier.estimator import ICSSLClassifier
from icssl.classifier.graph_memory import GraphMemory, remember_graphs
from icssl.episodes.images import SIDE, FashionGenerator, process_frames, slerp
from icssl.episodes.manifolds import MANIFOLDS
from icssl.episodes.synthetic import ManifoldSpec
from icssl.tables.columns import ColumnEncoder

Labels = tuple[tuple[int, int], ...]

_Result = TypeVar("_Result")

_COMPUTING = threading.RLock()


def cache_last(count: int) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Cache the last ``count`` results of a function that fits or runs a model.

    The function then runs in one thread at a time, and computes in one thread.
    """

    def decorate(compute: Callable[..., _Result]) -> Callable[..., _Result]:
        @lru_cache(maxsize=count)
        def compute_alone(*arguments: Hashable) -> _Result:
            # OpenMP has a number for every thread: what the main one set holds for it only.
            with threadpool_limits(1):
                return compute(*arguments)

        @wraps(compute)
        def compute_or_recall(*arguments: Hashable) -> _Result:
            with _COMPUTING:
                return compute_alone(*arguments)

        return compute_or_recall

    return decorate


def limit_to_one_thread() -> None:
    """Let PyTorch and BLAS use one thread in all of this process.

    :func:`cache_last` limits only the functions that it decorates.
    """
    torch.set_num_threads(1)
    threadpool_limits(1)


_CACHED_CLOUDS = 16  # they are small


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points with their true classes.

    Parameters
    ----------
    key : tuple
        The settings that it was drawn from: equal keys are equal clouds.
    x : ndarray of shape (n, d)
        Coordinates.
    y : ndarray of shape (n,)
        Code of the true class of every point.
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


REAL_TABLES = {
    "iris": "Iris (150 flowers)",
    "wine": "Wine (178 bottles)",
    "breast_cancer": "Breast cancer (569 cases)",
    "digits": "Digits (1,797 pictures)",
}
# Names for the page. A real table has as many rows as its name says; no more are drawn.
SOURCES = {
    **{name: name.replace("_", " ").capitalize() for name in MANIFOLDS},
    "product": "Product of all five",
    "two_moons": "Two moons",
    "images": "Image manifold",
    **REAL_TABLES,
}


@lru_cache(maxsize=_CACHED_CLOUDS)
def draw_cloud(source: str, n: int, noise: float, seed: int) -> Cloud:
    """Draw the cloud of these settings, always the same one.

    From a table with fewer than ``n`` rows, all rows are taken.
    """
    check_choice("source", source, SOURCES)
    x, y, classes, pictures = _drawer(source)(n, seed)
    noisy = x + _noise(x, noise, seed)
    return Cloud((source, n, noise, seed), noisy, y, classes, pictures)


def one_label_per_class(cloud: Cloud) -> Labels:
    """Return one labelled point per class to begin with, the same ones every time."""
    generator = generator_for(cloud.key[-1], "explore labels")
    order = torch.randperm(len(cloud.y), generator=generator).numpy()
    first = [int(order[cloud.y[order] == code][0]) for code in np.unique(cloud.y)]
    return tuple(sorted((point, int(cloud.y[point])) for point in first))


# Coordinates, classes, names of the classes, and pictures where there are any.
_DrawnPoints = tuple[ndarray, ndarray, tuple[str, ...], ndarray | None]


def _drawer(source: str) -> Callable[[int, int], _DrawnPoints]:
    if source == "two_moons":
        return _two_moons
    if source == "images":
        return _images
    if source == "product" or source in MANIFOLDS:
        return lambda n, seed: _manifold(source, n, seed)
    return lambda n, seed: _table(source, n, seed)


def _noise(x: ndarray, noise: float, seed: int) -> ndarray:
    """Return noise in proportion to the spread of a column; all pixels have the same."""
    rng = np.random.default_rng([seed, 1])
    spread = x.std(axis=0)
    if x.shape[1] == SIDE * SIDE:
        spread = np.sqrt((spread**2).mean())
    return noise * spread * rng.standard_normal(x.shape)


def _manifold(source: str, n: int, seed: int) -> _DrawnPoints:
    spec = ManifoldSpec(source, n=n, labels=1)
    generator = generator_for(seed, f"explore {source}")
    episode = spec.draw(1, generator=generator, dtype=torch.float64)
    return episode.x[0].numpy(), episode.y[0].numpy(), ("outside", "inside"), None


def _two_moons(n: int, seed: int) -> _DrawnPoints:
    from sklearn.datasets import make_moons

    x, y = make_moons(n, noise=0.0, random_state=seed)
    return x, y.astype(np.int64), ("upper", "lower"), None


def _images(n: int, seed: int) -> _DrawnPoints:
    """Draw pictures between two latents of the generator; their halves are the classes."""
    generator, source = FashionGenerator(), generator_for(seed, "explore images")
    a, b = torch.randn(2, *generator.latent_shape, generator=source)
    frames = process_frames(generator.decode(slerp(a, b, n))).astype(np.float64) / 255
    order = torch.randperm(n, generator=source).numpy()
    y = (np.arange(n) >= n // 2).astype(np.int64)
    return frames.reshape(n, -1)[order], y[order], ("first", "second"), frames[order]


def _table(source: str, n: int, seed: int) -> _DrawnPoints:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{source}")()
    x, y = np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target, np.int64)
    order = torch.randperm(len(x), generator=generator_for(seed, f"explore {source}"))
    rows = order[:n].numpy()
    pictures = x[rows].reshape(-1, 8, 8) / 16 if source == "digits" else None
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)  # units are arbitrary
    return x[rows], y[rows], tuple(str(name) for name in bunch.target_names), pictures


# What plane_coordinates does, for the notes beside its pictures.
DRAWING_NOTE = (
    "the picture shows two principal coordinates of the classifier's embedding; points far "
    "from all others are drawn nearer."
)

ALL_VIEWS_ROWS = 400  # with more points, all views would make a click wait
_CACHED_ANSWERS = 8
_GRAPHS = GraphMemory()  # a click changes labels, on which most graphs do not depend
_MOST_DENSE = 1_000  # points for which label spreading computes all pairs of weights


@dataclass(frozen=True, eq=False)
class Answer:
    """What the classifier and other methods predict on a cloud, from the same labels.

    Parameters
    ----------
    classes : ndarray of shape (c,)
        Codes of the classes that have a label.
    labels : ndarray of shape (n,)
        The class of every label, -1 for points without a label.
    predicted : ndarray of shape (n,)
        Codes of the predicted classes.
    distributions : ndarray of shape (n, c)
        Probabilities of the classes.
    reach : ndarray of shape (n,)
        How alike each point is to a labelled one; near 0, its class is hardly more than a
        guess.
    rivals : dict
        Codes that other methods predict, by method.
    parts, base : ndarray of shape (n, m, c) and (n, c)
        What each labelled point contributes to each logit, and the rest of the logit.
    suggested : int
        The point worth labelling next.
    views : str
        The views in which the classifier read the cloud.
    """

    classes: Int[ndarray, " c"]
    labels: Int[ndarray, " n"]
    predicted: Int[ndarray, " n"]
    distributions: Float[ndarray, "n c"]
    reach: Float[ndarray, " n"]
    rivals: dict[str, Int[ndarray, " n"]]
    parts: Float[ndarray, "n m c"]
    base: Float[ndarray, "n c"]
    suggested: int
    views: str

    @property
    def probability(self) -> Float[ndarray, " n"]:
        """Probability of the predicted class of every point."""
        return self.distributions.max(axis=1)

    @property
    def labelled_points(self) -> Int[ndarray, " m"]:
        """Numbers of the points that have a label, in the order of ``parts``."""
        return np.flatnonzero(self.labels >= 0)

    def accuracy(self, predicted: ndarray, truth: ndarray) -> float:
        """Return the share of unlabelled points whose predicted class is true."""
        scored = self.labels < 0
        return float((predicted == truth)[scored].mean()) if scored.any() else float("nan")


def existing_labels(labels: Labels, n: int) -> Labels:
    """Return labels of points below ``n``: a table may have fewer rows than were asked."""
    return tuple((point, code) for point, code in labels if point < n)


def label_codes(labels: Labels, n: int) -> Int[ndarray, " n"]:
    """Return the class of every point's label, -1 for points without a label."""
    codes = np.full(n, -1)
    for point, code in existing_labels(labels, n):
        codes[point] = code
    return codes


def predict_cloud(cloud: Cloud, labels: Labels) -> Answer | None:
    """Predict a cloud; return None while fewer than two classes have a label."""
    labels = existing_labels(labels, len(cloud.y))
    if len({code for _, code in labels}) < 2:
        return None
    return _fit_all(cloud.key, labels)


@cache_last(_CACHED_ANSWERS)
def _fit_all(key: tuple[Any, ...], labels: Labels) -> Answer:
    cloud = draw_cloud(*key)
    codes = label_codes(labels, len(cloud.y))
    few = len(cloud.y) <= ALL_VIEWS_ROWS
    classifier = ICSSLClassifier("all views" if few else "one view", device="cpu")
    with remember_graphs(_GRAPHS), warnings.catch_warnings():
        # Whoever gives equal points different labels does so on purpose here.
        warnings.simplefilter("ignore", UserWarning)
        classifier.fit(cloud.x, codes)
    parts, base = classifier.explain()
    has_unlabelled = bool((codes < 0).any())
    return Answer(
        classifier.classes_,
        codes,
        classifier.transduction_,
        classifier.label_distributions_,
        classifier.reach_,
        _fit_rivals(cloud.x, codes),
        parts,
        base,
        int(classifier.suggest(1)[0]) if has_unlabelled else 0,
        classifier.model_name_,
    )


def _fit_rivals(x: ndarray, codes: ndarray) -> dict[str, ndarray]:
    """Return what other methods predict, from the same columns as the classifier reads."""
    rows, labelled = ColumnEncoder().fit_transform(x), codes >= 0
    # The setting that was best for real tables; of many points, their matrix is too large.
    spreading = LabelSpreading(kernel="rbf", alpha=0.8, gamma=10 / rows.shape[1])
    if len(rows) > _MOST_DENSE:
        spreading = LabelSpreading(kernel="knn", alpha=0.9, max_iter=1000)
    # Where no label gets, scikit-learn divides zero by zero and takes the first class.
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = {"label_spreading": spreading.fit(rows, codes).transduction_}
    rivals = {"svc": SVC(C=10.0), "logistic_regression": LogisticRegression(max_iter=1000)}
    for name, model in rivals.items():
        predicted[name] = model.fit(rows[labelled], codes[labelled]).predict(rows)
    return predicted


def drawn_coordinates(cloud: Cloud) -> Float[ndarray, "n axes"]:
    """Return where points are drawn: up to three coordinates, else the embedding in two.

    A coordinate that all points share, as on the paper's torus, is left out.
    """
    if cloud.x.shape[1] > 3:
        return _embedding(cloud.key)
    spread = np.ptp(cloud.x, axis=0)
    return cloud.x[:, spread > 1e-6 * spread.max()]


@cache_last(_CACHED_ANSWERS)
def _embedding(key: tuple[Any, ...]) -> ndarray:
    cloud = draw_cloud(*key)
    # The embedding is that of all rows and ignores labels, but fit needs some.
    codes = label_codes(((0, 0), (1, 1)), len(cloud.y))
    with remember_graphs(_GRAPHS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        classifier = ICSSLClassifier("one view", device="cpu").fit(cloud.x, codes)
    return plane_coordinates(classifier.embedding_)


@dataclass(frozen=True)
class Reason:
    """The parts of which a point's logit for one class is the sum."""

    code: int
    labelled: tuple[int, ...]
    parts: tuple[float, ...]  # what each labelled point adds
    base: float
    logit: float
    probability: float


def reasons(answer: Answer, point: int) -> list[Reason]:
    """Return what each labelled point adds to every logit, the likeliest class first.

    Probabilities are those of the logits; a labelled point keeps its label all the same.
    """
    parts, base = answer.parts[point], answer.base[point]
    logits = parts.sum(axis=0) + base
    share = np.exp(logits - logits.max())
    share = share / share.sum()
    labelled = tuple(int(i) for i in answer.labelled_points)
    return [
        Reason(
            int(answer.classes[c]),
            labelled,
            tuple(float(part) for part in parts[:, c]),
            float(base[c]),
            float(logits[c]),
            float(share[c]),
        )
        for c in np.argsort(-logits, kind="stable")
    ]
