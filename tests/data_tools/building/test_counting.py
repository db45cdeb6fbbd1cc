from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bilm.errors import CorpusError
from data_tools.building.counting import FinalOrder, TypeCounter, rank_correlation
from tests.data_tools.corpus_building import build


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


def test_sorts_types_by_decreasing_count() -> None:
    counter = TypeCounter()
    counter.add(["b", "é", "z", "a", "<UNK>", "rare"], np.array([2, 2, 5, 2, 1, 0]))
    order = FinalOrder(counter, None)
    assert order.types == ["<S>", "</S>", "<UNK>", "z", "a", "b", "é", "rare"]
    assert order.counts.tolist() == [0, 0, 1, 5, 2, 2, 2, 0]
    assert [order.types[i] for i in order.final_ids] == counter.types
    assert order.vocabulary_size(100, 1) == 7
    assert order.vocabulary_size(5, 1) == 5
    assert order.vocabulary_size(100, 3) == 4
    with pytest.raises(CorpusError, match="no word occurs at least 6 times"):
        order.vocabulary_size(100, 6)


def test_rank_correlation_matches_scipy() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    for _ in range(20):
        a, b = random.integers(0, 10, (2, 50))
        assert rank_correlation(a, b) == pytest.approx(scipy_stats.spearmanr(a, b).statistic)
    assert rank_correlation(np.arange(9), np.arange(9) ** 3) == pytest.approx(1)
    assert rank_correlation(np.arange(9), np.zeros(9, np.int64)) == 1


@pytest.mark.parametrize(
    ("num_long", "lines", "is_warned"),
    [
        (0, "sentences", False),
        (1, "sentences", False),
        (2, "sentences", True),
        (2, "documents", False),
    ],
)
def test_warns_about_documents_as_sentences(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, num_long: int, lines: str, is_warned: bool
) -> None:
    text = ["word " * 101] * num_long + ["a short sentence"] * (10 - num_long)
    (tmp_path / "a.txt").write_text("\n".join(text))
    build(tmp_path / "a.txt", tmp_path / "corpus", "--heldout", 0, "--lines", lines)
    warned = "20% of the lines have more than 100 words. If each line is a document, use --lines"
    assert (warned in caplog.text) == is_warned
