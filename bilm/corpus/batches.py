"""Batches for training and evaluation, as a pure function of the step.

`BatchStream.batch(s)` depends on the corpus, the seed, the number of rows of the *global* batch and
the unroll, on nothing else: not on ranks, threads, or what was read before. So the position in the
corpus is the step number, and to resume is to ask for the next step. Every prediction of the
corpus is a target exactly once an epoch, in both directions (docs/corpus.md has the arithmetic).

Both directions read the same sentences at the same slots, so that a batch needs the characters of
each of its distinct words once: `char_ids[inverse]` are those of every slot.

Cost: one core makes some millions of predictions a second (benchmarks/loader.py). Memory: decoded
blocks up to `cache_bytes`, 4 bytes a word type for each thread, and the lexicon's table.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bilm.corpus.lexicon import LEXICON_FILES
from bilm.corpus.predictions import BlockStream, Place
from bilm.corpus.reader import Corpus
from bilm.corpus.row_layouts import DEALT_STEPS_KEPT, CutRows, DealtRows
from bilm.errors import ConfigError, CorpusError
from bilm.files.reading import Ids
from bilm.text.characters import CharIds
from bilm.text.vocabulary import IGNORED

MAX_PREFETCH = DEALT_STEPS_KEPT // 2


@dataclass(frozen=True)
class Batch:
    """What one rank reads at one step (at one of its micro-steps, when it accumulates).

    Direction 0 is forward, 1 backward. `targets` are softmax ids, or IGNORED where a row of the
    last step of an epoch is one prediction short.
    """

    step: int
    micro: int
    epoch: int
    words: Ids  # (distinct words,) lexicon ids, rising
    char_ids: CharIds  # (distinct words, max_characters)
    inverse: Ids  # (2, rows, time) into words: the inputs
    targets: Ids  # (2, rows, time)
    num_predictions: int  # of one direction


class BatchStream:
    """The batches of one rank, by step; thread-safe.

    `rows` counts the rows of the global batch: rank k of `world` reads its k-th part of them, and
    `accumulation` cuts that part into as many micro-batches. `shuffle` permutes the blocks anew
    each epoch; evaluation reads in natural order. `verified` says that the shards have been
    checked already (`Corpus.verify`); otherwise each is checked before its first use.
    """

    def __init__(
        self,
        corpus: Corpus,
        split: str,
        rows: int,
        unroll: int,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        *,
        accumulation: int = 1,
        shuffle: bool = True,
        layout: str = "cut",
        max_characters: int = 50,
        verified: bool = False,
        cache_bytes: int = 1 << 28,
    ) -> None:
        _check_shape(rows, unroll, rank, world, accumulation)
        if seed < 0:
            raise ConfigError(f"seed is {seed}; it must be 0 or more")
        if layout not in _LAYOUTS:
            raise ConfigError(f"layout is {layout!r}; it must be one of {', '.join(_LAYOUTS)}")
        self.corpus = corpus
        self.split = split
        self.rows = rows
        self.unroll = unroll
        self.accumulation = accumulation
        self.max_characters = max_characters
        self._num_rows = rows // world // accumulation  # of one batch
        if not verified:
            for name in LEXICON_FILES:
                corpus.verify_file(name)
        stream = BlockStream(corpus, split, seed, shuffle, not verified, cache_bytes)
        self.num_predictions = stream.num_predictions
        mine = range(rank * rows // world, (rank + 1) * rows // world)
        self._layout = _LAYOUTS[layout](stream, rows, unroll, mine)
        self._scratch = threading.local()

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; of the dealt layout, whose epochs end inside a step, about so many."""
        return self._layout.steps_per_epoch

    def batch(self, step: int, micro: int = 0) -> Batch:
        """The batch of a step; of its `micro`-th part, if gradients are accumulated."""
        self._check_step(step)
        self.corpus.refuse_changes()
        if not 0 <= micro < self.accumulation:
            raise IndexError(f"micro is {micro}; there are {self.accumulation} a step")
        slots = self._layout.slots(step)[:, micro * self._num_rows : (micro + 1) * self._num_rows]
        words, inverse = self._distinct(slots[:2])
        targets = slots[2:].copy()
        return Batch(
            step=step,
            micro=micro,
            epoch=self._layout.epoch(step),
            words=words,
            char_ids=self.corpus.lexicon.char_ids(words, self.max_characters),
            inverse=inverse,
            targets=targets,
            num_predictions=int(np.count_nonzero(targets[0] != IGNORED)),
        )

    def read(
        self, start: int = 0, stop: int | None = None, workers: int = 0, prefetch: int = 8
    ) -> Generator[Batch, None, None]:
        """Batches from step `start` on, in order, to `stop` or without end; micro-batches in turn.

        `workers` threads compute up to `prefetch` batches ahead. An error is raised when its batch
        is asked for. Closing the iterator ends the threads.
        """
        if workers < 0 or not 1 <= prefetch <= MAX_PREFETCH:
            raise ConfigError(
                f"workers is {workers} and prefetch {prefetch}; workers must be 0 or more, and "
                f"prefetch between 1 and {MAX_PREFETCH}"
            )
        steps = iter(range(start, stop)) if stop is not None else itertools.count(start)
        if self.num_predictions == 0:
            steps = iter(())
        else:
            self._check_step(start)
        parts = ((step, micro) for step in steps for micro in range(self.accumulation))
        return self._read_ahead(parts, workers, prefetch) if workers else self._read_here(parts)

    def locate(self, step: int, row: int) -> list[Place]:
        """Where the sentences of a row of the global batch stand in the corpus."""
        self._check_step(step)
        if not 0 <= row < self.rows:
            raise IndexError(f"row is {row}; the global batch has {self.rows}")
        return self._layout.places(step, row)

    def _read_here(self, parts: Iterator[tuple[int, int]]) -> Generator[Batch, None, None]:
        for step, micro in parts:
            yield self.batch(step, micro)

    def _read_ahead(
        self, parts: Iterator[tuple[int, int]], workers: int, prefetch: int
    ) -> Generator[Batch, None, None]:
        pool = ThreadPoolExecutor(workers, thread_name_prefix="bilm-batches")
        pending: deque[Future[Batch]] = deque()
        try:
            pending.extend(pool.submit(self.batch, *p) for p in itertools.islice(parts, prefetch))
            while pending:
                batch = pending.popleft().result()
                pending.extend(pool.submit(self.batch, *p) for p in itertools.islice(parts, 1))
                yield batch
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _distinct(self, inputs: Ids) -> tuple[Ids, Ids]:
        """The distinct words of `inputs`, and the place of each input among them.

        Sorting values and looking places up in a table over all types takes half the time
        of `np.unique`, which must sort the places along.
        """
        ordered = np.sort(inputs, axis=None)
        first = np.empty(len(ordered), dtype=bool)
        first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        words: Ids = ordered[first]
        places = self._places()
        places[words] = np.arange(len(words), dtype=np.int32)
        return words, places[inputs]

    def _places(self) -> npt.NDArray[np.int32]:
        """Scratch space of the calling thread, one entry a word type."""
        places: npt.NDArray[np.int32] | None = getattr(self._scratch, "places", None)
        if places is None:
            places = self._scratch.places = np.empty(len(self.corpus.lexicon), dtype=np.int32)
        return places

    def _check_step(self, step: int) -> None:
        if step < 0:
            raise IndexError(f"step is {step}; steps count from 0")
        if self.num_predictions == 0:
            raise CorpusError(
                f"the split {self.split!r} of {self.corpus.path} has no sentences, hence no "
                "batches; build the corpus with more text"
            )


def _check_shape(rows: int, unroll: int, rank: int, world: int, accumulation: int) -> None:
    for name, value in [("rows", rows), ("unroll", unroll), ("world", world)]:
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
    if not 0 <= rank < world:
        raise ConfigError(f"rank is {rank}; with {world} ranks it must be 0 to {world - 1}")
    if accumulation < 1 or rows % (world * accumulation):
        parts = world * max(1, accumulation)
        nearest = max(parts, round(rows / parts) * parts)
        raise ConfigError(
            f"rows is {rows}, to be shared by {world} ranks of {accumulation} micro-batches each; "
            f"it must be a multiple of {parts}: set rows to {nearest}, or change the others"
        )


_LAYOUTS: dict[str, type[CutRows] | type[DealtRows]] = {"cut": CutRows, "dealt": DealtRows}
