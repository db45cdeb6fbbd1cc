"""Batches of words with their layers and vectors, and with their characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.text.characters import MIN_CHARACTERS, PADDING, char_ids
from downstream.features.batches import Batch, Ids, WordSource
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


class SpelledWords(WordSource):
    """The texts of a file, with the characters of their words if `characters` is true."""

    def __init__(self, file: WordFile, table: Table | None, characters: bool) -> None:
        super().__init__(file, table)
        self._characters = CharacterTable(file.types) if characters else None

    def batch(self, indices: Ids) -> Batch:
        batch = super().batch(indices)
        if self._characters is None:
            return batch
        assert batch.mask is not None
        ids = np.zeros(batch.mask.shape, dtype=np.int64)
        places = [self._store.words_of(i) for i in indices]
        ids[batch.mask.numpy()] = np.concatenate([self._store.word_ids[p] for p in places])
        return replace(batch, extras=self._characters.extras(ids))
