"""bilm/corpus/predictions."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bilm.corpus.reader import Corpus
from bilm.files.reading import Ids
from bilm.text.vocabulary import BEGIN_SENTENCE_ID, END_SENTENCE_ID


@dataclass(frozen=True)
class Place:
    """Some sentences of one block: where a row of a batch came from."""

    shard: str
    block: int
    first_sentence: int
    last_sentence: int

    def __str__(self) -> str:
        return (
            f"{self.shard}, block {self.block}, sentences "
            f"{self.first_sentence} to {self.last_sentence}"
        )


def predictions_of(corpus: Corpus, ids: Ids, lengths: Ids) -> Ids:
    """All predictions of some sentences: slots (4, words + sentences)."""
    sentences = np.arange(len(lengths))
    ends = np.cumsum(lengths, dtype=np.int64)
    first, last = ends - lengths + sentences, ends + sentences  # slots of each sentence
    word = np.arange(len(ids))
    sentence = np.repeat(sentences, lengths)  # (words,)
    slot = word + sentence  # where a word is a target; one later it is the input
    mirror = (2 * ends - lengths - 1)[sentence] - word
    slots = np.empty((4, len(ids) + len(lengths)), dtype=np.int32)
    for direction, words in enumerate((ids, ids[mirror])):
        inputs, targets = slots[direction], slots[2 + direction]
        begin, end = (BEGIN_SENTENCE_ID, END_SENTENCE_ID)[:: 1 - 2 * direction]
        inputs[first] = begin
        inputs[slot + 1] = words
        targets[slot] = corpus.softmax_ids(words)
        targets[last] = end
    return slots


class BlockStream:
    """The blocks of a split as predictions, and their order in each epoch.

    Not thread-safe: the layout that owns it calls it under its lock.
    """

    def __init__(
        self, corpus: Corpus, split: str, seed: int, shuffle: bool, verify: bool, cache_bytes: int
    ) -> None:
        self.corpus = corpus
        self.split = split
        self._seed = seed
        self._shuffle = shuffle
        self._verify = verify
        self._cache_bytes = cache_bytes
        self._sizes = corpus.block_sizes(split).sum(axis=1)  # predictions: words + sentences
        self.num_predictions = int(self._sizes.sum())
        self._epochs: OrderedDict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
        self._epochs = OrderedDict()
        self._decoded: OrderedDict[int, Ids] = OrderedDict()
        self._decoded_bytes = 0

    def epoch(self, epoch: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The blocks in their order, (blocks,), and where each begins and ends, (blocks + 1,)."""
        if epoch not in self._epochs:
            order = np.arange(len(self._sizes))
            if self._shuffle:
                order = np.random.default_rng((self._seed, epoch)).permutation(len(self._sizes))
            borders = np.zeros(len(order) + 1, dtype=np.int64)
            np.cumsum(self._sizes[order], out=borders[1:])
            self._epochs[epoch] = order, borders
            if len(self._epochs) > 2:  # rows stand in one epoch, or at the border of two
                self._epochs.popitem(last=False)
        return self._epochs[epoch]

    def slots(self, block: int) -> Ids:
        """The predictions of a block: (4, predictions)."""
        slots = self._decoded.get(block)
        if slots is not None:
            self._decoded.move_to_end(block)
            return slots
        slots = predictions_of(self.corpus, *self.corpus.block(self.split, block, self._verify))
        self._decoded[block] = slots
        self._decoded_bytes += slots.nbytes
        while self._decoded_bytes > self._cache_bytes and len(self._decoded) > 1:
            self._decoded_bytes -= self._decoded.popitem(last=False)[1].nbytes
        return slots

    def sentence_starts(self, block: int) -> npt.NDArray[np.int64]:
        """The slot at which each sentence of a block begins: where <S> is the forward input."""
        return np.flatnonzero(self.slots(block)[0] == BEGIN_SENTENCE_ID)

    def place(self, block: int, first_sentence: int, last_sentence: int) -> Place:
        """Name some sentences of a block."""
        shard = self.corpus.block_shard(self.split, block)
        return Place(shard, block, first_sentence, last_sentence)
