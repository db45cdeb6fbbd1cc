from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from bilm.corpus import row_layouts
from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.corpus.reader import Corpus
from bilm.errors import ConfigError, CorpusError
from tests.bilm.corpus.reference_batches import numbered
from tests.bilm.small_corpus import write_corpus


def test_words_outside_the_vocabulary_keep_their_characters(tmp_path: Path) -> None:
    vocabulary = ["<S>", "</S>", "<UNK>", "known"]
    corpus = write_corpus(tmp_path / "c", {"train": [["known", "rare", "<UNK>"]]}, vocabulary)
    batch = BatchStream(corpus, "train", GlobalBatch(rows=1, unroll=4)).batch(0)
    words = [corpus.lexicon.word(i) for i in batch.words]
    assert [words[i] for i in batch.word_index[0, 0]] == ["<S>", "known", "rare", "<UNK>"]
    assert batch.targets[0, 0].tolist() == [3, 2, 2, 1]
    assert batch.targets[1, 0].tolist() == [2, 2, 3, 0]
    # The inputs of a model that reads word ids:
    assert corpus.softmax_ids(batch.words)[batch.word_index[0, 0]].tolist() == [0, 3, 2, 2]


def test_batches_share_no_memory(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5])})
    stream = BatchStream(corpus, "train", GlobalBatch(2, 3))
    batch = stream.batch(0)
    before = batch.targets.copy(), batch.word_index.copy(), batch.char_ids.copy()
    batch.targets[:] = batch.word_index[:] = batch.char_ids[:] = 7
    again = stream.batch(0)
    for kept, new in zip(before, (again.targets, again.word_index, again.char_ids), strict=True):
        assert np.array_equal(kept, new)


def loader_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("bilm-batches")]


def test_closing_the_iterator_ends_its_threads(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5] * 9)})
    stream = BatchStream(corpus, "train", GlobalBatch(2, 3))
    endless = stream.read(workers=3)
    assert next(endless).step == 0
    assert len(loader_threads()) > 0
    endless.close()
    assert loader_threads() == []
    assert [batch.step for batch in stream.read(2, 5, workers=3)] == [2, 3, 4]
    assert loader_threads() == []


def damage_word(corpus: Corpus, block: int) -> None:
    """Write an invalid word id into a block, such that the corpus cannot detect the change."""
    shard = corpus.splits["train"].shards[0]
    path = corpus.path / shard.name
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(int(shard.table["words_offset"][block]))
        file.write(np.int32(1 << 30).tobytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_raises_error_at_the_failing_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(row_layouts, "_CHUNK_PREDICTIONS", 1)  # one step at a time
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5] * 9)}, block_words=5)
    corpus.verify()  # so that the shard is not hashed again, and decoding detects the damage
    damage_word(corpus, 4)  # predictions 24 to 29, of a row that reads six per step
    stream = BatchStream(corpus, "train", GlobalBatch(rows=1, unroll=6, shuffle=False))
    batches = stream.read(0, workers=workers)
    assert [next(batches).step for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(CorpusError, match=r"train-00000\.tar, block 4 of train: word ids"):
        next(batches)
    assert loader_threads() == []


def test_rejects_damaged_shard_unless_verified(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5] * 9)}, block_words=5)
    shard = corpus.path / "train-00000.tar"
    data = bytearray(shard.read_bytes())
    data[0] ^= 1  # in a tar header, which the reader does not use
    shard.write_bytes(data)
    batch = GlobalBatch(rows=1, unroll=6)
    with pytest.raises(CorpusError, match=r"train-00000\.tar is damaged"):
        BatchStream(Corpus.open(corpus.path), "train", batch).batch(0)
    trusting = BatchStream(Corpus.open(corpus.path), "train", batch, verified=True)
    assert trusting.batch(0).num_predictions == 6


def test_rejects_damaged_lexicon(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5])})
    data = bytearray((corpus.path / "lexicon.bin").read_bytes())
    data[-1] ^= 1
    (corpus.path / "lexicon.bin").write_bytes(data)
    with pytest.raises(CorpusError, match=r"lexicon\.bin is damaged"):
        BatchStream(Corpus.open(corpus.path), "train", GlobalBatch(rows=1, unroll=6))


def test_rejects_rows_that_cannot_be_shared(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5])})
    batch = GlobalBatch(10, 3, rows_setting="deepspeed.train_batch_size")
    with pytest.raises(ConfigError, match=r"train_batch_size is 10; it must be a multiple of 4"):
        BatchStream(corpus, "train", batch, RankShare(world=4))


def test_rejects_invalid_arguments(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": numbered([5]), "heldout": []})
    batch = GlobalBatch(4, 3)
    stream = BatchStream(corpus, "train", batch)
    with pytest.raises(ConfigError, match="prefetch is 0"):
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
        BatchStream(corpus, "test", batch)
    with pytest.raises(CorpusError, match=r"'heldout' .* has no sentences"):
        BatchStream(corpus, "heldout", batch).batch(0)
