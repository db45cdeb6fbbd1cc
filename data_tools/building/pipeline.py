"""The steps of a build, each a list of tasks for an engine.

    parts of the input --(workers: read, tokenize, count)--> spools of local ids, and counts
                       --(workers: merge ranges of word types)--> all types and their counts
                       --(this process: sort by count)--> vocabulary and lexicon
                       --(workers: final ids, sort by bucket)--> scattered parts
                       --(workers: shuffle)--> buckets
                       --(workers: write and hash)--> shards

The output of every task is kept in the workspace until no later task needs it, and a task whose
output exists is not repeated, so that a build resumes after an interruption.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.corpus.manifest import SPLITS, VOCABULARY_FILE, SplitInfo
from bilm.corpus.writer import write_lexicon, write_manifest
from bilm.errors import CorpusError
from bilm.files.writing import atomic_directory
from bilm.text.characters import SPECIAL_WORDS, UNKNOWN_WORD
from bilm.text.tokenizers import SENTENCEPIECE_FILE
from bilm.text.vocabulary import Vocabulary
from data_tools.building.counting import FinalOrder, choose_size
from data_tools.building.encode import PartSize
from data_tools.building.first_pass import FirstPass, check_counts
from data_tools.building.merging import Ranges
from data_tools.building.shards import ShardTask, move_shards, shard_tasks, write_shard
from data_tools.building.shuffle import (
    BucketTask,
    CopyTask,
    PartIds,
    ScatterTask,
    SplitShuffle,
    copy_part,
    fill_bucket,
    scatter_part,
)
from data_tools.building.spool import part_directory
from data_tools.building.tasks import TaskRunner
from data_tools.building.workspace import Workspace
from data_tools.reading.options import CorpusOptions, Share
from data_tools.reading.parts import Part


@dataclass(frozen=True)
class Content:
    """The contents of a finished corpus."""

    splits: dict[str, SplitInfo]
    num_types: int
    vocabulary_size: int


class Pipeline:
    """The steps of a build in a workspace."""

    def __init__(
        self,
        options: CorpusOptions,
        given: Vocabulary | None,
        parts: list[Part],
        workspace: Workspace,
        runner: TaskRunner,
    ) -> None:
        self._options = options
        self._head: Sequence[str] = SPECIAL_WORDS if given is None else given.words
        self._num_parts = len(parts)
        self._workspace = workspace
        self._runner = runner
        self._first_pass = FirstPass(options.text, options.tokenizer, parts, workspace, runner)
        self._ranges = Ranges(workspace.ranges, 0)

    def run(self) -> Content:
        """Run all steps that have not been done."""
        sizes = self._first_pass.encode(range(self._num_parts))
        check_counts(self._options.text, sizes)
        order, self._ranges = self._first_pass.merge(sizes, self._head)
        size = choose_size(order, self._options.vocabulary, len(self._head))
        self._workspace.final_ids.write_bytes(order.final_ids.tobytes())
        unknown = order.types.index(UNKNOWN_WORD.encode())
        tasks = {
            split: self._write_split(split, sizes, (size, unknown))
            for split in SPLITS
            if any(part.words[split] for part in sizes)
        }
        output = self._options.output
        with atomic_directory(output.path, CorpusError, output.overwrite) as directory:
            self._write_words(directory, order, size)
            splits = {split: move_shards(shards, directory) for split, shards in tasks.items()}
            write_manifest(
                directory,
                tokenizer=self._options.tokenizer.spec(),
                options=self._options.describe(),
                vocabulary_size=size,
                splits=splits,
                counts_unknown=False,
            )
        self._runner.remove([*self._workspace.buckets.glob("*/*")])
        return Content(splits, len(order.types), size)

    def encode(self, share: Share) -> None:
        """Encode a share of the parts."""
        self._first_pass.encode(range(share.number - 1, self._num_parts, share.total))

    def _write_words(self, directory: Path, order: FinalOrder, vocabulary_size: int) -> None:
        """Write the vocabulary, the lexicon, and the model of the tokenizer if it has one."""
        lines = b"\n".join([*order.types[:vocabulary_size], b""])
        (directory / VOCABULARY_FILE).write_bytes(lines)
        write_lexicon(directory, order.types, order.counts)
        if self._options.tokenizer.name == "sentencepiece":
            model = self._workspace.path / SENTENCEPIECE_FILE
            shutil.copyfile(model, directory / SENTENCEPIECE_FILE)

    def _write_split(
        self, split: str, sizes: list[PartSize], unknown: tuple[int, int]
    ) -> list[ShardTask]:
        """Shuffle a split and write its shards; return the finished tasks."""
        shuffle_by, workspace = self._options.shards.shuffle, self._workspace
        if shuffle_by == "none":
            buckets = self._copy(split)
        else:
            buckets = self._shuffle(split, shuffle_by, sizes)
        shard_words = self._options.shards.shard_words
        tasks = shard_tasks(split, buckets, workspace.shards, shard_words, unknown)
        self._runner.finish(f"write {split}", write_shard, tasks, [t.plan.num_words for t in tasks])
        return tasks

    def _copy(self, split: str) -> list[Path]:
        """Write the final ids of each part in the order of the text."""
        parent = self._workspace.buckets / split
        tasks = [
            CopyTask(self._part_ids(number), split, part_directory(parent, number))
            for number in range(self._num_parts)
        ]
        self._runner.finish(f"copy {split}", copy_part, tasks)
        self._remove_spools(split)
        return [task.directory for task in tasks]

    def _shuffle(self, split: str, by: str, sizes: list[PartSize]) -> list[Path]:
        """Write the shuffled buckets of a split."""
        workspace = self._workspace
        num_words = sum(size.words[split] for size in sizes)
        seed = (self._options.text.seed, SPLITS.index(split))
        shuffle = SplitShuffle.of(split, by, seed, num_words)
        scattered, parent = workspace.scattered / split, workspace.buckets / split
        tasks = [
            BucketTask(shuffle, bucket, scattered, len(sizes), part_directory(parent, bucket))
            for bucket in range(shuffle.num_buckets)
        ]
        if not all(task.directory.exists() for task in tasks):
            lines = [(size.sentences if by == "sentences" else size.lines)[split] for size in sizes]
            scatter_tasks = [
                ScatterTask(
                    self._part_ids(number), shuffle, state, part_directory(scattered, number)
                )
                for number, state in enumerate(shuffle.states(lines))
            ]
            self._runner.finish(f"scatter {split}", scatter_part, scatter_tasks)
            self._remove_spools(split)
            self._runner.finish(f"shuffle {split}", fill_bucket, tasks)
        self._runner.remove([part_directory(scattered, i) for i in range(self._num_parts)])
        return [task.directory for task in tasks]

    def _remove_spools(self, split: str) -> None:
        parts = [part_directory(self._workspace.parts, i) for i in range(self._num_parts)]
        self._runner.remove([part / split for part in parts])

    def _part_ids(self, number: int) -> PartIds:
        part = part_directory(self._workspace.parts, number)
        return PartIds(part, self._ranges, self._workspace.final_ids)
