"""Where each prediction of a split stands: in which step, row and column of the global batch.

An epoch is one stream of predictions, n+1 for a sentence of n words, in the order of its blocks: a
seeded permutation of them, or their natural order. Two layouts make rows of it:

- `CutRows`, the default: the stream is cut into R rows of equal length, give or take one, and step
  s of a row is a slice at a computed place. Any step is at hand in the same time.
- `DealtRows`, the original's way, for parity with it: rows take whole sentences from the stream by
  turns, whenever one runs empty. The place of a step depends on all steps before it, so a jump to
  step s costs s steps.

Both give slots: int32 (4, rows, time), the planes being forward inputs, backward inputs (lexicon
ids), forward targets, backward targets (softmax ids, or IGNORED).

Cost: decoding a block takes about 30 ns a prediction; decoded blocks are kept, 16 bytes a
prediction, within `cache_bytes`.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from bilm.corpus.predictions import BlockStream, Place
from bilm.files.reading import Ids
from bilm.text.vocabulary import IGNORED

_CHUNK_PREDICTIONS = 1 << 16  # slots gathered at once, so that Python's share of the time is small

_CHUNKS_KEPT = 4

DEALT_STEPS_KEPT = 64


class CutRows:
    """The stream cut into rows: row r of R reads predictions r*N//R up to (r+1)*N//R.

    All rows read `width` = ceil(N/R) predictions. Those that own one fewer end on the first
    prediction of the next row: an input whose target is IGNORED, since it is the next row's.
    (The last row always owns `width`, so that prediction exists.)
    """

    def __init__(self, stream: BlockStream, num_rows: int, unroll: int, rows: range) -> None:
        self._stream = stream
        self._unroll = unroll
        self._rows = rows
        total = stream.num_predictions
        self._starts = np.array([row * total // num_rows for row in range(num_rows + 1)])
        self._width = -(-total // num_rows)
        self.steps_per_epoch = -(-self._width // unroll)
        self._chunk_steps = max(1, _CHUNK_PREDICTIONS // (len(rows) * unroll))
        self._chunks: OrderedDict[tuple[int, int], Ids] = OrderedDict()
        self._lock = threading.Lock()

    def epoch(self, step: int) -> int:
        """The epoch to which a step belongs."""
        return step // self.steps_per_epoch

    def slots(self, step: int) -> Ids:
        """The slots of a step: (4, rows, time)."""
        epoch, step = divmod(step, self.steps_per_epoch)
        chunk, step = divmod(step, self._chunk_steps)
        with self._lock:
            slots = self._chunks.get((epoch, chunk))
            if slots is None:
                slots = self._gather(epoch, chunk)
                self._chunks[epoch, chunk] = slots
                if len(self._chunks) > _CHUNKS_KEPT:
                    self._chunks.popitem(last=False)
        return slots[:, :, step * self._unroll : (step + 1) * self._unroll]

    def places(self, step: int, row: int) -> list[Place]:
        """The sentences that a row reads at a step."""
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

    def _gather(self, epoch: int, chunk: int) -> Ids:
        """Several steps of all rows at once: (4, rows, time)."""
        order, borders = self._stream.epoch(epoch)
        first = chunk * self._chunk_steps * self._unroll
        width = min(self._chunk_steps * self._unroll, self._width - first)
        slots = np.empty((4, len(self._rows), width), dtype=np.int32)
        starts = self._starts[self._rows.start : self._rows.stop] + first
        indices = np.searchsorted(borders, starts, side="right") - 1
        for i, (start, index) in enumerate(zip(starts.tolist(), indices.tolist(), strict=True)):
            done = 0
            while done < width:
                offset = start + done - int(borders[index])
                part = self._stream.slots(int(order[index]))[:, offset : offset + width - done]
                slots[:, i, done : done + part.shape[1]] = part
                done += part.shape[1]
                index += 1
        if first + width == self._width:
            lengths = np.diff(self._starts)[self._rows.start : self._rows.stop]
            slots[2:, lengths < self._width, -1] = IGNORED
        return slots


class DealtRows:
    """Sentences dealt to rows in the order of the stream, which goes on over epochs without end.

    Row by row, whoever has less than `unroll` predictions left takes the next sentence, until it
    has enough. So all rows of the global batch are dealt, and those of `rows` are handed out.
    """

    def __init__(self, stream: BlockStream, num_rows: int, unroll: int, rows: range) -> None:
        self._stream = stream
        self._num_rows = num_rows
        self._unroll = unroll
        self._rows = rows
        self.steps_per_epoch = -(-stream.num_predictions // (num_rows * unroll))
        self._lock = threading.RLock()
        self._restart()

    def epoch(self, step: int) -> int:
        """How many epochs' worth of predictions were read before a step."""
        return step * self._num_rows * self._unroll // self._stream.num_predictions

    def slots(self, step: int) -> Ids:
        """The slots of a step: (4, rows, time)."""
        with self._lock:
            # Workers ask slightly out of order; the last steps are kept for those behind.
            if step < self._next_step and step not in self._kept:
                self._restart()
            while step >= self._next_step:
                self._deal()
            return self._kept[step][0][:, self._rows.start : self._rows.stop]

    def places(self, step: int, row: int) -> list[Place]:
        """The sentences that a row reads at a step."""
        with self._lock:
            self.slots(step)
            dealt = self._kept[step][1][row]
            return [self._stream.place(block, sentence, sentence) for block, sentence in dealt]

    def _restart(self) -> None:
        self._next_step = 0
        self._deck = self._sentences()
        nothing = np.empty((4, 0), dtype=np.int32)
        self._hands = [(nothing, (0, 0))] * self._num_rows  # what each row has left, and whence
        self._kept: OrderedDict[int, tuple[Ids, list[list[tuple[int, int]]]]] = OrderedDict()

    def _deal(self) -> None:
        slots = np.empty((4, self._num_rows, self._unroll), dtype=np.int32)
        places: list[list[tuple[int, int]]] = [[] for _ in range(self._num_rows)]
        for row, (rest, place) in enumerate(self._hands):
            done = 0
            while done < self._unroll:
                if rest.shape[1] == 0:
                    rest, place = next(self._deck)
                part = rest[:, : self._unroll - done]
                slots[:, row, done : done + part.shape[1]] = part
                places[row].append(place)
                done += part.shape[1]
                rest = rest[:, part.shape[1] :]
            self._hands[row] = rest, place
        self._kept[self._next_step] = slots, places
        self._next_step += 1
        if len(self._kept) > DEALT_STEPS_KEPT:
            self._kept.popitem(last=False)

    def _sentences(self) -> Iterator[tuple[Ids, tuple[int, int]]]:
        """Sentence after sentence, epoch after epoch: slots (4, predictions), block and number."""
        for epoch in itertools.count():
            for block in self._stream.epoch(epoch)[0].tolist():
                borders = self._stream.sentence_starts(block)[1:]
                parts = np.split(self._stream.slots(block), borders, axis=1)
                yield from ((part, (block, sentence)) for sentence, part in enumerate(parts))
