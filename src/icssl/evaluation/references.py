"""Methods by ``module:Class``: those of other people, without a line in this package."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import did_you_mean
from icssl.episodes.episode import Episode
from icssl.methods import Method


@dataclass(frozen=True)
class _Untuned:
    """A function of an episode as a method that chooses nothing."""

    function: Callable[[Episode], Tensor]

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return what the function returns: class probabilities of every point."""
        return self.function(episode)

    def tune(self, training: Episode) -> "_Untuned":
        """Return itself."""
        return self


def is_reference(name: str) -> bool:
    """Whether a name is ``module:Class``, and neither a path nor a drive."""
    module, colon, attribute = name.partition(":")
    words = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(map(str.isidentifier, words)) and not Path(name).exists()


def method_at(name: str) -> Method:
    """Return the method that ``module:Class`` names; a class is made without arguments.

    A module is looked for in the current folder too. It may be a class or an object with
    ``tune``, or anything that takes an episode and returns probabilities.
    """
    module, _, attribute = name.partition(":")
    found = _attribute_of(_import_module(module, name), attribute, name)
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as error:
            raise ValueError(
                f"{name} could not be made without arguments: {error}. Give every argument "
                "a default, or name an object of the module."
            ) from error
    if not callable(found):
        raise ValueError(
            f"{name} is of type {type(found).__name__}, which takes no episode: a method "
            "is called with an episode and returns class probabilities of shape (b, n, c)."
        )
    return found if callable(getattr(found, "tune", None)) else _Untuned(found)


def _import_module(module: str, name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:  # a command that was installed does not look there
        sys.path.insert(0, folder)
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A module that exists and misses one of its own is another error.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"{name}: there is no module {error.name!r} here. It is looked for in {folder} "
            "and among installed packages."
        ) from error


def _attribute_of(module: Any, attribute: str, name: str) -> Any:
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [word for word in vars(found) if not word.startswith("_")]
            raise ValueError(
                f"{name}: {module.__name__} has no {attribute!r}."
                f"{did_you_mean(part, public)}"
            )
        found = getattr(found, part)
    return found
