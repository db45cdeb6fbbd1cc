"""Batches of ranges of words of a file: their layers, vectors and characters.

A range may be a sentence, several consecutive ones, or a part of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.text.characters import MIN_CHARACTERS, PADDING, char_ids
from downstream.features.batches import Batch, word_batch
from downstream.features.plain_words import WordFile
from downstream.features.word_vectors import Table

MAX_CHARACTERS = 50


class CharacterTable:
    """The character ids of word types, from which a batch takes each of its types once."""

    def __init__(self, types: Sequence[str]) -> None:
        self._ids = char_ids(types, MAX_CHARACTERS)
        self._lengths = (self._ids != PADDING).sum(axis=1)

    def extras(self, word_ids: npt.NDArray[np.int64]) -> dict[str, Tensor]:
        """Return the character ids (types, characters), and the type of each word."""
        types, index = np.unique(word_ids, return_inverse=True)
        longest = max(MIN_CHARACTERS, int(self._lengths[types].max()))
        rows = self._ids[types, :longest].astype(np.int64)
        return {
            "characters": torch.from_numpy(rows),
            "character_index": torch.from_numpy(index.reshape(word_ids.shape).astype(np.int64)),
        }


class WordRanges:
    """The words of a file, of which any ranges can be read as a batch.

    `table` has a vector for each type of the file. With `characters`, a batch has the extras of
    `CharacterTable`.
    """

    def __init__(self, file: WordFile, table: Table | None, characters: bool) -> None:
        self.file = file
        self._table = table
        self._characters = CharacterTable(file.types) if characters else None

    def batch(self, ranges: Sequence[slice]) -> Batch:
        """Return a padded batch with one text per range."""
        word_ids = [self.file.word_ids[places] for places in ranges]
        vectors = None if self._table is None else [self._table[ids] for ids in word_ids]
        batch = word_batch([self.file.layers_of(places) for places in ranges], vectors)
        if self._characters is None:
            return batch
        assert batch.mask is not None
        padded = np.zeros(batch.mask.shape, dtype=np.int64)
        padded[batch.mask.numpy()] = np.concatenate(word_ids)
        return replace(batch, extras=self._characters.extras(padded))
