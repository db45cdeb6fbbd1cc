"""The corpus on disk: what is written is what is read, and nothing damaged or odd is believed."""

from __future__ import annotations

import copy
import functools
import hashlib
import io
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bilm.corpus import lexicon
from bilm.corpus.manifest import MAX_MANIFEST_BYTES, fingerprint_of
from bilm.corpus.reader import Corpus
from bilm.corpus.writer import SplitWriter, write_lexicon, write_manifest
from bilm.errors import CorpusError
from bilm.text.characters import char_ids
from tests.bilm.small_corpus import WHITESPACE, write_corpus

TEXT = ["the cat sat", "a été 漢字", "x", "the " + "w" * 60, "cat the cat the cat"]
SENTENCES = [line.split() for line in TEXT]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Three blocks in two shards of `train`, one word outside the vocabulary, and `heldout`."""
    return write_corpus(
        tmp_path / "corpus",
        {"train": SENTENCES, "heldout": [["a", "cat"]]},
        vocabulary=["<S>", "</S>", "<UNK>", "the", "cat", "sat", "a", "x", "été", "w" * 60],
        shard_words=8,
        block_words=6,
    )


def text_of(corpus: Corpus, split: str) -> list[list[str]]:
    sentences = []
    for index in range(len(corpus.block_sizes(split))):
        ids, lengths = corpus.block(split, index)
        words = [corpus.lexicon.word(i) for i in ids]
        ends = np.cumsum(lengths).tolist()
        sentences += [words[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return sentences


# --- what is written is what is read -------------------------------------------------------------


def test_a_corpus_comes_back(corpus: Corpus) -> None:
    corpus.verify()
    assert text_of(corpus, "train") == SENTENCES
    assert text_of(corpus, "heldout") == [["a", "cat"]]
    train = corpus.splits["train"]
    assert (train.sentences, train.words, train.unknown_words) == (5, 14, 1)
    assert [len(shard.blocks) for shard in train.shards] == [1, 2]
    assert corpus.block_sizes("train").tolist() == [[2, 6], [2, 3], [1, 5]]
    assert corpus.block_shard("train", 2) == "train-00001.tar"
    assert corpus.vocabulary.words[3:6] == ("the", "cat", "sat")
    assert corpus.lexicon.counts[3:5].tolist() == [4, 5]
    assert corpus.tokenizer().tokenize("a  b") == ["a", "b"]


def test_the_fingerprint_is_that_of_the_content(corpus: Corpus, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(corpus.path, moved)
    content = json.loads((moved / "corpus.json").read_text())
    (moved / "corpus.json").write_text(json.dumps(dict(reversed(content.items())), indent=2))
    assert Corpus.open(moved).fingerprint == corpus.fingerprint
    other = write_corpus(tmp_path / "other", {"train": SENTENCES[:-1]})
    assert other.fingerprint != corpus.fingerprint


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lengths=st.lists(st.integers(1, 9), max_size=30),
    cuts=st.lists(st.integers(0, 30)),
    shard_words=st.integers(1, 60),
    block_words=st.integers(1, 20),
)
def test_bytes_do_not_depend_on_how_sentences_were_handed_over(
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
            assert all(block[2] == 1 or block[3] <= block_words for block in shard.blocks)


def test_the_tars_are_plain_and_reproducible(corpus: Corpus) -> None:
    with tarfile.open(corpus.path / "train-00001.tar") as tar:
        members = tar.getmembers()
        names = ["00000001.words.npy", "00000001.lengths.npy"]
        names += ["00000002.words.npy", "00000002.lengths.npy"]
        assert [member.name for member in members] == names
        for member in members:
            assert member.isreg()
            assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)
            assert member.pax_headers == {}


def test_tar_lists_a_shard(corpus: Corpus) -> None:
    if shutil.which("tar") is None:
        pytest.skip("there is no tar command here")
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
        for mine, name in ((ids, "words.npy"), (lengths, "lengths.npy")):
            array = np.load(io.BytesIO(sample[name]), allow_pickle=False)
            assert array.dtype == np.int32
            assert np.array_equal(array, mine)


def test_the_snippets_of_the_documentation_run(corpus: Corpus) -> None:
    pytest.importorskip("webdataset")
    text = (Path(__file__).parents[3] / "docs" / "corpus.md").read_text(encoding="utf-8")
    batches, samples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    def run(snippet: str) -> list[str]:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        return subprocess.run(
            [sys.executable, "-c", snippet],
            cwd=corpus.path.parent, env=environment, capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip

    assert [line.split()[0] for line in run(batches)] == ["0", "1", "2"]
    expected = []
    for index in range(3):
        ids, lengths = corpus.block("train", index)
        expected.append(f"{index:08d} {ids.tolist()} {lengths.tolist()}")
    assert run(samples) == expected


def test_a_corpus_without_sentences(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": [], "heldout": []})
    corpus.verify()
    assert corpus.splits["train"].shards == []
    assert corpus.block_sizes("train").shape == (0, 2)
    assert len(corpus.lexicon) == 3


# --- the lexicon ---------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sets(words | st.sampled_from(["w" * 47, "w" * 48, "w" * 49, "é" * 24, "€" * 17])),
    st.integers(3, 60),
    st.sampled_from([1, 4, 1 << 18]),
)
def test_characters_are_those_of_the_words(
    drawn: set[str], max_characters: int, table_types: int
) -> None:
    types = ["<S>", "</S>", "<UNK>", *sorted(drawn - {"<S>", "</S>", "<UNK>"})]
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexicon, "_TABLE_TYPES", table_types)
        patch.setattr(lexicon, "_TABLE_STEP", 3)
        corpus = write_corpus(Path(directory), {"train": [[w] for w in types[2:]]}, types)
        ids = np.random.default_rng(0).integers(len(types), size=50)
        expected = char_ids([types[i] for i in ids], max_characters)
        found = corpus.lexicon.char_ids(ids, max_characters)
        assert found.dtype == np.int16
        assert np.array_equal(found, expected)
        assert [corpus.lexicon.word(i) for i in range(len(types))] == types


def test_word_ids_outside_the_lexicon_are_refused(corpus: Corpus) -> None:
    size = len(corpus.lexicon)
    for bad in (-1, size):
        with pytest.raises(IndexError, match=f"word id {bad} is not in 0..{size - 1}"):
            corpus.lexicon.word(bad)
        with pytest.raises(IndexError, match="are not in"):
            corpus.lexicon.char_ids(np.array([0, bad]))
    assert corpus.lexicon.char_ids(np.array([], dtype=np.int32)).shape == (0, 50)


# --- the writer refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "lengths", "message"),
    [
        ([3, 4], [1, 2], "lengths sum to 3, not 2 ids"),
        ([3], [1, 0], "at least one word"),
        ([3, 0], [2], "word id 0 in a sentence"),
        ([-5], [1], "word id -5 in a sentence"),
    ],
)
def test_broken_sentences_are_not_written(
    tmp_path: Path, ids: list[int], lengths: list[int], message: str
) -> None:
    with SplitWriter(tmp_path, "train", 10) as writer, pytest.raises(ValueError, match=message):
        writer.add(np.array(ids, dtype=np.int32), np.array(lengths, dtype=np.int32))


def test_other_dtypes_are_not_written(tmp_path: Path) -> None:
    with SplitWriter(tmp_path, "train", 10) as writer, pytest.raises(TypeError, match="int32"):
        writer.add(np.array([3]), np.array([1]))  # type: ignore[arg-type]


def test_sizes_of_the_writer_are_checked(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="shard_words 0"):
        SplitWriter(tmp_path, "train", 0)


def test_a_lexicon_begins_with_the_special_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="come first"):
        write_lexicon(tmp_path, [b"the"], np.array([1]))
    special = [b"<S>", b"</S>", b"<UNK>"]
    (tmp_path / "lexicon.bin").unlink()
    with pytest.raises(ValueError, match="type 3 is b'<S>'"):
        write_lexicon(tmp_path, [*special, b"<S>"], np.zeros(4, dtype=np.int64))
    (tmp_path / "lexicon.bin").unlink()
    with pytest.raises(ValueError, match="3 types and 4 counts"):
        write_lexicon(tmp_path, special, np.zeros(4, dtype=np.int64))


def test_no_manifest_for_words_that_the_lexicon_lacks(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    write_lexicon(tmp_path, [b"<S>", b"</S>", b"<UNK>"], np.zeros(3, dtype=np.int64))
    writer = SplitWriter(tmp_path, "train", 10)
    writer.add(np.array([3], dtype=np.int32), np.array([1], dtype=np.int32))
    splits = {"train": writer.close()}
    with pytest.raises(ValueError, match="word id 3 of 3 types"):
        write_manifest(tmp_path, tokenizer=WHITESPACE, options={}, vocabulary_size=3, splits=splits)
    assert not (tmp_path / "corpus.json").exists()


# --- damage --------------------------------------------------------------------------------------


def seen(path: Path) -> bool:
    try:
        Corpus.open(path).verify()
    except CorpusError:
        return True
    return False


@pytest.mark.parametrize("kind", ["shards", "others"])
@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_no_damage_goes_unseen(corpus: Corpus, kind: str, damage: str) -> None:
    """2,000 bit flips and 2,000 truncations of shards, and 500 of each kind of the other files."""
    assert not seen(corpus.path)
    names = sorted(
        p.name for p in corpus.path.iterdir() if (p.suffix == ".tar") == (kind == "shards")
    )
    contents = {name: (corpus.path / name).read_bytes() for name in names}
    rng = random.Random(f"{kind} {damage}")
    unseen = []
    for _ in range(2000 if kind == "shards" else 500):
        name = rng.choice(names)
        data = contents[name]
        place = rng.randrange(len(data))
        if damage == "flip":
            bit = 1 << rng.randrange(8)
            broken = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        else:
            broken = data[:place]
        (corpus.path / name).write_bytes(broken)
        if not seen(corpus.path):
            unseen.append((name, place))
        (corpus.path / name).write_bytes(data)
    assert unseen == []
    assert not seen(corpus.path)


def test_damage_is_named_with_a_remedy(corpus: Corpus) -> None:
    path = corpus.path / "heldout-00000.tar"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    opened = Corpus.open(corpus.path)
    opened.verify("train")
    with pytest.raises(CorpusError, match=r"heldout-00000\.tar is damaged: its sha256.*copy the"):
        opened.verify()
    with pytest.raises(CorpusError, match="is damaged"):
        opened.block("heldout", 0)
    with pytest.raises(CorpusError, match="no split 'test'"):
        opened.verify("test")


def test_verify_reports_its_progress(corpus: Corpus) -> None:
    done: list[int] = []
    corpus.verify(progress=done.append)
    sizes = [p.stat().st_size for p in corpus.path.iterdir() if p.name != "corpus.json"]
    assert sorted(done) == sorted(sizes)


# --- files that are not what they should be ------------------------------------------------------


def shard(corpus: Corpus) -> Path:
    return corpus.path / "train-00001.tar"


def replace_by_link(corpus: Corpus) -> None:
    target = corpus.path.parent / "elsewhere.tar"
    shard(corpus).rename(target)
    shard(corpus).symlink_to(target)


def replace_by_pipe(corpus: Corpus) -> None:
    shard(corpus).unlink()
    os.mkfifo(shard(corpus))


def replace_by_directory(corpus: Corpus) -> None:
    shard(corpus).unlink()
    shard(corpus).mkdir()


def lengthen(corpus: Corpus) -> None:
    with open(shard(corpus), "ab") as file:
        file.write(bytes(512))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: shutil.rmtree(c.path), "does not exist; python -m data_tools.build_corpus"),
        (lambda c: (shutil.rmtree(c.path), c.path.touch()), "is not a directory"),
        (lambda c: (c.path / "corpus.json").unlink(), "holds no corpus.json"),
        (lambda c: shard(c).unlink(), r"train-00001\.tar is missing"),
        (lambda c: (c.path / "vocab.txt").unlink(), r"vocab\.txt is missing"),
        (lambda c: (c.path / "lexicon.bin").unlink(), r"lexicon\.bin is missing"),
        (lambda c: (c.path / "train-00002.tar").touch(), r"train-00002\.tar is not listed"),
        (lambda c: (c.path / "tokenizer.model").touch(), r"tokenizer\.model is not listed"),
        (replace_by_link, r"train-00001\.tar is a symbolic link"),
        (replace_by_pipe, r"train-00001\.tar is not a regular file"),
        (replace_by_directory, r"train-00001\.tar is not a regular file"),
        (lengthen, r"train-00001\.tar has [\d,]+ bytes, but [\d,]+ are expected"),
    ],
)
def test_files_that_are_missing_added_or_changed(
    corpus: Corpus, change: Callable[[Corpus], Any], message: str
) -> None:
    change(corpus)
    with pytest.raises(CorpusError, match=message):
        Corpus.open(corpus.path)


def test_a_file_of_the_users_own_may_stand_beside(corpus: Corpus) -> None:
    (corpus.path / "README.md").write_text("where this text comes from")
    Corpus.open(corpus.path).verify()


# --- corpus.json ---------------------------------------------------------------------------------


DELETE = object()
SHARD = "splits.train.shards.1"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("format", "tar", "must say format 'bilm-corpus'"),
        ("version", 2, "has version 2; this bilm reads up to version 1: install a newer"),
        ("version", 0, "version: "),
        ("version", "1", "version: "),
        ("version", True, "version: "),
        ("tokenizer", [], "tokenizer: "),
        ("options", DELETE, "options: Field required"),
        ("surplus", 1, "surplus: Extra inputs"),
        ("vocabulary_size", 2, "vocabulary_size: "),
        ("vocabulary_size", 10**30, "vocabulary_size"),
        ("vocabulary_size", 5.0, "vocabulary_size: "),
        ("vocabulary_size", 12, "is more than num_types 11"),
        ("num_types", 10**9, "lexicon.offsets.npy holds"),
        ("files", {}, "files: "),
        ("tokenizer.name", "sentencepiece", "files: .* must be .*tokenizer.model"),
        ("files.vocab~txt.bytes", -1, "files.vocab.txt.bytes: "),
        ("files.vocab~txt.sha256", "0" * 63, "files.vocab.txt.sha256: "),
        ("files.vocab~txt.sha256", 0, "files.vocab.txt.sha256: "),
        ("splits", [], "splits: "),
        ("splits.train.words", 13, "splits.train: .* do not agree with its shards"),
        ("splits.train.unknown_words", 15, "splits.train: .* do not agree"),
        ("splits.train.shards", {}, "splits.train.shards: "),
        (f"{SHARD}.name", "train-1.tar", r"name 'train-1.tar' is not 'train-00001.tar'"),
        (f"{SHARD}.name", "../train-00001.tar", "is not 'train-00001.tar'"),
        (f"{SHARD}.name", "train-00000.tar", "is not 'train-00001.tar'"),
        (f"{SHARD}.bytes", 10**20, f"{SHARD}.bytes: "),
        (f"{SHARD}.bytes", 512, "more words than|reaches beyond"),
        (f"{SHARD}.bytes", 4609, "beyond the 4609 bytes|are expected"),
        (f"{SHARD}.words", 9, "not the sums of the blocks"),
        (f"{SHARD}.sentences", 4, "not the sums of the blocks"),
        (f"{SHARD}.blocks", [], "a shard has blocks"),
        (f"{SHARD}.blocks.0", [1, 2, 3], f"{SHARD}.blocks.0: "),
        (f"{SHARD}.blocks.0.0", -64, f"{SHARD}.blocks.0.0: "),
        (f"{SHARD}.blocks.0.0", 1 << 62, f"{SHARD}.blocks.0.0: "),
        (f"{SHARD}.blocks.0.0", 642, "not a multiple of 64"),
        (f"{SHARD}.blocks.0.0", 1 << 40, "reaches beyond"),
        (f"{SHARD}.blocks.0.1", 640, "blocks overlap"),
        (f"{SHARD}.blocks.0.2", 0, "a block sentences"),
        (f"{SHARD}.blocks.0.3", 1, "a sentence words"),
        (f"{SHARD}.blocks.0.3", 1 << 52, "more words than"),
    ],
)
def test_every_field_of_the_manifest_is_checked(
    corpus: Corpus, place: str, value: Any, message: str
) -> None:
    content = json.loads((corpus.path / "corpus.json").read_text())
    original = copy.deepcopy(content)
    edit_place(content, place, value)
    assert json.dumps(content) != json.dumps(original)
    content["fingerprint"] = fingerprint_of(content)
    (corpus.path / "corpus.json").write_text(json.dumps(content))
    with pytest.raises(CorpusError, match=message):
        Corpus.open(corpus.path)


def edit_place(content: Any, place: str, value: Any) -> None:
    """Set what stands at a dotted place (`~` is a dot in a name), or remove it."""
    *path, last = [int(k) if k.isdigit() else k.replace("~", ".") for k in place.split(".")]
    for key in path:
        content = content[key]
    if value is DELETE:
        del content[last]
    else:
        content[last] = value


def places_in(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = content if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield (*place, key)
        if isinstance(content[key], dict | list):
            yield from places_in(content[key], (*place, key))


def test_no_odd_value_anywhere_leads_past_our_own_errors(corpus: Corpus) -> None:
    """Every value of corpus.json in turn becomes something else, with a fingerprint that agrees."""
    original = json.loads((corpus.path / "corpus.json").read_text())
    odd = [None, True, -1, 0, 1, 64, 2**53, 10**25, 0.5, "", "../x", "\ud800", [], [[0] * 4], {}]
    refused = 0
    for place in places_in(original):
        for value in odd:
            content = copy.deepcopy(original)
            functools.reduce(lambda c, key: c[key], place[:-1], content)[place[-1]] = value
            content["fingerprint"] = fingerprint_of(content)
            (corpus.path / "corpus.json").write_text(json.dumps(content))
            try:
                opened = Corpus.open(corpus.path)
                opened.verify()
                text_of(opened, "train")
            except CorpusError:
                refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is not the manifest of a corpus"),
        ("", "is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": "bilm-corpus", "version": ' + "9" * 5000 + "}", "corpus.json: "),
        ('{"format": "bilm-corpus", "version": NaN}', "is NaN, which is not a finite number"),
        ('{"format": "bilm-corpus", "format": "bilm-corpus"}', "is duplicated"),
    ],
)
def test_what_is_no_manifest_is_refused(corpus: Corpus, text: str, message: str) -> None:
    (corpus.path / "corpus.json").write_text(text)
    with pytest.raises(CorpusError, match=message):
        Corpus.open(corpus.path)


def test_an_edited_manifest_is_refused(corpus: Corpus) -> None:
    content = json.loads((corpus.path / "corpus.json").read_text())
    content["options"]["seed"] = 1
    (corpus.path / "corpus.json").write_text(json.dumps(content))
    with pytest.raises(CorpusError, match="the file was damaged or edited"):
        Corpus.open(corpus.path)


# --- what is inside the files, when their digests are right --------------------------------------


def forge(corpus: Corpus, name: str, data: bytes) -> Corpus:
    """Replace a file and make corpus.json agree with it, as an attacker could."""
    (corpus.path / name).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    content = json.loads((corpus.path / "corpus.json").read_text())
    files = content["files"] | {s["name"]: s for s in content["splits"]["train"]["shards"]}
    files[name] |= {"bytes": len(data), "sha256": digest}
    content["fingerprint"] = fingerprint_of(content)
    (corpus.path / "corpus.json").write_text(json.dumps(content))
    return Corpus.open(corpus.path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, 11, r"word ids \d+..11 are not all in 2..10"),
        (0, -1, "word ids -1.."),
        (0, 1, "word ids 1.."),
        (1, 0, "lengths of its sentences do not make 3 words"),
        (1, -1, "lengths of its sentences"),
        (1, 2**31 - 1, "lengths of its sentences"),
    ],
)
def test_a_forged_block_is_refused(corpus: Corpus, column: int, value: int, message: str) -> None:
    info = corpus.splits["train"].shards[1]
    data = bytearray((corpus.path / info.name).read_bytes())
    place = info.blocks[0][column]
    data[place : place + 4] = np.array([value], dtype="<i4").tobytes()
    forged = forge(corpus, info.name, bytes(data))
    forged.verify()
    with pytest.raises(CorpusError, match=rf"train-00001\.tar, block 1 of train: .*{message}"):
        forged.block("train", 1)
    assert len(forged.block("train", 2)[0]) == 5


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


OFFSETS = np.cumsum([0, 3, 4, 5] + [1] * 8)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("lexicon.offsets.npy", b"", "is not an .npy file"),
        ("lexicon.offsets.npy", b"\x93NUMPY\x01\x00\xff\xff", "is not an .npy file"),
        ("lexicon.offsets.npy", npy(np.array([{}] * 12)), r"holds \|O \(12,\)"),
        ("lexicon.offsets.npy", npy(OFFSETS.astype(np.int32)), "holds <i4"),
        ("lexicon.offsets.npy", npy(OFFSETS[:-1]), r"holds <i8 \(11,\)"),
        ("lexicon.offsets.npy", npy(OFFSETS[None]), "is not an .npy file of one dimension"),
        ("lexicon.offsets.npy", npy(OFFSETS)[:-8], "its header contradicts"),
        ("lexicon.offsets.npy", npy(OFFSETS), "must rise from 0"),
        ("lexicon.counts.npy", npy(OFFSETS), r"holds <i8 \(12,\)"),
        ("lexicon.bin", b"<S></S><UNK>the", "must rise from 0 to 15"),
        ("vocab.txt", b"<S>\n</S>\n<UNK>\nthe\n", "is not the head of the lexicon"),
        ("vocab.txt", b"the\n", "must be <S> </S> <UNK>"),
        ("vocab.txt", b"\xff\n", "is not UTF-8"),
    ],
)
def test_forged_files_of_words_are_refused(
    corpus: Corpus, name: str, data: bytes, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        forge(corpus, name, data).verify()


def test_words_that_are_not_utf8_are_named(corpus: Corpus) -> None:
    data = (corpus.path / "lexicon.bin").read_bytes()
    forged = forge(corpus, "lexicon.bin", data[:-1] + b"\xff")
    with pytest.raises(CorpusError, match=r"word 10 of .*lexicon\.bin is not UTF-8"):
        forged.lexicon.word(10)
    with pytest.raises(CorpusError, match="must begin with <S>"):
        forge(corpus, "lexicon.bin", b"<s>" + data[3:])


def test_the_reading_side_needs_no_torch() -> None:
    code = "import sys, bilm.corpus.batches; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def _overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def _replace(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes()[::-1])
    other.replace(path)


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize("change", [_overwrite, _replace, _cut, Path.unlink])
@pytest.mark.parametrize("name", ["train-00000.tar", "lexicon.bin"])
def test_a_change_under_a_reader_is_seen(
    corpus: Corpus, name: str, change: Callable[[Path], None]
) -> None:
    corpus.verify()
    corpus.block("train", 0, verify=False)
    change(corpus.path / name)
    with pytest.raises(CorpusError, match=f"changed since it was opened.*{name}"):
        corpus.block("train", 0, verify=False)


def test_the_same_content_again_is_no_change(corpus: Corpus) -> None:
    before = corpus.block("train", 0)[0].copy()
    path = corpus.path / "train-00000.tar"
    path.with_suffix(".other").write_bytes(path.read_bytes())
    path.with_suffix(".other").replace(path)
    assert (corpus.block("train", 0)[0] == before).all()


def test_a_reader_that_keeps_what_it_read_sees_a_change_too(corpus: Corpus) -> None:
    corpus.refuse_changes()
    _overwrite(corpus.path / "train-00000.tar")
    corpus.refuse_changes()  # too soon to look again
    time.sleep(1.1)
    with pytest.raises(CorpusError, match=r"changed since it was opened.*train-00000\.tar"):
        corpus.refuse_changes()


def test_depth_and_size_of_the_manifest_are_bounded(corpus: Corpus) -> None:
    path = corpus.path / "corpus.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["splits"]["train"]["words"] = ["x" * 1000] * 1000
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"splits\.train\.words") as caught:
        Corpus.open(corpus.path)
    assert len(str(caught.value)) < 1000
    with open(path, "wb") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    with pytest.raises(CorpusError, match="at most 67,108,864 are read"):
        Corpus.open(corpus.path)
