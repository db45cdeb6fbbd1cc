"""Batches of representations, from a store or from memory, in the form that heads read.

For the heads that read pooled layers, the "words" of a text are its poolings (mean, maximum, or
both), so that mixing layers and adding word vectors is the same code for all heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.model.devices import copy_to_device
from downstream.features.mapped_rows import MappedRows
from downstream.features.plain_words import PlainWords, WordFile
from downstream.features.store import Store
from downstream.features.texts_to_layers import WordLayers, pool_words, poolings_of
from downstream.features.word_vectors import Table

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FeatureShape:
    """The shape of the features that a head reads.

    `num_poolings` is 0 for heads that read words; `vector_dim` is 0 without word vectors.
    """

    num_layers: int
    dim: int
    vector_dim: int = 0
    num_poolings: int = 0


@dataclass(frozen=True)
class Batch:
    """Layers (layers, texts, words, dim), word vectors (texts, words, width), and a mask.

    `mask` (texts, words) marks words, as opposed to padding; it is None if there is no padding.
    `extras` are further inputs of some heads by name, such as character ids. `others` are batches
    of further texts by name, such as questions about these texts. Sources return batches in host
    memory, with layers of the type of the source.
    """

    layers: Tensor
    vectors: Tensor | None
    mask: Tensor | None
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    others: Mapping[str, Batch] = field(default_factory=dict)

    def to(self, device: torch.device) -> Batch:
        """Return the batch on `device`, with float32 layers; they are copied as they are stored."""
        vectors, mask = (
            None if tensor is None else copy_to_device(tensor, device)
            for tensor in (self.vectors, self.mask)
        )
        extras = {name: copy_to_device(tensor, device) for name, tensor in self.extras.items()}
        others = {name: batch.to(device) for name, batch in self.others.items()}
        return Batch(copy_to_device(self.layers, device).float(), vectors, mask, extras, others)


class Source(Protocol):
    """Texts that can be read in batches."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> Ids:
        """The number of words of each text, used to batch texts of similar length."""

    def batch(self, indices: Ids) -> Batch:
        """Return the texts at `indices`."""


class Targets(Protocol):
    """The targets of examples that have more than one label each, such as tag sequences."""

    def __len__(self) -> int: ...

    def batch(self, indices: Ids) -> Tensor:
        """Return the targets of the examples at `indices`, in host memory."""


@dataclass(frozen=True)
class Examples:
    """Texts and their targets: an array with one number or row per text, or `Targets`.

    If `usual_words` is set, a batch has at most as many words as its usual number of texts has with
    this length: longer texts are read in smaller batches, which bounds the memory.
    """

    source: Source
    labels: npt.NDArray[Any] | Targets
    usual_words: int | None = None

    def targets(self, indices: Ids) -> Tensor:
        """Return the targets of the texts at `indices`, in host memory."""
        if isinstance(self.labels, np.ndarray):
            return torch.from_numpy(self.labels[indices])
        return self.labels.batch(indices)


class PooledSource:
    """Pooled layers (texts, 2, layers, dim), from a store or from memory.

    `vectors` are pooled word vectors (texts, 2, width).
    """

    def __init__(
        self, layers: MappedRows | npt.NDArray[np.float32], head: str, vectors: Table | None = None
    ) -> None:
        self._layers = layers
        self._poolings = poolings_of(head)
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def lengths(self) -> Ids:
        return np.ones(len(self), dtype=np.int64)

    def batch(self, indices: Ids) -> Batch:
        vectors = None if self._vectors is None else self._vectors[indices]
        return pooled_batch(self._layers[indices], vectors, self._poolings)


class WordSource:
    """The layers of every word, from a store, or words without layers."""

    def __init__(self, store: WordFile, table: Table | None) -> None:
        self._store = store
        self._table = table

    def __len__(self) -> int:
        return len(self._store)

    @property
    def lengths(self) -> Ids:
        return np.diff(self._store.offsets)

    def batch(self, indices: Ids) -> Batch:
        words = [self._store.words_of(i) for i in indices]
        vectors = None
        if self._table is not None:
            vectors = [self._table[self._store.word_ids[places]] for places in words]
        return word_batch([self._store.layers_of(places) for places in words], vectors)


class WordTexts:
    """The layers (words, layers, dim) of every word, in memory, rounded as in a store."""

    def __init__(self, layers: Sequence[WordLayers], vectors: Sequence[Table] | None) -> None:
        self._layers = [array.astype(np.float16) for array in layers]
        self._vectors = vectors
        self.lengths: Ids = np.array([len(array) for array in layers])

    def __len__(self) -> int:
        return len(self._layers)

    def batch(self, indices: Ids) -> Batch:
        vectors = None if self._vectors is None else [self._vectors[i] for i in indices]
        return word_batch([self._layers[i] for i in indices], vectors)


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


def make_source(
    store: Store | PlainWords, head: str, table: Table | None
) -> PooledSource | WordSource:
    """Return the source that a head reads; `table` has a vector for each of the store's types."""
    if isinstance(store, PlainWords) or store.kind == "words":
        return WordSource(store, table)
    vectors = None
    if table is not None:
        words = [store.word_ids[store.words_of(i)] for i in range(len(store))]
        vectors = pool_vectors([table[ids] for ids in words])
    return PooledSource(store.rows, head, vectors)


def pool_vectors(texts: Sequence[Table]) -> Table:
    """Return the mean and the maximum of the word vectors of each text (texts, 2, width)."""
    return np.stack([pool_words(vectors) for vectors in texts])


def pooled_batch(
    layers: npt.NDArray[Any], vectors: npt.NDArray[Any] | None, poolings: list[int]
) -> Batch:
    """Make a batch of pooled layers (texts, 2, layers, dim) and vectors (texts, 2, width)."""
    chosen = torch.from_numpy(layers[:, poolings]).permute(2, 0, 1, 3)
    beside = None if vectors is None else torch.from_numpy(vectors[:, poolings])
    return Batch(chosen, beside, None)


def word_batch(layers: Sequence[npt.NDArray[Any]], vectors: Sequence[Table] | None) -> Batch:
    """Make a padded batch of one array (words, layers, dim) and one (words, width) per text."""
    lengths = [len(array) for array in layers]
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    padded = np.zeros((*mask.shape, *layers[0].shape[1:]), dtype=layers[0].dtype)
    padded[mask] = np.concatenate(layers)
    beside = None
    if vectors is not None:
        beside = np.zeros((*mask.shape, vectors[0].shape[1]), dtype=np.float32)
        beside[mask] = np.concatenate(vectors)
    return Batch(
        torch.from_numpy(padded).permute(2, 0, 1, 3),  # (layers, texts, words, dim)
        None if beside is None else torch.from_numpy(beside),
        torch.from_numpy(mask),
    )
