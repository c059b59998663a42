"""Errors that say what was given and what is allowed, and text that is safe to show."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import cast


class UnwrittenFileError(OSError):
    """A file could not be written; the message names it and says why."""


class DamagedFileError(ValueError):
    """A file is not as icssl wrote it; the message names it and says what to do."""


EXTRA = "pip install 'icssl[{0}]'"
"""How to install an optional extra, by its name."""

_MOST_LISTED = 50  # names in one message
_LONGEST_LISTED = 80  # characters of a name in a list
_LONGEST_MESSAGE = 3_000  # characters
_LONGEST_GUESS = 200  # characters: the time to compare two texts grows with their product


def check_choice(name: str, value: object, allowed: Iterable[str], also: str = "") -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``allowed``.

    Parameters
    ----------
    name : str
        Name of what is chosen, for the message.
    value : object
        The value to check.
    allowed : iterable of str
        Accepted values.
    also : str
        Other accepted values, as text appended to the message; the caller checks them.

    Examples
    --------
    >>> check_choice("kernel", "rfb", ["rbf", "linear"])
    Traceback (most recent call last):
    ValueError: unknown kernel 'rfb': choose one of 'linear', 'rbf'. Did you mean 'rbf'?
    """
    choices = sorted(allowed)
    if value in choices:
        return
    listed = list_names(choices) + (f", or {also}" if also else "")
    raise ValueError(
        f"unknown {name} {value!r}: choose one of {listed}.{did_you_mean(value, choices)}"
    )


def list_names(names: Sequence[object]) -> str:
    """Return names in quotes; of very many, the first ones and how many more there are.

    Examples
    --------
    >>> list_names(["a", "b"]), list_names(range(10_000))[-17:]
    ("'a', 'b'", '49 and 9,950 more')
    """
    listed = ", ".join(map(_short_repr, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"{listed} and {more:,} more" if more > 0 else listed


def _short_repr(name: object) -> str:
    """Return a name in quotes; the header of a file that is no table can be megabytes."""
    is_long = isinstance(name, str) and len(name) > _LONGEST_LISTED
    return repr(printable(name, _LONGEST_LISTED)) if is_long else repr(name)


def error_text(error: Exception) -> str:
    """Return the message of an error to show: safe, and no longer than a page.

    Names of columns and cells stand in messages, and those of a file can be of any length.
    """
    text = str(error)
    short = text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
    return printable(short)


def did_you_mean(value: object, allowed: Sequence[str]) -> str:
    """Return the end of a message: the allowed name nearest to ``value``, if any is.

    Examples
    --------
    >>> did_you_mean("sphre", ["sphere", "torus"])
    " Did you mean 'sphere'?"
    >>> did_you_mean("ID", ["id", "age"])
    " Did you mean 'id'?"
    """
    text = str(value)
    if len(text) > _LONGEST_GUESS:
        return ""
    near = get_close_matches(text, allowed, n=1)
    if not near:  # ID and id have no letter in common
        by_case = {name.casefold(): name for name in allowed}
        folded = get_close_matches(text.casefold(), list(by_case), n=1)
        near = [by_case[name] for name in folded]
    return f" Did you mean {near[0]!r}?" if near else ""


def reason_of(error: Exception) -> str:
    """Return the text of another library's error, without its full stop."""
    return str(error).rstrip(". \n")


def check_at_least(name: str, value: float, least: float) -> None:
    """Raise ``ValueError`` unless ``value >= least``."""
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}.")


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise ``ValueError`` unless ``value`` is a whole number in these bounds.

    Examples
    --------
    >>> check_whole("n_splits", 2.5, 2)
    Traceback (most recent call last):
    ValueError: n_splits must be a whole number of at least 2, got 2.5.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    number = cast("int", value)
    if not (is_whole and least <= number and (most is None or number <= most)):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {bounds}, got {value!r}.")


def check_positive(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is a positive, finite number."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive, finite number, got {value!r}.")


def check_device(device: str) -> None:
    """Raise ``ValueError`` unless torch can use this device."""
    import torch

    try:
        torch.zeros(1, device=device).item()  # "meta" has tensors, and no numbers in them
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        if reason.startswith("Expected one of"):  # a list of all that torch was made for
            reason = "torch knows no such device."
        raise ValueError(
            f"device {device!r} cannot be used here, 'cpu' always can: {reason}"
        ) from error


_BIDIRECTIONAL = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Kinds of characters that change the order in which text is shown."""

_PLAIN = re.compile(r"[ -~\n]*")


def printable(value: object, most: int | None = None) -> str:
    r"""Return a text in which control characters are written out.

    Names of classes, columns and files come with the data: an escape code among them could
    move the cursor, change the title of the terminal, or hide what stands there. A line
    break stays one, except with ``most``, which is for names.

    Parameters
    ----------
    value : object
        Anything; its ``str`` is shown.
    most : int, optional
        Largest number of characters; a longer text ends in an ellipsis.

    Examples
    --------
    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    >>> printable("two\nlines", most=7)
    'two\\nl…'
    """
    text = str(value)
    if most is not None:
        text = text[: most + 1].replace("\n", "\\n")
    if not _PLAIN.fullmatch(text):
        text = "".join(map(_escape, text))
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def _escape(character: str) -> str:
    """Return a character, written out if it is invisible or changes the order of text."""
    kind = unicodedata.category(character)
    hidden = kind in ("Cc", "Cs", "Zl", "Zp") and character != "\n"
    if hidden or unicodedata.bidirectional(character) in _BIDIRECTIONAL:
        return character.encode("unicode_escape").decode()
    return character
