from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.corpus.predictions import predictions_of
from bilm.corpus.reader import Corpus
from bilm.errors import BilmError
from data_tools import build_corpus, build_shards, build_vocab
from tests.data_tools.corpus_building import write_lines
from tests.data_tools.corpus_reading import digests


def test_two_step_build_equals_one_step_build(tmp_path: Path) -> None:
    flags = ["--input", str(write_lines(tmp_path / "text.txt")), "--tokenizer", "whitespace"]
    flags += ["--heldout", "0.1", "--workers", "1"]
    cut = ["--max-vocab", "60", "--min-count", "2"]
    build_vocab.main([*flags, *cut, "--output", str(tmp_path / "vocab.txt")])
    shards = tmp_path / "shards"
    build_shards.main([*flags, "--vocab", str(tmp_path / "vocab.txt"), "--output", str(shards)])
    build_corpus.main([*flags, *cut, "--output", str(tmp_path / "whole")])
    whole = Corpus.open(tmp_path / "whole")
    assert digests(shards).keys() == digests(whole.path).keys()
    for name, digest in digests(whole.path).items():
        assert name == "corpus.json" or digests(shards)[name] == digest, name
    counts = (tmp_path / "vocab.counts.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t") for line in counts] == [
        [word, str(count)]
        for word, count in zip(whole.vocabulary.words, whole.lexicon.counts, strict=False)
    ]


def test_keeps_the_order_of_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("b b a z y y\n")
    (tmp_path / "v.txt").write_text("<S>\n</S>\n<UNK>\na\nnever\nb\n")
    args = ["--vocab", "v.txt", "--input", "a.txt", "--heldout", "0", "--tokenizer", "whitespace"]
    args = [str(tmp_path / arg) if arg.endswith(".txt") else arg for arg in args]
    build_shards.main([*args, "--output", str(tmp_path / "c"), "--workers", "1"])
    corpus = Corpus.open(tmp_path / "c")
    words = [corpus.lexicon.word(i) for i in range(len(corpus.lexicon))]
    assert words[3:] == ["a", "never", "b", "y", "z"]
    assert corpus.lexicon.counts.tolist() == [0, 0, 0, 1, 0, 2, 2, 1]
    assert corpus.vocabulary.words[3:] == ("a", "never", "b")


def test_keeps_the_ids_of_special_words(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("b a z <UNK>\n")
    (tmp_path / "v.txt").write_text("</S>\n<S>\n<UNK>\na\nb\n")
    args = [
        "--vocab",
        tmp_path / "v.txt",
        "--input",
        tmp_path / "a.txt",
        "--output",
        tmp_path / "c",
    ]
    args += ["--heldout", 0, "--tokenizer", "whitespace", "--workers", 1]
    build_shards.main(list(map(str, args)))
    corpus = Corpus.open(tmp_path / "c")
    assert corpus.vocabulary.words == ("</S>", "<S>", "<UNK>", "a", "b")
    assert corpus.split("train").unknown_words == 2
    slots = predictions_of(corpus, *corpus.block("train", 0))
    assert slots.inputs.tolist() == [[1, 4, 3, 5, 2], [0, 2, 5, 3, 4]]
    assert slots.targets.tolist() == [[4, 3, 2, 2, 0], [2, 2, 3, 4, 1]]


@pytest.mark.parametrize("order", ["sorted", "alphabetical", "reversed"])
def test_rejects_an_unsorted_vocabulary(tmp_path: Path, order: str) -> None:
    words = [f"w{i:03}" for i in np.random.default_rng(0).permutation(300)]
    text = "".join(f"{word} " * (1 + 1000 // (rank + 1)) + "\n" for rank, word in enumerate(words))
    (tmp_path / "a.txt").write_text(text)
    listed = {"sorted": words, "alphabetical": sorted(words), "reversed": words[::-1]}[order]
    vocabulary = tmp_path / "v.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *listed]))
    args = ["--vocab", vocabulary, "--input", tmp_path / "a.txt", "--heldout", 0, "--workers", 1]
    args = [str(arg) for arg in [*args, "--tokenizer", "whitespace", "--output", tmp_path / "c"]]
    if order == "sorted":
        build_shards.main(args)
        return
    with pytest.raises(BilmError, match=r"not sorted by decreasing count.*correlation"):
        build_shards.main(args)
    assert not (tmp_path / "c").exists()
    build_shards.main([*args, "--allow-unsorted-vocab"])
    assert Corpus.open(tmp_path / "c").vocabulary.words[3:] == tuple(listed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<S>\n<UNK>\na\n", r"must be <S> </S> <UNK>"),
        ("<S>\n</S>\n<UNK>\na\nb\na\n", r"'a' occurs twice .* lines 4 and 6"),
        ("<S>\n</S>\n<UNK>\na b\n", r"line 4 .* one word"),
        (None, r"cannot read the vocabulary"),
    ],
)
def test_rejects_invalid_vocabularies(tmp_path: Path, content: str | None, message: str) -> None:
    (tmp_path / "a.txt").write_text("a b c\nd e f\n")
    if content is not None:
        (tmp_path / "v.txt").write_text(content)
    args = ["--vocab", "v.txt", "--input", "a.txt", "--output", "c"]
    args = [arg if arg.startswith("--") else str(tmp_path / arg) for arg in args]
    with pytest.raises(BilmError, match=message):
        build_shards.main([*args, "--heldout", "0", "--tokenizer", "whitespace"])
    assert not (tmp_path / "c").exists()
