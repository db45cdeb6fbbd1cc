"""Represent texts by the mean of context-free word vectors.

The vectors come from a file (downstream/features/word_vectors.py), from skip-gram on the training
texts (gensim), or from their co-occurrences (downstream/baselines/cooccurrence.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from downstream.features.word_vectors import WordVectors

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Return the lower-cased words of a raw text; each punctuation mark is a word."""
    return _WORD.findall(text.lower())


def word_vectors(words: Sequence[str], table: npt.NDArray[np.float32]) -> WordVectors:
    """Return the vectors of `words`, one row of `table` (words, dim) per word."""
    return WordVectors({word: i for i, word in enumerate(words)}, table, table.mean(axis=0))


def mean_vectors(vectors: WordVectors, texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float32]:
    """Return the mean of the known words of each text (texts, dim), zeros where there are none."""
    result = np.zeros((len(texts), vectors.dim), dtype=np.float32)
    for i, text in enumerate(texts):
        rows = [vectors.rows[word] for word in text if word in vectors.rows]
        if rows:
            result[i] = vectors.table[rows].mean(axis=0)
    return result


def skip_gram(
    texts: Sequence[Sequence[str]], *, dim: int, window: int, epochs: int, min_count: int, seed: int
) -> WordVectors:
    """Train skip-gram vectors with negative sampling on `texts`.

    Uses one thread, so that the same seed gives the same vectors.
    """
    from gensim.models import Word2Vec

    model = Word2Vec(
        list(texts),
        sg=1,
        vector_size=dim,
        window=window,
        epochs=epochs,
        min_count=min_count,
        negative=5,
        sample=1e-3,
        workers=1,
        seed=seed,
    )
    return word_vectors(model.wv.index_to_key, np.asarray(model.wv.vectors, dtype=np.float32))
