"""An index of occurrences, opened for reading: its words, their contexts, and their neighbours.

Memory: 16 bytes per word for ids and norms, the distinct words, and a bounded part of the mapped
vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.errors import CheckpointError
from bilm.files.reading import read_regular
from bilm.files.strict_json import read_json
from downstream.analyses.nearest import LayerRows, Match, nearest_rows
from downstream.analyses.occurrences import Occurrence
from downstream.explorer.index_format import (
    OFFSETS_FILE,
    PRODUCTS_FILE,
    TYPES_FILE,
    VECTOR_DTYPE,
    WORDS_FILE,
    IndexRecord,
    layer_file,
    layer_pairs,
    read_record,
    remedy,
)
from downstream.features.mapped_rows import MappedRows

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_MAX_SMALL_FILE_BYTES = 1 << 32


@dataclass(frozen=True)
class _Selection:
    """Some rows of a file of vectors, in memory."""

    rows: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice) -> npt.NDArray[Any]:
        return self.rows[index]


class OccurrenceIndex:
    """The occurrences of all words of a text."""

    def __init__(self, directory: Path, record: IndexRecord) -> None:
        self.directory = directory
        self.record = record
        shape = (record.num_words, record.dim)
        self._layers = [
            MappedRows(directory / layer_file(i), VECTOR_DTYPE, shape)
            for i in range(record.num_layers)
        ]
        pairs = len(layer_pairs(record.num_layers))
        self._products = self._numbers(PRODUCTS_FILE, "<f4", record.num_words * pairs)
        self._products = self._products.reshape(record.num_words, pairs)
        self._offsets = self._numbers(OFFSETS_FILE, "<i8", record.num_sentences + 1)
        self._words = self._numbers(WORDS_FILE, "<i4", record.num_words)
        types = read_json(directory / TYPES_FILE, CheckpointError, _MAX_SMALL_FILE_BYTES)
        self._types: list[str] = types
        self._check()

    @classmethod
    def open(cls, directory: Path, model: str) -> OccurrenceIndex:
        """Open an index that was made with the model whose digest is `model`."""
        return cls(directory, read_record(directory, model))

    def __len__(self) -> int:
        return self.record.num_words

    def occurrence(self, row: int) -> Occurrence:
        """Return the word of a row in its sentence."""
        sentence = int(np.searchsorted(self._offsets, row, side="right")) - 1
        start, end = int(self._offsets[sentence]), int(self._offsets[sentence + 1])
        words = tuple(self._types[i] for i in self._words[start:end])
        return Occurrence(words, row - start)

    @cached_property
    def example(self) -> Occurrence:
        """The first occurrence of a frequent word, of four letters or more if there is one."""
        counts = np.bincount(self._words, minlength=len(self._types))
        by_count = np.argsort(-counts, kind="stable").tolist()
        long = (i for i in by_count if len(self._types[i]) >= 4 and self._types[i].isalpha())
        chosen = next(long, by_count[0])
        return self.occurrence(int(np.argmax(self._words == chosen)))

    def rows_of(self, word: str) -> Ids:
        """Return the rows of all occurrences of a word, ignoring case, in order."""
        ids = self._ids_by_folded_word.get(word.lower(), [])
        rows: Ids = np.flatnonzero(np.isin(self._words, np.array(ids, np.int32)))
        return rows

    def vectors(self, rows: Ids, weights: Sequence[float]) -> Floats:
        """Return the mixed vectors of some rows (rows, dim)."""
        mixed = np.zeros((len(rows), self.record.dim), np.float32)
        for layer, weight in zip(self._layers, weights, strict=True):
            if weight != 0:
                mixed += np.float32(weight) * layer[rows].astype(np.float32)
        return mixed

    def nearest(
        self, query: Floats, weights: Sequence[float], count: int, rows: Ids | None = None
    ) -> list[Match]:
        """Return the nearest occurrences to a mixed vector, among `rows` if they are given."""
        norms = self._norms(weights)
        if rows is None:
            return nearest_rows(LayerRows(self._layers, weights, norms), query, count)
        used = [i for i, weight in enumerate(weights) if weight != 0]
        chosen = LayerRows(
            [_Selection(self._layers[i][rows]) for i in used],
            [weights[i] for i in used],
            norms[rows],
        )
        found = nearest_rows(chosen, query, count)
        return [Match(int(rows[match.row]), match.cosine) for match in found]

    def _norms(self, weights: Sequence[float]) -> Floats:
        """Return the norm of each mixed vector, from the products of the layers."""
        squares = np.zeros(len(self), np.float64)
        for column, (i, j) in enumerate(layer_pairs(self.record.num_layers)):
            factor = weights[i] * weights[j] * (1 if i == j else 2)
            if factor != 0:
                squares += factor * self._products[:, column]
        norms: Floats = np.sqrt(np.maximum(squares, 0)).astype(np.float32)
        return norms

    @cached_property
    def _ids_by_folded_word(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, word in enumerate(self._types):
            # SentencePiece marks a piece that begins a word with a leading ▁.
            found.setdefault(word.lower().lstrip("▁") or word, []).append(i)
        return found

    def _numbers(self, name: str, dtype: str, length: int) -> npt.NDArray[Any]:
        data = read_regular(self.directory / name, CheckpointError, _MAX_SMALL_FILE_BYTES)
        if len(data) != length * np.dtype(dtype).itemsize:
            raise CheckpointError(
                f"{self.directory / name} has {len(data):,} bytes; expected {length:,} numbers of "
                f"{dtype}; {remedy(self.directory)}"
            )
        return np.frombuffer(data, dtype=dtype)

    def _check(self) -> None:
        """Check that offsets, words and types agree."""
        offsets, ids, types = self._offsets, self._words, self._types
        are_words = isinstance(types, list) and all(isinstance(word, str) for word in types)
        if (
            not are_words
            or offsets[0] != 0
            or offsets[-1] != len(self)
            or (offsets[1:] < offsets[:-1]).any()
            or ids.min() < 0
            or ids.max() >= len(types)
        ):
            raise CheckpointError(
                f"the words, offsets and types in {self.directory} do not agree; "
                f"{remedy(self.directory)}"
            )
