"""Read word vectors in GloVe's text format: one word and its numbers per line.

A word is looked up as written, then in lower case; a word that is missing in both forms gets the
mean of all vectors of the file, or zeros. A word that occurs again is reported in the log. A first
line of two integers (word2vec's text format) is skipped.

Cost: the file is read once, line by line; only the vectors of requested words are kept.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError
from bilm.files.reading import sha256_of
from bilm.text.lines import LineReader
from downstream.texts.counts import counted

logger = logging.getLogger(__name__)

Table = npt.NDArray[np.float32]

_MAX_NUMBER = 1e18  # its square is a float32 number, also if some are added
_MAX_LINE_BYTES = 1 << 20

_NO_VECTORS = "{} has no vectors; expected one word and its numbers per line"


@dataclass(frozen=True)
class WordVectors:
    """The vectors of some words, and the mean of all vectors of the file."""

    rows: dict[str, int]
    table: Table  # (words, dim)
    mean: Table  # (dim,)

    @property
    def dim(self) -> int:
        """The width of a vector."""
        return len(self.mean)

    @classmethod
    def read(cls, path: Path | str, words: Sequence[str] | None = None) -> WordVectors:
        """Read a file, plain or compressed; keep only `words` (as written and in lower case)."""
        wanted = None if words is None else {*words, *(word.lower() for word in words)}
        rows: dict[str, int] = {}
        kept = array("f")  # grows in place, so a large table is in memory only once
        total: npt.NDArray[np.float64] | None = None
        count = 0
        repeated: list[tuple[int, str]] = []
        for number, line in enumerate(_lines(path), 1):
            word, rest = _split(line, None if total is None else len(total))
            if number == 1 and _is_header(word, rest):
                continue
            vector = _parse(rest, Path(path), number)
            if total is None:
                total = np.zeros(len(vector))
            if len(vector) != len(total):
                raise CorpusError(
                    f"{path}, line {number} has {len(vector)} numbers; the lines before it have "
                    f"{len(total)}"
                )
            total += vector
            count += 1
            if word in rows:
                repeated.append((number, word))
            elif wanted is None or word in wanted:
                rows[word] = len(rows)
                kept.frombytes(vector.tobytes())
        _report(repeated, path)
        if total is None:
            raise CorpusError(_NO_VECTORS.format(path))
        table = np.asarray(kept, dtype=np.float32).reshape(len(rows), len(total))
        return cls(rows, table, (total / count).astype(np.float32))

    def look_up(self, words: Sequence[str], unknown: Literal["mean", "zero"] = "mean") -> Table:
        """Return one row per word: (words, dim)."""
        filler = self.mean if unknown == "mean" else np.zeros_like(self.mean)
        result = np.tile(filler, (len(words), 1))
        for i, word in enumerate(words):
            row = self.rows.get(word, self.rows.get(word.lower()))
            if row is not None:
                result[i] = self.table[row]
        return result

    def known_share(self, words: Sequence[str]) -> float:
        """Return the share of `words` that have a vector of their own."""
        known = sum(word in self.rows or word.lower() in self.rows for word in words)
        return known / max(len(words), 1)


def check_vectors(path: Path | str) -> None:
    """Raise CorpusError if the file cannot be read or its first vector is invalid."""
    for number, line in enumerate(_lines(path), 1):
        word, rest = _split(line, None)
        if number > 1 or not _is_header(word, rest):
            _parse(rest, Path(path), number)
            return
    raise CorpusError(_NO_VECTORS.format(path))


def vectors_digest(path: Path | str) -> str:
    """Return the sha256 of the file."""
    return sha256_of(Path(path), CorpusError, "the word vectors")


def _lines(path: Path | str) -> Iterator[str]:
    return LineReader(Path(path), max_line_bytes=_MAX_LINE_BYTES).lines()


def _is_header(word: str, rest: str) -> bool:
    """Return whether a first line has two integers, as in word2vec's text format."""
    return word.isdecimal() and rest.strip().isdecimal()


def _split(line: str, dim: int | None) -> tuple[str, str]:
    """Split a line into the word and its numbers; if `dim` is known, the word may have spaces."""
    if dim is not None:
        word, *numbers = line.rstrip().rsplit(" ", dim)
        last = word.rpartition(" ")[2]
        if " " in word and not last.replace(".", "").replace("-", "").isdecimal():
            return word, " ".join(numbers)
    word, _, rest = line.rstrip("\n").partition(" ")
    return word, rest


def _parse(text: str, path: Path, number: int) -> Table:
    try:
        vector = np.array(text.split(), dtype=np.float64)
    except ValueError:
        vector = np.empty(0)
    if not len(vector) or not np.isfinite(vector).all():
        raise CorpusError(
            f"{path}, line {number} is not a word and its numbers, separated by spaces: "
            f"{text[:60]!r}"
        )
    if (np.abs(vector) > _MAX_NUMBER).any():
        raise CorpusError(
            f"{path}, line {number} has the number {vector[np.abs(vector).argmax()]:g}; expected "
            f"numbers between -{_MAX_NUMBER:g} and {_MAX_NUMBER:g}. Scale the vectors"
        )
    return vector.astype(np.float32)


def _report(repeated: Sequence[tuple[int, str]], path: Path | str) -> None:
    """Log the first word that occurs again, if there is one."""
    if repeated:
        number, word = repeated[0]
        logger.warning(
            "%s, line %d: the word %r occurs again; its first vector is used (%s in total)",
            path,
            number,
            word,
            counted(len(repeated), "such line"),
        )
