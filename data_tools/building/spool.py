"""Store sentences on disk between counting and writing: records of int32 arrays.

A record is three counts (words, sentences, lines) and the three arrays of `Sentences`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]


class Sentences(NamedTuple):
    """Sentences of one split."""

    ids: Int32  # (words,), all sentences concatenated
    lengths: Int32  # (sentences,), words per sentence
    sentences_per_line: Int32  # (lines,)


_HEADER_BYTES = 3 * 8  # int64: words, sentences, lines


class Spool:
    """An append-only file of sentences; use it as a context manager while writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_words = 0
        self.num_sentences = 0
        self.num_lines = 0
        self._file = open(path, "wb")  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, sentences: Sentences, is_stored: bool = True) -> None:
        """Count the sentences, and write them as one record unless there are none."""
        self.num_words += len(sentences.ids)
        self.num_sentences += len(sentences.lengths)
        self.num_lines += len(sentences.sentences_per_line)
        if is_stored and len(sentences.lengths):
            write_record(self._file, sentences)


def write_record(file: BinaryIO, sentences: Sentences) -> None:
    """Append one record to `file`."""
    header = np.array([len(array) for array in sentences], dtype=np.int64)
    # ndarray.tofile would hide the reason for a failed write (such as a full disk).
    file.write(header.tobytes())
    for array in sentences:
        file.write(array.tobytes())


def read_records(file: BinaryIO, end: int | None = None) -> Iterator[Sentences]:
    """Yield the records of `file` from its position up to the position `end`, or all."""
    while (end is None or file.tell() < end) and (header := file.read(_HEADER_BYTES)):
        sizes = np.frombuffer(header, dtype=np.int64).tolist()
        arrays = [np.frombuffer(file.read(4 * size), dtype=np.int32) for size in sizes]
        yield Sentences(*arrays)


def read_batches(path: Path, batch_words: int) -> Iterator[Sentences]:
    """Yield the records of the file at `path`, joined into batches of at least `batch_words`."""
    batch: list[Sentences] = []
    num_words = 0
    with open(path, "rb") as file:
        for record in read_records(file):
            batch.append(record)
            num_words += len(record.ids)
            if num_words >= batch_words:
                yield join(batch)
                batch, num_words = [], 0
    if batch:
        yield join(batch)


def join(batch: list[Sentences]) -> Sentences:
    """Concatenate several records."""
    if not batch:
        return Sentences(*(np.empty(0, dtype=np.int32) for _ in Sentences._fields))
    return Sentences(*(np.concatenate(arrays) for arrays in zip(*batch, strict=True)))


def part_directory(parent: Path, part: int) -> Path:
    """Return the directory of a part, a bucket or a shard by its number."""
    return parent / f"{part:06d}"
