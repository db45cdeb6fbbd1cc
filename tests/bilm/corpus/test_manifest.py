from __future__ import annotations

import copy
import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bilm.corpus.manifest import MAX_MANIFEST_BYTES, fingerprint_of, read_manifest
from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError
from tests.bilm.corpus.corpus_editing import SENTENCES, text_of
from tests.bilm.small_corpus import write_corpus

DELETE = object()
SHARD = "splits.train.shards.1"


def test_fingerprint_depends_on_the_content_only(corpus: Corpus, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(corpus.path, moved)
    content = json.loads((moved / "corpus.json").read_text())
    (moved / "corpus.json").write_text(json.dumps(dict(reversed(content.items())), indent=2))
    assert Corpus.open(moved).fingerprint == corpus.fingerprint
    other = write_corpus(tmp_path / "other", {"train": SENTENCES[:-1]})
    assert other.fingerprint != corpus.fingerprint


def test_table_equals_blocks(corpus: Corpus) -> None:
    shard = read_manifest(corpus.path / "corpus.json").splits["train"].shards[1]
    assert [list(block) for block in shard.table.tolist()] == shard.blocks
    assert shard.table["words"].tolist() == [3, 5]
    assert shard.table["sentences"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("format", "tar", "its format must be 'bilm-corpus'"),
        ("version", 2, r"has version 2; this bilm reads versions up to 1\. Install a newer"),
        ("version", 0, "version: "),
        ("version", "1", "version: "),
        ("version", True, "version: "),
        ("tokenizer", [], "tokenizer: "),
        ("tokenizer.name", "os.system", "tokenizer.name: "),
        ("options", DELETE, "options: Field required"),
        ("surplus", 1, "surplus: Extra inputs"),
        ("vocabulary_size", 2, "vocabulary_size: "),
        ("vocabulary_size", 10**30, "vocabulary_size"),
        ("vocabulary_size", 5.0, "vocabulary_size: "),
        ("vocabulary_size", 12, "is more than num_types 11"),
        ("num_types", 10**9, "lexicon.offsets.npy "),
        ("files", {}, "files: "),
        ("tokenizer.name", "sentencepiece", "files: .* must be .*tokenizer.model"),
        ("files.vocab~txt.bytes", -1, "files.vocab.txt.bytes: "),
        ("files.vocab~txt.sha256", "0" * 63, "files.vocab.txt.sha256: "),
        ("files.vocab~txt.sha256", 0, "files.vocab.txt.sha256: "),
        ("splits", [], "splits: "),
        ("splits.train.words", 13, "splits.train: .* contradict its shards"),
        ("splits.train.unknown_words", 15, "splits.train: .* contradict"),
        ("splits.train.shards", {}, "splits.train.shards: "),
        (f"{SHARD}.name", "train-1.tar", r"name 'train-1.tar' is not 'train-00001.tar'"),
        (f"{SHARD}.name", "../train-00001.tar", "is not 'train-00001.tar'"),
        (f"{SHARD}.name", "train-00000.tar", "is not 'train-00001.tar'"),
        (f"{SHARD}.bytes", 10**20, f"{SHARD}.bytes: "),
        (f"{SHARD}.bytes", 512, "more words than fit|extends past"),
        (f"{SHARD}.bytes", 4609, r"past the 4609 bytes|train-00001\.tar has"),
        (f"{SHARD}.words", 9, "not the sums over the blocks"),
        (f"{SHARD}.sentences", 4, "not the sums over the blocks"),
        (f"{SHARD}.blocks", [], "a block or a sentence is empty"),
        (f"{SHARD}.blocks.0", [1, 2, 3], f"{SHARD}.blocks.0: "),
        (f"{SHARD}.blocks.0.0", -64, f"{SHARD}.blocks.0.0: "),
        (f"{SHARD}.blocks.0.0", 1 << 62, f"{SHARD}.blocks.0.0: "),
        (f"{SHARD}.blocks.0.0", 642, "not a multiple of 64"),
        (f"{SHARD}.blocks.0.0", 1 << 40, "extends past"),
        (f"{SHARD}.blocks.0.1", 640, "blocks overlap"),
        (f"{SHARD}.blocks.0.2", 0, "a block or a sentence is empty"),
        (f"{SHARD}.blocks.0.3", 1, "a block or a sentence is empty"),
        (f"{SHARD}.blocks.0.3", 1 << 52, "more words than fit"),
    ],
)
def test_rejects_invalid_fields(corpus: Corpus, place: str, value: Any, message: str) -> None:
    content = json.loads((corpus.path / "corpus.json").read_text())
    original = copy.deepcopy(content)
    edit_place(content, place, value)
    assert json.dumps(content) != json.dumps(original)
    content["fingerprint"] = fingerprint_of(content)
    (corpus.path / "corpus.json").write_text(json.dumps(content))
    with pytest.raises(CorpusError, match=message):
        Corpus.open(corpus.path)


def edit_place(content: Any, place: str, value: Any) -> None:
    """Set or delete the value at a dotted path (`~` is a dot in a name)."""
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


def test_unusual_values_raise_only_corpus_errors(corpus: Corpus) -> None:
    """Replace every value of corpus.json in turn, with a matching fingerprint."""
    original = json.loads((corpus.path / "corpus.json").read_text())
    odd = [None, True, -1, 0, 1, 64, 2**53, 10**25, 0.5, "", "../x", "\ud800", [], [[0] * 4], {}]
    rejected = 0
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
                rejected += 1
    assert rejected > 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "does not describe a corpus"),
        ("", "is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": "bilm-corpus", "version": ' + "9" * 5000 + "}", "corpus.json: "),
        ('{"format": "bilm-corpus", "version": NaN}', "is NaN, which is not a finite number"),
        ('{"format": "bilm-corpus", "format": "bilm-corpus"}', "duplicated"),
    ],
)
def test_rejects_json_that_is_not_a_manifest(corpus: Corpus, text: str, message: str) -> None:
    (corpus.path / "corpus.json").write_text(text)
    with pytest.raises(CorpusError, match=message):
        Corpus.open(corpus.path)


def test_rejects_edited_manifest(corpus: Corpus) -> None:
    content = json.loads((corpus.path / "corpus.json").read_text())
    content["options"]["seed"] = 1
    (corpus.path / "corpus.json").write_text(json.dumps(content))
    with pytest.raises(CorpusError, match="the file was damaged or edited"):
        Corpus.open(corpus.path)


def test_sizes_of_manifest_and_message_are_bounded(corpus: Corpus) -> None:
    path = corpus.path / "corpus.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["splits"]["train"]["words"] = ["x" * 1000] * 1000
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"splits\.train\.words") as caught:
        Corpus.open(corpus.path)
    assert len(str(caught.value)) < 1000
    with open(path, "wb") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    with pytest.raises(CorpusError, match="the limit is 67,108,864"):
        Corpus.open(corpus.path)
