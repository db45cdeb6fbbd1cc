"""Which sentences are computed together: windows of a stream, and batches of like length in them.

A window bounds the memory of a stream of any length; within it sentences are sorted by length, so
that next to nothing is computed for padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

MIN_ROWS = 16  # fewer rows a step leave a processor's product units idle

Sentence = TypeVar("Sentence", bound=Sequence[str])


def windows(sentences: Iterable[Sentence], max_words: int) -> Iterator[list[Sentence]]:
    """Consecutive sentences of at most `max_words` words in all, border tokens included.

    A longer sentence has a window of its own.
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
    """Indices of sentences by falling length, cut so that a batch has `batch_words` at most.

    Padding counts. Sentences too long for that still come `MIN_ROWS` together; the caller reads
    them in chunks.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches = []
    start = 0
    while start < len(order):
        rows = max(MIN_ROWS, batch_words // max(lengths[order[start]], 1))
        batches.append(order[start : start + rows])
        start += rows
    return batches
