from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bilm.errors import CorpusError
from data_tools.building.counting import FinalOrder, TypeCounter, rank_correlation


def test_adds_counts_of_many_types() -> None:
    random = np.random.default_rng(0)
    counter, expected = TypeCounter(), Counter[str]()
    seen: dict[str, int] = {}
    for _ in range(20):
        words = [f"w{i}" for i in np.unique(random.integers(0, 300_000, 10_000)).tolist()]
        counts = random.integers(0, 5, len(words))
        ids = counter.add(words, counts)
        expected.update(dict(zip(words, counts.tolist(), strict=True)))
        for word, provisional in zip(words, ids.tolist(), strict=True):
            assert seen.setdefault(word, provisional) == provisional
    assert len(counter) > 1 << 16  # the array of counts has grown
    assert counter.types == list(seen)
    assert dict(zip(counter.types, counter.counts.tolist(), strict=True)) == dict(expected)


def test_final_order() -> None:
    counter = TypeCounter()
    counter.add(["b", "é", "z", "a", "<UNK>", "rare"], np.array([2, 2, 5, 2, 1, 0]))
    order = FinalOrder(counter, None)
    assert order.types == ["<S>", "</S>", "<UNK>", "z", "a", "b", "é", "rare"]
    assert order.counts.tolist() == [0, 0, 1, 5, 2, 2, 2, 0]
    assert [order.types[i] for i in order.final_ids] == counter.types
    assert order.vocabulary_size(100, 1) == 7
    assert order.vocabulary_size(5, 1) == 5
    assert order.vocabulary_size(100, 3) == 4
    with pytest.raises(CorpusError, match="no word occurs 6 times"):
        order.vocabulary_size(100, 6)


def test_rank_correlation() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    for _ in range(20):
        a, b = random.integers(0, 10, (2, 50))
        assert rank_correlation(a, b) == pytest.approx(scipy_stats.spearmanr(a, b).statistic)
    assert rank_correlation(np.arange(9), np.arange(9) ** 3) == pytest.approx(1)
    assert rank_correlation(np.arange(9), np.zeros(9, np.int64)) == 1
