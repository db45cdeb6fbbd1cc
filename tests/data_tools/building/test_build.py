from __future__ import annotations

import bz2
import csv
import gzip
import itertools
import json
import lzma
import random
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zstandard

from bilm.corpus.reader import Corpus
from bilm.errors import BilmError
from bilm.text.tokenizers import MosesTokenizer, TokenizerSpec
from data_tools import build_corpus, build_shards, build_vocab
from data_tools.reading.chunks import find_inputs, read_chunks
from data_tools.reading.heldout import HeldoutChoice
from data_tools.reading.sentences import split_sentences
from tests.data_tools.corpus_reading import digests, run, sentences

WHITESPACE = ("--tokenizer", "whitespace", "--min-count", "1")


def build(text: Path | str, output: Path, *flags: object) -> Path:
    """Build in this process, by one worker."""
    args = ["--input", text, "--output", output, "--workers", 1, *WHITESPACE, *flags]
    build_corpus.main([str(arg) for arg in args])
    return output


def make_lines(num_lines: int, seed: int = 0) -> list[str]:
    """Lines of words whose frequencies fall, some of them not ASCII."""
    source = random.Random(seed)
    words = [f"w{i}" for i in range(200)] + ["naïve", "日本", "😀", "<UNK>"]
    weights = [1 / (i + 1) for i in range(len(words))]
    return [
        " ".join(source.choices(words, weights, k=source.randint(1, 20))) for _ in range(num_lines)
    ]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in make_lines(1000)), encoding="utf-8")
    return path


def test_words_come_back_in_order(text: Path, tmp_path: Path) -> None:
    corpus = build(text, tmp_path / "corpus", "--heldout", 0, "--shuffle", "none")
    expected = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    assert sentences(corpus) == expected
    assert set(Corpus.open(corpus).splits) == {"train"}


def test_shuffled_and_held_out_sentences_are_those_of_the_text(text: Path, tmp_path: Path) -> None:
    corpus = build(text, tmp_path / "corpus", "--heldout", 0.1, "--seed", 5)
    lines = text.read_text(encoding="utf-8").splitlines()
    is_heldout = HeldoutChoice(0.1, 5)
    for split, wanted in (("train", False), ("heldout", True)):
        expected = [line.split() for line in lines if is_heldout(line) == wanted]
        found = sentences(corpus, split)
        assert found != expected
        assert Counter(map(tuple, found)) == Counter(map(tuple, expected))
    assert 50 < len(sentences(corpus, "heldout")) < 200


def test_vocabulary_and_lexicon(text: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(build(text, tmp_path / "corpus", "--max-vocab", 50, "--heldout", 0.2))
    counts = Counter(word for s in sentences(corpus.path) for word in s)
    unknown_in_text = counts.pop("<UNK>", 0)
    order = sorted(counts, key=lambda word: (-counts[word], word.encode()))
    assert corpus.vocabulary.words == ("<S>", "</S>", "<UNK>", *order[:47])
    lexicon = [corpus.lexicon.word(i) for i in range(len(corpus.lexicon))]
    assert lexicon[3 : 3 + len(order)] == order
    assert corpus.lexicon.counts.tolist()[:5] == [
        0, 0, unknown_in_text, counts[order[0]], counts[order[1]],
    ]  # fmt: skip
    rare = sum(counts[word] for word in order[47:])
    assert corpus.splits["train"].unknown_words == rare + unknown_in_text


def test_words_only_in_heldout_files_are_kept_but_not_predicted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x y x\n")
    (tmp_path / "b.txt").write_text("x new\n")
    # The held-out file matches --input too, and is taken out of it.
    corpus = Corpus.open(
        build(tmp_path / "*.txt", tmp_path / "corpus", "--heldout", tmp_path / "b.txt")
    )
    assert sentences(corpus.path) == [["x", "y", "x"]]
    assert sentences(corpus.path, "heldout") == [["x", "new"]]
    assert corpus.vocabulary.words[3:] == ("x", "y")
    assert corpus.splits["heldout"].unknown_words == 1
    assert corpus.lexicon.counts.tolist() == [0, 0, 0, 2, 1, 0]


def test_min_count_and_lowercase(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A a B b b c\n")
    corpus = build(
        tmp_path / "a.txt", tmp_path / "c", "--heldout", 0, "--lowercase", "--min-count", 2
    )
    assert Corpus.open(corpus).vocabulary.words[3:] == ("b", "a")
    assert Corpus.open(corpus).manifest.tokenizer == TokenizerSpec(
        name="whitespace", lowercase=True
    )


@pytest.mark.parametrize("shuffle", ["sentences", "documents", "none"])
def test_bytes_do_not_depend_on_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: str
) -> None:
    monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", 4096)
    path = tmp_path / "text.txt"
    lines = [f"{a} . The {b} ." for a, b in zip(make_lines(2000), make_lines(2000, 1), strict=True)]
    path.write_text("\n".join(lines), encoding="utf-8")
    flags = ["--lines", "documents", "--shuffle", shuffle, "--shard-words", 5000, "--seed", 3]
    assert len(list(read_chunks(find_inputs([str(path)], None, "--input"), "text", "strict"))) > 20
    built = [
        digests(build(path, tmp_path / f"corpus{n}", *flags, "--workers", n)) for n in (1, 2, 3)
    ]
    assert built[0] == built[1] == built[2]
    assert sum(name.startswith("train-") for name in built[0]) > 3


def test_the_seed_changes_the_order(text: Path, tmp_path: Path) -> None:
    first = build(text, tmp_path / "a", "--heldout", 0)
    second = build(text, tmp_path / "b", "--heldout", 0, "--seed", 1)
    assert sentences(first) != sentences(second)
    assert sorted(sentences(first)) == sorted(sentences(second))


def test_documents_stay_together(tmp_path: Path) -> None:
    documents = [f"Start {i} . Middle {i} . End {i} ." for i in range(200)]
    (tmp_path / "a.txt").write_text("\n".join(documents))
    corpus = build(
        tmp_path / "a.txt", tmp_path / "c", "--lines", "documents", "--shuffle", "documents",
        "--heldout", 0.2,
    )  # fmt: skip
    numbers = []
    for split in ("train", "heldout"):
        found = sentences(corpus, split)
        assert [s[0] for s in found] == ["Start", "Middle", "End"] * (len(found) // 3)
        assert all(a[1] == b[1] for a, b in itertools.pairwise(found) if b[0] != "Start")
        numbers += [int(s[1]) for s in found[::3]]
    assert numbers != sorted(numbers)
    assert sorted(numbers) == list(range(200))


def test_moses_on_documents(tmp_path: Path) -> None:
    document = 'Mr. Smith didn\'t go. "Why?" he asked\u2028(twice), for $3.50.'
    (tmp_path / "a.txt").write_text(document + "\n", encoding="utf-8")
    corpus = build(
        tmp_path / "a.txt", tmp_path / "c", "--tokenizer", "moses", "--lines", "documents",
        "--heldout", 0, "--shuffle", "none",
    )  # fmt: skip
    tokenize = MosesTokenizer().tokenize
    assert sentences(corpus) == [tokenize(s) for s in split_sentences(document)]
    assert sentences(corpus)[0] == ["Mr.", "Smith", "didn", "'t", "go", "."]


def compress(data: bytes, suffix: str) -> bytes:
    return {
        "": bytes,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }[suffix](data)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compressions_also_concatenated(tmp_path: Path, suffix: str) -> None:
    lines = make_lines(3000)
    data = "\n".join(lines).encode()  # no line feed at the end
    cut = len(data) // 3  # in the middle of a line
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(compress(data[:cut], suffix) + compress(data[cut:], suffix))
    corpus = build(path, tmp_path / "corpus", "--heldout", 0, "--shuffle", "none")
    assert sentences(corpus) == [line.split() for line in lines]


def test_only_line_feeds_break_lines(tmp_path: Path) -> None:
    text = "\ufeffa b\r\n\nc\u2028d\x85e\x0bf\x1cg\rh\n \t\u3000\ni"
    (tmp_path / "a.txt").write_bytes(text.encode())
    corpus = build(tmp_path / "a.txt", tmp_path / "c", "--heldout", 0, "--shuffle", "none")
    assert sentences(corpus) == [["a", "b"], ["c", "d", "e", "f", "g", "h"], ["i"]]


def test_chunks_do_not_show(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = digests(build(text, tmp_path / "whole"))
    for size in (1, 100, 7777):
        monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", size)
        assert digests(build(text, tmp_path / f"cut{size}")) == whole


def test_jsonl(tmp_path: Path) -> None:
    records = [{"body": "a b\nc"}, {"body": "d “e”", "id": 3}, {"body": ""}]
    lines = [json.dumps(record) for record in records]
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write("\n\n".join(lines))
    flags = ("--field", "body", "--heldout", 0, "--shuffle", "none")
    corpus = build(tmp_path / "a.jsonl.gz", tmp_path / "c", *flags)
    assert sentences(corpus) == [["a", "b", "c"], ["d", "“e”"]]
    corpus = build(tmp_path / "a.jsonl.gz", tmp_path / "d", *flags, "--lines", "documents")
    assert sentences(corpus) == [["a", "b"], ["c"], ["d", "“e”"]]


def test_csv_and_tsv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", 64)
    rows = [["label", "text"]] + [[str(i), f'say "{i}", then\nstop'] for i in range(100)]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    flags = ("--heldout", 0, "--shuffle", "none")
    expected = [["say", f'"{i}",', "then", "stop"] for i in range(100)]
    assert sentences(build(tmp_path / "a.csv", tmp_path / "c", *flags)) == expected
    with_header = build(tmp_path / "a.csv", tmp_path / "d", *flags, "--field", 2)
    assert sentences(with_header) == [["text"], *expected]
    (tmp_path / "b.tsv.xz").write_bytes(lzma.compress(b'1\t"open quote\n2\tb c\n'))
    tsv = build(tmp_path / "b.tsv.xz", tmp_path / "e", *flags, "--field", 2)
    assert sentences(tsv) == [['"open', "quote"], ["b", "c"]]


def test_format_overrides_the_extension(tmp_path: Path) -> None:
    (tmp_path / "news.en-00001-of-00100").write_text("a b\n")
    corpus = build(
        tmp_path / "news.en-*",
        tmp_path / "c",
        "--format",
        "text",
        "--heldout",
        0,
        "--shuffle",
        "none",
    )
    assert sentences(corpus) == [["a", "b"]]


def test_errors_replace(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\xffb c\nd\0e\n")
    (tmp_path / "b.jsonl").write_text('{"text": "x\\ud800y z\\u0000"}\n')
    corpus = build(
        tmp_path / "[ab].*",
        tmp_path / "c",
        "--errors",
        "replace",
        "--heldout",
        0,
        "--shuffle",
        "none",
    )
    assert sentences(corpus) == [["a\ufffdb", "c"], ["d\ufffde"], ["x\ufffdy", "z\ufffd"]]


def test_two_halves_make_the_whole(text: Path, tmp_path: Path) -> None:
    flags = [
        "--input",
        str(text),
        "--tokenizer",
        "whitespace",
        "--heldout",
        "0.1",
        "--workers",
        "1",
    ]
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


def test_a_brought_vocabulary_keeps_its_order(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("order", ["sorted", "alphabetical", "reversed"])
def test_an_unsorted_vocabulary_is_refused(tmp_path: Path, order: str) -> None:
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
    with pytest.raises(BilmError, match=r"not sorted by falling count.*correlation"):
        build_shards.main(args)
    assert not (tmp_path / "c").exists()
    build_shards.main([*args, "--allow-unsorted-vocab"])
    assert Corpus.open(tmp_path / "c").vocabulary.words[3:] == tuple(listed)


def test_the_command_prints_a_summary(text: Path, tmp_path: Path) -> None:
    result = run("build_corpus", "--input", text, "--output", tmp_path / "c", *WHITESPACE)
    assert result.returncode == 0, result.stderr
    for part in ("words/s", "types", "<UNK>", "train:", "heldout:", "peak memory"):
        assert part in result.stdout
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names == {"corpus.json", "heldout-00000.tar", "lexicon.bin", "lexicon.counts.npy",
                     "lexicon.offsets.npy", "train-00000.tar", "vocab.txt"}  # fmt: skip
    with tarfile.open(tmp_path / "c/train-00000.tar") as tar:
        assert all(member.isreg() and member.mtime == 0 for member in tar)
    assert str(tmp_path) not in (tmp_path / "c/corpus.json").read_text()
