from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_tools.building.shuffle import shuffle, take_lines
from tests.data_tools.building.documents import DOCUMENTS, documents_of, join_documents


@pytest.mark.parametrize("bucket_words", [1, 17, 100, 10**6])
@pytest.mark.parametrize("by", ["sentences", "documents"])
def test_keeps_every_line_complete(tmp_path: Path, bucket_words: int, by: str) -> None:
    batches = [join_documents(DOCUMENTS[:90]), join_documents(DOCUMENTS[90:])]
    num_words = sum(len(batch.ids) for batch in batches)
    shuffled = documents_of(list(shuffle(batches, num_words, by, (0, 0), tmp_path, bucket_words)))
    expected = DOCUMENTS if by == "documents" else [[s] for document in DOCUMENTS for s in document]
    assert shuffled != expected
    assert Counter(map(str, shuffled)) == Counter(map(str, expected))
    assert list(tmp_path.iterdir()) == []


def test_order_depends_on_the_seed(tmp_path: Path) -> None:
    batch = join_documents(DOCUMENTS)
    orders = [
        documents_of(list(shuffle([batch], len(batch.ids), "documents", seed, tmp_path, 50)))
        for seed in ((1, 0), (1, 0), (2, 0))
    ]
    assert orders[0] == orders[1] != orders[2]


def test_all_orders_are_equally_likely(tmp_path: Path) -> None:
    batch = join_documents([[[1]], [[2]], [[3]]])
    orders = Counter(
        tuple(
            word
            for part in shuffle([batch], 3, "sentences", (seed,), tmp_path, 2)
            for word in part.ids
        )
        for seed in range(1200)
    )
    assert len(orders) == 6
    # Expected: 200 each, with a standard deviation of 13.
    assert all(140 < count < 260 for count in orders.values()), orders


def test_takes_no_lines() -> None:
    taken = take_lines(join_documents(DOCUMENTS), np.array([], np.int64))
    assert [len(array) for array in taken] == [0, 0, 0]
