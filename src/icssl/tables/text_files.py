"""Text files of any encoding and separator: which they have is found out, and said."""

import csv
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from icssl.tables.table_file import ReadOptions, Source
from icssl.tables.table_warning import TableWarning

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
"""Separators that are found out, and their names."""

_MARKS = {  # what some programs put before a text, the longest first
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_BINARY = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "an archive or a spreadsheet (.zip, .xlsx)",
    b"\xd0\xcf\x11\xe0": "an old Office file (.xls): save it as .xlsx or .csv",
    b"\x7fELF": "a program",
    b"SQLite format 3": "a database",
    b"\x1f\x8b": "a packed file (.gz)",
    b"PAR1": "a Parquet file (.parquet)",
}
_WESTERN = "cp1252"
_OTHERS = ["cp1250", "cp1251", "cp1253", "shift_jis", "gb18030", "big5", "euc_kr"]
_NAMES = {
    "utf-8-sig": "UTF-8",
    "utf-8": "UTF-8",
    "utf-16": "UTF-16",
    "cp1252": "Windows-1252 (Latin-1)",
}
_SAMPLE = 2**18  # characters from which the separator is found out
_SAMPLE_BYTES = 2**16  # bytes from which an encoding that is no Unicode is found out
_SAMPLE_LINES = 200
_CLEAR_SHARE = 0.8  # of lines as wide as the first: it then is no title


@dataclass(frozen=True)
class DecodedText:
    """The text of a file, and how it was read.

    Parameters
    ----------
    text : str
    encoding : str
        The encoding that was given or found out.
    warnings : tuple of TableWarning
        What is doubtful about it.
    letters : str
        Letters by which a person sees whether a guess is right.
    """

    text: str
    encoding: str
    warnings: tuple[TableWarning, ...] = ()
    letters: str = ""

    @property
    def encoding_name(self) -> str:
        """The name of the encoding as people know it, and the letters that it gives."""
        name = _NAMES.get(self.encoding, self.encoding)
        return f"{name} with the letters {self.letters}" if self.letters else name


def kind_of_bytes(content: bytes) -> str:
    """Return what a file looks like that is no text, by its first bytes, if that is known.

    Examples
    --------
    >>> kind_of_bytes(b"%PDF-1.7"), kind_of_bytes(b"a,b")
    ('a PDF document', '')
    """
    kinds = (kind for start, kind in _BINARY.items() if content.startswith(start))
    return next(kinds, "")


def decode(source: Source, options: ReadOptions) -> DecodedText:
    """Return the text of a file; refuse a file that is no text in one sentence."""
    with source.open() as file:
        content = file.read()
    kind = kind_of_bytes(content)
    if kind and options.encoding is None:
        raise ValueError(f"{source.name} is no table in text: it looks like {kind}.")
    if options.encoding is not None:
        decoded = _decode_as(source.name, content, options.encoding)
    else:
        decoded = _decode_guessed(content)
    if "\0" in decoded.text:
        raise ValueError(
            f"{source.name} is no table in text: it has zero bytes, as programs and "
            "pictures have. If it is a table, save it as text in UTF-8."
        )
    return decoded


def _decode_as(name: str, content: bytes, encoding: str) -> DecodedText:
    known = {"utf-8": "utf-8-sig", "utf8": "utf-8-sig"}.get(encoding.lower(), encoding)
    try:
        return DecodedText(content.decode(known), encoding)
    except UnicodeError as error:
        raise ValueError(f"{name} is not text in {encoding}: {error}.") from error


def _decode_guessed(content: bytes) -> DecodedText:
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            try:
                return DecodedText(content.decode(encoding), encoding)
            except UnicodeError:
                break
    zeros = content.count(0)  # of letters of ASCII, every second byte is one
    if zeros > len(content) / 4 and len(content) % 2 == 0:
        order = "utf-16-le" if content[1] == 0 else "utf-16-be"
        return DecodedText(content.decode(order, "replace"), order)
    try:
        return DecodedText(content.decode("utf-8-sig"), "utf-8")
    except UnicodeDecodeError:
        pass
    return _decode_lines(content) or _decode_old(content)


def _decode_lines(content: bytes) -> DecodedText | None:
    """Return a text in which lines are UTF-8 and others Western, else None.

    A Western line is hardly ever UTF-8 by chance; lines of other languages may be, so that
    these lines must be fewer.
    """
    lines = content.splitlines(keepends=True)
    plain, unicode, other = 0, 0, []
    for number, line in enumerate(lines, start=1):
        if line.isascii():
            plain += 1
        elif _is_utf8(line):
            unicode += 1
        else:
            other.append(number)
    if not unicode or (unicode <= len(other) and _other_language(content)):
        return None
    text = "".join(
        line.decode("utf-8-sig" if _is_utf8(line) else _WESTERN, "replace")
        for line in lines
    )
    warning = TableWarning(
        f"the file mixes encodings: {len(other):,} of its lines, the first is line "
        f"{other[0]:,}, are not UTF-8 and are read as {_NAMES[_WESTERN]}.",
        "encoding",
        [_WESTERN],
    )
    return DecodedText(text, "utf-8", (warning,))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decode_old(content: bytes) -> DecodedText:
    """Return a text in an encoding of one language; most tables are Western."""
    encoding = _other_language(content) or _WESTERN
    text = content.decode(encoding, "replace")
    odd = sorted({character for character in text if ord(character) > 127})
    return DecodedText(text, encoding, letters="".join(odd[:12]))


def _other_language(content: bytes) -> str | None:
    """Return the encoding of a language that is not written in Latin letters, if it is."""
    from charset_normalizer import from_bytes

    best = from_bytes(content[:_SAMPLE_BYTES], cp_isolation=[_WESTERN, *_OTHERS]).best()
    if best is None or best.encoding not in _OTHERS:
        return None
    letters = [c for c in str(best)[:_SAMPLE] if ord(c) > 127 and c.isalpha()]
    foreign = sum(ord(character) > 0x024F for character in letters)  # beyond Latin
    return best.encoding if len(letters) > 20 and foreign > len(letters) / 2 else None


def named_separator(text: str | None) -> str | None:
    r"""Return the separator that a person types; the word tab and ``\\t`` are a tab.

    Examples
    --------
    >>> named_separator("tab"), named_separator("\\t"), named_separator(";")
    ('\t', '\t', ';')
    """
    return "\t" if text is not None and text.lower() in ("tab", "\\t") else text


def guess_separator(text: str) -> str:
    r"""Return the separator by which most of the first lines have the same cells.

    Examples
    --------
    >>> guess_separator("a;b\n1,5;2\n3,5;4\n")
    ';'
    >>> guess_separator("a\n1\n")
    ','
    """
    sample = text[:_SAMPLE]
    lines = sample.splitlines(keepends=True)[:_SAMPLE_LINES]
    if len(lines) > 2 and len(sample) < len(text):
        lines = lines[:-1]  # it may be cut
    widths = {one: _widths(lines, one) for one in SEPARATORS}
    best, found = (0.0, 0), ","
    for separator, counts in widths.items():
        if counts and counts[0] > 1:
            share = counts.count(counts[0]) / len(counts)
            if (share, counts[0]) > best:
                best, found = (share, counts[0]), separator
    if best[0] >= _CLEAR_SHARE:
        return found
    # The first line may be a title: then most lines decide.
    for separator, counts in widths.items():
        common = Counter(count for count in counts if count > 1).most_common(1)
        for width, times in common:
            if (times / len(counts), width) > best:
                best, found = (times / len(counts), width), separator
    return found


def _widths(lines: list[str], separator: str) -> list[int]:
    """Return how many cells every line has that is not blank."""
    try:
        rows = list(islice(csv.reader(lines, delimiter=separator), _SAMPLE_LINES))
    except csv.Error:
        return []
    return [len(row) for row in rows if row]
