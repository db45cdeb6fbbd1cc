from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bilm.embedding.embedder import Embedder
from downstream.features.batches import (
    Batch,
    PooledSource,
    Subset,
    WordTexts,
    make_source,
    pool_vectors,
    word_batch,
)
from downstream.features.store import open_stores
from downstream.features.texts_to_layers import pooled_layers, stream_words
from tests.downstream.order_task import order_texts, tiny_bilm

RNG = np.random.default_rng(0)
LAYERS = [RNG.standard_normal((n, 3, 6)).astype(np.float32) for n in (5, 2, 1, 4)]
VECTORS = [RNG.standard_normal((len(text), 4)).astype(np.float32) for text in LAYERS]
TEXTS = [text for _, text in order_texts(9, seed=1)]
SOME = np.array([4, 0, 7])


def assert_same(one: Batch, other: Batch) -> None:
    for name in ("layers", "vectors", "mask"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        if first is not None:
            torch.testing.assert_close(first, second, atol=1e-6, rtol=0)


def test_word_batches_are_padded_with_zeros() -> None:
    batch = word_batch(LAYERS[:2], VECTORS[:2])
    assert batch.layers.shape == (3, 2, 5, 6)
    assert batch.vectors is not None
    assert batch.mask is not None
    np.testing.assert_array_equal(batch.layers[:, 1, :2].permute(1, 0, 2).numpy(), LAYERS[1])
    assert batch.layers[:, 1, 2:].abs().max() == 0
    np.testing.assert_array_equal(batch.vectors[0].numpy(), VECTORS[0])
    assert batch.mask.sum(dim=1).tolist() == [5, 2]


def test_stored_words_equal_words_in_memory(tmp_path: Path) -> None:
    embedder = Embedder(tiny_bilm())
    store = open_stores(tmp_path, "words", embedder, {"texts": TEXTS})["texts"]
    table = RNG.standard_normal((len(store.types), 4)).astype(np.float32)
    places = {word: i for i, word in enumerate(store.types)}
    words = [text.split() for text in TEXTS]
    vectors = [table[[places[word] for word in text]] for text in words]
    memory = WordTexts(list(stream_words(embedder, words)), vectors)
    source = make_source(store, "gru", table)
    assert len(source) == len(memory) == 9
    np.testing.assert_array_equal(source.lengths, memory.lengths)
    assert_same(source.batch(SOME), memory.batch(SOME))
    assert_same(Subset(source, SOME).batch(np.array([2, 0])), memory.batch(SOME[[2, 0]]))


def test_stored_poolings_equal_poolings_in_memory(tmp_path: Path) -> None:
    embedder = Embedder(tiny_bilm())
    store = open_stores(tmp_path, "pooled", embedder, {"texts": TEXTS})["texts"]
    table = RNG.standard_normal((len(store.types), 4)).astype(np.float32)
    places = {word: i for i, word in enumerate(store.types)}
    words = [text.split() for text in TEXTS]
    vectors = pool_vectors([table[[places[word] for word in text]] for text in words])
    memory = PooledSource(pooled_layers(embedder, words), "max", vectors)
    source = make_source(store, "max", table)
    assert len(source) == len(memory) == 9
    assert_same(source.batch(SOME), memory.batch(SOME))
    assert source.batch(SOME).layers.shape == (3, 3, 1, 12)


def test_other_texts_are_moved_with_the_batch() -> None:
    asked = word_batch([LAYERS[1].astype(np.float16)], VECTORS[1:2])
    batch = replace(word_batch(LAYERS[:1], None), others={"questions": asked})
    moved = batch.to(torch.device("cpu")).others["questions"]
    assert moved.layers.dtype == torch.float32  # as of the batch itself
    torch.testing.assert_close(moved.layers, asked.layers.float())
