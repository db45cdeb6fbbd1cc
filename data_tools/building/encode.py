"""One chunk of text to word ids: what each worker does.

A worker decodes, splits into sentences, tokenises, and numbers the chunk's word types itself, so
that only distinct words and int32 arrays travel back.

Cost: about 3 M words a second and core for `whitespace`, 0.2 M for `moses`.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bilm.corpus.manifest import HELDOUT, SPLITS, TRAIN
from bilm.distributed.process import peak_memory_bytes
from bilm.errors import CorpusError
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from bilm.text.tokenizers import TokenizerSpec, load_tokenizer
from data_tools.building.spool import Sentences
from data_tools.building.workers import ordered_map
from data_tools.reading.chunks import Chunk, Lines, read_lines
from data_tools.reading.heldout import HeldoutChoice
from data_tools.reading.sentences import sentence_splitter

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EncodeOptions:
    """How text becomes words, and which lines are held out."""

    tokenizer: TokenizerSpec
    tokenizer_directory: Path
    lines: str
    field: str
    errors: str
    heldout_share: float
    seed: int


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk as ids into its own list of word types."""

    types: list[str]
    counts: Int64  # of each type in the training split
    splits: dict[str, Sentences]
    bytes_read: int
    worker: int
    peak_bytes: int


@dataclass
class _Words:
    """Sentences of one split while they are gathered."""

    words: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)

    def as_ids(self, ids_by_word: defaultdict[str, int]) -> Sentences:
        ids = np.fromiter(map(ids_by_word.__getitem__, self.words), np.int32, len(self.words))
        return Sentences(ids, np.array(self.lengths, np.int32), np.array(self.units, np.int32))


class Encoder:
    """Encodes chunks; one lives in each worker."""

    def __init__(self, options: EncodeOptions) -> None:
        self._options = options
        self._tokenizer = load_tokenizer(options.tokenizer, options.tokenizer_directory)
        self._is_heldout = HeldoutChoice(options.heldout_share, options.seed)
        self._split = sentence_splitter(options.lines)

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        """Tokenise and number `chunk`."""
        lines = read_lines(chunk, self._options.field, self._options.errors)
        parts = {split: _Words() for split in SPLITS}
        for line in lines.texts:
            if not line or line.isspace():
                continue
            split = chunk.file.split or (HELDOUT if self._is_heldout(line) else TRAIN)
            self._add_line(line, parts[split])
        ids_by_word: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        splits = {split: part.as_ids(ids_by_word) for split, part in parts.items()}
        types = list(ids_by_word)
        self._check_types(ids_by_word, chunk, lines)
        counts = np.bincount(splits[TRAIN].ids, minlength=len(types))
        return EncodedChunk(
            types, counts, splits, chunk.bytes_read, os.getpid(), peak_memory_bytes()
        )

    def _add_line(self, line: str, part: _Words) -> None:
        before = len(part.lengths)
        for sentence in self._split(line):
            words = self._tokenizer.tokenize(sentence)
            if words:
                part.words += words
                part.lengths.append(len(words))
        if len(part.lengths) > before:
            part.units.append(len(part.lengths) - before)

    def _check_types(self, types: defaultdict[str, int], chunk: Chunk, lines: Lines) -> None:
        for word in (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD):
            if word in types:
                raise CorpusError(
                    f"{self._place(word, chunk, lines)} holds the word {word}, which marks the "
                    "border of a sentence and is added by us; remove it from the text"
                )
        if self._options.tokenizer.name != "sentencepiece":
            return  # the others split at white space, and so make no such words
        for word in types:
            if len(word.split()) != 1 or word.strip() != word:
                raise CorpusError(
                    f"the sentencepiece model makes the piece {word!r} "
                    f"({self._place(word, chunk, lines)}); a piece must hold no white space, since "
                    "the vocabulary is one word a line: use a model that has none"
                )

    def _place(self, word: str, chunk: Chunk, lines: Lines) -> str:
        for number, line in zip(lines.numbers, lines.texts, strict=True):
            if any(word in self._tokenizer.tokenize(part) for part in self._split(line)):
                return f"{chunk.file.path}, line {number}"
        raise AssertionError(word)


def encode_chunks(
    chunks: Iterable[Chunk], options: EncodeOptions, num_workers: int
) -> Iterator[EncodedChunk]:
    """Encode `chunks` by `num_workers` processes (in this one, if 1), in their order."""
    if num_workers == 1:
        return map(Encoder(options), chunks)
    return ordered_map(Encoder, options, chunks, num_workers)
