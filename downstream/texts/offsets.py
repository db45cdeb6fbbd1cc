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


def covering_ranges(text: str, words: Sequence[str]) -> list[Range]:
    """Return the range of each word; words that are not in the text share the text between others.

    A tokenizer that normalizes characters returns such words. Only a word without a counterpart,
    such as the mark of a space, has an empty range.
    """
    ranges = word_ranges(text, words)
    start, previous_end = 0, 0
    while start < len(ranges):
        stop = start
        while stop < len(ranges) and ranges[stop].start == ranges[stop].end:
            stop += 1
        if stop > start:
            next_start = ranges[stop].start if stop < len(ranges) else len(text)
            gap = _stripped(text, previous_end, next_start)
            ranges[start:stop] = [gap] * (stop - start)
        if stop < len(ranges):
            previous_end = ranges[stop].end
        start = stop + 1
    return ranges


def _stripped(text: str, start: int, end: int) -> Range:
    """Return the range without white space at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Range(start, end)


def range_of_words(text: str, ranges: Sequence[Range]) -> Range:
    """Return the range of consecutive words, without white space at its ends.

    It is empty if all their ranges are.
    """
    found = [r for r in ranges if r.start < r.end]
    if not found:
        return Range(ranges[0].start, ranges[0].start)
    return _stripped(text, found[0].start, found[-1].end)


def joined_ranges(words: Sequence[str]) -> list[Range]:
    """Return the range of each word in the words joined by spaces."""
    ranges, start = [], 0
    for word in words:
        ranges.append(Range(start, start + len(word)))
        start += len(word) + 1
    return ranges


def _same_length_lower(text: str) -> str:
    """Return the text in lower case, without characters whose lower case is longer."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
