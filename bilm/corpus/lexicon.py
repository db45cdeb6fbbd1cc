"""The word types of a corpus by id, with their bytes, character ids and counts.

The lexicon consists of three files: `lexicon.bin` (the UTF-8 bytes of all words, concatenated),
`lexicon.offsets.npy` (int64, the start of each word, and the end of the last) and
`lexicon.counts.npy` (int64, the number of occurrences of each word in the training text). Ids 0, 1
and 2 are `<S>`, `</S>` and `<UNK>`, in the order of the vocabulary file; the softmax vocabulary
comes first, the rarer words after it.

Cost: the files are memory-mapped. The character ids of the most frequent words (at most 2**18) are
kept in a table that is built on first use, 100 bytes per word at 50 characters; the others are
computed from their bytes, about 0.7 microseconds per word.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError
from bilm.files.mapping import Bytes, npy_array
from bilm.text.characters import SPECIAL_WORDS, CharIds, spell
from bilm.text.vocabulary import SpecialIds

BYTES_FILE = "lexicon.bin"

OFFSETS_FILE = "lexicon.offsets.npy"

COUNTS_FILE = "lexicon.counts.npy"

LEXICON_FILES = (BYTES_FILE, OFFSETS_FILE, COUNTS_FILE)

_MAX_TABLE_TYPES = 1 << 18

_TABLE_STEP_TYPES = 1 << 14

WordIds = npt.NDArray[np.integer]


class Lexicon:
    """The word types of a corpus; thread-safe."""

    def __init__(self, directory: Path, num_types: int, map_file: Callable[[str], Bytes]) -> None:
        """Open the lexicon in `directory`; `map_file` maps one of its files by name."""
        self._directory = directory
        self._bytes = map_file(BYTES_FILE)
        self._offsets: npt.NDArray[np.int64] = npy_array(
            map_file(OFFSETS_FILE), "<i8", num_types + 1, directory / OFFSETS_FILE
        )
        self.counts: npt.NDArray[np.int64] = npy_array(
            map_file(COUNTS_FILE), "<i8", num_types, directory / COUNTS_FILE
        )
        self.special_ids = self._check()
        self._tables: dict[int, CharIds] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.counts)

    def word(self, word_id: int) -> str:
        """Return the word with this id."""
        try:
            return self.word_bytes(word_id).decode("utf-8")
        except UnicodeDecodeError:
            raise CorpusError(
                f"word {word_id} of {self._directory / BYTES_FILE} is not UTF-8; rebuild the corpus"
            ) from None

    def word_bytes(self, word_id: int) -> bytes:
        """Return the bytes of the word with this id."""
        if not 0 <= word_id < len(self):
            raise IndexError(f"word id {word_id} is not in 0..{len(self) - 1}")
        start, stop = self._offsets[word_id : word_id + 2].tolist()
        return self._bytes[start:stop].tobytes()

    def begins_with(self, words: list[bytes]) -> bool:
        """Return whether `words` are the first words, in this order."""
        lengths = np.fromiter((len(word) for word in words), dtype=np.int64, count=len(words))
        end = int(self._offsets[len(words)]) if len(words) <= len(self) else -1
        return (
            end == int(lengths.sum())
            and np.array_equal(np.cumsum(lengths), self._offsets[1 : len(words) + 1])
            and self._bytes[:end].tobytes() == b"".join(words)
        )

    def char_ids(self, word_ids: WordIds, max_characters: int = 50) -> CharIds:
        """Return the character ids of words: (words, max_characters)."""
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
        """Return the character ids of the most frequent words; the first call builds the table."""
        table = self._tables.get(max_characters)
        if table is not None:
            return table
        with self._lock:
            if max_characters not in self._tables:
                size = min(len(self), _MAX_TABLE_TYPES)
                table = np.empty((size, max_characters), dtype=np.int16)
                for start in range(0, size, _TABLE_STEP_TYPES):
                    stop = min(start + _TABLE_STEP_TYPES, size)
                    table[start:stop] = self._spell(np.arange(start, stop), max_characters)
                self._tables[max_characters] = table
            return self._tables[max_characters]

    def _spell(self, ids: WordIds, max_characters: int) -> CharIds:
        starts = self._offsets[ids]
        lengths = self._offsets[np.add(ids, 1)] - starts
        return spell(self._bytes, starts, lengths, max_characters)

    def _check(self) -> SpecialIds:
        path = self._directory / OFFSETS_FILE
        offsets = self._offsets
        if (
            offsets[0] != 0
            or offsets[-1] != len(self._bytes)
            or np.any(offsets[1:] <= offsets[:-1])
        ):
            raise CorpusError(
                f"{path} is damaged: its offsets must increase from 0 to {len(self._bytes):,}, the "
                f"size of {BYTES_FILE}; copy the corpus again, or rebuild it"
            )
        first = [self.word_bytes(i).decode("utf-8", "replace") for i in range(len(SPECIAL_WORDS))]
        special_ids = SpecialIds.find(first)
        if special_ids is None:
            raise CorpusError(
                f"{self._directory / BYTES_FILE} is damaged: it must begin with "
                f"{' '.join(SPECIAL_WORDS)}, in any order; copy the corpus again, or rebuild it"
            )
        return special_ids
