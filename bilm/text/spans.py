"""Read a span of a plain text file, from the start of one line to the start of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True)
class Span:
    """The bytes of a plain UTF-8 file from the start of a line to the start of another line."""

    start: int
    stop: int
    first_line: int  # the number of the first line


class SpanReader:
    """Reads a span of an open file."""

    def __init__(self, raw: BinaryIO, span: Span) -> None:
        raw.seek(span.start)
        self._raw = raw
        self._left = span.stop - span.start

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end of the span."""
        data = self._raw.read(min(size, self._left))
        self._left -= len(data)
        return data
