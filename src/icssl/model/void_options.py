"""Options of a model that another option leaves without effect."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import NamedTuple

from icssl._util.references import is_reference
from icssl.model.model_config import ModelConfig

_OF_STAGES = (
    *("sigma", "laplacian_kernel", "laplacian_layers", "laplacian_heads", "attend_to_r"),
    *("learn_r_start", "eigenmap_layers", "eigenmap_heads", "start", "scale_operator"),
    *("layer_loops", "stage_loops", "init", "noise", "n_points"),
)
_OF_DESCENT = (
    *("kernel", "steps", "embedding", "embedding_size", "expectation", "hidden"),
    *("step_size", "gamma"),
)
_OF_ENCODER = ("width", "encoder_layers", "encoder_heads", "distance_bias")


class _Void(NamedTuple):
    """Options without effect, what leaves them so, and why."""

    options: tuple[str, ...]
    because: str
    why: str


def check_effects(config: ModelConfig, given: Iterable[str]) -> None:
    """Raise ``ValueError`` for a given option that has no effect in this model.

    What was not given is not looked at, and neither is a value that is the default: files
    and checkpoints hold every option.

    Examples
    --------
    >>> check_effects(
    ...     ModelConfig(head="encoder", kernel="linear"), ["kernel"]
    ... )  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: model.kernel='linear' and model.head='encoder' exclude each other: it has...
    """
    given = set(given)
    defaults = {known.name: known.default for known in fields(config)}
    for void in _void_options(config):
        for name in void.options:
            value = getattr(config, name)
            if name in given and value != defaults[name]:
                other = getattr(config, void.because)
                raise ValueError(
                    f"model.{name}={value!r} and model.{void.because}={other!r} exclude "
                    f"each other: {void.why}. Leave model.{name} out, or change "
                    f"model.{void.because}."
                )


def _void_options(config: ModelConfig) -> Iterator[_Void]:
    """Yield every group of options that is without effect in a model."""
    yield from _of_stages(config)
    if is_reference(config.head):
        return  # a head of one's own may read any option
    if config.head == "encoder":
        yield _Void(_OF_DESCENT, "head", "it has no descent")
        return
    yield _Void(_OF_ENCODER, "head", "it has no encoder")
    if config.features == "coordinates":
        yield _Void(("k",), "features", "the descent head reads all coordinates")
    if config.features == "eigenvectors":
        why = "the descent head reads eigenvectors and no points"
        yield _Void(("centre", "scale"), "features", why)
    if config.kernel == "linear":
        yield _Void(("gamma",), "kernel", "it has no gamma")
    if config.embedding == "simplex":
        yield _Void(("embedding_size",), "embedding", "a simplex has its own size")
    if config.expectation == "exact":
        yield _Void(("hidden",), "expectation", "it has no MLP")


def _of_stages(config: ModelConfig) -> Iterator[_Void]:
    if config.features != "eigenmap":
        yield _Void(_OF_STAGES, "features", "a head alone has no stages 1 and 2")
        return
    if not config.tied_to_n:
        yield _Void(("n_points",), "start", "it takes any number of points")
    if config.init == "random":
        yield _Void(("noise",), "init", "noise is added to the lemmas' weights")
