"""Texts to the pooled layers of a frozen biLM, in memory: what the scikit-learn estimators read.

Texts pass in windows of a bounded number of words; what remains of a text is its mean and maximum
of every layer, 8 x layers x dim bytes (6 kB at 3 layers of 256).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilm.embedder import Embedder
from downstream.features import Batch, Ids, pooled_batch, poolings_of
from downstream.stores import Layers, embed_texts, pool, windows_of


def pooled_layers(embedder: Embedder, texts: Sequence[list[str]]) -> Layers:
    """Mean and maximum of every layer (texts, 2, layers, dim); a text without words has zeros."""
    result = np.zeros((len(texts), 2, embedder.num_layers, embedder.dim), dtype=np.float32)
    places = [i for i, words in enumerate(texts) if words]
    done = 0
    for window in windows_of([texts[i] for i in places]) if places else ():
        for layers in embed_texts(embedder, window):
            result[places[done]] = pool(layers)
            done += 1
    return result


class PooledTexts:
    """Pooled layers in memory, as a source of batches for a head of plain pooling."""

    def __init__(self, layers: Layers, head: str) -> None:
        self._layers = layers
        self._picks = poolings_of(head)

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def lengths(self) -> Ids:
        return np.ones(len(self), dtype=np.int64)

    def batch(self, indices: Ids) -> Batch:
        return pooled_batch(self._layers[indices], None, self._picks)
