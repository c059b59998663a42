"""``module:Class``: classes and functions of other people, by the name of their module."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from icssl._util.errors import did_you_mean


class ReferenceNotFoundError(ImportError):
    """There is nothing under a name ``module:Class``; the message says what is missing."""


def is_reference(name: object) -> bool:
    """Whether a value is written ``module:Class``.

    Examples
    --------
    >>> is_reference("my_heads:Mean"), is_reference("encoder"), is_reference("C:/model")
    (True, False, False)
    """
    if not isinstance(name, str):
        return False
    module, colon, attribute = name.partition(":")
    words = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(map(str.isidentifier, words))


def object_at(reference: str) -> Any:
    """Return what ``module:Class`` names; modules of the current folder count too.

    Importing a module runs it: give names of modules that you trust.
    """
    module, _, attribute = reference.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:  # an installed command does not look there
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        # A module that exists and misses one of its own is another error.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ReferenceNotFoundError(
            f"{reference}: there is no module {error.name!r}. It is looked for in {folder} "
            "and among installed packages."
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [word for word in vars(found) if not word.startswith("_")]
            raise ReferenceNotFoundError(
                f"{reference}: {module} has no {attribute!r}.{did_you_mean(part, public)}"
            )
        found = getattr(found, part)
    return found
