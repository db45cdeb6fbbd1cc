"""Word vectors without context: a table of words, or words and character n-grams (fastText).

A word is looked up as written, then in lower case. A word that is missing in both forms gets the
mean of all vectors, or with fastText the mean of the vectors of its n-grams.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.errors import CheckpointError
from bilm.files.writing import atomic_file, write_text
from downstream.features.word_vectors import WordVectors
from experiments.comparison.features import FloatArray, Words

WORDS_FILE, VECTORS_FILE, GRAMS_FILE = "words.json", "vectors.npy", "ngrams.npy"


def save_table(directory: Path, words: Sequence[str], arrays: Mapping[str, FloatArray]) -> None:
    """Write words, and arrays by file name."""
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / WORDS_FILE, json.dumps(list(words), ensure_ascii=False))
    for name, array in arrays.items():
        with atomic_file(directory / name) as temporary, temporary.open("wb") as file:
            np.save(file, np.asarray(array, dtype=np.float32), allow_pickle=False)


def _read_table(directory: Path) -> WordVectors:
    path = directory / WORDS_FILE
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; train the vectors first")
    words = json.loads(path.read_text(encoding="utf-8"))
    table = np.load(directory / VECTORS_FILE, allow_pickle=False)
    if len(words) != len(table):
        raise CheckpointError(f"{directory} has {len(words)} words and {len(table)} vectors")
    return WordVectors({word: i for i, word in enumerate(words)}, table, table.mean(axis=0))


class TableFeatures:
    """A vector per word type; one layer."""

    num_layers = 1

    def __init__(self, vectors: WordVectors) -> None:
        self._vectors = vectors
        self.dim = vectors.dim
        self.num_parameters = vectors.table.size

    @classmethod
    def read(cls, path: Path) -> TableFeatures:
        """Read a file in GloVe's format."""
        return cls(WordVectors.read(path))

    @classmethod
    def open(cls, directory: Path) -> TableFeatures:
        """Open the output of `save_table`."""
        return cls(_read_table(directory))

    def words(self, sentences: Sequence[Words]) -> list[FloatArray]:
        return [self._vectors.look_up(list(words))[None] for words in sentences]


class SubwordFeatures:
    """fastText: the vectors of known words, and the mean of n-gram vectors for other words."""

    num_layers = 1

    def __init__(
        self, vectors: WordVectors, grams: FloatArray, settings: Mapping[str, Any]
    ) -> None:
        self._vectors, self._grams = vectors, grams
        self._min, self._max = settings["min_gram"], settings["max_gram"]
        self.dim = vectors.dim
        self.num_parameters = vectors.table.size + grams.size
        self._unknown: dict[str, FloatArray] = {}

    @classmethod
    def open(cls, directory: Path, settings: Mapping[str, Any]) -> SubwordFeatures:
        """Open the output of `save_table` with n-grams."""
        grams = np.load(directory / GRAMS_FILE, mmap_mode="r", allow_pickle=False)
        return cls(_read_table(directory), grams, settings)

    def words(self, sentences: Sequence[Words]) -> list[FloatArray]:
        return [np.stack([self._vector(word) for word in words])[None] for words in sentences]

    def _vector(self, word: str) -> FloatArray:
        row = self._vectors.rows.get(word)
        if row is not None:
            known: FloatArray = self._vectors.table[row]
            return known
        if word not in self._unknown:
            self._unknown[word] = self._mean_of_grams(word)
        return self._unknown[word]

    def _mean_of_grams(self, word: str) -> FloatArray:
        from gensim.models.fasttext import ft_ngram_hashes

        hashes = ft_ngram_hashes(word, self._min, self._max, len(self._grams))
        if not len(hashes):
            return self._vectors.mean
        mean: FloatArray = self._grams[np.asarray(hashes, dtype=np.int64)].mean(axis=0)
        return mean
