"""Read words and their tags from CoNLL-U files, plain or compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from downstream.texts.counts import counted

COLUMNS = {"upos": 3, "xpos": 4}

NAMES = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")

_WORD_ID = re.compile(r"[1-9][0-9]*")
_SKIPPED_ID = re.compile(r"[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")


@dataclass(frozen=True)
class TaggedSentence:
    """The syntactic words of a sentence, and a tag and the number of the line for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...] = field(default=(), compare=False)


def read_conllu(path: Path | str, column: str = "upos") -> Iterator[TaggedSentence]:
    """Yield the sentences of a file; `column` is "upos" or "xpos".

    Ranges such as `1-2` (a written word that consists of several syntactic words) and empty nodes
    such as `1.1` are skipped, so that every word has exactly one tag. Other ids, empty words and
    empty tags are errors.
    """
    path = Path(path)
    words: list[str] = []
    tags: list[str] = []
    lines: list[int] = []
    for number, line in enumerate(LineReader(path).lines(), 1):
        if not line.strip():
            if words:
                yield TaggedSentence(tuple(words), tuple(tags), tuple(lines))
            words, tags, lines = [], [], []
            continue
        if line.startswith("#"):
            continue
        cells = _cells(line, f"{path}, line {number}", column)
        if cells is None:
            continue
        word, tag = cells
        words.append(word)
        tags.append(tag)
        lines.append(number)
    if words:
        yield TaggedSentence(tuple(words), tuple(tags), tuple(lines))


def _cells(line: str, place: str, column: str) -> tuple[str, str] | None:
    """Return the word and the tag of a line; None for a range or an empty node."""
    cells = line.rstrip("\r").split("\t")
    if len(cells) != len(NAMES):
        raise CorpusError(
            f"{place} has {counted(len(cells), 'column')} separated by tabs; CoNLL-U "
            f"has {len(NAMES)}: {', '.join(NAMES)}"
        )
    if _SKIPPED_ID.fullmatch(cells[0]):
        return None
    if not _WORD_ID.fullmatch(cells[0]):
        raise CorpusError(
            f"{place} has the id {cells[0]!r:.60}; expected a number such as 1, a range such as "
            "1-2, or an empty node such as 1.1. Correct the first column"
        )
    word, tag = cells[1], cells[COLUMNS[column]]
    for name, cell in (("FORM", word), (column.upper(), tag)):
        if not cell.strip():
            raise CorpusError(f"{place}: the column {name} is empty; add its value")
    return word, tag
