from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from bilm.errors import TokenizerError
from bilm.text.tokenizers import (
    MAX_MODEL_BYTES,
    MosesTokenizer,
    SentencePieceTokenizer,
    WhitespaceTokenizer,
    load_tokenizer,
)
from tests.conftest import GOLDEN


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pieces")
    sentencepiece.SentencePieceTrainer.Train(
        input=str(GOLDEN / "sentences.txt"),
        model_prefix=str(directory / "tokenizer"),
        vocab_size=400,
        byte_fallback=True,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    return directory / "tokenizer.model"


def test_whitespace() -> None:
    assert WhitespaceTokenizer().tokenize(" A  b\tc\u2028d ") == ["A", "b", "c", "d"]
    assert WhitespaceTokenizer(lowercase=True).tokenize("A b") == ["a", "b"]


def test_moses() -> None:
    words = MosesTokenizer().tokenize('He said: "it\'s 3.5 & <b>".')
    assert words == ["He", "said", ":", '"', "it", "'s", "3.5", "&", "<", "b", ">", '"', "."]
    assert MosesTokenizer().tokenize("") == []
    assert all(word.split() == [word] for word in MosesTokenizer().tokenize("a\u00a0b\u2028c"))


def test_sentencepiece(pieces: Path) -> None:
    tokenizer = SentencePieceTokenizer(pieces)
    text = "The bank 日本語 😀"
    assert tokenizer.detokenize(tokenizer.tokenize(text)) == text


def test_description_and_files_make_it_again(pieces: Path, tmp_path: Path) -> None:
    for tokenizer in (
        WhitespaceTokenizer(True),
        MosesTokenizer(False, "de"),
        SentencePieceTokenizer(pieces),
    ):
        tokenizer.save(tmp_path)
        again = load_tokenizer(tokenizer.describe(), tmp_path)
        assert again.describe() == tokenizer.describe()
        assert again.tokenize("Ein Satz, usw.") == tokenizer.tokenize("Ein Satz, usw.")


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"name": "spacy"},
        {"name": "whitespace", "lowercase": 1},
        {"name": "whitespace", "class": "os.system"},
        {"name": "whitespace", "language": "en"},
        {"name": "moses", "language": 3},
    ],
)
def test_bad_descriptions(description: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="does not describe a tokeniser"):
        load_tokenizer(description, tmp_path)


def test_sentencepiece_model_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no sentencepiece model"):
        load_tokenizer({"name": "sentencepiece"}, tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\x80\x04pickle, perhaps")
    with pytest.raises(TokenizerError, match="is not a sentencepiece model"):
        load_tokenizer({"name": "sentencepiece"}, tmp_path)


def test_sentencepiece_takes_any_string(pieces: Path) -> None:
    tokenizer = SentencePieceTokenizer(pieces)
    assert tokenizer.tokenize("a\ud800b") == tokenizer.tokenize("ab")
    assert tokenizer.tokenize("\udfff") == []
    tokenizer.tokenize("a\0b\n")


def test_a_sentencepiece_model_that_is_too_large(tmp_path: Path) -> None:
    with open(tmp_path / "tokenizer.model", "wb") as file:
        file.truncate(MAX_MODEL_BYTES + 1)
    with pytest.raises(TokenizerError, match="at most 268,435,456 are read"):
        load_tokenizer({"name": "sentencepiece"}, tmp_path)
