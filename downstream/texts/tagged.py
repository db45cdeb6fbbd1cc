"""Tagged sentences from CoNLL columns and CoNLL-U, plain or compressed.

A line of a CoNLL file is a word and its columns, separated by tabs or spaces; a blank line ends a
sentence, and lines whose first column is -DOCSTART- are skipped. Every error names the file and the
line: a line with fewer or more columns than the first one, an empty tag, and a tag that breaks the
rules of BIO.

Cost: one pass over the file; the words and tags are kept in memory. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bilm.errors import ConfigError, CorpusError
from bilm.text.lines import LineReader
from downstream.texts.conllu import COLUMNS, NAMES, TaggedSentence, read_conllu
from downstream.texts.counts import counted
from downstream.texts.tag_sequences import Scheme, bio_from_iob1, find_bad_tag

TagFormat = Literal["columns", "conllu"]

_DOCUMENT_START = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedExample:
    """The tags of one sentence, by its index, and the line of each tag.

    For semantic roles, `predicate` is the index of the predicate, and a sentence has one example
    per predicate.
    """

    sentence: int
    tags: tuple[str, ...]
    lines: tuple[int, ...]
    predicate: int | None = None


@dataclass(frozen=True)
class TaggedFile:
    """The sentences of a file as words, and their tags."""

    path: str
    sentences: tuple[tuple[str, ...], ...]
    examples: tuple[TaggedExample, ...]

    def place(self, example: TaggedExample, index: int) -> str:
        """Return the file and line of a tag, for error messages."""
        return f"{self.path}, line {example.lines[index]}"


@dataclass(frozen=True)
class TagReading:
    """How tagged files are read; columns are numbers from 1, or upos and xpos in CoNLL-U."""

    file_format: TagFormat | None = None
    word_column: int = 1
    tag_column: str | None = None  # None: the last column, or upos
    scheme: Scheme | None = None  # None: plain for CoNLL-U, else bio

    def format_of(self, path: Path) -> TagFormat:
        """Return the format of a file; by default, it follows from its extension."""
        if self.file_format is not None:
            return self.file_format
        return "conllu" if ".conllu" in path.suffixes[-2:] else "columns"

    def scheme_of(self, path: Path) -> Scheme:
        """Return the tagging scheme of a file."""
        if self.scheme is not None:
            return self.scheme
        return "plain" if self.format_of(path) == "conllu" else "bio"


def read_tagged(path: Path | str, reading: TagReading) -> TaggedFile:
    """Read a file of tagged sentences; IOB1 is converted to BIO2."""
    path = Path(path)
    scheme = reading.scheme_of(path)
    is_conllu = reading.format_of(path) == "conllu"
    read = _conllu if is_conllu else _columns
    words, examples = [], []
    for i, sentence in enumerate(read(path, reading)):
        bad = find_bad_tag(sentence.tags, scheme)
        if bad is not None:
            place = f"{path}, line {sentence.lines[bad.place]}"
            raise CorpusError(f"{place}: {bad.reason}. {bad.remedy}")
        tags = bio_from_iob1(sentence.tags) if scheme == "iob1" else sentence.tags
        words.append(sentence.words)
        examples.append(TaggedExample(i, tags, sentence.lines))
    if not words:
        columns = f" in {len(NAMES)} columns separated by tabs: {', '.join(NAMES)}"
        raise CorpusError(
            f"{path} has no sentences; expected one word per line{columns if is_conllu else ''}"
        )
    return TaggedFile(str(path), tuple(words), tuple(examples))


def _conllu(path: Path, reading: TagReading) -> Iterator[TaggedSentence]:
    column = reading.tag_column or "upos"
    if column not in COLUMNS:
        raise ConfigError(
            f"--tag-column is {column}, but {path} is in CoNLL-U; use one of {', '.join(COLUMNS)}"
        )
    for sentence in read_conllu(path, column):
        if "_" in sentence.tags:
            line = sentence.lines[sentence.tags.index("_")]
            raise CorpusError(f"{path}, line {line} has no tag in the column {column}; add it")
        yield sentence


def _columns(path: Path, reading: TagReading) -> Iterator[TaggedSentence]:
    words: list[str] = []
    tags: list[str] = []
    lines: list[int] = []
    table = _Columns(path, reading)
    for number, line in enumerate(LineReader(path).lines(), 1):
        if not line.strip() or _is_document_start(line):
            if words:
                yield TaggedSentence(tuple(words), tuple(tags), tuple(lines))
            words, tags, lines = [], [], []
            continue
        word, tag = table.cells(line, number)
        words.append(word)
        tags.append(tag)
        lines.append(number)
    if words:
        yield TaggedSentence(tuple(words), tuple(tags), tuple(lines))


def _is_document_start(line: str) -> bool:
    """Return whether the first column is the marker of a document, and not only begins with it."""
    first, *_ = line.split("\t" if "\t" in line else None, 1)
    return first.strip() == _DOCUMENT_START


class _Columns:
    """The columns of a file; its first line determines the separator and their number."""

    def __init__(self, path: Path, reading: TagReading) -> None:
        self._path = path
        self._word = reading.word_column - 1
        self._tag_column = reading.tag_column
        self._separator: str | None = None
        self._num_columns = 0

    def cells(self, line: str, number: int) -> tuple[str, str]:
        """Return the word and the tag of a line."""
        if not self._num_columns:
            self._separator = "\t" if "\t" in line else None
            self._num_columns = len(line.split(self._separator))
            self._tag = self._tag_index(number)
        cells = line.rstrip("\r").split(self._separator)
        if len(cells) != self._num_columns:
            raise self._other_columns(line, len(cells), number)
        word, tag = cells[self._word].strip(), cells[self._tag].strip()
        if not word or not tag:
            raise CorpusError(
                f"{self._path}, line {number}: the {'tag' if word else 'word'} is empty; add it, "
                "or remove the line"
            )
        return word, tag

    def _other_columns(self, line: str, count: int, number: int) -> CorpusError:
        """Return the error about a line with another number of columns than the first one."""
        place = f"{self._path}, line {number}"
        separator, other = ("tabs", "spaces") if self._separator else ("spaces", "tabs")
        has_tabs = "\t" in line
        if has_tabs != (self._separator == "\t") and len(line.split()) > 1:
            return CorpusError(
                f"{place} has columns separated by {other}, but those of the first line are "
                f"separated by {separator}; use the same separator in all lines"
            )
        return CorpusError(
            f"{place} has {counted(count, 'column')} separated by {separator}; the first line has "
            f"{self._num_columns}. Correct the line"
        )

    def _tag_index(self, number: int) -> int:
        column = self._tag_column or str(self._num_columns)
        if not column.isdecimal():
            raise ConfigError(
                f"--tag-column is {column}; for a file of columns it must be a number from 1"
            )
        for flag, value in (("--word-column", self._word + 1), ("--tag-column", int(column))):
            if not 1 <= value <= self._num_columns:
                raise CorpusError(
                    f"{self._path}, line {number} has {counted(self._num_columns, 'column')}, but "
                    f"{flag} is "
                    f"{value}; use a number from 1 to {self._num_columns}"
                )
        if self._num_columns == 1 and self._tag_column is None:
            raise CorpusError(
                f"{self._path}, line {number} has one column; expected a word and its tag, "
                "separated by a tab or a space"
            )
        if self._word + 1 == int(column):
            raise ConfigError(
                f"{self._path}: the words and the tags are both in column {column}; set "
                "--word-column or --tag-column"
            )
        return int(column) - 1
