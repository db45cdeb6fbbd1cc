"""Batches of representations, from stores or from memory, in the one shape that heads read.

For heads of plain pooling the "words" of a text are its poolings (mean, maximum, or both), so that
mixing and joining word vectors are the same code for either kind of head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from downstream.features.store import Store
from downstream.features.texts_to_layers import (
    POOLINGS,
    Layers,
    pool,
)
from downstream.features.word_vectors import Table
from downstream.settings.sections import HeadSettings

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Layers (layers, texts, words, dim), word vectors (texts, words, width), and where words are.

    `mask` (texts, words) is None where there is no padding.
    """

    layers: Tensor
    vectors: Tensor | None
    mask: Tensor | None


class Source(Protocol):
    """Texts that can be had in batches."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> Ids:
        """How many words each text has, for putting like lengths together."""

    def batch(self, indices: Ids) -> Batch:
        """The texts at `indices`."""


class PooledSource:
    """Pooled layers; word vectors are pooled likewise, once, in advance."""

    def __init__(self, store: Store, head: str, table: Table | None) -> None:
        self._store = store
        self._picks = poolings_of(head)
        self._vectors = None
        if table is not None:
            bounds = zip(store.offsets[:-1], store.offsets[1:], strict=True)
            self._vectors = np.stack(
                [pool_vectors(table[store.word_ids[start:end]]) for start, end in bounds]
            )

    def __len__(self) -> int:
        return len(self._store)

    @property
    def lengths(self) -> Ids:
        return np.ones(len(self), dtype=np.int64)

    def batch(self, indices: Ids) -> Batch:
        vectors = None if self._vectors is None else self._vectors[indices]
        return pooled_batch(self._store.rows.take(indices), vectors, self._picks)


class WordSource:
    """The layers of every word, padded to the longest text of the batch."""

    def __init__(self, store: Store, table: Table | None) -> None:
        self._store = store
        self._table = table

    def __len__(self) -> int:
        return len(self._store)

    @property
    def lengths(self) -> Ids:
        return np.diff(self._store.offsets)

    def batch(self, indices: Ids) -> Batch:
        bounds = [(self._store.offsets[i], self._store.offsets[i + 1]) for i in indices]
        vectors = None
        if self._table is not None:
            vectors = [self._table[self._store.word_ids[start:end]] for start, end in bounds]
        return word_batch([self._store.rows.slice(start, end) for start, end in bounds], vectors)


class Subset:
    """Some texts of a source."""

    def __init__(self, source: Source, indices: Ids) -> None:
        self._source = source
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def lengths(self) -> Ids:
        lengths: Ids = self._source.lengths[self._indices]
        return lengths

    def batch(self, indices: Ids) -> Batch:
        return self._source.batch(self._indices[indices])


def make_source(store: Store, head: str, table: Table | None) -> PooledSource | WordSource:
    """What a head reads of `store`; `table` has a vector for each of the store's word types."""
    if store.kind == "pooled":
        return PooledSource(store, head, table)
    return WordSource(store, table)


def poolings_of(head: str) -> list[int]:
    """Which of the stored poolings a head of plain pooling reads."""
    return [i for i, name in enumerate(POOLINGS) if name in head.split("_")]


def pool_vectors(vectors: Table) -> Table:
    """The mean and the maximum over words (2, width)."""
    return np.stack([vectors.mean(axis=0), vectors.max(axis=0)])


def pooled_batch(
    layers: npt.NDArray[Any], vectors: npt.NDArray[Any] | None, picks: list[int]
) -> Batch:
    """Of pooled layers (texts, 2, layers, dim) and pooled vectors (texts, 2, width)."""
    picked = torch.from_numpy(layers[:, picks]).permute(2, 0, 1, 3)
    return Batch(picked, None if vectors is None else torch.from_numpy(vectors[:, picks]), None)


def word_batch(layers: Sequence[npt.NDArray[Any]], vectors: Sequence[Table] | None) -> Batch:
    """Of one array (words, layers, dim) per text, and one (words, width) of vectors."""
    lengths = [len(array) for array in layers]
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    padded = np.zeros((*mask.shape, *layers[0].shape[1:]), dtype=layers[0].dtype)
    padded[mask] = np.concatenate(layers)
    beside = None
    if vectors is not None:
        beside = np.zeros((*mask.shape, vectors[0].shape[1]), dtype=np.float32)
        beside[mask] = np.concatenate(vectors)
    return Batch(
        torch.from_numpy(padded).permute(2, 0, 1, 3).float(),  # (layers, texts, words, dim)
        None if beside is None else torch.from_numpy(beside),
        torch.from_numpy(mask),
    )


def stored_precision(layers: Layers) -> npt.NDArray[np.float16]:
    """What a store of words would have kept of `layers`."""
    return layers.astype(np.float16)


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


class _Window:
    """Texts in memory, in the precision that a store would have kept."""

    def __init__(
        self, layers: list[Layers], vectors: list[Table] | None, head: HeadSettings
    ) -> None:
        self._layers = layers
        self._vectors = vectors
        self._head = head
        self.lengths: Ids = np.array([len(array) for array in layers])

    def __len__(self) -> int:
        return len(self._layers)

    def batch(self, indices: Ids) -> Batch:
        layers = [self._layers[i] for i in indices]
        vectors = None if self._vectors is None else [self._vectors[i] for i in indices]
        if self._head.mode == "words":
            return word_batch([stored_precision(array) for array in layers], vectors)
        return pooled_batch(
            np.stack([pool(array) for array in layers]),
            None if vectors is None else np.stack([pool_vectors(table) for table in vectors]),
            poolings_of(self._head.kind),
        )
