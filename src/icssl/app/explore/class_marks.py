"""How classes are told apart on the page: by name, colour and symbol."""

import html
from collections.abc import Sequence

from icssl._util.colours import COLOURS
from icssl._util.errors import printable

SYMBOLS = ("circle", "square", "diamond", "cross", "x")
# Without black, invisible on a dark page; five symbols and seven colours make 35 pairs.
PLOT_COLOURS = COLOURS[:7]
UNKNOWN = "#8a8a8a"
_LONGEST_NAME = 40  # characters of a class's name


def colour_of(code: int) -> str:
    """Return the colour of a class."""
    return UNKNOWN if code < 0 else PLOT_COLOURS[code % len(PLOT_COLOURS)]


def symbol_of(code: int) -> str:
    """Return the symbol of a class; with the colour, it tells 35 classes apart."""
    return "circle" if code < 0 else SYMBOLS[code % len(SYMBOLS)]


def class_name(code: int, names: Sequence[str] = ()) -> str:
    """Return the source's name for a class, else a letter, then letter and number.

    Examples
    --------
    >>> class_name(1), class_name(27), class_name(0, ["setosa"]), class_name(-1)
    ('B', 'B2', 'setosa', 'no label')
    """
    if code < 0:
        return "no label"
    if code < len(names):
        return str(names[code])
    letter, again = chr(ord("A") + code % 26), code // 26
    return f"{letter}{again + 1}" if again else letter


def literal_name(code: int, names: Sequence[str] = ()) -> str:
    """Return the name of a class so that plotly finds no tags, entities or templates.

    Examples
    --------
    >>> literal_name(0, ["<b>%{x}"])
    '&lt;b&gt;&#37;{x}'
    """
    text = html.escape(printable(class_name(code, names), _LONGEST_NAME), quote=False)
    return text.replace("%{", "&#37;{")
