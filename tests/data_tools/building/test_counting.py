from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.errors import CorpusError
from data_tools.building.counting import FinalOrder, rank_correlation
from tests.data_tools.corpus_building import build


def test_sorts_types_by_decreasing_count() -> None:
    types = ["</S>", "<S>", "<UNK>", "a", "b", "rare", "z", "é"]
    counts = np.array([0, 0, 1, 2, 2, 0, 5, 2])
    head = np.array([1, 0, 2], dtype=np.int32)
    order = FinalOrder([word.encode() for word in types], counts, head)
    found = [word.decode() for word in order.types]
    assert found == ["<S>", "</S>", "<UNK>", "z", "a", "b", "é", "rare"]
    assert order.counts.tolist() == [0, 0, 1, 5, 2, 2, 2, 0]
    assert [found[i] for i in order.final_ids] == types
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
