"""Group sentences for computation: windows of a stream, and batches of similar length in a window.

A window bounds the memory of a stream of any length. Within it, sentences are sorted by length, so
that little is computed for padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TypeVar

MIN_ROWS = 16  # matrix products with fewer rows do not fully use a processor

Sentence = TypeVar("Sentence", bound=Sized)  # whose length is its number of words


def windows(sentences: Iterable[Sentence], max_words: int) -> Iterator[list[Sentence]]:
    """Yield lists of consecutive sentences: at most `max_words` words, counting boundary tokens.

    A longer sentence is a window of its own.
    """
    window: list[Sentence] = []
    num_words = 0
    for sentence in sentences:
        size = len(sentence) + 2
        if window and num_words + size > max_words:
            yield window
            window, num_words = [], 0
        window.append(sentence)
        num_words += size
    if window:
        yield window


def length_batches(lengths: Sequence[int], batch_words: int) -> list[list[int]]:
    """Return batches of sentence indices, longest first, with at most `batch_words` words each.

    Padding counts as words. A batch has at least `MIN_ROWS` sentences if there are enough, even if
    they exceed the budget; the caller reads these in chunks.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = []
    start = 0
    while start < len(order):
        rows = max(MIN_ROWS, batch_words // max(lengths[order[start]], 1))
        batches.append(order[start : start + rows])
        start += rows
    return batches
