"""Turn the blocks of a split into predictions, in the order of each epoch.

A sentence of n words yields n+1 predictions, each in both directions at the same slot.

Cost: decoding a block takes about 30 ns per prediction; decoded blocks are cached, 16 bytes per
prediction, up to 256 MiB.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bilm.corpus.global_batch import GlobalBatch
from bilm.corpus.reader import Corpus
from bilm.files.mapping import Ids

_MAX_DECODED_BYTES = 1 << 28

_EPOCHS_KEPT = 2  # the rows of a batch lie in one epoch or in two consecutive ones


class Slots(NamedTuple):
    """Predictions in both directions; direction 0 is forward, 1 backward.

    One array holds inputs and targets, so that a view or a copy of both is one operation.
    """

    data: Ids  # (2, 2, ..., time): inputs and targets, by direction

    @classmethod
    def empty(cls, *shape: int) -> Slots:
        """Return uninitialized slots; `shape` does not include the directions."""
        return cls(np.empty((2, 2, *shape), np.int32))

    @property
    def inputs(self) -> Ids:
        """Lexicon ids (2, ..., time)."""
        inputs: Ids = self.data[0]
        return inputs

    @property
    def targets(self) -> Ids:
        """Softmax ids, or IGNORED (2, ..., time)."""
        targets: Ids = self.data[1]
        return targets

    @property
    def width(self) -> int:
        """The number of predictions per row."""
        width: int = self.data.shape[-1]
        return width

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return self.data.nbytes

    def columns(self, start: int, stop: int) -> Slots:
        """Return the predictions `start` to `stop` of every row, as a view."""
        return Slots(self.data[..., start:stop])

    def rows(self, start: int, stop: int) -> Slots:
        """Return the rows `start` to `stop`, as a view."""
        return Slots(self.data[:, :, start:stop])

    def write(self, row: int, column: int, part: Slots) -> None:
        """Copy `part`, slots (2, predictions), into a row, starting at `column`."""
        self.data[:, :, row, column : column + part.width] = part.data


class EpochOrder(NamedTuple):
    """The order of the blocks in one epoch."""

    blocks: npt.NDArray[np.int64]  # (blocks,)
    borders: npt.NDArray[np.int64]  # (blocks + 1,) block starts in the epoch, and its end


@dataclass(frozen=True)
class Place:
    """Consecutive sentences of one block, from which a row of a batch was read."""

    shard: str
    block: int
    first_sentence: int
    last_sentence: int

    def __str__(self) -> str:
        return (
            f"{self.shard}, block {self.block}, sentences "
            f"{self.first_sentence} to {self.last_sentence}"
        )


def predictions_of(corpus: Corpus, ids: Ids, lengths: Ids) -> Slots:
    """Return all predictions of some sentences: slots (2, words + sentences)."""
    sentences = np.arange(len(lengths))
    ends = np.cumsum(lengths, dtype=np.int64)
    first, last = ends - lengths + sentences, ends + sentences  # slots of each sentence
    word = np.arange(len(ids))
    sentence = np.repeat(sentences, lengths)  # (words,)
    slot = word + sentence  # where a word is the target; it is the input of the next slot
    mirror = (2 * ends - lengths - 1)[sentence] - word
    slots = Slots.empty(len(ids) + len(lengths))
    begin_sentence, end_sentence, _ = corpus.lexicon.special_ids
    forward = (ids, begin_sentence, end_sentence)
    backward = (ids[mirror], end_sentence, begin_sentence)
    for direction, (words, begin, end) in enumerate((forward, backward)):
        inputs, targets = slots.inputs[direction], slots.targets[direction]
        inputs[first] = begin
        inputs[slot + 1] = words
        targets[slot] = corpus.softmax_ids(words)
        targets[last] = end
    return slots


class BlockStream:
    """The blocks of a split as predictions, and their order in each epoch.

    This class is not thread-safe; the layout that owns it holds a lock when calling it.
    """

    def __init__(self, corpus: Corpus, split: str, batch: GlobalBatch, verify: bool) -> None:
        self.corpus = corpus
        self.split = split
        self._seed = batch.seed if batch.shuffle else None
        self._verify = verify
        blocks = corpus.blocks(split)
        self._sizes: npt.NDArray[np.int64] = blocks["words"] + blocks["sentences"]  # predictions
        self.num_predictions = int(self._sizes.sum())
        self._epochs: OrderedDict[int, EpochOrder] = OrderedDict()
        self._decoded: OrderedDict[int, Slots] = OrderedDict()
        self._decoded_bytes = 0

    def epoch(self, epoch: int) -> EpochOrder:
        """Return the order of the blocks in an epoch."""
        if epoch not in self._epochs:
            order = np.arange(len(self._sizes))
            if self._seed is not None:
                order = np.random.default_rng((self._seed, epoch)).permutation(len(self._sizes))
            borders = np.zeros(len(order) + 1, dtype=np.int64)
            np.cumsum(self._sizes[order], out=borders[1:])
            self._epochs[epoch] = EpochOrder(order, borders)
            if len(self._epochs) > _EPOCHS_KEPT:
                self._epochs.popitem(last=False)
        return self._epochs[epoch]

    def slots(self, block: int) -> Slots:
        """Return the predictions of a block: slots (2, predictions)."""
        slots = self._decoded.get(block)
        if slots is not None:
            self._decoded.move_to_end(block)
            return slots
        slots = predictions_of(self.corpus, *self.corpus.block(self.split, block, self._verify))
        self._decoded[block] = slots
        self._decoded_bytes += slots.nbytes
        while self._decoded_bytes > _MAX_DECODED_BYTES and len(self._decoded) > 1:
            self._decoded_bytes -= self._decoded.popitem(last=False)[1].nbytes
        return slots

    def sentence_starts(self, block: int) -> npt.NDArray[np.int64]:
        """Return the slot at which each sentence of a block starts: its forward input is `<S>`."""
        begin_sentence = self.corpus.lexicon.special_ids.begin_sentence
        return np.flatnonzero(self.slots(block).inputs[0] == begin_sentence)

    def place(self, block: int, first_sentence: int, last_sentence: int) -> Place:
        """Return the place of some sentences of a block."""
        shard = self.corpus.block_shard(self.split, block)
        return Place(shard, block, first_sentence, last_sentence)
