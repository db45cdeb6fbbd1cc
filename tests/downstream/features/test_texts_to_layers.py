from __future__ import annotations

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, CorpusError
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features.texts_to_layers import (
    TextReading,
    pool_words,
    pooled_layers,
    poolings_of,
    stream_words,
    tokenize,
)
from tests.downstream.order_task import order_texts, tiny_bilm

TEXTS = [text.split() for _, text in order_texts(12, seed=1)]


def test_tokenize_truncates_texts() -> None:
    assert tokenize(tiny_bilm(), ["a b c"], TextReading(max_words=2)) == [["a", "b"]]


def test_raw_text_needs_a_tokenizer() -> None:
    model = tiny_bilm()
    bare = PretrainedBiLm(model.model, model.vocabulary, None)
    assert tokenize(bare, ["a b"], TextReading(tokenized=True)) == [["a", "b"]]
    with pytest.raises(CheckpointError, match="--tokenized"):
        tokenize(bare, ["a b"], TextReading())


def test_rejects_text_without_words() -> None:
    with pytest.raises(CorpusError, match=r"text 2 \(' '\) has no words"):
        tokenize(tiny_bilm(), ["a", " "], TextReading())


def test_pooled_layers_equal_pooled_words() -> None:
    embedder = Embedder(tiny_bilm())
    expected = np.stack([pool_words(layers) for layers in stream_words(embedder, TEXTS)])
    pooled = pooled_layers(embedder, TEXTS)
    assert pooled.shape == (12, 2, embedder.num_layers, embedder.dim)
    np.testing.assert_allclose(pooled, expected, atol=1e-6)


def test_text_without_words_pools_to_zeros() -> None:
    assert not pooled_layers(Embedder(tiny_bilm()), [["a"], []])[1].any()


def test_mean_is_accumulated_in_float64() -> None:
    words = np.array([[1e8], [1.0], [-1e8]], dtype=np.float32)
    np.testing.assert_array_equal(pool_words(words), [[np.float32(1 / 3)], [np.float32(1e8)]])


def test_poolings_of_heads() -> None:
    heads = ("mean", "max", "mean_max", "gru")
    assert [poolings_of(head) for head in heads] == [[0], [1], [0, 1], []]
