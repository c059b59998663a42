"""Options of episodes that have no effect on the sources that they are given for."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from icssl.episodes.data_config import IMAGES, NAMES, DataConfig, is_manifold

_UNKNOWN = "unknown"

_NEEDS = {
    **dict.fromkeys(("half_angle", "s_min"), "the cone"),
    "roll_halves": "the Swiss roll",
    **dict.fromkeys(("factors", "factor_distance"), "the product"),
    **dict.fromkeys(("train_classes", "share_classes"), "a table of features"),
    **dict.fromkeys(("shuffle_frames", "pixel_scale"), "image manifolds"),
    "n": "a manifold",
    "n_classes": "a manifold or a table of features",
}


def check_data_effects(config: DataConfig, given: Iterable[str]) -> None:
    """Raise ``ValueError`` for a given option that none of the sources reads.

    What was not given is not looked at, and neither is a value that is the default.

    Examples
    --------
    >>> check_data_effects(
    ...     DataConfig(("sphere",), half_angle=0.1), ["half_angle"]
    ... )  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: half_angle=0.1 and sources=sphere exclude each other: it is an option of...
    """
    given = set(given)
    if config.share_classes and "train_classes" in given:
        _check_train_classes(config)
    kinds = {kind for name in config.sources for kind in _kinds_of(name, config)}
    if _UNKNOWN in kinds:  # refused by its name when episodes are drawn
        return
    for known in fields(config):
        name, value = known.name, getattr(config, known.name)
        needed = _NEEDS.get(name)
        if needed is None or name not in given or value == known.default:
            continue
        if kinds.isdisjoint(needed.split(" or ")):
            raise ValueError(
                f"{name}={value!r} and sources={','.join(config.sources)} exclude each "
                f"other: it is an option of {needed}. Leave {name} out, or change the "
                "source."
            )


def _check_train_classes(config: DataConfig) -> None:
    """Raise ``ValueError`` for a number of classes where all are for training."""
    if config.train_classes != DataConfig.train_classes:
        raise ValueError(
            f"train_classes={config.train_classes} and share_classes=True exclude each "
            "other: all classes are for training and for the test. Leave one of them out."
        )


def _kinds_of(source: str, config: DataConfig) -> set[str]:
    """Return everything that a source is, in the words of ``_NEEDS``."""
    if is_manifold(source):
        kinds = {"a manifold"}
        kinds |= {"the product"} if source == "product" else set()
        kinds |= {"the Swiss roll"} if source == "swiss_roll" else set()
        has_cone = "cone" in (config.factors if source == "product" else (source,))
        return kinds | ({"the cone"} if has_cone else set())
    path = Path(source)
    if source == IMAGES or (path.is_dir() and any(path.glob("manifold-*.npy"))):
        return {"image manifolds"}
    is_table = source in NAMES or path.exists()
    return {"a table of features" if is_table else _UNKNOWN}
