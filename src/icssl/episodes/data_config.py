"""``DataConfig``: names of sources, as a person types them, and the specs they mean."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from icssl._util.config_fields import added_later, stated_values
from icssl._util.errors import check_at_least, check_choice, did_you_mean
from icssl._util.files import cache_folder
from icssl.episodes.feature_tables import FeatureSpec
from icssl.episodes.images import ImageSpec
from icssl.episodes.manifolds import MANIFOLDS, PRODUCT_FACTORS
from icssl.episodes.stream import FiniteSource, Mixture, Source
from icssl.episodes.synthetic import ManifoldSpec
from icssl.tables.formats import FORMATS, suffix_of

EIGENVECTORS = 4
IMAGES = "images"
NAMES = (*MANIFOLDS, "product", "digits", IMAGES)
_OF_MANIFOLDS = (
    *("threshold", "test_threshold", "ball_share", "roll_halves"),
    *("measure", "rotation", "half_angle", "s_min"),
    *("factors", "factor_distance", "distances"),
)


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
    s_min, factors, ball_share, roll_halves
        Further options of :class:`icssl.episodes.synthetic.ManifoldSpec`.
    test_threshold : str or float
        ``threshold`` of the part ``"test"``, where it differs: the paper's classes in
        distribution and out of it are apparently made by different rules.
    train_classes : int
        How many classes of a table are for training; the others are for the test.
    share_classes : bool
        Draw all classes of a table for training and for the test, and keep rows apart
        instead: see :class:`icssl.episodes.feature_tables.FeatureSpec`.
    shuffle_frames : bool
        Put the frames of an image manifold in a random order.
    pixel_scale : float
        Factor of the pixels of image manifolds; the paper's is 0.001.
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
    # Fields that came later: rows that were stored before have keys without them.
    test_threshold: str | float = added_later("")
    s_min: float = added_later(0.0)
    factors: tuple[str, ...] = added_later(PRODUCT_FACTORS)
    ball_share: float = added_later(0.5)
    roll_halves: bool = added_later(False)
    share_classes: bool = added_later(False)
    shuffle_frames: bool = added_later(True)
    pixel_scale: float = added_later(1.0)

    def __post_init__(self) -> None:
        check_at_least("episodes", self.episodes, 0)
        if isinstance(self.sources, str):
            raise TypeError(f"sources must be a tuple of names, got {self.sources!r}.")
        if not self.sources:
            raise ValueError("sources must name at least one source, got none.")
        check_choice("split", self.split, ["train", "test"])
        if not any(map(is_manifold, self.sources)):
            self._refuse_options_of_manifolds()

    def _refuse_options_of_manifolds(self) -> None:
        for known in fields(self):
            value = getattr(self, known.name)
            if known.name in _OF_MANIFOLDS and value != known.default:
                raise ValueError(
                    f"{known.name}={value!r} is an option of manifolds, which have a chart "
                    f"and geodesic distances; {', '.join(self.sources)} has classes of its "
                    f"own and neither. Leave {known.name} out, or choose a manifold: "
                    f"{', '.join((*MANIFOLDS, 'product'))}."
                )

    @property
    def class_rule(self) -> str | float:
        """``threshold`` of the part that is drawn from."""
        apart = self.split == "test" and self.test_threshold != ""
        return self.test_threshold if apart else self.threshold

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for files and keys; see :func:`stated_values`."""
        return stated_values(self)

    def build(self, *, seed: int = 0, device: str = "cpu") -> Source:
        """Return the source; ``seed`` and ``device`` are for a finite set of episodes."""
        labels = min(10, self.n - 1)  # for those who draw without saying how many
        built = [source_named(name, self, labels=labels) for name in self.sources]
        if self.episodes:  # as many of each source
            size = -(-self.episodes // len(built))
            built = [FiniteSource(s, size, seed, device, self.placement) for s in built]
        return built[0] if len(built) == 1 else Mixture(tuple(built))


def is_manifold(name: str) -> bool:
    """Whether a source has a chart and geodesic distances."""
    return name in MANIFOLDS or name == "product"


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
    if is_manifold(name):
        same_names = "n n_classes measure rotation half_angle factor_distance distances"
        same_names += " s_min factors ball_share roll_halves"
        return ManifoldSpec(
            name,
            threshold=options.class_rule,
            eigenvectors=min(options.eigenvectors, options.n),
            neighbours=min(6, options.n - 1),
            **{field: getattr(options, field) for field in same_names.split()},
            **shared,
        )
    shared |= {"split": options.split, "eigenvectors": options.eigenvectors}
    of_images: dict[str, Any] = {
        "pixel_scale": options.pixel_scale,
        "shuffle": options.shuffle_frames,
    }
    if name == IMAGES:  # paths of the shipped generator, made when they are first drawn
        folder = cache_folder() / "fashion-manifolds"
        return ImageSpec(folder, make=True, **of_images, **shared)
    if path.is_dir() and any(path.glob("manifold-*.npy")):
        return ImageSpec(path, **of_images, **shared)
    if name == "digits" or path.is_dir() or suffix_of(path) in FORMATS:
        return FeatureSpec(
            path,
            n_classes=options.n_classes,
            train_classes=options.train_classes,
            share_classes=options.share_classes,
            **shared,
        )
    raise ValueError(
        f"unknown source {name!r}: choose one of {', '.join(NAMES)}, a folder that exists, "
        f"or a file that ends in {', '.join(FORMATS)}.{did_you_mean(name, NAMES)}"
    )
