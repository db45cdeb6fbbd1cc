"""All word types of a corpus, by id: their bytes, their character ids, their counts.

Three files: `lexicon.bin` (the UTF-8 bytes of all words, one after the other),
`lexicon.offsets.npy` (int64, where each word begins, and the end) and `lexicon.counts.npy` (int64,
how often each stands in the training text). Ids 0, 1, 2 are `<S>`, `</S>`, `<UNK>`; the softmax
vocabulary comes first, the rarer words after it.

Cost: the files are memory-mapped. The character ids of the commonest words (at most 2**18) are
kept in a table once asked for, 100 bytes a word at 50 characters; the others are computed from
their bytes, about 0.7 microseconds a word.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError
from bilm.files.reading import Bytes, npy_array
from bilm.text.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    END_SENTENCE,
    END_WORD,
    PADDING,
    SPECIAL_WORDS,
    CharIds,
)

BYTES_FILE = "lexicon.bin"

OFFSETS_FILE = "lexicon.offsets.npy"

COUNTS_FILE = "lexicon.counts.npy"

LEXICON_FILES = (BYTES_FILE, OFFSETS_FILE, COUNTS_FILE)

_TABLE_TYPES = 1 << 18

_TABLE_STEP = 1 << 14

_SPECIAL_BYTES = [word.encode() for word in SPECIAL_WORDS]

WordIds = npt.NDArray[np.integer]


class Lexicon:
    """The word types of a corpus; thread-safe."""

    def __init__(self, directory: Path, num_types: int, map_named: Callable[[str], Bytes]) -> None:
        """Open the lexicon in `directory`, whose files `map_named` maps."""
        self._directory = directory
        self._bytes = map_named(BYTES_FILE)
        self._offsets: npt.NDArray[np.int64] = npy_array(
            map_named(OFFSETS_FILE), "<i8", num_types + 1, directory / OFFSETS_FILE
        )
        self.counts: npt.NDArray[np.int64] = npy_array(
            map_named(COUNTS_FILE), "<i8", num_types, directory / COUNTS_FILE
        )
        self._check()
        self._tables: dict[int, CharIds] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.counts)

    def word(self, word_id: int) -> str:
        """The word with this id."""
        try:
            return self.word_bytes(word_id).decode("utf-8")
        except UnicodeDecodeError:
            raise CorpusError(
                f"word {word_id} of {self._directory / BYTES_FILE} is not UTF-8: "
                "build the corpus anew"
            ) from None

    def word_bytes(self, word_id: int) -> bytes:
        """The bytes of the word with this id."""
        if not 0 <= word_id < len(self):
            raise IndexError(f"word id {word_id} is not in 0..{len(self) - 1}")
        start, stop = self._offsets[word_id : word_id + 2].tolist()
        return self._bytes[start:stop].tobytes()

    def begins_with(self, words: list[bytes]) -> bool:
        """Whether these are the first words, in this order."""
        lengths = np.fromiter((len(word) for word in words), dtype=np.int64, count=len(words))
        end = int(self._offsets[len(words)]) if len(words) <= len(self) else -1
        return (
            end == int(lengths.sum())
            and np.array_equal(np.cumsum(lengths), self._offsets[1 : len(words) + 1])
            and self._bytes[:end].tobytes() == b"".join(words)
        )

    def char_ids(self, word_ids: WordIds, max_characters: int = 50) -> CharIds:
        """Character ids of words: (words, max_characters), as `bilm.characters.char_ids`."""
        ids = np.asarray(word_ids)
        if len(ids) and not (ids.min() >= 0 and ids.max() < len(self)):
            raise IndexError(f"word ids {ids.min()}..{ids.max()} are not in 0..{len(self) - 1}")
        table = self._table(max_characters)
        if len(table) == len(self):
            return table[ids]
        rows: CharIds = table.take(ids, axis=0, mode="clip")
        rare = np.flatnonzero(ids >= len(table))
        rows[rare] = self._spell(ids[rare], max_characters)
        return rows

    def _table(self, max_characters: int) -> CharIds:
        """Character ids of the commonest words, made at the first call."""
        table = self._tables.get(max_characters)
        if table is not None:
            return table
        with self._lock:
            if max_characters not in self._tables:
                size = min(len(self), _TABLE_TYPES)
                table = np.empty((size, max_characters), dtype=np.int16)
                for start in range(0, size, _TABLE_STEP):
                    stop = min(start + _TABLE_STEP, size)
                    table[start:stop] = self._spell(np.arange(start, stop), max_characters)
                self._tables[max_characters] = table
            return self._tables[max_characters]

    def _spell(self, ids: WordIds, max_characters: int) -> CharIds:
        """Character ids of `ids` from their bytes."""
        if max_characters < 3:
            raise ValueError(f"max_characters is {max_characters}; a word needs at least 3")
        starts = self._offsets[ids]
        lengths = np.minimum(self._offsets[np.add(ids, 1)] - starts, max_characters - 2)
        columns = np.arange(max_characters - 2)
        inside = columns < lengths[:, None]  # (words, max_characters - 2)
        places = np.where(inside, starts[:, None] + columns, 0)
        rows = np.full((len(ids), max_characters), PADDING, dtype=np.int16)
        rows[:, 0] = BEGIN_WORD
        np.copyto(rows[:, 1:-1], self._bytes[places], where=inside)
        rows[np.arange(len(ids)), lengths + 1] = END_WORD
        for word_id, character in ((0, BEGIN_SENTENCE), (1, END_SENTENCE)):
            rows[ids == word_id] = PADDING
            rows[ids == word_id, :3] = (BEGIN_WORD, character, END_WORD)
        return rows

    def _check(self) -> None:
        path = self._directory / OFFSETS_FILE
        offsets = self._offsets
        if (
            offsets[0] != 0
            or offsets[-1] != len(self._bytes)
            or np.any(offsets[1:] <= offsets[:-1])
        ):
            raise CorpusError(
                f"{path} must rise from 0 to {len(self._bytes):,}, the size of {BYTES_FILE}; it "
                "does not: the file is damaged, copy the corpus again or build it anew"
            )
        if not self.begins_with(_SPECIAL_BYTES):
            raise CorpusError(
                f"{self._directory / BYTES_FILE} must begin with {' '.join(SPECIAL_WORDS)}; it "
                "does not: the file is damaged, copy the corpus again or build it anew"
            )
