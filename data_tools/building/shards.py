"""Write the shards of a split from its buckets, one shard per task.

The blocks of a split, and with them its shards, depend only on the lengths of its sentences, so
this process plans them from the lengths, and workers read the ids, write and hash the shards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bilm.corpus.manifest import MAX_SHARDS, ShardInfo, SplitInfo, shard_name
from bilm.corpus.writer import BLOCK_WORDS, ShardWriter, block_ends
from bilm.errors import CorpusError
from bilm.files.writing import atomic_directory
from data_tools.building.shuffle import IDS_FILE, LENGTHS_FILE
from data_tools.building.spool import Int32, part_directory
from data_tools.building.workers import Usage

_INFO_FILE = "shard.json"


@dataclass(frozen=True)
class Slice:
    """Sentences of a bucket, and the words of these sentences."""

    bucket: Path
    sentences: tuple[int, int]
    words: tuple[int, int]


@dataclass
class ShardPlan:
    """The number of the first block of a shard, and the sentences and words of each block."""

    first_block: int
    blocks: list[tuple[int, int]] = field(default_factory=list)
    num_words: int = 0


@dataclass(frozen=True)
class ShardTask:
    """A shard to write into `directory`, and the ids that count as unknown words."""

    name: str
    plan: ShardPlan
    slices: tuple[Slice, ...]
    directory: Path
    vocabulary_size: int
    unknown_id: int


def plan_shards(buckets: Sequence[Path], shard_words: int) -> list[ShardPlan]:
    """Return the shards of the sentences of all `buckets`, in order."""
    plans: list[ShardPlan] = []
    for number, (sentences, words) in enumerate(_blocks(buckets)):
        if not plans or plans[-1].num_words + words > shard_words:
            if len(plans) == MAX_SHARDS:
                raise CorpusError(
                    f"with {shard_words} words per shard there would be more than "
                    f"{MAX_SHARDS:,} shards; use larger shards"
                )
            plans.append(ShardPlan(number))
        plans[-1].blocks.append((sentences, words))
        plans[-1].num_words += words
    return plans


def _blocks(buckets: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of sentences and words of each block."""
    pending = np.empty(0, dtype=np.int32)
    for bucket in [*buckets, None]:
        if bucket is not None:
            pending = np.concatenate([pending, np.fromfile(bucket / LENGTHS_FILE, np.int32)])
        sentence = word = 0
        for stop, end in block_ends(pending, BLOCK_WORDS, last=bucket is None):
            yield stop - sentence, end - word
            sentence, word = stop, end
        pending = pending[sentence:]


def slices_of(buckets: Sequence[Path], plans: Sequence[ShardPlan]) -> list[tuple[Slice, ...]]:
    """Return the slices of the buckets that contain the sentences of each shard."""
    result: list[tuple[Slice, ...]] = []
    rest = iter(buckets)
    bucket, ends, start = Path(), np.zeros(1, dtype=np.int64), 0
    for plan in plans:
        left, slices = sum(sentences for sentences, _ in plan.blocks), []
        while left:
            if start == len(ends) - 1:
                bucket, start = next(rest), 0
                lengths = np.fromfile(bucket / LENGTHS_FILE, np.int32)
                ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
                continue
            stop = min(len(ends) - 1, start + left)
            slices.append(Slice(bucket, (start, stop), (int(ends[start]), int(ends[stop]))))
            left -= stop - start
            start = stop
        result.append(tuple(slices))
    return result


class _Joined:
    """The int32 values of slices of several files, as one array."""

    def __init__(self, parts: Iterable[tuple[Path, tuple[int, int]]]) -> None:
        self._arrays = [np.memmap(path, np.int32, mode="r")[slice(*span)] for path, span in parts]
        self._position = 0

    def take(self, count: int) -> Int32:
        """Return the next `count` values."""
        taken = []
        while count:
            array = self._arrays[0][self._position : self._position + count]
            taken.append(array)
            count -= len(array)
            self._position += len(array)
            if self._position == len(self._arrays[0]):
                del self._arrays[0]
                self._position = 0
        return taken[0] if len(taken) == 1 else np.concatenate(taken)


def write_shard(task: ShardTask) -> Usage:
    """Write a shard, and its description with the number of unknown words."""
    if not (task.directory / task.name).exists():
        with atomic_directory(task.directory, CorpusError, overwrite=True) as directory:
            info, num_unknown = _write_shard(task, directory / task.name)
            content = {"info": info.model_dump(), "unknown_words": num_unknown}
            (directory / _INFO_FILE).write_text(json.dumps(content), encoding="utf-8")
    return Usage.of_this_process()


def _write_shard(task: ShardTask, path: Path) -> tuple[ShardInfo, int]:
    all_ids = _Joined((part.bucket / IDS_FILE, part.words) for part in task.slices)
    all_lengths = _Joined((part.bucket / LENGTHS_FILE, part.sentences) for part in task.slices)
    writer, num_unknown = ShardWriter(path), 0
    try:
        for number, (num_sentences, num_words) in enumerate(task.plan.blocks):
            ids, lengths = all_ids.take(num_words), all_lengths.take(num_sentences)
            writer.add(f"{task.plan.first_block + number:08d}", ids, lengths)
            is_unknown = (ids >= task.vocabulary_size) | (ids == task.unknown_id)
            num_unknown += int(np.count_nonzero(is_unknown))
        return writer.close(), num_unknown
    finally:
        writer.release()


def shard_tasks(
    split: str, buckets: Sequence[Path], parent: Path, shard_words: int, unknown: tuple[int, int]
) -> list[ShardTask]:
    """Return the tasks of a split; `unknown` is the vocabulary size and the id of `<UNK>`."""
    plans = plan_shards(buckets, shard_words)
    return [
        ShardTask(
            name=shard_name(split, number),
            plan=plan,
            slices=slices,
            directory=part_directory(parent / split, number),
            vocabulary_size=unknown[0],
            unknown_id=unknown[1],
        )
        for number, (plan, slices) in enumerate(zip(plans, slices_of(buckets, plans), strict=True))
    ]


def move_shards(tasks: Sequence[ShardTask], directory: Path) -> SplitInfo:
    """Move the shards of a split to `directory`, and return their description."""
    shards, num_unknown = list[ShardInfo](), 0
    for task in tasks:
        text = (task.directory / _INFO_FILE).read_text(encoding="utf-8")
        content: dict[str, Any] = json.loads(text)
        shards.append(ShardInfo.model_validate(content["info"]))
        num_unknown += content["unknown_words"]
        (task.directory / task.name).rename(directory / task.name)
    return SplitInfo(
        sentences=sum(shard.sentences for shard in shards),
        words=sum(shard.words for shard in shards),
        unknown_words=num_unknown,
        shards=shards,
    )
