"""Encode one part of the input as word ids; this is the first task of a worker.

A worker reads the part, splits its texts into sentences, tokenizes them, assigns its own ids to the
word types of the part, and writes a directory:

    types.txt, starts.bin, counts.bin, places.bin   the word types, described in `word_types.py`
    train, heldout   a spool of each split
    part.json     the numbers of words, sentences, lines, long sentences and types

Cost: about 3 M words per second per core for `whitespace`, 0.5 M for `moses`; the memory of the
word types of the part and of one chunk.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from bilm.corpus.manifest import HELDOUT, SPLITS, TRAIN
from bilm.errors import CorpusError
from bilm.files.writing import atomic_directory
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from bilm.text.records import place_of
from bilm.text.tokenizers import TokenizerSpec, load_tokenizer
from data_tools.building.spool import Sentences, Spool
from data_tools.building.word_types import PLACES_FILE, write_types
from data_tools.building.workers import Usage
from data_tools.reading.chunks import Chunk, texts_of
from data_tools.reading.heldout import HeldoutChoice
from data_tools.reading.options import TextOptions
from data_tools.reading.parts import Part
from data_tools.reading.sentences import sentence_splitter

# A sentence that is longer than this is probably a document.
LONG_SENTENCE_WORDS = 100

# The number of types of a part from which the ranges for merging are chosen.
SAMPLE_TYPES = 16


@dataclass(frozen=True)
class EncodeOptions:
    """The settings for reading text, and the tokenizer with the directory of its files."""

    text: TextOptions  # without the input files, which would be sent with every task
    tokenizer: TokenizerSpec
    tokenizer_directory: Path


@dataclass(frozen=True)
class EncodeTask:
    """A part of the input, and the directory to write, with or without the sentences."""

    options: EncodeOptions
    part: Part
    directory: Path
    keeps_sentences: bool = True


@dataclass(frozen=True)
class PartSize:
    """The sizes of an encoded part, by split, and a sample of its types."""

    words: dict[str, int]
    sentences: dict[str, int]
    lines: dict[str, int]
    long_sentences: int
    types: int
    sample: list[str]

    @classmethod
    def read(cls, directory: Path) -> PartSize:
        """Read the sizes that `encode_part` wrote."""
        return cls(**json.loads((directory / "part.json").read_bytes()))


def encode_part(task: EncodeTask) -> Usage:
    """Encode the part of `task`, unless that has been done."""
    if not task.directory.exists():
        try:
            _encode(task, task.part)
        except CorpusError:
            part = task.part.with_line_number()
            if part == task.part:
                raise
            _encode(task, part)  # raises the same error, with the number of the line
    return Usage.of_this_process()


@lru_cache(maxsize=1)  # the tokenizer keeps its cache from part to part
def _encoder(options: EncodeOptions) -> Encoder:
    return Encoder(options)


def _encode(task: EncodeTask, part: Part) -> None:
    encoder = _encoder(task.options)
    ids_by_word: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    counts = np.zeros(0, dtype=np.int64)
    num_long = 0
    with atomic_directory(task.directory, CorpusError, overwrite=True) as directory:
        with ExitStack() as stack:
            spools = {split: stack.enter_context(Spool(directory / split)) for split in SPLITS}
            for chunk in task.options.text.part_chunks(part):
                splits = encoder(chunk, ids_by_word)
                added = np.bincount(splits[TRAIN].ids, minlength=len(ids_by_word))
                added[: len(counts)] += counts
                counts = added
                for split, sentences in splits.items():
                    num_long += int(np.count_nonzero(sentences.lengths > LONG_SENTENCE_WORDS))
                    spools[split].append(sentences, is_stored=task.keeps_sentences)
        types = list(ids_by_word)
        places = write_types(directory, [word.encode() for word in types], counts)
        (directory / PLACES_FILE).write_bytes(places.tobytes())
        size = PartSize(
            words={split: spool.num_words for split, spool in spools.items()},
            sentences={split: spool.num_sentences for split, spool in spools.items()},
            lines={split: spool.num_lines for split, spool in spools.items()},
            long_sentences=num_long,
            types=len(types),
            sample=sorted(types)[:: -(-len(types) // SAMPLE_TYPES) or 1],
        )
        (directory / "part.json").write_text(json.dumps(asdict(size)), encoding="utf-8")


@dataclass
class _Words:
    """The sentences of one split while they are collected."""

    words: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    sentences_per_line: list[int] = field(default_factory=list)

    def as_ids(self, ids_by_word: defaultdict[str, int]) -> Sentences:
        ids = np.fromiter(map(ids_by_word.__getitem__, self.words), np.int32, len(self.words))
        lengths = np.array(self.lengths, np.int32)
        return Sentences(ids, lengths, np.array(self.sentences_per_line, np.int32))


class Encoder:
    """An encoder of chunks; each worker has one."""

    def __init__(self, options: EncodeOptions) -> None:
        text = options.text
        self._text_options = text
        self._tokenizer = load_tokenizer(options.tokenizer, options.tokenizer_directory)
        self._has_pieces = options.tokenizer.name == "sentencepiece"
        self._is_heldout = HeldoutChoice(text.heldout_share, text.seed)
        self._split = sentence_splitter(text.lines)

    def __call__(self, chunk: Chunk, ids_by_word: defaultdict[str, int]) -> dict[str, Sentences]:
        """Tokenize `chunk` and convert its words to ids; new words are added to `ids_by_word`."""
        texts = texts_of(chunk, self._text_options.errors)
        parts = {split: _Words() for split in SPLITS}
        for text in texts:
            if not text or text.isspace():
                continue
            split = chunk.file.split or (HELDOUT if self._is_heldout(text) else TRAIN)
            self._add_line(text, parts[split])
        num_known = len(ids_by_word)
        splits = {split: part.as_ids(ids_by_word) for split, part in parts.items()}
        self._check_types(ids_by_word, num_known, chunk, texts)
        return splits

    def _add_line(self, text: str, part: _Words) -> None:
        before = len(part.lengths)
        for sentence in self._split(text):
            words = self._tokenizer.tokenize(sentence)
            if words:
                part.words += words
                part.lengths.append(len(words))
        if len(part.lengths) > before:
            part.sentences_per_line.append(len(part.lengths) - before)

    def _check_types(
        self, types: defaultdict[str, int], num_known: int, chunk: Chunk, texts: Iterable[str]
    ) -> None:
        for word in (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD):
            if word in types:
                raise CorpusError(
                    f"{self._place(word, chunk, texts)} contains the word {word}, which is "
                    "reserved for sentence boundaries and added automatically; remove it from the "
                    "text"
                )
        if not self._has_pieces:
            return  # the other tokenizers split at white space
        for word in itertools.islice(types, num_known, None):
            if len(word.split()) != 1 or word.strip() != word:
                raise CorpusError(
                    f"the sentencepiece model produces the piece {word!r} "
                    f"({self._place(word, chunk, texts)}); a piece cannot contain white space, "
                    "since the vocabulary has one word per line; use a model without such pieces"
                )

    def _place(self, word: str, chunk: Chunk, texts: Iterable[str]) -> str:
        for number, text in zip(chunk.line_numbers, texts, strict=True):
            if any(word in self._tokenizer.tokenize(part) for part in self._split(text)):
                return place_of(chunk.file.path, chunk.file.format, number)
        raise AssertionError(word)
