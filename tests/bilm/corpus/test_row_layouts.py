from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bilm.corpus import predictions as predictions_module
from bilm.corpus import row_layouts
from bilm.corpus.batches import MAX_PREFETCH, BatchStream
from bilm.corpus.global_batch import GlobalBatch, Layout, RankShare
from bilm.corpus.reader import Corpus
from bilm.text.vocabulary import IGNORED
from tests.bilm.corpus.reference_batches import (
    Sentence,
    Slot,
    blocks_of,
    cut_epoch,
    dealt_steps,
    epoch_order,
    joined,
    numbered,
    predictions,
    slots_of,
)
from tests.bilm.small_corpus import write_corpus
from tests.conftest import GOLDEN


@dataclass(frozen=True)
class Case:
    """A corpus, and the settings for reading it."""

    lengths: list[int]
    shard_words: int = 9
    block_words: int = 3
    rows_of_batch: int = 2
    world: int = 2
    accumulation: int = 1
    unroll: int = 3
    workers: int = 1
    prefetch: int = 2
    seed: int = 0
    shuffle: bool = True
    chunk_predictions: int = 1
    decoded_bytes: int = 0

    def write(self, directory: str) -> Corpus:
        sentences = {"train": numbered(self.lengths)}
        return write_corpus(Path(directory), sentences, None, self.shard_words, self.block_words)

    def order(self, epoch: int) -> list[Sentence]:
        blocks = blocks_of(numbered(self.lengths), self.block_words)
        return epoch_order(blocks, self.seed if self.shuffle else None, epoch)

    def patch_sizes(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(row_layouts, "_CHUNK_PREDICTIONS", self.chunk_predictions)
        patch.setattr(predictions_module, "_MAX_DECODED_BYTES", self.decoded_bytes)


cases = st.builds(
    Case,
    lengths=st.lists(st.integers(1, 12), max_size=40),
    shard_words=st.integers(1, 80),
    block_words=st.integers(1, 30),
    rows_of_batch=st.integers(1, 4),
    world=st.integers(1, 8),
    accumulation=st.integers(1, 3),
    unroll=st.integers(1, 9),
    workers=st.integers(0, 4),
    prefetch=st.integers(1, 8),
    seed=st.integers(0, 5),
    shuffle=st.booleans(),
    chunk_predictions=st.sampled_from([1, 50, 1 << 16]),
    decoded_bytes=st.sampled_from([0, 2000, 1 << 28]),
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases)
@example(Case([]))
@example(Case([1]))
def test_epoch_has_every_prediction_once_for_any_ranks_and_workers(case: Case) -> None:
    rows = case.rows_of_batch * case.world * case.accumulation
    batch = GlobalBatch(rows, case.unroll, case.seed, case.shuffle)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        case.patch_sizes(patch)
        corpus = case.write(directory)
        one = BatchStream(corpus, "train", batch)
        steps = one.steps_per_epoch
        if not case.lengths:
            assert steps == 0
            assert list(one.read(0, 10, case.workers)) == []
            return
        expected = [
            step for epoch in range(2) for step in cut_epoch(case.order(epoch), rows, case.unroll)
        ]
        assert len(expected) == 2 * steps
        # In order, with any number of workers.
        read = list(one.read(0, 2 * steps, case.workers, case.prefetch))
        slots = [slots_of(batch, corpus) for batch in read]
        assert slots == expected
        assert [batch.epoch for batch in read] == [0] * steps + [1] * steps
        # All ranks and micro-batches, in any order.
        jumps = np.random.default_rng(0).permutation(2 * steps)[:6].tolist()
        for world in (case.world, rows // case.accumulation):
            shares = [RankShare(rank, world, case.accumulation) for rank in range(world)]
            streams = [BatchStream(corpus, "train", batch, share) for share in shares]
            assert {stream.steps_per_epoch for stream in streams} == {steps}
            for step in jumps:
                assert joined(streams, step) == expected[step]
        check_exactly_once(slots[:steps], numbered(case.lengths))
        check_exactly_once(slots[steps:], numbered(case.lengths))


def check_exactly_once(steps: list[list[list[Slot]]], sentences: list[Sentence]) -> None:
    """The input and target of a numbered word identify the sentence, position and direction."""
    slots = [slot for step in steps for row in step for slot in row if slot[2] is not None]
    expected = [slot for sentence in sentences for slot in predictions(sentence)]
    for direction in (0, 1):
        seen = Counter((slot[direction], slot[direction + 2]) for slot in slots)
        assert seen == Counter((slot[direction], slot[direction + 2]) for slot in expected)
        assert max(seen.values()) == 1


def test_only_the_last_column_has_ignored_targets(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([4, 9, 2, 7, 1])})  # 28 predictions
    stream = BatchStream(corpus, "train", GlobalBatch(rows=5, unroll=4, shuffle=False))
    batches = list(stream.read(0, stream.steps_per_epoch))
    assert [batch.targets.shape for batch in batches] == [(2, 5, 4), (2, 5, 2)]
    assert [batch.num_predictions for batch in batches] == [20, 8]
    last = batches[1].targets
    assert np.count_nonzero(last[:, :, :-1] == IGNORED) == 0
    assert (last[0, :, -1] == IGNORED).tolist() == [True, False, True, False, False]


def test_dealt_batches_equal_the_original_implementation(tmp_path: Path) -> None:
    lines = (GOLDEN / "sentences.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").splitlines()
    corpus = write_corpus(tmp_path / "c", {"train": [line.split() for line in lines]}, vocabulary)
    trace = np.load(GOLDEN / "train_trace.npz", allow_pickle=False)
    shape = GlobalBatch(rows=4, unroll=7, shuffle=False, layout="dealt")
    for batch in BatchStream(corpus, "train", shape).read(0, 10):
        arrays = {
            "token_ids": corpus.softmax_ids(batch.words)[batch.word_index],
            "next_token_id": batch.targets,
            "tokens_characters": batch.char_ids[batch.word_index],
        }
        for name, array in arrays.items():
            for direction, suffix in enumerate(["", "_reverse"]):
                expected = trace[f"batch/{batch.step}/{name}{suffix}"]
                assert np.array_equal(array[direction], expected)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases)
@example(Case([]))
@example(Case([1]))
def test_dealt_rows_equal_the_reference(case: Case) -> None:
    rows = case.rows_of_batch * case.world
    batch = GlobalBatch(rows, case.unroll, case.seed, case.shuffle, "dealt")
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        case.patch_sizes(patch)
        corpus = case.write(directory)
        shares = [RankShare(rank, case.world) for rank in range(case.world)]
        streams = [BatchStream(corpus, "train", batch, share) for share in shares]
        if not case.lengths:
            assert streams[0].steps_per_epoch == 0
            assert list(streams[0].read(0, 3)) == []
            return
        endless = (sentence for epoch in range(10_000) for sentence in case.order(epoch))
        expected = list(itertools.islice(dealt_steps(endless, rows, case.unroll), 8))
        for step in (0, 7, 3):
            assert joined(streams, step) == expected[step]
        own_rows = slice(0, case.rows_of_batch)
        read = streams[0].read(0, 8, case.workers, case.prefetch)
        assert [slots_of(batch, corpus) for batch in read] == [step[own_rows] for step in expected]


def test_rereads_dealt_steps_that_were_dropped(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([3, 5, 2])})
    stream = BatchStream(corpus, "train", GlobalBatch(rows=2, unroll=3, layout="dealt"))
    first = slots_of(stream.batch(1), corpus)
    stream.batch(10 * MAX_PREFETCH)
    assert slots_of(stream.batch(1), corpus) == first


@pytest.mark.parametrize("layout", ["cut", "dealt"])
def test_locates_the_sentences_of_a_row(tmp_path: Path, layout: Layout) -> None:
    sentences = numbered([4, 9, 2, 7, 1, 6, 3, 3])
    corpus = write_corpus(tmp_path / "c", {"train": sentences}, shard_words=12, block_words=9)
    blocks = blocks_of(sentences, 9)
    stream = BatchStream(corpus, "train", GlobalBatch(rows=3, unroll=4, seed=3, layout=layout))
    shards = set()
    for step in range(2 * stream.steps_per_epoch):
        for row, slots in enumerate(slots_of(stream.batch(step), corpus)):
            words = {w for slot in slots for w in slot if w is not None and "S>" not in w}
            places = stream.locate(step, row)
            named = [
                sentence
                for place in places
                for sentence in blocks[place.block][place.first_sentence : place.last_sentence + 1]
            ]
            assert words <= {word for sentence in named for word in sentence}
            assert all(words & set(s) or slots[-1][0] == "<S>" for s in named)
            shards |= {place.shard for place in places}
    assert shards == {shard.name for shard in corpus.splits["train"].shards}
