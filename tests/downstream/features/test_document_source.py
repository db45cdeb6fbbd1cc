from __future__ import annotations

import itertools

import numpy as np
import pytest

from downstream.features.document_source import (
    ClusterTargets,
    DocumentInputs,
    DocumentSource,
    Window,
    cut_sentences,
    genre_ids,
    speaker_ids,
    windows_of,
)
from downstream.features.plain_words import PlainWords
from downstream.features.word_ranges import WordRanges
from downstream.texts.clusters import Mention

SENTENCES = [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]  # two documents of two sentences


def test_cuts_between_sentences() -> None:
    assert cut_sentences([3, 3, 3], 9, overlap=True) == [range(3)]
    assert cut_sentences([3, 3, 3], 6, overlap=False) == [range(2), range(2, 3)]
    assert cut_sentences([9, 1], 4, overlap=False) == [range(1), range(1, 2)]


def test_windows_overlap_by_at_most_half() -> None:
    assert cut_sentences([2] * 6, 8, overlap=True) == [range(4), range(2, 6)]
    assert cut_sentences([5] * 4, 8, overlap=True) == [range(i, i + 1) for i in range(4)]


@pytest.mark.parametrize("overlap", [True, False])
def test_windows_cover_all_sentences_and_have_bounded_size(overlap: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.integers(1, 12, size=rng.integers(1, 30)).tolist()
        limit = int(rng.integers(1, 40))
        parts = cut_sentences(lengths, limit, overlap)
        assert {i for part in parts for i in part} == set(range(len(lengths)))
        assert all(sum(lengths[i] for i in p) <= limit or len(p) == 1 for p in parts)
        for one, two in itertools.pairwise(parts):
            shared = range(two.start, one.stop)
            assert two.start > one.start
            assert two.stop > one.stop
            assert sum(lengths[i] for i in shared) <= limit // 2
            assert overlap or not shared


def source(inputs: DocumentInputs) -> DocumentSource:
    return DocumentSource(WordRanges(PlainWords.of_texts(SENTENCES), None, True), inputs)


def test_batches_have_the_sentences_of_their_windows() -> None:
    windows = windows_of([[2, 1], [3, 1]], [0, 2], max_words=3, overlap=False)
    assert windows == [
        Window(0, range(2), range(3)),
        Window(1, range(2, 3), range(3)),
        Window(1, range(3, 4), range(3, 4)),
    ]
    speakers = [speaker_ids(["A", "B", "A"], 3), speaker_ids(None, 4)]
    inputs = DocumentInputs(windows, genre_ids(["x", None], ["w", "x"]), speakers)
    batch = source(inputs).batch(np.array([2, 0]))
    assert batch.mask is not None
    assert batch.mask.sum(dim=1).tolist() == [1, 2, 1]
    assert batch.extras["num_sentences"].tolist() == [1, 2]
    assert batch.extras["first_words"].tolist() == [3, 0]
    assert batch.extras["genres"].tolist() == [0, 2]
    assert batch.extras["speakers"].tolist() == [0, 0, 1, 0]
    assert batch.extras["character_index"].shape == batch.mask.shape
    assert source(inputs).lengths.tolist() == [3, 3, 1]


def test_targets_are_the_mentions_inside_windows() -> None:
    windows = windows_of([[2, 1], [3, 1]], [0, 2], max_words=3, overlap=False)
    gold = [((Mention(0, 0), Mention(2, 2)),), ((Mention(0, 1), Mention(3, 3)), (Mention(2, 3),))]
    targets = ClusterTargets(gold, windows)
    assert len(targets) == 3
    assert targets.batch(np.array([0])).tolist() == [[0, 0, 0, 0], [0, 2, 2, 0]]
    assert targets.batch(np.array([2, 1])).tolist() == [[0, 0, 0, 0], [1, 0, 1, 0]]
    assert ClusterTargets([()], windows[:1]).batch(np.array([0])).shape == (0, 4)
    joined = targets.join([gold[0], ((Mention(0, 1),),), ((Mention(3, 3),),)])
    assert joined == [gold[0], ((Mention(0, 1),), (Mention(3, 3),))]
