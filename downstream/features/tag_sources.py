"""Batches of tagged sentences: words with layers and vectors, characters, predicates, tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from downstream.features.batches import Batch, Ids
from downstream.features.word_ranges import WordRanges

NO_TAG = -1  # of padding


@dataclass(frozen=True)
class TagInputs:
    """The sentence of each example, and the index of its predicate, if the task has predicates."""

    sentences: Ids
    predicates: Ids | None = None


class TagSource:
    """The examples of a file; several examples may have the same sentence."""

    def __init__(self, words: WordRanges, inputs: TagInputs) -> None:
        self._words = words
        self._lengths = np.diff(words.file.offsets)
        self._inputs = inputs

    def __len__(self) -> int:
        return len(self._inputs.sentences)

    @property
    def lengths(self) -> Ids:
        lengths: Ids = self._lengths[self._inputs.sentences]
        return lengths

    def batch(self, indices: Ids) -> Batch:
        file = self._words.file
        batch = self._words.batch([file.words_of(i) for i in self._inputs.sentences[indices]])
        if self._inputs.predicates is None:
            return batch
        assert batch.mask is not None
        is_predicate = torch.zeros(batch.mask.shape, dtype=torch.int64)
        predicates = torch.from_numpy(self._inputs.predicates[indices])
        marked = is_predicate.scatter(1, predicates.unsqueeze(1), 1)
        return replace(batch, extras={**batch.extras, "predicates": marked})


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
