"""The words that the softmax predicts, by descending frequency, in the published file format.

The file has one word per line, with `<S>`, `</S>` and `<UNK>` first, in any order. The id of a word
is its position in the file, also for these three. The order of the other words matters: negatives
are drawn log-uniformly over ids, which is correct only if ids are sorted by descending frequency.

Cost: a Python string and a dict entry per word, about 150 MB for the published 793,471 words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bilm.errors import CorpusError
from bilm.files.reading import read_regular
from bilm.files.writing import atomic_file
from bilm.text.characters import SPECIAL_WORDS

IGNORED = -1  # the target of a slot without a prediction

MAX_VOCABULARY_BYTES = 1 << 26  # about six million words


class SpecialIds(NamedTuple):
    """The ids of `<S>`, `</S>` and `<UNK>`: 0, 1 and 2, in any order."""

    begin_sentence: int
    end_sentence: int
    unknown: int

    @classmethod
    def find(cls, words: Sequence[str]) -> SpecialIds | None:
        """Return the ids if the first words are the special words, otherwise None."""
        first = list(words[: len(SPECIAL_WORDS)])
        return cls(*map(first.index, SPECIAL_WORDS)) if set(first) == set(SPECIAL_WORDS) else None


class Vocabulary:
    """An immutable list of words, and the id of each word."""

    def __init__(self, words: Sequence[str], source: str = "vocabulary") -> None:
        self.words = tuple(words)
        self.special_ids = self._check(source)
        self._ids = {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __getitem__(self, word: str) -> int:
        """Return the id of `word`, or that of `<UNK>`."""
        return self._ids.get(word, self.special_ids.unknown)

    @property
    def digest(self) -> str:
        """The sha256 of the file that `write` writes."""
        return hashlib.sha256(self._text().encode("utf-8")).hexdigest()

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read and check a vocabulary file."""
        data = read_regular(path, CorpusError, MAX_VOCABULARY_BYTES, "the vocabulary")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as e:
            line = data.count(b"\n", 0, e.start) + 1
            raise CorpusError(
                f"the vocabulary {path} is not UTF-8: line {line} has the byte "
                f"{data[e.start]:#04x}; convert the file to UTF-8"
            ) from None
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        return cls([line.removesuffix("\r") for line in lines], str(path))

    def write(self, path: Path) -> None:
        """Write the vocabulary to `path` atomically."""
        with atomic_file(path) as temporary:
            temporary.write_bytes(self._text().encode("utf-8"))

    def _text(self) -> str:
        return "".join(f"{word}\n" for word in self.words)

    def _check(self, source: str) -> SpecialIds:
        special_ids = SpecialIds.find(self.words)
        if special_ids is None:
            raise CorpusError(
                f"{source} is not a vocabulary: its first lines must be {' '.join(SPECIAL_WORDS)}, "
                "in any order, one word per line, followed by the other words by descending count"
            )
        if " ".join(self.words).split() == [*self.words] and len({*self.words}) == len(self.words):
            return special_ids
        seen: dict[str, int] = {}
        for line, word in enumerate(self.words, 1):
            if word.strip() != word or len(word.split()) != 1:
                raise CorpusError(
                    f"line {line} of {source} is {word!r}; each line must contain one word "
                    "without white space"
                )
            first = seen.setdefault(word, line)
            if first != line:
                raise CorpusError(
                    f"the word {word!r} occurs twice in {source}, on lines {first} and {line}; "
                    "remove the second"
                )
        return special_ids
