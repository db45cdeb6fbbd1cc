"""Map the predictions of a split to steps, rows and columns of the global batch.

An epoch is one stream of predictions, n+1 for a sentence of n words, in the order of its blocks: a
seeded permutation, or their order on disk. Two layouts cut it into rows:

- `CutRows`, the default: the stream is cut into R rows whose lengths differ by at most one, and a
  step of a row is a slice at a computed position. Reaching any step takes the same time.
- `DealtRows`, the layout of the original implementation, for parity with it: each row takes the
  next sentence of the stream when it has used up its current one. The position of a step depends on
  all steps before it, so jumping to step s costs s steps.

Both return slots (2, rows, time): inputs (lexicon ids) and targets (softmax ids, or IGNORED).
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bilm.corpus.global_batch import GlobalBatch
from bilm.corpus.predictions import BlockStream, Place, Slots
from bilm.text.vocabulary import IGNORED

_CHUNK_PREDICTIONS = 1 << 16  # slots gathered at once, to amortize the Python overhead

_CHUNKS_KEPT = 4

DEALT_STEPS_KEPT = 64


class CutRows:
    """The stream cut into rows: row r of R reads predictions r*N//R up to (r+1)*N//R.

    All rows read `width` = ceil(N/R) predictions. Rows that own one fewer end with the first
    prediction of the next row: an input whose target is IGNORED, since it belongs to the next row.
    (The last row always owns `width`, so that prediction exists.)
    """

    def __init__(self, stream: BlockStream, batch: GlobalBatch, rows: range) -> None:
        self._stream = stream
        self._unroll = batch.unroll
        self._rows = rows
        total = stream.num_predictions
        self._starts = np.array([row * total // batch.rows for row in range(batch.rows + 1)])
        self._width = -(-total // batch.rows)
        self.steps_per_epoch = -(-self._width // batch.unroll)
        self._chunk_steps = max(1, _CHUNK_PREDICTIONS // (len(rows) * batch.unroll))
        self._chunks: OrderedDict[tuple[int, int], Slots] = OrderedDict()  # by epoch and number
        self._lock = threading.Lock()

    def epoch(self, step: int) -> int:
        """Return the epoch of a step."""
        return step // self.steps_per_epoch

    def slots(self, step: int) -> Slots:
        """Return the slots of a step: (2, rows, time)."""
        epoch, step = divmod(step, self.steps_per_epoch)
        chunk, step = divmod(step, self._chunk_steps)
        with self._lock:
            slots = self._chunks.get((epoch, chunk))
            if slots is None:
                slots = self._gather(epoch, chunk)
                self._chunks[epoch, chunk] = slots
                if len(self._chunks) > _CHUNKS_KEPT:
                    self._chunks.popitem(last=False)
        return slots.columns(step * self._unroll, (step + 1) * self._unroll)

    def places(self, step: int, row: int) -> list[Place]:
        """Return the sentences that a row reads at a step."""
        epoch, step = divmod(step, self.steps_per_epoch)
        places = []
        with self._lock:
            order, borders = self._stream.epoch(epoch)
            start = int(self._starts[row]) + step * self._unroll
            stop = min(start + self._unroll, int(self._starts[row]) + self._width)
            index = int(np.searchsorted(borders, start, side="right")) - 1
            while start < stop:
                block = int(order[index])
                end = min(stop, int(borders[index + 1]))
                span = np.array([start, end - 1]) - borders[index]
                sentences = np.searchsorted(self._stream.sentence_starts(block), span, "right") - 1
                places.append(self._stream.place(block, *sentences.tolist()))
                start, index = end, index + 1
        return places

    def _gather(self, epoch: int, chunk: int) -> Slots:
        """Return the slots of several steps: (2, rows, time)."""
        order, borders = self._stream.epoch(epoch)
        first = chunk * self._chunk_steps * self._unroll
        width = min(self._chunk_steps * self._unroll, self._width - first)
        slots = Slots.empty(len(self._rows), width)
        starts = self._starts[self._rows.start : self._rows.stop] + first
        indices = np.searchsorted(borders, starts, side="right") - 1
        for row, (start, index) in enumerate(zip(starts.tolist(), indices.tolist(), strict=True)):
            done = 0
            while done < width:
                offset = start + done - int(borders[index])
                part = self._stream.slots(int(order[index])).columns(offset, offset + width - done)
                slots.write(row, done, part)
                done += part.width
                index += 1
        if first + width == self._width:
            lengths = np.diff(self._starts)[self._rows.start : self._rows.stop]
            slots.targets[:, lengths < self._width, -1] = IGNORED
        return slots


class _Sentence(NamedTuple):
    """A sentence, or the part of it that a row has not read yet."""

    slots: Slots  # (2, predictions)
    place: Place


class _DealtStep(NamedTuple):
    """The slots of all rows at one step, and the sentences that each row reads."""

    slots: Slots  # (2, rows, time)
    places: list[list[Place]]  # by row


class DealtRows:
    """Sentences dealt to rows in the order of the stream, which continues across epochs.

    Row by row, each row that has fewer than `unroll` predictions left takes the next sentence until
    it has enough. All rows of the global batch are dealt; only those in `rows` are returned.
    """

    def __init__(self, stream: BlockStream, batch: GlobalBatch, rows: range) -> None:
        self._stream = stream
        self._num_rows = batch.rows
        self._unroll = batch.unroll
        self._rows = rows
        self.steps_per_epoch = -(-stream.num_predictions // (batch.rows * batch.unroll))
        self._lock = threading.RLock()
        self._restart()

    def epoch(self, step: int) -> int:
        """Return the number of complete epochs of predictions that were read before a step."""
        return step * self._num_rows * self._unroll // self._stream.num_predictions

    def slots(self, step: int) -> Slots:
        """Return the slots of a step: (2, rows, time)."""
        with self._lock:
            # Worker threads request steps slightly out of order, so recent steps are kept.
            if step < self._next_step and step not in self._kept:
                self._restart()
            while step >= self._next_step:
                self._deal()
            return self._kept[step].slots.rows(self._rows.start, self._rows.stop)

    def places(self, step: int, row: int) -> list[Place]:
        """Return the sentences that a row reads at a step."""
        with self._lock:
            self.slots(step)
            return self._kept[step].places[row]

    def _restart(self) -> None:
        self._next_step = 0
        self._sentences = self._read_sentences()
        # The unread part of each row's current sentence; empty at first.
        self._rests = [_Sentence(Slots.empty(0), Place("", 0, 0, 0))] * self._num_rows
        self._kept: OrderedDict[int, _DealtStep] = OrderedDict()

    def _deal(self) -> None:
        slots = Slots.empty(self._num_rows, self._unroll)
        places: list[list[Place]] = [[] for _ in range(self._num_rows)]
        for row, rest in enumerate(self._rests):
            done = 0
            while done < self._unroll:
                if rest.slots.width == 0:
                    rest = next(self._sentences)
                part = rest.slots.columns(0, self._unroll - done)
                slots.write(row, done, part)
                places[row].append(rest.place)
                done += part.width
                rest = rest._replace(slots=rest.slots.columns(part.width, rest.slots.width))
            self._rests[row] = rest
        self._kept[self._next_step] = _DealtStep(slots, places)
        self._next_step += 1
        if len(self._kept) > DEALT_STEPS_KEPT:
            self._kept.popitem(last=False)

    def _read_sentences(self) -> Iterator[_Sentence]:
        """Yield the sentences of all epochs, endlessly."""
        for epoch in itertools.count():
            for block in self._stream.epoch(epoch).blocks.tolist():
                slots = self._stream.slots(block)
                borders = [*self._stream.sentence_starts(block).tolist(), slots.width]
                for index, (start, stop) in enumerate(itertools.pairwise(borders)):
                    place = self._stream.place(block, index, index)
                    yield _Sentence(slots.columns(start, stop), place)
