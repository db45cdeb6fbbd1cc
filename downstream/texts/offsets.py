"""The character offsets of words in the text that they were tokenized from.

Tokenizers may convert words to lower case, mark spaces (sentencepiece) and remove white space and
control characters. A word is searched for after the previous one, in any case; only characters that
are not letters or digits may be skipped. A word that the text does not contain, because the
tokenizer normalized it, gets an empty range; the word after it may be anywhere in the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_SPACE_MARK = "\u2581"  # of sentencepiece


class Range(NamedTuple):
    """A range of characters of a text; `end` is exclusive."""

    start: int
    end: int


def word_ranges(text: str, words: Sequence[str]) -> list[Range]:
    """Return the range of each word in `text`."""
    lowered = _same_length_lower(text)
    ranges = []
    position, is_lost = 0, False
    for word in words:
        part = _same_length_lower(word.replace(_SPACE_MARK, ""))
        start = lowered.find(part, position)
        while position < len(text) and text[position].isspace():
            position += 1
        skips_letters = any(map(str.isalnum, text[position:start]))
        if start < 0 or (skips_letters and not is_lost):
            start, part = position, ""
        is_lost = not part and bool(word.replace(_SPACE_MARK, ""))
        start = max(start, position)
        position = start + len(part)
        ranges.append(Range(start, position))
    return ranges


def _same_length_lower(text: str) -> str:
    """Return the text in lower case, without characters whose lower case is longer."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
