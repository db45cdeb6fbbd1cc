from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_tools.building.shuffle import shuffle, take_units
from data_tools.building.spool import Sentences, Spool


def make(documents: list[list[list[int]]]) -> Sentences:
    flat = [sentence for document in documents for sentence in document]
    return Sentences(
        np.array([word for sentence in flat for word in sentence], np.int32),
        np.array([len(sentence) for sentence in flat], np.int32),
        np.array([len(document) for document in documents], np.int32),
    )


def documents_of(batches: list[Sentences]) -> list[list[list[int]]]:
    result = []
    for batch in batches:
        words = iter(batch.ids.tolist())
        lengths = iter(batch.lengths.tolist())
        for unit in batch.units.tolist():
            result.append(
                [list(itertools.islice(words, n)) for n in itertools.islice(lengths, unit)]
            )
    return result


DOCUMENTS = [[[i, i + 1][: 1 + i % 2]] * (1 + i % 3) for i in range(0, 400, 2)]


@pytest.mark.parametrize("bucket_words", [1, 17, 100, 10**6])
@pytest.mark.parametrize("by", ["sentences", "documents"])
def test_every_unit_once_and_whole(tmp_path: Path, bucket_words: int, by: str) -> None:
    batches = [make(DOCUMENTS[:90]), make(DOCUMENTS[90:])]
    num_words = sum(len(batch.ids) for batch in batches)
    shuffled = documents_of(list(shuffle(batches, num_words, by, (0, 0), tmp_path, bucket_words)))
    expected = DOCUMENTS if by == "documents" else [[s] for document in DOCUMENTS for s in document]
    assert shuffled != expected
    assert Counter(map(str, shuffled)) == Counter(map(str, expected))
    assert list(tmp_path.iterdir()) == []


def test_the_order_is_a_function_of_the_seed(tmp_path: Path) -> None:
    batch = make(DOCUMENTS)
    orders = [
        documents_of(list(shuffle([batch], len(batch.ids), "documents", seed, tmp_path, 50)))
        for seed in ((1, 0), (1, 0), (2, 0))
    ]
    assert orders[0] == orders[1] != orders[2]


def test_every_order_is_equally_likely(tmp_path: Path) -> None:
    batch = make([[[1]], [[2]], [[3]]])
    orders = Counter(
        tuple(
            word
            for part in shuffle([batch], 3, "sentences", (seed,), tmp_path, 2)
            for word in part.ids
        )
        for seed in range(1200)
    )
    assert len(orders) == 6
    # Expected 200 each, standard deviation 13.
    assert all(140 < count < 260 for count in orders.values()), orders


def test_take_units_of_nothing() -> None:
    taken = take_units(make(DOCUMENTS), np.array([], np.int64))
    assert [len(array) for array in taken] == [0, 0, 0]


def test_a_spool_gives_back_what_it_was_given(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        for document in DOCUMENTS:
            spool.append(make([document]))
        spool.append(make([]))
    batches = list(spool.read(50))
    assert documents_of(batches) == DOCUMENTS
    assert all(len(batch.ids) >= 50 for batch in batches[:-1])
    assert spool.num_words == sum(len(batch.ids) for batch in batches)
    assert spool.num_sentences == sum(len(batch.lengths) for batch in batches)
