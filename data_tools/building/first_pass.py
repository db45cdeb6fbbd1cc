"""The first pass of a build: encode all parts of the input, merge their word types and sort them.

Workers encode the parts and merge the types; only the sort by count runs in this process.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bilm.corpus.manifest import HELDOUT, SPLITS, TRAIN
from bilm.errors import CorpusError
from bilm.files.writing import atomic_directory, atomic_file
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.tokenizers import SENTENCEPIECE_FILE, SentencePieceTokenizer
from data_tools.building.counting import FinalOrder, warn_about_documents
from data_tools.building.encode import EncodeOptions, EncodeTask, PartSize, encode_part
from data_tools.building.merging import MergeTask, Ranges, merge_range, plan_ranges
from data_tools.building.spool import part_directory
from data_tools.building.tasks import TaskRunner
from data_tools.building.word_types import PLACES_FILE, write_types
from data_tools.building.workspace import Workspace
from data_tools.reading.options import TextOptions, TokenizerOptions
from data_tools.reading.parts import Part, plan_parts
from data_tools.reading.pieces import train_pieces
from data_tools.reading.progress import Progress


class FirstPass:
    """Encodes the parts of the input and merges their types, in a workspace."""

    def __init__(
        self,
        text: TextOptions,
        tokenizer: TokenizerOptions,
        parts: Sequence[Part],
        workspace: Workspace,
        runner: TaskRunner,
    ) -> None:
        self._text = text
        self._tokenizer = tokenizer
        self._parts = parts
        self._workspace = workspace
        self._runner = runner

    def encode(self, numbers: Iterable[int], keeps_sentences: bool = True) -> list[PartSize]:
        """Encode the parts with these numbers."""
        options = prepare_tokenizer(self._text, self._tokenizer, self._workspace.path)
        tasks = [
            EncodeTask(options, self._parts[i], self._directory(i), keeps_sentences)
            for i in numbers
        ]
        sizes, num_bytes, num_words = list[PartSize](), 0, 0
        with Progress("read", sum(task.part.num_bytes for task in tasks)) as progress:
            for task, _ in zip(tasks, self._runner.map(encode_part, tasks), strict=True):
                sizes.append(PartSize.read(task.directory))
                num_bytes += task.part.num_bytes
                num_words += sum(sizes[-1].words.values())
                progress.update(num_bytes, num_words)
        return sizes

    def merge(self, sizes: Sequence[PartSize], head: Sequence[str]) -> tuple[FinalOrder, Ranges]:
        """Merge the types of all parts; the words of `head`, also of count 0, are the first."""
        if self._text.lines == "sentences":
            warn_about_documents(sizes)
        head_part = self._directory(len(sizes))
        with atomic_directory(head_part, CorpusError, overwrite=True) as directory:
            counts = np.zeros(len(head), dtype=np.int64)
            places = write_types(directory, [word.encode() for word in head], counts)
            (directory / PLACES_FILE).write_bytes(places.tobytes())
        parent, parts = self._workspace.ranges, self._workspace.parts
        tasks = [
            MergeTask(parts, len(sizes) + 1, bounds, part_directory(parent, number))
            for number, bounds in enumerate(plan_ranges(sizes))
        ]
        self._runner.finish("merge", merge_range, tasks)
        ranges = Ranges(parent, len(tasks))
        return FinalOrder(ranges.types(), ranges.counts(), ranges.places(head_part)), ranges

    def _directory(self, number: int) -> Path:
        return part_directory(self._workspace.parts, number)


def count_text(
    text: TextOptions, tokenizer: TokenizerOptions, directory: Path, runner: TaskRunner
) -> FinalOrder:
    """Count the types of the input without keeping its sentences."""
    parts = plan_parts(text.inputs, text.encoding)
    first_pass = FirstPass(text, tokenizer, parts, Workspace(directory), runner)
    sizes = first_pass.encode(range(len(parts)), keeps_sentences=False)
    return first_pass.merge(sizes, SPECIAL_WORDS)[0]


def prepare_tokenizer(
    text: TextOptions, tokenizer: TokenizerOptions, directory: Path
) -> EncodeOptions:
    """Write the tokenizer's files to `directory`, after training a model if necessary."""
    model = directory / SENTENCEPIECE_FILE
    if tokenizer.name == "sentencepiece" and not model.exists():
        if tokenizer.sentencepiece_model is None:
            with atomic_file(model) as temporary:
                train_pieces(text, tokenizer, temporary)
        else:
            SentencePieceTokenizer(tokenizer.sentencepiece_model)  # rejects an invalid file
            with atomic_file(model) as temporary:  # another --part may read it
                shutil.copyfile(tokenizer.sentencepiece_model, temporary)
    text = replace(text, inputs=(), num_workers=1)
    return EncodeOptions(text, tokenizer.spec(), directory)


def check_counts(text: TextOptions, sizes: Sequence[PartSize]) -> None:
    """Reject an input without text, or a split without sentences."""
    num_sentences = {split: sum(size.sentences[split] for size in sizes) for split in SPLITS}
    total = sum(num_sentences.values())
    if not total:
        raise CorpusError("the input contains no words")
    for split in (TRAIN, HELDOUT) if text.heldout else (TRAIN,):
        if not num_sentences[split]:
            raise CorpusError(
                f"the split {split!r} would be empty (--heldout {text.heldout}, {total} sentences "
                "in total); choose another share, or use --heldout 0"
            )
