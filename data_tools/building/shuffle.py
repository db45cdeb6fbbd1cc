"""Shuffle any number of sentences or documents uniformly, in the memory of one bucket.

Each line (a sentence or a document) is appended to a random bucket, which is a file; then the
buckets are shuffled in memory, one after the other. A random bucket and a random order inside it
give a uniformly random order of all lines. Bucket files are opened for each append and closed
again, so their number is not limited.

Cost: one write and one read of the text as ids (4 bytes per word), about 25 M words per second.
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
    """Yield the `num_words` words of `batches` with sentences or documents (`by`) shuffled."""
    num_buckets = max(1, -(-num_words // bucket_words))
    random = np.random.default_rng([*seed, 0])
    paths = [directory / f"bucket-{index}" for index in range(num_buckets)]
    for batch in batches:
        if by == "sentences":
            ones = np.ones(len(batch.lengths), dtype=np.int32)
            batch = batch._replace(sentences_per_line=ones)
        _scatter(batch, random.integers(num_buckets, size=len(batch.sentences_per_line)), paths)
    for index, path in enumerate(paths):
        if not path.exists():
            continue
        bucket = join(list(read_batches(path, num_words)))
        path.unlink()
        random = np.random.default_rng([*seed, 1, index])
        yield take_lines(bucket, random.permutation(len(bucket.sentences_per_line)))


def _scatter(batch: Sentences, buckets: Positions, paths: list[Path]) -> None:
    """Append each line of `batch` to the file of its bucket."""
    order = np.argsort(buckets, kind="stable")
    ends = np.cumsum(np.bincount(buckets, minlength=len(paths)))
    start = 0
    for path, end in zip(paths, ends.tolist(), strict=True):
        if end > start:
            with open(path, "ab") as file:
                write_record(file, take_lines(batch, order[start:end]))
        start = end


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
