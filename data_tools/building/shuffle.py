"""A uniform shuffle of any number of sentences or documents in the memory of one bucket.

Each unit goes to a bucket drawn at random, each bucket is a file; then one bucket after the other
is shuffled in memory. A random bucket and a random order inside it make a uniformly random order
of all. Bucket files are opened for each append and closed again, so their number has no limit.

Cost: one write and one read of the text as ids (4 bytes a word), about 25 M words a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from data_tools.building.spool import Int32, Sentences, join, read_batches, write_record

BUCKET_WORDS = 1 << 21

Positions = npt.NDArray[np.int64]


def shuffle(
    batches: Iterable[Sentences],
    num_words: int,
    by: str,
    seed: tuple[int, ...],
    directory: Path,
    bucket_words: int = BUCKET_WORDS,
) -> Iterator[Sentences]:
    """The `num_words` words of `batches` with `by` ("sentences" or "documents") shuffled."""
    num_buckets = max(1, -(-num_words // bucket_words))
    random = np.random.default_rng([*seed, 0])
    paths = [directory / f"bucket-{index}" for index in range(num_buckets)]
    for batch in batches:
        if by == "sentences":
            batch = batch._replace(units=np.ones(len(batch.lengths), dtype=np.int32))
        _scatter(batch, random.integers(num_buckets, size=len(batch.units)), paths)
    for index, path in enumerate(paths):
        if not path.exists():
            continue
        bucket = join(list(read_batches(path, num_words)))
        path.unlink()
        random = np.random.default_rng([*seed, 1, index])
        yield take_units(bucket, random.permutation(len(bucket.units)))


def _scatter(batch: Sentences, buckets: Positions, paths: list[Path]) -> None:
    """Append each unit of `batch` to the file of its bucket."""
    order = np.argsort(buckets, kind="stable")
    ends = np.cumsum(np.bincount(buckets, minlength=len(paths)))
    start = 0
    for path, end in zip(paths, ends.tolist(), strict=True):
        if end > start:
            with open(path, "ab") as file:
                write_record(file, take_units(batch, order[start:end]))
        start = end


def take_units(sentences: Sentences, order: Positions) -> Sentences:
    """The units of `sentences` at the positions `order`, in that order."""
    by_sentence = _spread(sentences.units, order)
    by_word = _spread(sentences.lengths, by_sentence)
    return Sentences(sentences.ids[by_word], sentences.lengths[by_sentence], sentences.units[order])


def _spread(sizes: Int32, order: Positions) -> Positions:
    """Positions of the members of groups of these sizes, with the groups in this order."""
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    taken = sizes[order]
    ends = np.cumsum(taken, dtype=np.int64)
    shift = starts[order] - (ends - taken)
    return np.repeat(shift, taken) + np.arange(ends[-1] if len(ends) else 0)
