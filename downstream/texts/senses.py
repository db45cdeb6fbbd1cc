"""Sentences with word senses from JSON lines, and the first senses of WordNet.

An object has `tokens`, a list of words, and `instances`, a list of objects with `start` and `end`,
the first and the last token of the instance, its `lemma`, its part of speech `pos`, and `keys`, the
keys of its senses. Other fields are ignored. A token that contains spaces or underscores is several
words: `took_place` is read as `took place`. Every error names the file and the line.

Cost: one pass over a file; the words and the instances are kept in memory. Does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from bilm.text.records import numbered_lines, read_rows
from bilm.text.tables import checked_text
from downstream.texts.json_words import checked_index, checked_words

_JOINTS = re.compile(r"[\s_]+")

# The parts of speech in the keys of WordNet; 5 is a satellite adjective.
_PARTS_OF_SPEECH = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}


class Lemma(NamedTuple):
    """A lemma and its part of speech."""

    name: str
    pos: str


@dataclass(frozen=True)
class SenseInstance:
    """An instance of a lemma: the words from `start` up to `end` of a sentence, and its senses."""

    sentence: int
    start: int
    end: int
    lemma: Lemma
    keys: tuple[str, ...]


@dataclass(frozen=True)
class SenseFile:
    """The sentences of a file as words, and the instances in them."""

    path: Path
    sentences: tuple[tuple[str, ...], ...]
    instances: tuple[SenseInstance, ...]
    lines: tuple[int, ...]  # of the sentences

    def place(self, instance: SenseInstance) -> str:
        """Return the file and line of an instance."""
        return f"{self.path}, line {self.lines[instance.sentence]}"


def read_senses(path: Path | str) -> SenseFile:
    """Read a file of sentences with instances."""
    path = Path(path)
    sentences: list[tuple[str, ...]] = []
    instances: list[SenseInstance] = []
    lines: list[int] = []
    rows = read_rows(LineReader(path), "jsonl", ("tokens", "instances"))
    for number, (tokens, items) in rows:
        place = f"{path}, line {number}"
        parts = [_split(token) for token in checked_words(tokens, f"{place}: tokens")]
        instances += _instances(items, parts, len(sentences), place)
        sentences.append(tuple(word for words in parts for word in words))
        lines.append(number)
    if not instances:
        raise CorpusError(f"{path} has no instances; expected JSON lines of tokens and instances")
    return SenseFile(path, tuple(sentences), tuple(instances), tuple(lines))


def _split(token: str) -> list[str]:
    """Return the words of a token; a token of joints only, such as `_`, is one word."""
    return [word for word in _JOINTS.split(token) if word] or [token.strip()]


def _instances(
    value: Any, parts: list[list[str]], sentence: int, place: str
) -> Iterator[SenseInstance]:
    if not isinstance(value, list):
        raise CorpusError(f"{place}: instances is {value!r:.60}; expected a list")
    offsets = [0, *accumulate(map(len, parts))]
    for item in value:
        if not isinstance(item, dict):
            raise CorpusError(f"{place}: an instance is {item!r:.60}; expected an object")
        start, end = (
            checked_index(item.get(name), len(parts), f"{place}: the {name} of an instance")
            for name in ("start", "end")
        )
        if end < start:
            raise CorpusError(
                f"{place}: an instance has the start {start} and the end {end}; the end is the "
                "index of its last token and must not be smaller"
            )
        lemma = Lemma(*(_text(item.get(name), name, place) for name in ("lemma", "pos")))
        keys = checked_words(item.get("keys"), f"{place}: the keys of {lemma.name!r}")
        yield SenseInstance(sentence, offsets[start], offsets[end + 1], lemma, keys)


def _text(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise CorpusError(
            f"{place}: the {name} of an instance is {value!r:.60}; expected a string that is not "
            "empty"
        )
    return checked_text(value, f"{place}: the {name} of an instance")


def read_first_senses(path: Path | str) -> Mapping[Lemma, str]:
    """Return the key of the first sense of each lemma in `index.sense` of WordNet.

    A line has a key, the offset of a synset, the number of the sense, and its count.
    """
    path = Path(path)
    first: dict[Lemma, str] = {}
    for number, line in numbered_lines(LineReader(path)):
        cells = line.split()
        name, _, rest = cells[0].rpartition("%")
        pos = _PARTS_OF_SPEECH.get(rest.partition(":")[0])
        if len(cells) != 4 or not name or pos is None or not cells[2].isdecimal():
            raise CorpusError(
                f"{path}, line {number} is {line!r:.60}; expected a sense key, an offset, the "
                "number of the sense and a count, as in index.sense of WordNet"
            )
        if int(cells[2]) == 1:
            first[Lemma(name, pos)] = cells[0]
    if not first:
        raise CorpusError(f"{path} has no first senses; expected index.sense of WordNet")
    return first
