from __future__ import annotations

import numpy as np

from downstream.features.batches import WordSource
from downstream.features.plain_words import PlainWords, WordLayersFile


def test_words_without_layers_make_batches_without_layers() -> None:
    words = PlainWords.of_texts([["a", "b", "a"], ["c"]])
    assert words.types == ["a", "b", "c"]
    assert words.word_ids.tolist() == [0, 1, 0, 2]
    table = np.array([[1.0], [2.0], [3.0]], dtype=np.float32)
    batch = WordSource(words, table).batch(np.array([1, 0]))
    assert batch.layers.shape == (0, 2, 3, 0)
    assert batch.vectors is not None
    assert batch.vectors[..., 0].tolist() == [[3, 0, 0], [1, 2, 1]]
    assert batch.mask is not None
    assert batch.mask.tolist() == [[True, False, False], [True, True, True]]


def test_words_with_layers_in_memory() -> None:
    layers = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)
    file = WordLayersFile(PlainWords.of_texts([["a", "b", "a"], ["c"]]), layers)
    assert len(file) == 2
    batch = WordSource(file, None).batch(np.array([1]))
    np.testing.assert_array_equal(batch.layers[:, 0, 0], layers[3])
