"""The batches against a slow, obvious reference in plain Python, and against the original's own."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bilm.corpus import row_layouts as row_layout
from bilm.corpus.batches import MAX_PREFETCH, Batch, BatchStream
from bilm.corpus.reader import Corpus
from bilm.errors import ConfigError, CorpusError
from bilm.text.characters import char_ids
from bilm.text.vocabulary import IGNORED
from tests.bilm.small_corpus import write_corpus

GOLDEN = Path(__file__).parents[2] / "golden"

Sentence = list[str]
Slot = tuple[str, str, str | None, str | None]  # inputs and targets, forward and backward


# --- the reference -------------------------------------------------------------------------------


def predictions(sentence: Sentence) -> list[Slot]:
    """The n+1 predictions of a sentence, in both directions."""
    forward = ["<S>", *sentence, "</S>"]
    backward = ["</S>", *sentence[::-1], "<S>"]
    return list(zip(forward, backward, forward[1:], backward[1:], strict=False))


def blocks_of(sentences: list[Sentence], block_words: int) -> list[list[Sentence]]:
    blocks: list[list[Sentence]] = []
    for sentence in sentences:
        if not blocks or sum(map(len, blocks[-1])) + len(sentence) > block_words:
            blocks.append([])
        blocks[-1].append(sentence)
    return blocks


def epoch_order(blocks: list[list[Sentence]], seed: int | None, epoch: int) -> list[Sentence]:
    order: Sequence[int] = range(len(blocks))
    if seed is not None:
        order = np.random.default_rng((seed, epoch)).permutation(len(blocks)).tolist()
    return [sentence for i in order for sentence in blocks[i]]


def cut_epoch(sentences: list[Sentence], rows: int, unroll: int) -> list[list[list[Slot]]]:
    """The steps of an epoch, each a list of rows, each a list of slots."""
    stream = [slot for sentence in sentences for slot in predictions(sentence)]
    width = -(-len(stream) // rows)
    table = []
    for row in range(rows):
        start, stop = row * len(stream) // rows, (row + 1) * len(stream) // rows
        slots = stream[start:stop]
        if len(slots) < width:
            slots.append((*stream[stop][:2], None, None))
        table.append(slots)
    return [[row[t : t + unroll] for row in table] for t in range(0, width, unroll)]


def dealt_steps(
    sentences: Iterator[Sentence], rows: int, unroll: int
) -> Iterator[list[list[Slot]]]:
    hands: list[list[Slot]] = [[] for _ in range(rows)]
    while True:
        step = []
        for row in range(rows):
            while len(hands[row]) < unroll:
                hands[row] += predictions(next(sentences))
            step.append(hands[row][:unroll])
            hands[row] = hands[row][unroll:]
        yield step


def slots_of(batch: Batch, corpus: Corpus) -> list[list[Slot]]:
    """A batch in the reference's form; its characters and its distinct words are checked here."""
    words = [corpus.lexicon.word(i) for i in batch.words]
    assert len(set(words)) == len(words)
    assert set(np.unique(batch.inverse)) == set(range(len(words)))
    assert np.array_equal(batch.char_ids, char_ids(words))
    assert batch.num_predictions == np.count_nonzero(batch.targets[0] != IGNORED)
    assert batch.num_predictions == np.count_nonzero(batch.targets[1] != IGNORED)
    inputs = [[[words[i] for i in row] for row in plane] for plane in batch.inverse]
    known = corpus.vocabulary.words
    targets = [
        [[None if i == IGNORED else known[i] for i in row] for row in plane]
        for plane in batch.targets.tolist()
    ]
    return [list(zip(*planes, strict=True)) for planes in zip(*inputs, *targets, strict=True)]


def joined(streams: list[BatchStream], step: int) -> list[list[Slot]]:
    """The global batch: the rows of all ranks and all their micro-batches, in turn."""
    rows: list[list[Slot]] = []
    for stream in streams:
        for micro in range(stream.accumulation):
            rows += slots_of(stream.batch(step, micro), stream.corpus)
    return rows


def numbered(lengths: list[int]) -> list[Sentence]:
    """Sentences whose words occur once each, so that a prediction tells where it comes from."""
    return [[f"{i}.{j}" for j in range(length)] for i, length in enumerate(lengths)]


# --- the cut layout ------------------------------------------------------------------------------

shapes = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 12), max_size=40),
        "shard_words": st.integers(1, 80),
        "block_words": st.integers(1, 30),
        "rows_of_batch": st.integers(1, 4),
        "world": st.integers(1, 8),
        "accumulation": st.integers(1, 3),
        "unroll": st.integers(1, 9),
        "workers": st.integers(0, 4),
        "prefetch": st.integers(1, 8),
        "seed": st.integers(0, 5),
        "shuffle": st.booleans(),
        "chunk": st.sampled_from([1, 50, 1 << 16]),
        "cache_bytes": st.sampled_from([0, 2000, 1 << 28]),
    }
)
TINY = {
    "shard_words": 9, "block_words": 3, "rows_of_batch": 2, "world": 2, "accumulation": 1,
    "unroll": 3, "workers": 1, "prefetch": 2, "seed": 0, "shuffle": True, "chunk": 1,
    "cache_bytes": 0,
}  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes)
@example({"lengths": [], **TINY})
@example({"lengths": [1], **TINY})
def test_an_epoch_holds_every_prediction_once_whoever_reads_it(shape: dict) -> None:
    sentences = numbered(shape["lengths"])
    rows = shape["rows_of_batch"] * shape["world"] * shape["accumulation"]
    seed = shape["seed"] if shape["shuffle"] else None
    blocks = blocks_of(sentences, shape["block_words"])
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_layout, "_CHUNK_PREDICTIONS", shape["chunk"])
        corpus = write_corpus(
            Path(directory),
            {"train": sentences},
            shard_words=shape["shard_words"],
            block_words=shape["block_words"],
        )
        one, *others = (
            [
                BatchStream(
                    corpus, "train", rows, shape["unroll"], shape["seed"], rank, world,
                    accumulation=accumulation, shuffle=shape["shuffle"],
                    cache_bytes=shape["cache_bytes"],
                )
                for rank in range(world)
            ]
            for world, accumulation in [
                (1, 1),
                (shape["world"], shape["accumulation"]),
                (rows // shape["accumulation"], shape["accumulation"]),
            ]
        )  # fmt: skip
        steps = one[0].steps_per_epoch
        assert {stream.steps_per_epoch for streams in others for stream in streams} <= {steps}
        if not sentences:
            assert steps == 0
            assert list(one[0].read(0, 10, shape["workers"])) == []
            return
        expected = [
            step
            for epoch in range(2)
            for step in cut_epoch(epoch_order(blocks, seed, epoch), rows, shape["unroll"])
        ]
        assert len(expected) == 2 * steps
        # In order, by any number of workers: what the reference says.
        read = list(one[0].read(0, 2 * steps, shape["workers"], shape["prefetch"]))
        slots = [slots_of(batch, corpus) for batch in read]
        assert slots == expected
        assert [batch.epoch for batch in read] == [0] * steps + [1] * steps
        # Every rank and micro-batch, jumping about: the same.
        jumps = np.random.default_rng(0).permutation(2 * steps)[:6].tolist()
        for streams in others:
            for step in jumps:
                assert joined(streams, step) == expected[step]
        check_exactly_once(slots[:steps], sentences)
        check_exactly_once(slots[steps:], sentences)


def check_exactly_once(steps: list[list[list[Slot]]], sentences: list[Sentence]) -> None:
    """Input and target of a numbered word name the sentence, the position and the direction."""
    slots = [slot for step in steps for row in step for slot in row if slot[2] is not None]
    wanted = [slot for sentence in sentences for slot in predictions(sentence)]
    for direction in (0, 1):
        seen = Counter((slot[direction], slot[direction + 2]) for slot in slots)
        assert seen == Counter((slot[direction], slot[direction + 2]) for slot in wanted)
        assert max(seen.values()) == 1


def test_rows_are_packed_full_but_for_the_last_column(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([4, 9, 2, 7, 1])})  # 28 predictions
    stream = BatchStream(corpus, "train", rows=5, unroll=4, shuffle=False)
    shapes = [batch.targets.shape for batch in stream.read(0, stream.steps_per_epoch)]
    assert shapes == [(2, 5, 4), (2, 5, 2)]
    counts = [batch.num_predictions for batch in stream.read(0, stream.steps_per_epoch)]
    assert counts == [20, 8]
    last = stream.batch(1).targets
    assert np.count_nonzero(last[:, :, :-1] == IGNORED) == 0
    assert (last[0, :, -1] == IGNORED).tolist() == [True, False, True, False, False]


def test_seeds_and_epochs_have_their_own_order(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([3] * 60)}, block_words=6)

    def order(seed: int, epoch: int, shuffle: bool = True) -> list[list[list[Slot]]]:
        stream = BatchStream(corpus, "train", 4, 5, seed, shuffle=shuffle)
        steps = stream.steps_per_epoch
        return [slots_of(b, corpus) for b in stream.read(epoch * steps, (epoch + 1) * steps)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    assert order(1, 0, shuffle=False) == order(2, 1, shuffle=False)


def test_words_outside_the_vocabulary_keep_their_characters(tmp_path: Path) -> None:
    vocabulary = ["<S>", "</S>", "<UNK>", "known"]
    corpus = write_corpus(tmp_path / "c", {"train": [["known", "rare", "<UNK>"]]}, vocabulary)
    batch = BatchStream(corpus, "train", rows=1, unroll=4).batch(0)
    words = [corpus.lexicon.word(i) for i in batch.words]
    assert [words[i] for i in batch.inverse[0, 0]] == ["<S>", "known", "rare", "<UNK>"]
    assert batch.targets[0, 0].tolist() == [3, 2, 2, 1]
    assert batch.targets[1, 0].tolist() == [2, 2, 3, 0]
    # A model with word ids at its input reads these.
    assert corpus.softmax_ids(batch.words)[batch.inverse[0, 0]].tolist() == [0, 3, 2, 2]


def test_batches_are_the_readers_own(tmp_path: Path) -> None:
    stream = BatchStream(write_corpus(tmp_path / "c", {"train": numbered([5])}), "train", 2, 3)
    batch = stream.batch(0)
    before = batch.targets.copy(), batch.inverse.copy(), batch.char_ids.copy()
    batch.targets[:] = batch.inverse[:] = batch.char_ids[:] = 7
    again = stream.batch(0)
    for kept, new in zip(before, (again.targets, again.inverse, again.char_ids), strict=True):
        assert np.array_equal(kept, new)


# --- the dealt layout ----------------------------------------------------------------------------


def test_dealt_batches_are_those_of_the_original(tmp_path: Path) -> None:
    lines = (GOLDEN / "sentences.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = (GOLDEN / "vocab.txt").read_text(encoding="utf-8").splitlines()
    corpus = write_corpus(tmp_path / "c", {"train": [line.split() for line in lines]}, vocabulary)
    trace = np.load(GOLDEN / "train_trace.npz", allow_pickle=False)
    stream = BatchStream(corpus, "train", rows=4, unroll=7, shuffle=False, layout="dealt")
    for batch in stream.read(0, 10):
        tokens = corpus.softmax_ids(batch.words)[batch.inverse]
        characters = batch.char_ids[batch.inverse]
        for direction, suffix in enumerate(["", "_reverse"]):
            for name, mine in [
                ("token_ids", tokens),
                ("next_token_id", batch.targets),
                ("tokens_characters", characters),
            ]:
                golden = trace[f"batch/{batch.step}/{name}{suffix}"]
                assert np.array_equal(mine[direction], golden)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes)
@example({"lengths": [], **TINY})
@example({"lengths": [1], **TINY})
def test_dealt_rows_are_those_of_the_reference(shape: dict) -> None:
    sentences = numbered(shape["lengths"])
    rows = shape["rows_of_batch"] * shape["world"]
    blocks = blocks_of(sentences, shape["block_words"])
    seed = shape["seed"] if shape["shuffle"] else None
    with tempfile.TemporaryDirectory() as directory:
        corpus = write_corpus(
            Path(directory),
            {"train": sentences},
            shard_words=shape["shard_words"],
            block_words=shape["block_words"],
        )
        streams = [
            BatchStream(
                corpus, "train", rows, shape["unroll"], shape["seed"], rank, shape["world"],
                shuffle=shape["shuffle"], layout="dealt", cache_bytes=shape["cache_bytes"],
            )
            for rank in range(shape["world"])
        ]  # fmt: skip
        if not sentences:
            assert streams[0].steps_per_epoch == 0
            assert list(streams[0].read(0, 3)) == []
            return
        endless = (s for epoch in range(10_000) for s in epoch_order(blocks, seed, epoch))
        expected = list(itertools.islice(dealt_steps(endless, rows, shape["unroll"]), 8))
        for step in (0, 7, 3):
            assert joined(streams, step) == expected[step]
        mine = slice(0, shape["rows_of_batch"])
        read = streams[0].read(0, 8, shape["workers"], shape["prefetch"])
        assert [slots_of(batch, corpus) for batch in read] == [step[mine] for step in expected]


def test_dealt_steps_can_be_read_again_after_they_were_forgotten(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([3, 5, 2])})
    stream = BatchStream(corpus, "train", rows=2, unroll=3, layout="dealt")
    first = slots_of(stream.batch(1), corpus)
    stream.batch(10 * MAX_PREFETCH)
    assert slots_of(stream.batch(1), corpus) == first


# --- where a batch came from ---------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["cut", "dealt"])
def test_locate_names_the_sentences_of_a_row(tmp_path: Path, layout: str) -> None:
    sentences = numbered([4, 9, 2, 7, 1, 6, 3, 3])
    corpus = write_corpus(tmp_path / "c", {"train": sentences}, shard_words=12, block_words=9)
    blocks = blocks_of(sentences, 9)
    stream = BatchStream(corpus, "train", rows=3, unroll=4, seed=3, layout=layout)
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
    assert str(places[0]).startswith(f"{places[0].shard}, block {places[0].block}, sentences ")


# --- threads and errors --------------------------------------------------------------------------


def loader_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("bilm-batches")]


def test_closing_the_iterator_ends_its_threads(tmp_path: Path) -> None:
    stream = BatchStream(write_corpus(tmp_path / "c", {"train": numbered([5] * 9)}), "train", 2, 3)
    endless = stream.read(workers=3)
    assert next(endless).step == 0
    assert len(loader_threads()) > 0
    endless.close()
    assert loader_threads() == []
    assert [batch.step for batch in stream.read(2, 5, workers=3)] == [2, 3, 4]
    assert loader_threads() == []


def damage_word(corpus: Corpus, block: int) -> None:
    """Write an id that no word has into a block, behind the corpus's back."""
    shard = corpus.splits["train"].shards[0]
    path = corpus.path / shard.name
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(shard.blocks[block][0])
        file.write(np.int32(1 << 30).tobytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_an_error_surfaces_at_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(row_layout, "_CHUNK_PREDICTIONS", 1)  # a step at a time
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5] * 9)}, block_words=5)
    corpus.verify()  # hence the shard is not hashed again, and the damage is met when decoding
    damage_word(corpus, 4)  # predictions 24 to 29, of a row that reads six a step
    stream = BatchStream(corpus, "train", rows=1, unroll=6, shuffle=False)
    batches = stream.read(0, workers=workers)
    assert [next(batches).step for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(CorpusError, match=r"train-00000\.tar, block 4 of train: word ids"):
        next(batches)
    assert loader_threads() == []


def test_a_damaged_shard_is_refused_before_its_first_use(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5] * 9)}, block_words=5)
    shard = corpus.path / "train-00000.tar"
    data = bytearray(shard.read_bytes())
    data[0] ^= 1  # in a tar header, which the reader does not even look at
    shard.write_bytes(data)
    stream = BatchStream(Corpus.open(corpus.path), "train", rows=1, unroll=6)
    with pytest.raises(CorpusError, match=r"train-00000\.tar is damaged"):
        stream.batch(0)
    # Who says that the corpus has been verified is believed.
    trusting = BatchStream(Corpus.open(corpus.path), "train", rows=1, unroll=6, verified=True)
    assert trusting.batch(0).num_predictions == 6


def test_a_damaged_lexicon_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5])})
    data = bytearray((corpus.path / "lexicon.bin").read_bytes())
    data[-1] ^= 1
    (corpus.path / "lexicon.bin").write_bytes(data)
    with pytest.raises(CorpusError, match=r"lexicon\.bin is damaged"):
        BatchStream(Corpus.open(corpus.path), "train", rows=1, unroll=6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows is 0"),
        ({"unroll": 0}, "unroll is 0"),
        ({"world": 0}, "world is 0"),
        ({"rank": 2, "world": 2}, "rank is 2; with 2 ranks it must be 0 to 1"),
        ({"rank": -1}, "rank is -1"),
        ({"rows": 10, "world": 4}, "rows is 10, to be shared by 4 ranks .*: set rows to 8"),
        ({"rows": 4, "accumulation": 3}, "must be a multiple of 3: set rows to 3"),
        ({"rows": 1, "world": 8}, "set rows to 8"),
        ({"accumulation": 0}, "0 micro-batches"),
        ({"seed": -1}, "seed is -1"),
        ({"layout": "dealed"}, "layout is 'dealed'; it must be one of cut, dealt"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, arguments: dict, message: str) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5])})
    with pytest.raises(ConfigError, match=message):
        BatchStream(corpus, "train", **({"rows": 4, "unroll": 3} | arguments))


def test_bad_calls_are_named(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5]), "heldout": []})
    stream = BatchStream(corpus, "train", 4, 3)
    with pytest.raises(ConfigError, match="prefetch 0"):
        stream.read(0, prefetch=0)
    with pytest.raises(ConfigError, match="workers is -1"):
        stream.read(0, workers=-1)
    with pytest.raises(IndexError, match="step is -1"):
        stream.batch(-1)
    with pytest.raises(IndexError, match="step is -1"):
        stream.read(-1)
    with pytest.raises(IndexError, match="micro is 1"):
        stream.batch(0, 1)
    with pytest.raises(IndexError, match="row is 4"):
        stream.locate(0, 4)
    with pytest.raises(CorpusError, match="no split 'test'; it has train, heldout"):
        BatchStream(corpus, "test", 4, 3)
    with pytest.raises(CorpusError, match=r"'heldout' .* has no sentences"):
        BatchStream(corpus, "heldout", 4, 3).batch(0)
