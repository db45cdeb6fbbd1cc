"""Read the elements of a JSON array, such as a .json file of strings or objects, one at a time.

Cost: the largest element in memory, regardless of the size of the file. An element of more than
16 MiB is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from bilm.errors import CorpusError
from bilm.text.lines import MAX_LINE_BYTES, LineReader

_SPACE = re.compile(r"[ \t\r\n]*")


def json_items(
    reader: LineReader, pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Iterator[Any]:
    """Yield the elements of the array in the reader's file.

    `pairs_hook` is the `object_pairs_hook` of the json module; it may raise a ValueError.
    """
    path, array = reader.path, _ArrayText(reader.pieces())
    if array.peek() != "[":
        raise CorpusError(
            f"{path} does not contain a JSON array; if each of its lines is a JSON object, use "
            "--format jsonl"
        )
    array.position += 1
    number, mark = 0, array.peek()
    if mark == "]":
        array.position += 1
    decoder = json.JSONDecoder(object_pairs_hook=pairs_hook)
    while mark != "]":
        number += 1
        try:
            yield array.value(decoder)
        except (ValueError, RecursionError) as e:
            raise CorpusError(f"{path}, item {number} is not valid JSON: {e}") from None
        mark = array.peek()
        array.position += 1
        if mark not in ("]", ","):
            raise CorpusError(
                f"{path}, item {number} is followed by {mark or 'the end of the file'!r}; expected "
                "a comma, or ] at the end of the array"
            )
    if array.peek():
        raise CorpusError(f"{path} has text after the end of its JSON array; remove it")


class _ArrayText:
    """The part of the text that has been read but not parsed."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.position = 0
        self._pieces = pieces
        self._text = ""

    def peek(self) -> str:
        """Return the next character that is not white space, or "" at the end."""
        while True:
            match = _SPACE.match(self._text, self.position)
            assert match is not None  # it matches the empty string
            self.position = match.end()
            if self.position < len(self._text):
                return self._text[self.position]
            if not self._read_more():
                return ""

    def value(self, decoder: json.JSONDecoder) -> Any:
        """Parse the next value, reading on until it is complete."""
        self.peek()
        while True:
            error: json.JSONDecodeError | None = None
            try:
                value, end = decoder.raw_decode(self._text, self.position)
            except json.JSONDecodeError as e:
                error = e
            # A number at the end of the text may continue in the next piece.
            if error is None and end < len(self._text):
                self.position = end
                return value
            if len(self._text) - self.position > MAX_LINE_BYTES:
                raise error or ValueError(f"it has more than {MAX_LINE_BYTES:,} characters")
            if not self._read_more():
                raise error or ValueError("the array is not closed")

    def _read_more(self) -> bool:
        """Drop what has been parsed, and at least double the rest; False at the end of the file."""
        parts = [self._text[self.position :]]
        wanted = max(1, len(parts[0]))
        for piece in self._pieces:
            parts.append(piece)
            wanted -= len(piece)
            if wanted <= 0:
                break
        self._text, self.position = "".join(parts), 0
        return len(self._text) > len(parts[0])
