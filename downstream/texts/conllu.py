"""Read words and their tags from CoNLL-U files, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bilm.errors import CorpusError
from bilm.text.lines import LineReader

COLUMNS = {"upos": 3, "xpos": 4}

_NUM_COLUMNS = 10


@dataclass(frozen=True)
class TaggedSentence:
    """The syntactic words of a sentence, and a tag and the number of the line for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...] = field(default=(), compare=False)


def read_conllu(path: Path | str, column: str = "upos") -> Iterator[TaggedSentence]:
    """Yield the sentences of a file; `column` is "upos" or "xpos".

    Ranges such as `1-2` (a written word that consists of several syntactic words) and empty nodes
    such as `1.1` are skipped, so that every word has exactly one tag.
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
        cells = line.rstrip("\r").split("\t")
        if len(cells) != _NUM_COLUMNS:
            raise CorpusError(
                f"{path}, line {number} has {len(cells)} columns; CoNLL-U has {_NUM_COLUMNS}, "
                "separated by tabs"
            )
        if not cells[0].isdecimal():
            continue
        words.append(cells[1])
        tags.append(cells[COLUMNS[column]])
        lines.append(number)
    if words:
        yield TaggedSentence(tuple(words), tuple(tags), tuple(lines))
