from __future__ import annotations

import numpy as np
import pytest

from downstream.baselines import cooccurrence
from downstream.baselines.cooccurrence import cooccurrences, positive_information, svd_vectors
from tests.downstream.topic_task import TOPICS, topic_texts

TEXTS = [["a", "b", "c", "a"], ["c"], ["b", "x", "a"]]


def test_counts_pairs_within_the_window_in_both_orders() -> None:
    pairs = cooccurrences(TEXTS, ["a", "b", "c"], window=2).toarray()
    expected = np.zeros((3, 3))
    # a-b, a-c, b-c, b-a, c-a in the first text; b-a across the unknown x in the third
    for first, second in [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (1, 0)]:
        expected[first, second] += 1
        expected[second, first] += 1
    np.testing.assert_array_equal(pairs, expected)


def test_pairs_do_not_cross_texts_or_depend_on_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = cooccurrences(TEXTS * 5, ["a", "b", "c"], window=3).toarray()
    monkeypatch.setattr(cooccurrence, "_PIECE_WORDS", 4)
    np.testing.assert_array_equal(
        cooccurrences(TEXTS * 5, ["a", "b", "c"], window=3).toarray(), whole
    )
    alone = cooccurrences([["a"], ["b"]], ["a", "b"], window=5)
    assert alone.sum() == 0


def test_positive_information_matches_the_formula() -> None:
    pairs = cooccurrences(TEXTS, ["a", "b", "c"], window=2)
    counts = pairs.toarray()
    contexts = counts.sum(axis=0) ** 0.75
    with np.errstate(divide="ignore"):
        expected = np.log(counts / counts.sum(axis=1, keepdims=True) / (contexts / contexts.sum()))
    got = positive_information(pairs).toarray()
    np.testing.assert_allclose(got, np.maximum(expected, 0), atol=1e-5)
    assert (got > 0).any()


def test_words_of_one_topic_are_similar() -> None:
    texts = [text.split() for _, text in topic_texts(600, 0)]
    vectors = svd_vectors(texts, dim=4, window=5, seed=0)
    units = vectors.table / np.linalg.norm(vectors.table, axis=1, keepdims=True)
    similar = units @ units.T
    words = [(word, topic) for topic, members in TOPICS.items() for word in members]
    same: list[float] = []
    other: list[float] = []
    for word, topic in words:
        for second, second_topic in words:
            if word != second:
                place = same if topic == second_topic else other
                place.append(similar[vectors.rows[word], vectors.rows[second]])
    assert np.mean(same) > np.mean(other) + 0.4


def test_vectors_are_reproducible_and_have_the_given_sizes() -> None:
    texts = [text.split() for _, text in topic_texts(60, 0)]
    one, same = (svd_vectors(texts, dim=5, window=3, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.table, same.table)
    assert svd_vectors([["a", "b"]], dim=300, window=5, seed=0).table.shape == (2, 1)
    assert len(svd_vectors(texts, dim=3, window=3, seed=0, max_words=7).rows) == 7
