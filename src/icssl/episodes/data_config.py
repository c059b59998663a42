"""``DataConfig``: names of sources, as a person types them, and the specs they mean."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from icssl._util.errors import check_at_least, did_you_mean
from icssl._util.files import cache_folder
from icssl.episodes.feature_tables import FeatureSpec
from icssl.episodes.images import ImageSpec
from icssl.episodes.manifolds import MANIFOLDS
from icssl.episodes.stream import FiniteSource, Mixture, Source
from icssl.episodes.synthetic import ManifoldSpec
from icssl.tables.formats import FORMATS, suffix_of

EIGENVECTORS = 4
IMAGES = "images"
NAMES = (*MANIFOLDS, "product", "digits", IMAGES)


@dataclass(frozen=True)
class DataConfig:
    """Configuration of episodes: names of sources, and options for all of them.

    Parameters
    ----------
    sources : tuple of str
        Names of sources: a manifold, ``"product"``, ``"digits"``, ``"images"``, a folder or
        a table of features. With several, every batch comes from one of them.
    split : {"train", "test"}
        Part of a table or a folder that is drawn from; manifolds have no parts.
    n, n_classes, placement, threshold, measure, rotation, half_angle, factor_distance
        Options of :class:`icssl.episodes.synthetic.ManifoldSpec`. Tables have ``placement``
        and ``n_classes`` too, image manifolds ``placement``.
    train_classes : int
        How many classes of a table are for training; the others are for the test.
    eigenvectors : int
        Ground-truth eigenvectors to compute, 0 for none.
    distances : bool
        Keep geodesic distances of manifolds, for the Bayes ceiling.
    episodes : int
        Number of episodes that are drawn once and used again and again, with new labels
        each time: the paper's "dataset size". With 0 every episode is a fresh one.
    """

    sources: tuple[str, ...] = ("sphere",)
    split: str = "train"
    n: int = 100
    n_classes: int = 2
    train_classes: int = 6
    placement: str = "random"
    threshold: str | float = "median"
    measure: str = "chart"
    rotation: str = "planar"
    half_angle: str | float = torch.pi / 6
    factor_distance: str = "unscaled"
    eigenvectors: int = 0
    distances: bool = False
    episodes: int = 0

    def __post_init__(self) -> None:
        check_at_least("episodes", self.episodes, 0)
        if isinstance(self.sources, str):
            raise TypeError(f"sources must be a tuple of names, got {self.sources!r}.")
        if not self.sources:
            raise ValueError("sources must name at least one source, got none.")

    def build(self, *, seed: int = 0, device: str = "cpu") -> Source:
        """Return the source; ``seed`` and ``device`` are for a finite set of episodes."""
        labels = min(10, self.n - 1)  # for those who draw without saying how many
        built = [source_named(name, self, labels=labels) for name in self.sources]
        if self.episodes:  # as many of each source
            size = -(-self.episodes // len(built))
            built = [FiniteSource(s, size, seed, device, self.placement) for s in built]
        return built[0] if len(built) == 1 else Mixture(tuple(built))


def source_named(
    name: str, options: DataConfig | None = None, *, labels: float | str = 10
) -> Source:
    """Return the spec of a manifold, a table of features, or a folder of images."""
    if isinstance(labels, str):
        raise ValueError(
            f"labels must be a count such as 10 or a fraction, got {labels!r}."
        )
    options = options or DataConfig(eigenvectors=EIGENVECTORS)
    path = Path(name)
    shared: dict[str, Any] = {"labels": labels, "placement": options.placement}
    if name in (*MANIFOLDS, "product"):
        return ManifoldSpec(
            name,
            n=options.n,
            threshold=options.threshold,
            n_classes=options.n_classes,
            measure=options.measure,
            rotation=options.rotation,
            half_angle=options.half_angle,
            factor_distance=options.factor_distance,
            eigenvectors=min(options.eigenvectors, options.n),
            neighbours=min(6, options.n - 1),
            distances=options.distances,
            **shared,
        )
    shared |= {"split": options.split, "eigenvectors": options.eigenvectors}
    if name == IMAGES:  # paths of the shipped generator, made when they are first drawn
        return ImageSpec(cache_folder() / "fashion-manifolds", make=True, **shared)
    if path.is_dir() and any(path.glob("manifold-*.npy")):
        return ImageSpec(path, **shared)
    if name == "digits" or path.is_dir() or suffix_of(path) in FORMATS:
        return FeatureSpec(
            path,
            n_classes=options.n_classes,
            train_classes=options.train_classes,
            **shared,
        )
    raise ValueError(
        f"unknown source {name!r}: choose one of {', '.join(NAMES)}, a folder that exists, "
        f"or a file that ends in {', '.join(FORMATS)}.{did_you_mean(name, NAMES)}"
    )
