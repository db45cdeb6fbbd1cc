from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError
from tests.bilm.corpus.corpus_editing import SENTENCES, forge, text_of
from tests.bilm.small_corpus import write_corpus
from tests.conftest import ROOT


def test_reads_written_corpus(corpus: Corpus) -> None:
    corpus.verify()
    assert text_of(corpus, "train") == SENTENCES
    assert text_of(corpus, "heldout") == [["a", "cat"]]
    train = corpus.splits["train"]
    assert (train.sentences, train.words, train.unknown_words) == (5, 14, 1)
    assert [len(shard.blocks) for shard in train.shards] == [1, 2]
    assert corpus.blocks("train")[["sentences", "words"]].tolist() == [(2, 6), (2, 3), (1, 5)]
    assert corpus.block_shard("train", 2) == "train-00001.tar"
    assert corpus.vocabulary.words[3:6] == ("the", "cat", "sat")
    assert corpus.lexicon.counts[3:5].tolist() == [4, 5]
    assert corpus.tokenizer().tokenize("a  b") == ["a", "b"]


def test_reads_corpus_without_sentences(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"train": [], "heldout": []})
    corpus.verify()
    assert corpus.splits["train"].shards == []
    assert corpus.blocks("train").shape == (0,)
    assert len(corpus.lexicon) == 3


def test_documented_snippets_run(corpus: Corpus) -> None:
    pytest.importorskip("webdataset")
    text = (ROOT / "docs" / "corpus.md").read_text(encoding="utf-8")
    batches, samples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    def run(snippet: str) -> list[str]:
        result = subprocess.run(
            [sys.executable, "-c", snippet],
            cwd=corpus.path.parent,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return result.stdout.splitlines()

    assert [line.split()[0] for line in run(batches)] == ["0", "1", "2"]
    expected = []
    for index in range(3):
        ids, lengths = corpus.block("train", index)
        expected.append(f"{index:08d} {ids.tolist()} {lengths.tolist()}")
    assert run(samples) == expected


def test_does_not_import_torch() -> None:
    code = "import sys, bilm.corpus.batches; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


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
        (lambda c: shutil.rmtree(c.path), "does not exist; build one with python -m data_tools"),
        (lambda c: (shutil.rmtree(c.path), c.path.touch()), "is not a directory"),
        (lambda c: (c.path / "corpus.json").unlink(), "has no corpus.json"),
        (lambda c: shard(c).unlink(), r"train-00001\.tar is missing"),
        (lambda c: (c.path / "vocab.txt").unlink(), r"vocab\.txt is missing"),
        (lambda c: (c.path / "lexicon.bin").unlink(), r"lexicon\.bin is missing"),
        (lambda c: (c.path / "train-00002.tar").touch(), r"train-00002\.tar is not listed"),
        (lambda c: (c.path / "tokenizer.model").touch(), r"tokenizer\.model is not listed"),
        (replace_by_link, r"train-00001\.tar is a symbolic link"),
        (replace_by_pipe, r"train-00001\.tar is not a regular file"),
        (replace_by_directory, r"train-00001\.tar is not a regular file"),
        (lengthen, r"train-00001\.tar has [\d,]+ bytes"),
    ],
)
def test_rejects_missing_added_or_changed_files(
    corpus: Corpus, change: Callable[[Corpus], Any], message: str
) -> None:
    change(corpus)
    with pytest.raises(CorpusError, match=message):
        Corpus.open(corpus.path)


def test_accepts_other_files_in_the_directory(corpus: Corpus) -> None:
    (corpus.path / "README.md").write_text("where this text comes from")
    Corpus.open(corpus.path).verify()


@pytest.mark.parametrize(
    ("array", "value", "message"),
    [
        ("words_offset", 11, r"word ids \d+..11 are not all in 0..10"),
        ("words_offset", -1, "word ids -1.."),
        ("words_offset", 1, "a sentence contains a boundary word"),
        ("lengths_offset", 0, "lengths of its sentences do not add up to 3 words"),
        ("lengths_offset", -1, "lengths of its sentences"),
        ("lengths_offset", 2**31 - 1, "lengths of its sentences"),
    ],
)
def test_rejects_forged_block(corpus: Corpus, array: str, value: int, message: str) -> None:
    info = corpus.splits["train"].shards[1]
    data = bytearray((corpus.path / info.name).read_bytes())
    place = int(info.table[array][0])
    data[place : place + 4] = np.array([value], dtype="<i4").tobytes()
    forged = forge(corpus, info.name, bytes(data))
    forged.verify()
    with pytest.raises(CorpusError, match=rf"train-00001\.tar, block 1 of train: .*{message}"):
        forged.block("train", 1)
    assert len(forged.block("train", 2)[0]) == 5
