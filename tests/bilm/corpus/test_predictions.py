from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.corpus import predictions
from bilm.corpus.global_batch import GlobalBatch
from bilm.corpus.predictions import BlockStream, Slots, predictions_of
from bilm.corpus.reader import Corpus
from tests.bilm.corpus import reference_batches
from tests.bilm.corpus.reference_batches import numbered
from tests.bilm.small_corpus import write_corpus


@pytest.fixture(scope="module")
def numbered_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    directory = tmp_path_factory.mktemp("predictions") / "c"
    return write_corpus(directory, {"train": numbered([3] * 60)}, block_words=6)


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), max_size=8))
def test_predicts_in_both_directions(numbered_corpus: Corpus, lengths: list[int]) -> None:
    lexicon = numbered_corpus.lexicon
    ids = np.arange(3, 3 + sum(lengths), dtype=np.int32)
    slots = predictions_of(numbered_corpus, ids, np.array(lengths, dtype=np.int32))
    ends = np.cumsum(lengths).tolist()
    expected = []
    for start, stop in zip([0, *ends], ends, strict=False):
        expected += reference_batches.predictions([lexicon.word(i) for i in ids[start:stop]])
    planes = [[lexicon.word(i) for i in plane] for part in slots.data for plane in part]
    assert list(zip(*planes, strict=True)) == expected


def test_slicing_slots_returns_views() -> None:
    inputs = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    slots = Slots(np.stack([inputs, inputs + 100]))
    part = slots.rows(1, 3).columns(0, 2)
    assert part.inputs.tolist() == inputs[:, 1:3, :2].tolist()
    assert part.targets.tolist() == (inputs[:, 1:3, :2] + 100).tolist()
    assert part.width == 2
    part.inputs[0, 0, 0] = -5
    assert slots.inputs[0, 1, 0] == -5


def test_writes_slots_into_a_row() -> None:
    slots = Slots(np.zeros((2, 2, 2, 3), np.int32))
    slots.write(1, 1, Slots(np.stack([np.full((2, 2), 7, np.int32), np.full((2, 2), 8, np.int32)])))
    assert slots.inputs.tolist() == [[[0, 0, 0], [0, 7, 7]]] * 2
    assert slots.targets.tolist() == [[[0, 0, 0], [0, 8, 8]]] * 2
    assert slots.nbytes == 2 * 12 * 4


def test_order_depends_on_seed_and_epoch(numbered_corpus: Corpus) -> None:
    def order(seed: int, epoch: int, shuffle: bool = True) -> list[int]:
        batch = GlobalBatch(4, 5, seed, shuffle)
        blocks: list[int] = (
            BlockStream(numbered_corpus, "train", batch, verify=False).epoch(epoch).blocks.tolist()
        )
        return blocks

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    assert order(1, 0, shuffle=False) == order(2, 1, shuffle=False) == list(range(30))


def test_cache_of_decoded_blocks_is_bounded(
    numbered_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = BlockStream(numbered_corpus, "train", GlobalBatch(4, 5), verify=False)
    first = stream.slots(0)
    assert stream.slots(0) is first
    monkeypatch.setattr(predictions, "_MAX_DECODED_BYTES", 2 * first.nbytes)
    stream.slots(1)
    assert stream.slots(0) is first
    stream.slots(2)  # evicts block 1, which was used least recently
    assert stream.slots(0) is first
    stream.slots(3)
    stream.slots(4)
    assert stream.slots(0) is not first


def test_place_names_shard_block_and_sentences(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([3, 3])}, block_words=3, shard_words=3)
    stream = BlockStream(corpus, "train", GlobalBatch(1, 1), verify=False)
    assert str(stream.place(1, 0, 0)) == "train-00001.tar, block 1, sentences 0 to 0"
