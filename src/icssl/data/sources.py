"""From the name of a source, as a person types it, to its spec."""

from pathlib import Path

from icssl.data.features import FeatureSpec
from icssl.data.images import ImageSpec
from icssl.data.stream import Source
from icssl.data.synthetic import ManifoldSpec
from icssl.data.tables import SUFFIXES
from icssl.manifolds import MANIFOLDS

EIGENVECTORS = 4


def source_named(
    name: str,
    *,
    labels: float | str = 10,
    placement: str = "random",
    threshold: float | str = "median",
    n_classes: int = 2,
    n: int = 100,
) -> Source:
    """The spec of a manifold, a table of features, or a folder of image manifolds."""
    if isinstance(labels, str):
        raise ValueError(
            f"labels must be a count such as 10 or a fraction, got {labels!r}."
        )
    path = Path(name)
    if name in (*MANIFOLDS, "product"):
        return ManifoldSpec(
            name,
            n=n,
            labels=labels,
            placement=placement,
            threshold=threshold,
            n_classes=n_classes,
            eigenvectors=min(EIGENVECTORS, n),
            neighbours=min(6, n - 1),
        )
    if path.is_dir() and any(path.glob("manifold-*.npy")):
        return ImageSpec(
            path, labels=labels, placement=placement, eigenvectors=EIGENVECTORS
        )
    if name == "digits" or path.is_dir() or path.suffix in SUFFIXES:
        return FeatureSpec(
            path,
            labels=labels,
            placement=placement,
            n_classes=n_classes,
            eigenvectors=EIGENVECTORS,
        )
    known = ", ".join([*MANIFOLDS, "product", "digits"])
    raise ValueError(
        f"unknown source {name!r}: choose one of {known}, a folder, or a file that ends in "
        f"{', '.join(SUFFIXES)}."
    )
