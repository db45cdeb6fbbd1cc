from __future__ import annotations

import io
import itertools
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bilm.corpus.reader import Corpus
from bilm.corpus.writer import SplitWriter, write_lexicon, write_manifest
from bilm.errors import CorpusError
from tests.bilm.small_corpus import WHITESPACE

SPECIAL = [b"<S>", b"</S>", b"<UNK>"]


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lengths=st.lists(st.integers(1, 9), max_size=30),
    cuts=st.lists(st.integers(0, 30)),
    shard_words=st.integers(1, 60),
    block_words=st.integers(1, 20),
)
def test_output_does_not_depend_on_batching_of_add(
    lengths: list[int], cuts: list[int], shard_words: int, block_words: int
) -> None:
    array = np.array(lengths, dtype=np.int32)
    ids = np.arange(2, 2 + array.sum(), dtype=np.int32)
    ends = np.concatenate([[0], np.cumsum(array)])
    borders = sorted({0, len(lengths), *(cut for cut in cuts if cut < len(lengths))})
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole = SplitWriter(Path(one), "train", shard_words, block_words)
        whole.add(ids, array)
        parts = SplitWriter(Path(other), "train", shard_words, block_words)
        for a, b in itertools.pairwise(borders):
            parts.add(ids[ends[a] : ends[b]], array[a:b])
        info = whole.close()
        assert info == parts.close()
        written = [sorted(path.name for path in Path(d).iterdir()) for d in (one, other)]
        assert written == [[shard.name for shard in info.shards]] * 2
        for shard in info.shards:
            data = (Path(one) / shard.name).read_bytes()
            assert len(data) == shard.bytes
            assert data == (Path(other) / shard.name).read_bytes()
            assert len(shard.blocks) == 1 or shard.words <= shard_words
            table = shard.table
            assert np.all((table["sentences"] == 1) | (table["words"] <= block_words))
            assert shard.sentences == table["sentences"].sum()


def test_tars_are_plain_and_reproducible(corpus: Corpus) -> None:
    with tarfile.open(corpus.path / "train-00001.tar") as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == [
            "00000001.words.npy",
            "00000001.lengths.npy",
            "00000002.words.npy",
            "00000002.lengths.npy",
        ]
        for member in members:
            assert member.isreg()
            assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)
            assert member.pax_headers == {}


def test_tar_command_lists_a_shard(corpus: Corpus) -> None:
    if shutil.which("tar") is None:
        pytest.skip("the tar command is not installed")
    command = ["tar", "tf", str(corpus.path / "train-00000.tar")]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["00000000.words.npy", "00000000.lengths.npy"]
    assert listed.stderr == ""


def test_webdataset_reads_the_same_arrays(corpus: Corpus) -> None:
    webdataset = pytest.importorskip("webdataset")
    urls = [str(corpus.path / shard.name) for shard in corpus.splits["train"].shards]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == ["00000000", "00000001", "00000002"]
    for index, sample in enumerate(samples):
        ids, lengths = corpus.block("train", index)
        for expected, name in ((ids, "words.npy"), (lengths, "lengths.npy")):
            array = np.load(io.BytesIO(sample[name]), allow_pickle=False)
            assert array.dtype == np.int32
            assert np.array_equal(array, expected)


@pytest.mark.parametrize(
    ("ids", "lengths", "message"),
    [
        ([3, 4], [1, 2], "lengths sum to 3, but there are 2 ids"),
        ([3], [1, 0], "at least one word"),
        ([-5], [1], "a sentence contains the word id -5; it must be at least 0"),
    ],
)
def test_rejects_invalid_sentences(
    tmp_path: Path, ids: list[int], lengths: list[int], message: str
) -> None:
    with SplitWriter(tmp_path, "train", 10) as writer, pytest.raises(ValueError, match=message):
        writer.add(np.array(ids, dtype=np.int32), np.array(lengths, dtype=np.int32))


def test_rejects_wrong_dtypes(tmp_path: Path) -> None:
    with SplitWriter(tmp_path, "train", 10) as writer, pytest.raises(TypeError, match="int32"):
        writer.add(np.array([3]), np.array([1]))  # type: ignore[arg-type]


def test_rejects_empty_shards(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"shard_words is 0 .* both must be at least 1"):
        SplitWriter(tmp_path, "train", 0)


@pytest.mark.parametrize(
    ("types", "num_counts", "message"),
    [
        ([b"the"], 1, "type 0 is b'the'; .* exactly the first ones must be <S>"),
        ([*SPECIAL, b"<S>"], 4, "type 3 is b'<S>'"),
        (SPECIAL, 4, "3 types and 4 counts; their numbers must be equal"),
    ],
)
def test_rejects_invalid_lexicon(
    tmp_path: Path, types: list[bytes], num_counts: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_lexicon(tmp_path, types, np.zeros(num_counts, dtype=np.int64))


def test_writes_no_manifest_for_words_outside_the_lexicon(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    write_lexicon(tmp_path, SPECIAL, np.zeros(3, dtype=np.int64))
    writer = SplitWriter(tmp_path, "train", 10)
    writer.add(np.array([3], dtype=np.int32), np.array([1], dtype=np.int32))
    splits = {"train": writer.close()}
    with pytest.raises(ValueError, match="contains the word id 3, but there are 3 types"):
        write_manifest(tmp_path, tokenizer=WHITESPACE, options={}, vocabulary_size=3, splits=splits)
    assert not (tmp_path / "corpus.json").exists()


@pytest.mark.parametrize(("begin", "end", "unknown"), [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_writes_no_manifest_for_boundary_words(
    tmp_path: Path, begin: int, end: int, unknown: int
) -> None:
    special = [b""] * 3
    special[begin], special[end], special[unknown] = SPECIAL
    (tmp_path / "vocab.txt").write_bytes(b"\n".join(special))
    write_lexicon(tmp_path, special, np.zeros(3, dtype=np.int64))
    for word, split in ((unknown, "a"), (begin, "b"), (end, "c")):
        writer = SplitWriter(tmp_path, split, 10)
        writer.add(np.array([word], dtype=np.int32), np.array([1], dtype=np.int32))
        splits = {"train": writer.close()}
        if word != unknown:
            with pytest.raises(ValueError, match="boundary words are implied"):
                write_manifest(
                    tmp_path, tokenizer=WHITESPACE, options={}, vocabulary_size=3, splits=splits
                )
    assert not (tmp_path / "corpus.json").exists()
