"""Long texts are read in windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from downstream.features.store import open_stores
from downstream.features.texts_to_layers import (
    TextReading,
    pool_words,
    pooled_layers,
    stream_pooled,
    stream_words,
    text_windows,
    tokenize,
    window_lengths,
)
from tests.downstream.order_task import WORDS, tiny_bilm

RNG = np.random.default_rng(0)
TEXTS = [[str(word) for word in RNG.choice(WORDS, n)] for n in (3, 11, 10, 1, 23)]
MAX_WORDS = 10


@pytest.mark.parametrize(
    ("num_words", "lengths"),
    [(0, [0]), (1, [1]), (10, [10]), (11, [5, 6]), (20, [10, 10]), (23, [7, 8, 8])],
)
def test_windows_have_nearly_equal_lengths(num_words: int, lengths: list[int]) -> None:
    assert window_lengths(num_words, MAX_WORDS) == lengths
    words = [str(i) for i in range(num_words)]
    windows = list(text_windows(words, MAX_WORDS))
    assert [len(window) for window in windows] == lengths
    assert [word for window in windows for word in window] == words


def test_vectors_of_short_texts_are_unchanged() -> None:
    embedder = Embedder(tiny_bilm())
    short = [words for words in TEXTS if len(words) <= MAX_WORDS]
    for stream in (stream_words, stream_pooled):
        for cut, whole in zip(
            stream(embedder, short, MAX_WORDS), stream(embedder, short), strict=True
        ):
            np.testing.assert_array_equal(cut, whole)


def test_states_start_at_zero_in_each_window() -> None:
    embedder = Embedder(tiny_bilm())
    for words, layers in zip(TEXTS, stream_words(embedder, TEXTS, MAX_WORDS), strict=True):
        expected = np.concatenate(embedder.embed(list(text_windows(words, MAX_WORDS))), axis=1)
        np.testing.assert_allclose(layers, expected.transpose(1, 0, 2), atol=1e-6)
        whole = embedder.embed([words])[0].transpose(1, 0, 2)
        is_equal = np.allclose(layers, whole, atol=1e-6)
        assert is_equal == (len(words) <= MAX_WORDS)
        np.testing.assert_allclose(layers[:, 0], whole[:, 0], atol=1e-6)  # words without context


def test_pooled_windows_equal_pooled_words() -> None:
    embedder = Embedder(tiny_bilm())
    expected = [pool_words(layers) for layers in stream_words(embedder, TEXTS, MAX_WORDS)]
    pooled = pooled_layers(embedder, TEXTS, MAX_WORDS)
    np.testing.assert_allclose(pooled, np.stack(expected), atol=1e-6)


def test_all_words_are_read_unless_texts_are_cut() -> None:
    texts = [" ".join(words) for words in TEXTS]
    windows = tokenize(tiny_bilm(), texts, TextReading(max_words=10, long_texts="windows"))
    assert windows == TEXTS
    cut = tokenize(tiny_bilm(), texts, TextReading(max_words=10, long_texts="cut"))
    assert cut == [words[:10] for words in TEXTS]


@pytest.mark.parametrize("kind", ["pooled", "words"])
def test_stores_of_windows_and_of_cut_texts_differ(tmp_path: Path, kind: str) -> None:
    embedder = Embedder(tiny_bilm())
    stores = [
        open_stores(
            tmp_path,
            kind,  # type: ignore[arg-type]
            embedder,
            {"texts": TEXTS},
            TextReading(True, MAX_WORDS, long_texts),  # type: ignore[arg-type]
        )["texts"]
        for long_texts in ("windows", "cut")
    ]
    assert stores[0].directory != stores[1].directory
    assert np.diff(stores[0].offsets).tolist() == [3, 11, 10, 1, 23]
    assert np.diff(stores[1].offsets).tolist() == [3, 10, 10, 1, 10]
    if kind == "words":
        layers = list(stream_words(embedder, TEXTS, MAX_WORDS))
        rows = stores[0].layers_of(stores[0].words_of(4))
        np.testing.assert_allclose(rows, layers[4], atol=2e-3)
    else:
        expected = pooled_layers(embedder, TEXTS, MAX_WORDS)
        np.testing.assert_allclose(stores[0].rows[np.arange(5)], expected, atol=1e-6)
