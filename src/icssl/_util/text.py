"""Text that came with the data, made safe to show."""

import re
import unicodedata

_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Characters by which text is shown in another order than it is stored."""

_PLAIN = re.compile(r"[ -~\n]*")


def printable(value: object, most: int | None = None) -> str:
    r"""Return a text in which control characters are written out.

    Names of classes, columns and files come with the data: an escape code among them could
    move the cursor, change the title of the terminal, or hide what stands there. A line
    break stays one, except with ``most``, which is for names.

    Parameters
    ----------
    value : object
        Its ``str`` is shown.
    most : int, optional
        Characters that are shown; a longer text ends in an ellipsis.

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
        text = "".join(map(_shown, text))
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def _shown(character: str) -> str:
    kind = unicodedata.category(character)
    hidden = kind in ("Cc", "Cs", "Zl", "Zp") and character != "\n"
    if hidden or unicodedata.bidirectional(character) in _TURNS:
        return character.encode("unicode_escape").decode()
    return character
