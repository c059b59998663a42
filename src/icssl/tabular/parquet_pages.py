"""What the pages of a Parquet file unpack to, by their own headers.

The footer says so too, and nobody holds it to that: readers allocate what a page's header
says, which can be two gigabytes. Headers are structs in Thrift's compact protocol.
"""

from typing import Any

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_UNCOMPRESSED, _COMPRESSED = 2, 3  # fields of a page's header
_LEAST = 1024  # bytes that a page counts for, so that millions of empty ones are too many
_DEEPEST = 8  # structs in each other; those of pages are three


def page_bytes(content: bytes, chunk: Any, most: int) -> int:
    """Add up the bytes of all pages of a column chunk, until they are more than ``most``.

    Parameters
    ----------
    content : bytes
        The file.
    chunk : pyarrow.parquet.ColumnChunkMetaData
    most : int
    """
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    reader = _Reader(content, start)
    total = 0
    while reader.place < start + chunk.total_compressed_size and total <= most:
        header = reader.read_struct()
        total += max(header.get(_UNCOMPRESSED, 0), _LEAST)
        reader.place += max(header.get(_COMPRESSED, 0), 0)
    return total


class _Reader:
    """A place in some bytes, and what can be read there."""

    def __init__(self, content: bytes, place: int) -> None:
        self._content, self.place = content, place

    def read_struct(self, depth: int = 0) -> dict[int, int]:
        """Read a struct and give its whole numbers by the numbers of their fields."""
        if depth > _DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        numbers: dict[int, int] = {}
        field = 0
        while (kind := (byte := self._byte()) & 15) != _STOP:
            field = field + (byte >> 4) if byte >> 4 else self._integer()
            if kind in _INTEGERS:
                numbers[field] = self._integer()
            elif kind not in (_TRUE, _FALSE):  # these have no value behind them
                self._skip(kind, depth)
        return numbers

    def _skip(self, kind: int, depth: int) -> None:
        if kind == _BYTE:
            self.place += 1
        elif kind == _DOUBLE:
            self.place += 8
        elif kind == _BINARY:
            length = self._varint()
            self.place += length
        elif kind == _STRUCT:
            self.read_struct(depth + 1)
        else:  # headers of pages have no lists and no maps
            raise ValueError(f"the header of a page has a field of kind {kind}")

    def _byte(self) -> int:
        if not 0 <= self.place < len(self._content):
            raise ValueError("a page ends behind the end of the file")
        self.place += 1
        return self._content[self.place - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number in the header of a page is too long")

    def _integer(self) -> int:
        """A number with its sign in the last bit."""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
