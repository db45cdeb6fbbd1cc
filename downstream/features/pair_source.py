"""Batches of pairs of texts.

A batch of n pairs is a batch of 2n texts: the first texts of all pairs, and then the second ones.
Heads thus read both with the same code, in one call.
"""

from __future__ import annotations

import numpy as np

from downstream.features.batches import Batch, Ids
from downstream.features.word_ranges import WordRanges


class PairSource:
    """Pairs of the texts of a file; `first` and `second` are the indices of their texts."""

    def __init__(self, texts: WordRanges, first: Ids, second: Ids) -> None:
        self._texts = texts
        self._first = first
        self._second = second

    def __len__(self) -> int:
        return len(self._first)

    @property
    def lengths(self) -> Ids:
        """The number of words of the longer text of each pair, to which both are padded."""
        lengths = np.diff(self._texts.file.offsets)
        longest: Ids = np.maximum(lengths[self._first], lengths[self._second])
        return longest

    def batch(self, indices: Ids) -> Batch:
        """Return the first and then the second texts of the pairs at `indices`."""
        texts = np.concatenate([self._first[indices], self._second[indices]])
        return self._texts.batch([self._texts.file.words_of(i) for i in texts])
