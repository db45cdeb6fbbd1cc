"""Word vectors in GloVe's text format, to stand beside the biLM's: a word and its numbers a line.

A word is looked up as it is, then in lower case; a word that is in neither form gets the mean of
all vectors of the file, or zeros. A first line of two whole numbers (word2vec's text format) is
skipped.

Cost: the file is read once, line by line; only the vectors of words that are asked for are kept.
"""

from __future__ import annotations

import gzip
import io
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError
from bilm.files.reading import open_regular, sha256_of
from bilm.text.lines import bounded_lines

Table = npt.NDArray[np.float32]

_MAX_LINE = 1 << 20


@dataclass(frozen=True)
class WordVectors:
    """The vectors of some words, and the mean of all that the file has."""

    rows: dict[str, int]
    table: Table  # (words, dim)
    mean: Table  # (dim,)

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return len(self.mean)

    @classmethod
    def read(cls, path: Path | str, words: Sequence[str] | None = None) -> WordVectors:
        """Read a file of vectors, plain or .gz; of `words` only (in either case), if given."""
        wanted = None if words is None else {*words, *(word.lower() for word in words)}
        rows: dict[str, int] = {}
        kept = array("f")  # grows in place: the table of a whole file is there once
        total: npt.NDArray[np.float64] | None = None
        count = 0
        for number, line in enumerate(_lines(Path(path)), 1):
            word, rest = _split(line, None if total is None else len(total))
            if number == 1 and word.isdecimal() and rest.strip().isdecimal():
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
            if word not in rows and (wanted is None or word in wanted):
                rows[word] = len(rows)
                kept.frombytes(vector.tobytes())
        if total is None:
            raise CorpusError(f"{path} has no vectors")
        table = np.asarray(kept, dtype=np.float32).reshape(len(rows), len(total))
        return cls(rows, table, (total / count).astype(np.float32))

    def look_up(self, words: Sequence[str], unknown: Literal["mean", "zero"] = "mean") -> Table:
        """One row per word (words, dim)."""
        filler = self.mean if unknown == "mean" else np.zeros_like(self.mean)
        result = np.tile(filler, (len(words), 1))
        for i, word in enumerate(words):
            row = self.rows.get(word, self.rows.get(word.lower()))
            if row is not None:
                result[i] = self.table[row]
        return result

    def known_share(self, words: Sequence[str]) -> float:
        """The share of `words` that have a vector of their own."""
        known = sum(word in self.rows or word.lower() in self.rows for word in words)
        return known / max(len(words), 1)


def vectors_digest(path: Path | str) -> str:
    """The sha256 of the file."""
    return sha256_of(Path(path), CorpusError, "the word vectors")


def _split(line: str, dim: int | None) -> tuple[str, str]:
    """The word and its numbers. Words may hold spaces (". . ."), once we know how many numbers."""
    if dim is not None:
        word, *numbers = line.rstrip().rsplit(" ", dim)
        last = word.rpartition(" ")[2]
        if " " in word and not last.replace(".", "").replace("-", "").isdecimal():
            return word, " ".join(numbers)
    word, _, rest = line.rstrip("\n").partition(" ")
    return word, rest


def _parse(text: str, path: Path, number: int) -> Table:
    try:
        vector = np.array(text.split(), dtype=np.float32)
    except ValueError:
        vector = np.empty(0, dtype=np.float32)
    if not len(vector) or not np.isfinite(vector).all():
        raise CorpusError(
            f"{path}, line {number} is not a word and its numbers, separated by spaces: "
            f"{text[:60]!r}"
        )
    return vector


def _lines(path: Path) -> Iterator[str]:
    try:
        with open_regular(path, CorpusError, "the word vectors") as raw:
            data: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            # Only line feeds end a line: some words of GloVe hold other separators.
            text = io.TextIOWrapper(data, encoding="utf-8", newline="\n")
            yield from bounded_lines(text, path, _MAX_LINE)
    except UnicodeDecodeError as e:
        raise CorpusError(f"{path} is not UTF-8 text: {e.object[e.start]:#04x}") from None
    except EOFError:
        raise CorpusError(f"{path} is cut short: its compressed data ends too early") from None
    except (zlib.error, OSError) as e:
        reason = getattr(e, "strerror", None) or e
        raise CorpusError(f"cannot read the word vectors {path}: {reason}") from None
