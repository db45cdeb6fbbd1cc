"""Documents in the columns of CoNLL-2012: words, speakers and coreference.

A document is between `#begin document (NAME); part NNN` and `#end document`; a blank line ends a
sentence. A line has at least 12 columns, separated by white space: the word is the 4th, the speaker
the 10th, and coreference the last. There, `(7` opens a mention of cluster 7, `7)` closes the last
one of this cluster that is open, `(7)` is a mention of one word, `|` separates several of them, and
`-` or `_` is none. Every error names the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from downstream.texts.counts import counted

MIN_COLUMNS = 12

_BEGIN = re.compile(r"#\s*begin document \((.*)\); part (\d+)\s*")
_MARK = re.compile(r"(\()?(\d+)(\))?")


@dataclass
class ColumnDocument:
    """A document as it is read; `clusters` are lists of (first word, last word) by number.

    `lines` has the line of each word.
    """

    name: str
    line: int
    sentences: tuple[tuple[str, ...], ...] = ()
    speakers: tuple[str, ...] = ()
    clusters: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    lines: tuple[int, ...] = ()


def read_conll2012(path: Path) -> Iterator[ColumnDocument]:
    """Yield the documents of a file."""
    reader: _Document | None = None
    for number, line in enumerate(LineReader(path).lines(), 1):
        place = f"{path}, line {number}"
        if match := _BEGIN.match(line):
            if reader is not None:
                raise CorpusError(f"{place} begins a document before the end of the previous one")
            reader = _Document(path, f"{match[1]}; part {match[2]}", number)
        elif line.startswith("#end document") and reader is not None:
            yield reader.finished(place)
            reader = None
        elif not line.strip():
            if reader is not None:
                reader.end_sentence()
        elif reader is None:
            raise CorpusError(
                f"{place} is outside of a document; expected a line `#begin document (NAME); part "
                "000`"
            )
        else:
            reader.add(line, number)
    if reader is not None:
        raise CorpusError(f"{path}: the document of line {reader.line} has no `#end document`")


class _Document:
    """The lines of one document."""

    def __init__(self, path: Path, name: str, line: int) -> None:
        self.line = line
        self._path = path
        self._name = name
        self._sentences: list[tuple[str, ...]] = []
        self._words: list[str] = []
        self._speakers: list[str] = []
        self._lines: list[int] = []
        self._open: dict[str, list[int]] = {}
        self._clusters: dict[str, list[tuple[int, int]]] = {}

    def add(self, line: str, number: int) -> None:
        """Add the word of a line with its columns."""
        place = f"{self._path}, line {number}"
        cells = line.split()
        if len(cells) < MIN_COLUMNS:
            raise CorpusError(
                f"{place} has {counted(len(cells), 'column')}; CoNLL-2012 has at least "
                f"{MIN_COLUMNS}"
            )
        index = len(self._speakers)
        self._words.append(cells[3])
        self._speakers.append(cells[9])
        self._lines.append(number)
        for mark in () if cells[-1] in ("-", "_") else cells[-1].split("|"):
            self._add_mark(mark, index, place)

    def _add_mark(self, mark: str, index: int, place: str) -> None:
        match = _MARK.fullmatch(mark)
        if match is None or not (match[1] or match[3]):
            raise CorpusError(
                f"{place}: the coreference column contains {mark!r:.60}; expected marks such as "
                "(7, 7) and (7), separated by |"
            )
        opens, cluster, closes = match.groups()
        starts = self._open.setdefault(cluster, [])
        if opens:
            starts.append(index)
        if closes:
            if not starts:
                raise CorpusError(f"{place}: {mark} closes a mention that is not open")
            self._clusters.setdefault(cluster, []).append((starts.pop(), index))

    def end_sentence(self) -> None:
        """End the sentence, if it has words."""
        if self._words:
            self._sentences.append(tuple(self._words))
        self._words = []

    def finished(self, place: str) -> ColumnDocument:
        """Return the document; `place` is that of its end."""
        self.end_sentence()
        for cluster, starts in self._open.items():
            if starts:
                raise CorpusError(
                    f"{self._path}, line {self._lines[starts[-1]]}: the mention of cluster "
                    f"{cluster} that starts here is not closed"
                )
        if not self._sentences:
            raise CorpusError(f"{place} ends a document without words; remove the document")
        return ColumnDocument(
            self._name,
            self.line,
            tuple(self._sentences),
            tuple(self._speakers),
            self._clusters,
            tuple(self._lines),
        )
