"""Encode a chunk of text as word ids; this runs in each worker.

A worker splits the texts into sentences, tokenizes them, and assigns its own ids to the word types
of the chunk, so that it returns only distinct words and int32 arrays.

Cost: about 3 M words per second per core for `whitespace`, 0.2 M for `moses`.
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
from bilm.text.records import place_of
from bilm.text.tokenizers import TokenizerSpec, load_tokenizer
from data_tools.building.spool import Sentences
from data_tools.building.workers import ordered_map
from data_tools.reading.chunks import Chunk, texts_of
from data_tools.reading.heldout import HeldoutChoice
from data_tools.reading.options import TextOptions
from data_tools.reading.sentences import sentence_splitter

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EncodeOptions:
    """The settings for reading text, and the tokenizer with the directory of its files."""

    text: TextOptions
    tokenizer: TokenizerSpec
    tokenizer_directory: Path


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk as ids into its own list of word types."""

    types: list[str]
    counts: Int64  # of each type in the training split
    splits: dict[str, Sentences]
    bytes_read: int
    worker: int  # process id
    peak_bytes: int


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

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        """Tokenize `chunk` and convert its words to ids."""
        texts = texts_of(chunk, self._text_options.errors)
        parts = {split: _Words() for split in SPLITS}
        for text in texts:
            if not text or text.isspace():
                continue
            split = chunk.file.split or (HELDOUT if self._is_heldout(text) else TRAIN)
            self._add_line(text, parts[split])
        ids_by_word: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        splits = {split: part.as_ids(ids_by_word) for split, part in parts.items()}
        types = list(ids_by_word)
        self._check_types(ids_by_word, chunk, texts)
        counts = np.bincount(splits[TRAIN].ids, minlength=len(types))
        return EncodedChunk(
            types, counts, splits, chunk.bytes_read, os.getpid(), peak_memory_bytes()
        )

    def _add_line(self, text: str, part: _Words) -> None:
        before = len(part.lengths)
        for sentence in self._split(text):
            words = self._tokenizer.tokenize(sentence)
            if words:
                part.words += words
                part.lengths.append(len(words))
        if len(part.lengths) > before:
            part.sentences_per_line.append(len(part.lengths) - before)

    def _check_types(self, types: defaultdict[str, int], chunk: Chunk, texts: list[str]) -> None:
        for word in (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD):
            if word in types:
                raise CorpusError(
                    f"{self._place(word, chunk, texts)} contains the word {word}, which is "
                    "reserved for sentence boundaries and added automatically; remove it from the "
                    "text"
                )
        if not self._has_pieces:
            return  # the other tokenizers split at white space
        for word in types:
            if len(word.split()) != 1 or word.strip() != word:
                raise CorpusError(
                    f"the sentencepiece model produces the piece {word!r} "
                    f"({self._place(word, chunk, texts)}); a piece cannot contain white space, "
                    "since the vocabulary has one word per line; use a model without such pieces"
                )

    def _place(self, word: str, chunk: Chunk, texts: list[str]) -> str:
        for number, text in zip(chunk.line_numbers, texts, strict=True):
            if any(word in self._tokenizer.tokenize(part) for part in self._split(text)):
                return place_of(chunk.file.path, chunk.file.format, number)
        raise AssertionError(word)


def encode_chunks(chunks: Iterable[Chunk], options: EncodeOptions) -> Iterator[EncodedChunk]:
    """Encode `chunks` in order, in worker processes or, if there is only one, in this process."""
    num_workers = options.text.num_workers
    if num_workers == 1:
        return map(Encoder(options), chunks)
    return ordered_map(Encoder, options, chunks, num_workers)
