"""Batches of tagged sentences: words with layers and vectors, characters, predicates, tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.text.characters import MIN_CHARACTERS, PADDING, char_ids
from downstream.features.batches import Batch, Ids, WordSource
from downstream.features.plain_words import WordFile
from downstream.features.word_vectors import Table

NO_TAG = -1  # of padding

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


@dataclass(frozen=True)
class TagInputs:
    """The sentence of each example, and the index of its predicate, if the task has predicates."""

    sentences: Ids
    predicates: Ids | None = None


class TagSource:
    """The examples of a file; several examples may have the same sentence."""

    def __init__(
        self, file: WordFile, table: Table | None, inputs: TagInputs, characters: bool
    ) -> None:
        self._file = file
        self._words = WordSource(file, table)
        self._inputs = inputs
        self._characters = CharacterTable(file.types) if characters else None

    def __len__(self) -> int:
        return len(self._inputs.sentences)

    @property
    def lengths(self) -> Ids:
        lengths: Ids = self._words.lengths[self._inputs.sentences]
        return lengths

    def batch(self, indices: Ids) -> Batch:
        sentences = self._inputs.sentences[indices]
        batch = self._words.batch(sentences)
        extras: dict[str, Tensor] = {}
        assert batch.mask is not None
        if self._characters is not None:
            ids = np.zeros(batch.mask.shape, dtype=np.int64)
            places = [self._file.words_of(i) for i in sentences]
            ids[batch.mask.numpy()] = np.concatenate([self._file.word_ids[p] for p in places])
            extras |= self._characters.extras(ids)
        if self._inputs.predicates is not None:
            is_predicate = torch.zeros(batch.mask.shape, dtype=torch.int64)
            predicates = torch.from_numpy(self._inputs.predicates[indices])
            extras["predicates"] = is_predicate.scatter(1, predicates.unsqueeze(1), 1)
        return replace(batch, extras=extras)


@dataclass(frozen=True)
class TagTargets:
    """The tags of each example, as written and as indices of labels.

    A tag that the head does not know has the index of an arbitrary label; it counts only in the
    loss on the validation split. Scores compare the tags as written.
    """

    tags: Sequence[tuple[str, ...]]
    ids: Sequence[Ids]

    def __len__(self) -> int:
        return len(self.tags)

    def batch(self, indices: Ids) -> Tensor:
        """Return the label ids (examples, words), with -1 for padding."""
        rows = [self.ids[i] for i in indices]
        result = np.full((len(rows), max(map(len, rows))), NO_TAG, dtype=np.int64)
        for row, ids in zip(result, rows, strict=True):
            row[: len(ids)] = ids
        return torch.from_numpy(result)
