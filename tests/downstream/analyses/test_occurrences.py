from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.text.tokenizers import WhitespaceTokenizer
from downstream.analyses.occurrences import (
    Occurrence,
    cosines,
    find_occurrences,
    label_purities,
    nearest_neighbours,
    occurrence_vectors,
    principal_plane,
)
from tests.downstream.topic_task import embedder, golden_bilm

LINES = [
    "the bank near water",
    "a Bank and cash",
    "no such word",
    "the bank near water",
    "bankrupt",
]


def test_finds_whole_words_in_distinct_sentences() -> None:
    occurrences = find_occurrences(
        ((line, None) for line in LINES), "bank", WhitespaceTokenizer(), limit=9
    )
    assert [(o.words[o.place], o.place) for o in occurrences] == [("bank", 1), ("Bank", 1)]
    one = find_occurrences(((line, None) for line in LINES), "bank", WhitespaceTokenizer(), 1)
    assert len(one) == 1


def test_marks_the_word_in_its_context() -> None:
    assert Occurrence(("a", "bank", "b"), 1).marked() == "a [bank] b"
    long = Occurrence(tuple(map(str, range(40))), 20).marked()
    assert long.startswith("… 11 12 ")
    assert long.endswith(" 28 29 …")
    assert "[20]" in long


def test_vectors_match_the_embedder(tmp_path: Path) -> None:
    golden_bilm().save_pretrained(tmp_path / "model")
    model = embedder(tmp_path)
    occurrences = [Occurrence(("the", "bank"), 1), Occurrence(("bank", "and", "cash"), 0)]
    vectors = occurrence_vectors(model, occurrences)
    for i, occurrence in enumerate(occurrences):
        (expected,) = model.embed([occurrence.words])
        np.testing.assert_allclose(vectors[:, i], expected[:, occurrence.place], atol=1e-6)


def test_cosines_match_the_formula() -> None:
    first = np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    second = np.array([[4.0, 3.0], [-3.0, -4.0]], dtype=np.float32)
    np.testing.assert_allclose(cosines(first, second), np.array([[0.96, -1.0], [0, 0]]), atol=1e-6)


def test_measures_the_share_of_neighbours_with_the_same_label() -> None:
    labels = ["x"] * 12 + ["y"] * 12
    occurrences = [Occurrence((str(i),), 0, label) for i, label in enumerate(labels)]
    rng = np.random.default_rng(0)
    equal = np.ones((24, 2))
    separate = np.array([[1.0, 0.0]] * 12 + [[0.0, 1.0]] * 12) + 0.01 * rng.random((24, 2))
    shares = label_purities(occurrences, np.stack([equal, separate]).astype(np.float32))
    assert shares is not None
    assert shares[1] == 1.0
    assert shares[0] == pytest.approx(11 / 23, abs=0.12)  # by chance
    assert label_purities([Occurrence(("a",), 0)] * 3, np.ones((1, 3, 2), np.float32)) is None


def test_query_is_not_its_own_neighbour() -> None:
    occurrences = [
        Occurrence((word, "bank"), 1, label) for word, label in zip("abc", "xyx", strict=True)
    ]
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]], dtype=np.float32)
    (first,) = nearest_neighbours(occurrences[:1], vectors[:1], occurrences, vectors, count=5)
    assert (first.query, first.label) == ("a [bank]", "x")
    assert [near.sentence for near in first.nearest] == ["c [bank]", "b [bank]"]
    assert [near.label for near in first.nearest] == ["x", "y"]
    assert first.nearest[1].cosine == 0.0


def test_plane_explains_the_variance_of_two_components() -> None:
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((20, 2)).astype(np.float32) @ np.ones((2, 5), np.float32)
    points, variance = principal_plane(flat)
    assert points.shape == (20, 2)
    assert variance == pytest.approx(1.0)
    points, variance = principal_plane(np.ones((4, 3), np.float32))
    assert (variance, np.abs(points).max()) == (0.0, 0.0)
