"""Batches for training and evaluation, as a pure function of the step.

`BatchStream.batch(s)` depends only on the corpus and the `GlobalBatch`: not on ranks, threads, or
previous reads. The position in the corpus is therefore the step number, and resuming means
requesting the next step. Every prediction of the corpus is a target exactly once per epoch, in both
directions (docs/corpus.md has the arithmetic).

Both directions read the same sentences at the same slots, so a batch stores the characters of each
of its distinct words once: `char_ids[word_index]` are the characters of every slot.

Cost: one core produces several million predictions per second (benchmarks/loader.py). Memory:
decoded blocks (bilm/corpus/predictions.py), 4 bytes per word type for each thread, and the
lexicon's table.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bilm.corpus.global_batch import SINGLE_RANK, GlobalBatch, Layout, RankShare
from bilm.corpus.lexicon import LEXICON_FILES
from bilm.corpus.predictions import BlockStream, Place
from bilm.corpus.reader import Corpus
from bilm.corpus.row_layouts import DEALT_STEPS_KEPT, CutRows, DealtRows
from bilm.errors import ConfigError, CorpusError
from bilm.files.mapping import Ids
from bilm.text.characters import CharIds
from bilm.text.vocabulary import IGNORED

T = TypeVar("T")

MAX_PREFETCH = DEALT_STEPS_KEPT // 2

_LAYOUTS: dict[Layout, type[CutRows] | type[DealtRows]] = {"cut": CutRows, "dealt": DealtRows}


@dataclass(frozen=True)
class Batch:
    """The data that one rank reads at one step, or at one micro-step if it accumulates gradients.

    Direction 0 is forward, 1 backward. `targets` are softmax ids, or IGNORED where a row of the
    last step of an epoch has one prediction fewer.
    """

    step: int
    micro: int
    epoch: int
    words: Ids  # (distinct words,) lexicon ids, ascending
    char_ids: CharIds  # (distinct words, max_characters)
    word_index: Ids  # (2, rows, time) the input of each slot, as an index into words
    targets: Ids  # (2, rows, time)
    num_predictions: int  # per direction


class BatchStream:
    """The batches of one rank, by step; thread-safe.

    `batch` describes what all ranks read together, and `share` the part of it that this stream
    returns. `verified` states that the files have been checked already (`Corpus.verify`); otherwise
    the lexicon is checked here and each shard before its first use.
    """

    def __init__(
        self,
        corpus: Corpus,
        split: str,
        batch: GlobalBatch,
        share: RankShare = SINGLE_RANK,
        *,
        max_characters: int = 50,
        verified: bool = False,
    ) -> None:
        self.corpus = corpus
        self.split = split
        self.rows = batch.rows
        self.accumulation = share.accumulation
        self._num_rows = share.rows_per_batch(batch.rows, batch.rows_setting)
        self._max_characters = max_characters
        if not verified:
            for name in LEXICON_FILES:
                corpus.files.verify(name)
        stream = BlockStream(corpus, split, batch, verify=not verified)
        self.num_predictions = stream.num_predictions
        self._layout = _LAYOUTS[batch.layout](stream, batch, share.own_rows(batch.rows))
        self._scratch = threading.local()

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps per epoch, rounded up: a dealt epoch can end within a step."""
        return self._layout.steps_per_epoch

    def batch(self, step: int, micro: int = 0) -> Batch:
        """Return the batch of a step, or its micro-batch `micro` if gradients are accumulated."""
        self._check_step(step)
        self.corpus.files.check_unchanged()
        if not 0 <= micro < self.accumulation:
            raise IndexError(
                f"micro is {micro}; it must be in 0..{self.accumulation - 1}, one per micro-batch"
            )
        rows = self._layout.slots(step).rows(micro * self._num_rows, (micro + 1) * self._num_rows)
        words, word_index = self._distinct(rows.inputs)
        targets = rows.targets.copy()
        return Batch(
            step=step,
            micro=micro,
            epoch=self._layout.epoch(step),
            words=words,
            char_ids=self.corpus.lexicon.char_ids(words, self._max_characters),
            word_index=word_index,
            targets=targets,
            num_predictions=int(np.count_nonzero(targets[0] != IGNORED)),
        )

    def read(
        self, start: int = 0, stop: int | None = None, workers: int = 0, prefetch: int = 8
    ) -> Generator[Batch, None, None]:
        """Yield the batches from step `start` up to `stop`, or endlessly, micro-batches in order.

        See `read_as`.
        """
        return self.read_as(lambda batch: batch, start, stop, workers, prefetch)

    def read_as(
        self,
        convert: Callable[[Batch], T],
        start: int = 0,
        stop: int | None = None,
        workers: int = 0,
        prefetch: int = 8,
    ) -> Generator[T, None, None]:
        """Yield the batches like `read`, each converted by the thread that computes it.

        `workers` threads compute up to `prefetch` batches ahead. An error is raised when its batch
        is requested. Closing the iterator stops the threads.
        """
        if workers < 0:
            raise ConfigError(f"workers is {workers}; it must be at least 0")
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise ConfigError(f"prefetch is {prefetch}; it must be in 1..{MAX_PREFETCH}")
        steps = iter(range(start, stop)) if stop is not None else itertools.count(start)
        if self.num_predictions == 0:
            steps = iter(())
        else:
            self._check_step(start)
        parts = ((step, micro) for step in steps for micro in range(self.accumulation))
        if not workers:
            return (convert(self.batch(*part)) for part in parts)
        return _read_ahead(lambda part: convert(self.batch(*part)), parts, workers, prefetch)

    def locate(self, step: int, row: int) -> list[Place]:
        """Return the places in the corpus from which a row of the global batch is read."""
        self._check_step(step)
        if not 0 <= row < self.rows:
            raise IndexError(f"row is {row}; it must be in 0..{self.rows - 1}")
        return self._layout.places(step, row)

    def _distinct(self, inputs: Ids) -> tuple[Ids, Ids]:
        """Return the distinct words of `inputs`, and the index of each input among them.

        Sorting the values and looking up the indices in a table over all types takes half the time
        of `np.unique`, which has to sort the indices as well.
        """
        ordered = np.sort(inputs, axis=None)
        is_first = np.empty(len(ordered), dtype=bool)
        is_first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        words: Ids = ordered[is_first]
        index = self._index_table()
        index[words] = np.arange(len(words), dtype=np.int32)
        return words, index[inputs]

    def _index_table(self) -> npt.NDArray[np.int32]:
        """Return scratch space of the calling thread: one entry per word type."""
        table: npt.NDArray[np.int32] | None = getattr(self._scratch, "table", None)
        if table is None:
            table = self._scratch.table = np.empty(len(self.corpus.lexicon), dtype=np.int32)
        return table

    def _check_step(self, step: int) -> None:
        if step < 0:
            raise IndexError(f"step is {step}; it must be at least 0")
        if self.num_predictions == 0:
            raise CorpusError(
                f"the split {self.split!r} of {self.corpus.path} has no sentences, so it has no "
                "batches; build the corpus with more text"
            )


def _read_ahead(
    make: Callable[[tuple[int, int]], T],
    parts: Iterator[tuple[int, int]],
    workers: int,
    prefetch: int,
) -> Generator[T, None, None]:
    """Yield `make(part)` for all parts; threads compute up to `prefetch` of them ahead."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="bilm-batches")
    pending: deque[Future[T]] = deque()
    try:
        pending.extend(pool.submit(make, p) for p in itertools.islice(parts, prefetch))
        while pending:
            made = pending.popleft().result()
            pending.extend(pool.submit(make, p) for p in itertools.islice(parts, 1))
            yield made
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
