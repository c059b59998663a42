"""Errors that say what was given and what is allowed."""

from collections.abc import Iterable
from difflib import get_close_matches


def check_choice(name: str, given: object, allowed: Iterable[str]) -> None:
    """Raise ``ValueError`` unless ``given`` is one of ``allowed``.

    Examples
    --------
    >>> check_choice("kernel", "rfb", ["rbf", "linear"])
    Traceback (most recent call last):
    ValueError: unknown kernel 'rfb': choose one of 'linear', 'rbf'. Did you mean 'rbf'?
    """
    choices = sorted(allowed)
    if given in choices:
        return
    near = get_close_matches(str(given), choices, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"unknown {name} {given!r}: choose one of {', '.join(map(repr, choices))}.{hint}"
    )


def check_at_least(name: str, given: float, least: float) -> None:
    """Raise ``ValueError`` unless ``given >= least``."""
    if not given >= least:
        raise ValueError(f"{name} must be at least {least}, got {given!r}.")


def check_positive(name: str, given: float) -> None:
    """Raise ``ValueError`` unless ``given`` is a positive, finite number."""
    if not 0 < given < float("inf"):
        raise ValueError(f"{name} must be a positive, finite number, got {given!r}.")
