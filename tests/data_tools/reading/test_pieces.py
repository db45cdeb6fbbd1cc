from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from bilm.corpus.reader import Corpus
from bilm.errors import BilmError
from bilm.text.tokenizers import SentencePieceTokenizer
from data_tools import build_corpus, build_shards, build_vocab
from data_tools.demo.demo_grammar import demo_grammar
from data_tools.reading.chunks import InputFile
from data_tools.reading.heldout import HeldoutChoice
from data_tools.reading.options import TextOptions
from data_tools.reading.pieces import sample_sentences
from tests.data_tools.corpus_reading import REPOSITORY, digests, sentences

DATA = REPOSITORY.parent / "shared" / "data"
LANGUAGES = ("zh", "ja", "ru", "ar", "th")


def build(inputs: Path, output: Path, *flags: object) -> Path:
    args = ["--input", inputs, "--output", output, "--tokenizer", "sentencepiece", "--workers", 1]
    build_corpus.main([str(arg) for arg in [*args, *flags]])
    return output


def decoded(corpus: Path, split: str = "train") -> list[str]:
    tokenizer = Corpus.open(corpus).tokenizer()
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return [tokenizer.detokenize(pieces) for pieces in sentences(corpus, split)]


def assert_no_unknown_piece(corpus: Path) -> None:
    model = SentencePieceTokenizer(corpus / "tokenizer.model")._pieces
    lexicon = Corpus.open(corpus).lexicon
    for i in range(3, len(lexicon)):
        assert not model.IsUnknown(model.PieceToId(lexicon.word(i))), lexicon.word(i)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    drawn = demo_grammar().sample(2000, np.random.default_rng(0))
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{' '.join(s.words)}\n" for s in drawn), encoding="utf-8")
    return path


AWKWARD = [
    "  two spaces before",
    "two  inside",
    "after ",
    "tab\tinside",
    "wide\u3000space",
    "line\u2028separator",
    "no\u00a0break",
    "😀 日本 <0x41> <s> </s> <unk>",
    "a\u0301 Å ﬁ",
]


def test_decodes_any_text_exactly(text: Path, tmp_path: Path) -> None:
    with open(text, "a", encoding="utf-8", newline="\n") as file:
        file.write("\n".join(AWKWARD) + "\n")
    corpus = build(text, tmp_path / "c", "--pieces", 400, "--heldout", 0, "--shuffle", "none")
    assert decoded(corpus) == text.read_text(encoding="utf-8").split("\n")[:-1]
    assert_no_unknown_piece(corpus)
    assert Corpus.open(corpus).splits["train"].unknown_words == 0


def test_no_piece_contains_common_white_space(text: Path, tmp_path: Path) -> None:
    lines = [line.replace(" ", "\u3000", 2) for line in text.read_text().splitlines()]
    text.write_bytes("\r\n".join(lines).encode())
    corpus = build(text, tmp_path / "c", "--pieces", 400, "--heldout", 0, "--shuffle", "none")
    assert decoded(corpus) == lines


def test_model_and_corpus_are_reproducible(text: Path, tmp_path: Path) -> None:
    flags = ("--pieces", 400, "--heldout", 0.1, "--seed", 2)
    first = digests(build(text, tmp_path / "a", *flags))
    assert first == digests(build(text, tmp_path / "b", *flags, "--workers", 2))


def test_sample_does_not_depend_on_order_and_skips_heldout_lines(
    text: Path, tmp_path: Path
) -> None:
    def sample(path: Path) -> list[str]:
        options = TextOptions((InputFile(path, "text"),), heldout_share=0.3, seed=1)
        return sample_sentences(options, lowercase=False, sample_bytes=10_000)

    lines = text.read_text().splitlines()
    backwards = tmp_path / "backwards.txt"
    backwards.write_text("\n".join(lines[::-1]))
    sampled = sample(text)
    assert sorted(sampled) == sorted(sample(backwards))
    assert 2_500 < sum(map(len, sampled)) <= 10_000
    is_heldout = HeldoutChoice(0.3, 1)
    assert not any(map(is_heldout, sampled))
    assert any(map(is_heldout, lines))


def test_given_model_with_vocabulary_and_shards(text: Path, tmp_path: Path) -> None:
    flags = ["--input", str(text), "--tokenizer", "sentencepiece", "--workers", "1"]
    build_vocab.main([*flags, "--pieces", "400", "--output", str(tmp_path / "vocab.txt")])
    shards = ["--vocab", str(tmp_path / "vocab.txt"), "--output", str(tmp_path / "c")]
    with pytest.raises(BilmError, match="requires the --sentencepiece-model"):
        build_shards.main([*flags, *shards])
    model = tmp_path / "vocab.model"
    build_shards.main([*flags, *shards, "--sentencepiece-model", str(model)])
    assert (tmp_path / "c/tokenizer.model").read_bytes() == model.read_bytes()
    lines = text.read_text(encoding="utf-8").splitlines()
    assert sorted(decoded(tmp_path / "c") + decoded(tmp_path / "c", "heldout")) == sorted(lines)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--pieces", 10], "--pieces is 10; it must be at least"),
        (["--sentencepiece-model", "nowhere.model"], "nowhere.model does not exist"),
    ],
)
def test_rejects_flags(text: Path, tmp_path: Path, flags: list[object], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        build(text, tmp_path / "c", *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_rejects_a_given_model_with_white_space_in_a_piece(text: Path, tmp_path: Path) -> None:
    # Without byte fallback, a character outside the model becomes a piece.
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=100, minloglevel=2,
        normalization_rule_name="identity",
    )  # fmt: skip
    (tmp_path / "a.txt").write_text("fine\n\nwide\u3000space\n", encoding="utf-8")
    with pytest.raises(BilmError, match=r"produces the piece '\\u3000' \(.*a\.txt, line 3\)"):
        build(tmp_path / "a.txt", tmp_path / "c", "--sentencepiece-model", tmp_path / "m.model")


def test_rejects_fewer_pieces_than_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(chr(0x4E00 + i) * 3 + "\n" for i in range(2000)), encoding="utf-8")
    with pytest.raises(BilmError, match="cannot train 300 pieces"):
        build(path, tmp_path / "c", "--pieces", 300)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the text of {DATA.parent.name}/{DATA.name}")
@pytest.mark.parametrize("language", [*LANGUAGES, "en"])
def test_decodes_real_languages_exactly(tmp_path: Path, language: str) -> None:
    if language == "en":
        with gzip.open(DATA / "lm/imdb_unlabelled.txt.gz", "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line, _ in zip(file, range(2000), strict=False)]
        path = tmp_path / "en.txt"
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        path = DATA / f"other_languages/{language}.txt.gz"
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            lines = [line for line in file.read().split("\n") if line.strip()]
    corpus = build(path, tmp_path / "c", "--pieces", 4000, "--heldout", 0, "--shuffle", "none")
    assert decoded(corpus) == lines
    assert_no_unknown_piece(corpus)
    assert Corpus.open(corpus).splits["train"].unknown_words == 0
