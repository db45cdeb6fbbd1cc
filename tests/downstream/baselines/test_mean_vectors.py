from __future__ import annotations

import numpy as np

from downstream.baselines.mean_vectors import mean_vectors, skip_gram, word_vectors, words_of
from tests.downstream.topic_task import topic_texts


def test_words_are_lower_cased_and_split_from_punctuation() -> None:
    expected = ["don't", "play", ",", "u", ".", "s", ".", "naïve", "!"]
    assert words_of("Don't PLAY, U.S. naïve!") == expected
    assert words_of(" \n") == []


def test_mean_covers_known_words_only() -> None:
    vectors = word_vectors(["a", "b"], np.array([[1.0, 2.0], [3.0, 6.0]], dtype=np.float32))
    means = mean_vectors(vectors, [["a", "b", "a"], ["b", "x"], ["x"], []])
    expected = np.array([[5 / 3, 10 / 3], [3, 6], [0, 0], [0, 0]])
    np.testing.assert_allclose(means, expected, rtol=1e-6)


def test_skip_gram_depends_on_seed() -> None:
    texts = [text.split() for _, text in topic_texts(60, 0)]
    options = {"dim": 8, "window": 3, "epochs": 2, "min_count": 1}
    one, same, other = (skip_gram(texts, **options, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.table, same.table)
    assert one.rows == same.rows
    assert np.abs(one.table - other.table).max() > 1e-3
    assert set(one.rows) == {word for text in texts for word in text}
