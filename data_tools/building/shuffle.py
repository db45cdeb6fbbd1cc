"""Shuffle any number of sentences or documents uniformly, in workers with the memory of one bucket.

Each line (a sentence or a document) gets a random bucket, and each bucket is shuffled in memory. A
random bucket and a random order inside it give a uniformly random order of all lines. Two tasks:

    scatter_part   sorts the lines of a part by bucket, in runs of about `RUN_WORDS` words
    fill_bucket    collects the lines of a bucket from all parts, and shuffles them

The random numbers are one sequence over all parts; a task starts with its state before the part.
Without a shuffle, `copy_part` writes the lines of each part as one bucket.

Cost: one write and one read of the text as ids (4 bytes per word), about 25 M words per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError
from bilm.files.writing import atomic_directory
from data_tools.building.merging import Ranges
from data_tools.building.spool import (
    Int32,
    Sentences,
    join,
    part_directory,
    read_batches,
    read_records,
    write_record,
)
from data_tools.building.workers import Usage

BUCKET_WORDS = 1 << 21

RUN_WORDS = 1 << 21

_RUNS_FILE = "runs"

# The files of a bucket, both int32.
IDS_FILE, LENGTHS_FILE = "ids.bin", "lengths.bin"

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SplitShuffle:
    """How the lines of a split are shuffled."""

    split: str
    by: str  # "sentences" or "documents"
    seed: tuple[int, ...]
    num_buckets: int

    @classmethod
    def of(cls, split: str, by: str, seed: tuple[int, ...], num_words: int) -> SplitShuffle:
        """Return the shuffle of a split of `num_words` words."""
        return cls(split, by, seed, max(1, -(-num_words // BUCKET_WORDS)))

    def random(self) -> np.random.Generator:
        """Return the source of the buckets of all lines."""
        return np.random.default_rng([*self.seed, 0])

    def states(self, num_lines: list[int]) -> list[dict[str, Any]]:
        """Return the state of the source before each part, given the units in each part."""
        random, states = self.random(), []
        for count in num_lines:
            states.append(dict(random.bit_generator.state))
            random.integers(self.num_buckets, size=count)
        return states


@dataclass(frozen=True)
class PartIds:
    """The sentences of an encoded part, and the tables that lead to final ids."""

    part: Path
    ranges: Ranges
    final: Path  # of each type, in the order of their bytes

    def batches(self, split: str) -> Iterator[Sentences]:
        """Yield the sentences of a split with their final ids."""
        final_ids = np.fromfile(self.final, np.int32)[self.ranges.places(self.part)]
        for batch in read_batches(self.part / split, RUN_WORDS):
            yield batch._replace(ids=final_ids[batch.ids])


@dataclass(frozen=True)
class ScatterTask:
    """A part, a shuffle with its state before the part, and the directory to write."""

    ids: PartIds
    shuffle: SplitShuffle
    state: dict[str, Any]
    directory: Path


def scatter_part(task: ScatterTask) -> Usage:
    """Write the lines of a split in runs that are sorted by bucket, and an index of them."""
    if not task.directory.exists():
        with atomic_directory(task.directory, CorpusError, overwrite=True) as directory:
            _scatter(task, directory / _RUNS_FILE)
    return Usage.of_this_process()


def _scatter(task: ScatterTask, path: Path) -> None:
    shuffle, random = task.shuffle, task.shuffle.random()
    random.bit_generator.state = task.state
    with open(path, "wb") as file, open(path.with_suffix(".index"), "wb") as index:
        for batch in task.ids.batches(shuffle.split):
            if shuffle.by == "sentences":
                ones = np.ones(len(batch.lengths), dtype=np.int32)
                batch = batch._replace(sentences_per_line=ones)
            buckets = random.integers(shuffle.num_buckets, size=len(batch.sentences_per_line))
            order = np.argsort(buckets, kind="stable")
            ends = np.cumsum(np.bincount(buckets, minlength=shuffle.num_buckets))
            positions, start = [file.tell()], 0
            for end in ends.tolist():
                if end > start:
                    write_record(file, take_lines(batch, order[start:end]))
                positions.append(file.tell())
                start = end
            index.write(np.array(positions, dtype=np.int64).tobytes())


@dataclass(frozen=True)
class BucketTask:
    """A bucket to collect from the parts in `scattered`, and the directory to write."""

    shuffle: SplitShuffle
    bucket: int
    scattered: Path
    num_parts: int
    directory: Path


def fill_bucket(task: BucketTask) -> Usage:
    """Collect and shuffle the lines of a bucket."""
    if not task.directory.exists():
        shuffle, records = task.shuffle, list[Sentences]()
        for part in range(task.num_parts):
            records += _records_of(part_directory(task.scattered, part) / _RUNS_FILE, task)
        bucket = join(records)
        random = np.random.default_rng([*shuffle.seed, 1, task.bucket])
        order = random.permutation(len(bucket.sentences_per_line))
        with atomic_directory(task.directory, CorpusError, overwrite=True) as directory:
            _write_bucket(directory, [take_lines(bucket, order)])
    return Usage.of_this_process()


def _records_of(path: Path, task: BucketTask) -> Iterator[Sentences]:
    """Yield the lines of the bucket in one part, run by run."""
    index_file = path.with_suffix(".index")
    if not index_file.stat().st_size:
        return
    index = np.memmap(index_file, np.int64, mode="r").reshape(-1, task.shuffle.num_buckets + 1)
    with open(path, "rb") as file:
        for start, end in index[:, task.bucket : task.bucket + 2].tolist():
            file.seek(start)
            yield from read_records(file, end)


@dataclass(frozen=True)
class CopyTask:
    """A split of a part to write as a bucket, in the order of the text."""

    ids: PartIds
    split: str
    directory: Path


def copy_part(task: CopyTask) -> Usage:
    """Write the lines of a part as a bucket."""
    if not task.directory.exists():
        with atomic_directory(task.directory, CorpusError, overwrite=True) as directory:
            _write_bucket(directory, task.ids.batches(task.split))
    return Usage.of_this_process()


def _write_bucket(directory: Path, batches: Iterator[Sentences] | list[Sentences]) -> None:
    with open(directory / IDS_FILE, "wb") as ids, open(directory / LENGTHS_FILE, "wb") as lengths:
        for batch in batches:
            ids.write(batch.ids.tobytes())
            lengths.write(batch.lengths.tobytes())


def take_lines(sentences: Sentences, order: Positions) -> Sentences:
    """Return the lines of `sentences` at the positions `order`, in that order."""
    by_sentence = _spread(sentences.sentences_per_line, order)
    by_word = _spread(sentences.lengths, by_sentence)
    return Sentences(
        ids=sentences.ids[by_word],
        lengths=sentences.lengths[by_sentence],
        sentences_per_line=sentences.sentences_per_line[order],
    )


def _spread(sizes: Int32, order: Positions) -> Positions:
    """Return the positions of the members of groups of `sizes`, with the groups in `order`."""
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    taken = sizes[order]
    ends = np.cumsum(taken, dtype=np.int64)
    shift = starts[order] - (ends - taken)
    return np.repeat(shift, taken) + np.arange(ends[-1] if len(ends) else 0)
