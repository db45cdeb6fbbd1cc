from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from bilm.corpus.reader import Corpus
from bilm.text.sentences import split_sentences
from bilm.text.tokenizers import MosesTokenizer, TokenizerSpec
from data_tools.reading.chunks import find_inputs, read_chunks
from data_tools.reading.heldout import HeldoutChoice
from tests.data_tools.corpus_building import IN_ORDER, build, make_lines, write_lines
from tests.data_tools.corpus_reading import digests, sentences


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "text.txt")


def test_keeps_words_in_order(text: Path, tmp_path: Path) -> None:
    corpus = build(text, tmp_path / "corpus", *IN_ORDER)
    expected = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    assert sentences(corpus) == expected
    assert set(Corpus.open(corpus).splits) == {"train"}


def test_splits_contain_the_sentences_of_the_text(text: Path, tmp_path: Path) -> None:
    corpus = build(text, tmp_path / "corpus", "--heldout", 0.1, "--seed", 5)
    lines = text.read_text(encoding="utf-8").splitlines()
    is_heldout = HeldoutChoice(0.1, 5)
    for split, wanted in (("train", False), ("heldout", True)):
        expected = [line.split() for line in lines if is_heldout(line) == wanted]
        found = sentences(corpus, split)
        assert found != expected
        assert Counter(map(tuple, found)) == Counter(map(tuple, expected))
    assert 50 < len(sentences(corpus, "heldout")) < 200


def test_writes_vocabulary_and_lexicon(text: Path, tmp_path: Path) -> None:
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


def test_words_only_in_heldout_files_are_outside_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x y x\n")
    (tmp_path / "b.txt").write_text("x new\n")
    # The held-out file also matches --input, and is removed from it.
    corpus = Corpus.open(
        build(tmp_path / "*.txt", tmp_path / "corpus", "--heldout", tmp_path / "b.txt")
    )
    assert sentences(corpus.path) == [["x", "y", "x"]]
    assert sentences(corpus.path, "heldout") == [["x", "new"]]
    assert corpus.vocabulary.words[3:] == ("x", "y")
    assert corpus.splits["heldout"].unknown_words == 1
    assert corpus.lexicon.counts.tolist() == [0, 0, 0, 2, 1, 0]


def test_applies_min_count_and_lowercase(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A a B b b c\n")
    corpus = build(
        tmp_path / "a.txt", tmp_path / "c", "--heldout", 0, "--lowercase", "--min-count", 2
    )
    assert Corpus.open(corpus).vocabulary.words[3:] == ("b", "a")
    assert Corpus.open(corpus).manifest.tokenizer == TokenizerSpec(
        name="whitespace", lowercase=True
    )


@pytest.mark.parametrize("shuffle", ["sentences", "documents", "none"])
def test_output_does_not_depend_on_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: str
) -> None:
    monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", 4096)
    path = tmp_path / "text.txt"
    lines = [f"{a} . The {b} ." for a, b in zip(make_lines(2000), make_lines(2000, 1), strict=True)]
    path.write_text("\n".join(lines), encoding="utf-8")
    flags = ["--lines", "documents", "--shuffle", shuffle, "--shard-words", 5000, "--seed", 3]
    assert len(list(read_chunks(find_inputs([str(path)], None, "--input")))) > 20
    built = [
        digests(build(path, tmp_path / f"corpus{n}", *flags, "--workers", n)) for n in (1, 2, 3)
    ]
    assert built[0] == built[1] == built[2]
    assert sum(name.startswith("train-") for name in built[0]) > 3


def test_seed_changes_the_order(text: Path, tmp_path: Path) -> None:
    first = build(text, tmp_path / "a", "--heldout", 0)
    second = build(text, tmp_path / "b", "--heldout", 0, "--seed", 1)
    assert sentences(first) != sentences(second)
    assert sorted(sentences(first)) == sorted(sentences(second))


def test_documents_stay_together(tmp_path: Path) -> None:
    documents = [f"Start {i} . Middle {i} . End {i} ." for i in range(200)]
    (tmp_path / "a.txt").write_text("\n".join(documents))
    flags = ["--lines", "documents", "--shuffle", "documents", "--heldout", 0.2]
    corpus = build(tmp_path / "a.txt", tmp_path / "c", *flags)
    numbers = []
    for split in ("train", "heldout"):
        found = sentences(corpus, split)
        assert [s[0] for s in found] == ["Start", "Middle", "End"] * (len(found) // 3)
        assert all(a[1] == b[1] for a, b in itertools.pairwise(found) if b[0] != "Start")
        numbers += [int(s[1]) for s in found[::3]]
    assert numbers != sorted(numbers)
    assert sorted(numbers) == list(range(200))


def test_splits_and_tokenizes_documents_with_moses(tmp_path: Path) -> None:
    document = 'Mr. Smith didn\'t go. "Why?" he asked\u2028(twice), for $3.50.'
    (tmp_path / "a.txt").write_text(document + "\n", encoding="utf-8")
    flags = ["--tokenizer", "moses", "--lines", "documents", *IN_ORDER]
    corpus = build(tmp_path / "a.txt", tmp_path / "c", *flags)
    tokenize = MosesTokenizer().tokenize
    assert sentences(corpus) == [tokenize(s) for s in split_sentences(document)]
    assert sentences(corpus)[0] == ["Mr.", "Smith", "didn", "'t", "go", "."]
