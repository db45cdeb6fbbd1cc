from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from bilm.errors import CheckpointError, ConfigError, TokenizerError
from bilm.files.sections import parse_section
from bilm.text.tokenizers import (
    MAX_MODEL_BYTES,
    MosesTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    TokenizerSpec,
    WhitespaceTokenizer,
    load_tokenizer,
    require_tokenizer,
)
from tests.conftest import GOLDEN

PIECES = TokenizerSpec(name="sentencepiece")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_whitespace_splits_at_unicode_white_space() -> None:
    assert WhitespaceTokenizer().tokenize(" A  b\tc\u2028d ") == ["A", "b", "c", "d"]
    assert WhitespaceTokenizer(lowercase=True).tokenize("A b") == ["a", "b"]


def test_moses_separates_punctuation() -> None:
    words = MosesTokenizer().tokenize('He said: "it\'s 3.5 & <b>".')
    assert words == ["He", "said", ":", '"', "it", "'s", "3.5", "&", "<", "b", ">", '"', "."]
    assert MosesTokenizer().tokenize("") == []
    assert all(word.split() == [word] for word in MosesTokenizer().tokenize("a\u00a0b\u2028c"))


def test_detokenizes(model_file: Path) -> None:
    pieces = SentencePieceTokenizer(model_file)
    text = "The bank 日本語 😀"
    assert pieces.detokenize(pieces.tokenize(text)) == text
    assert WhitespaceTokenizer().detokenize(["The", "bank"]) == "The bank"


def test_loads_saved_tokenizers(model_file: Path, tmp_path: Path) -> None:
    tokenizers: list[Tokenizer] = [
        WhitespaceTokenizer(True),
        MosesTokenizer(False, "de"),
        SentencePieceTokenizer(model_file),
    ]
    for tokenizer in tokenizers:
        tokenizer.save(tmp_path)
        spec = parse_section(TokenizerSpec, tokenizer.spec.to_json(), "spec")
        loaded = load_tokenizer(spec, tmp_path)
        assert loaded.spec == tokenizer.spec
        assert loaded.model_bytes() == tokenizer.model_bytes()
        assert loaded.tokenize("Ein Satz, usw.") == tokenizer.tokenize("Ein Satz, usw.")


def test_tokenizers_can_be_copied_and_pickled_after_use(model_file: Path) -> None:
    tokenizers = (WhitespaceTokenizer(), MosesTokenizer(), SentencePieceTokenizer(model_file))
    for tokenizer in tokenizers:
        words = tokenizer.tokenize("The bank floods.")
        for other in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
            assert other.tokenize("The bank floods.") == words
            assert other.spec == tokenizer.spec


def test_spec_has_expected_json(model_file: Path) -> None:
    assert list(WhitespaceTokenizer().spec.to_json().items()) == [
        ("name", "whitespace"),
        ("lowercase", False),
    ]
    assert list(MosesTokenizer(True).spec.to_json().items()) == [
        ("name", "moses"),
        ("lowercase", True),
        ("language", "en"),
    ]
    pieces = SentencePieceTokenizer(model_file)
    assert list(pieces.spec.to_json().items()) == [("name", "sentencepiece"), ("lowercase", False)]


def test_only_sentencepiece_has_a_model(model_file: Path) -> None:
    assert WhitespaceTokenizer().model_bytes() == MosesTokenizer().model_bytes() == b""
    assert SentencePieceTokenizer(model_file).model_bytes() == model_file.read_bytes()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({}, "name: is missing"),
        ({"name": "spacy"}, "name: "),
        ({"name": "whitespace", "lowercase": 1}, "lowercase: "),
        ({"name": "whitespace", "class": "os.system"}, "class: is not a known key"),
        ({"name": "whitespace", "language": "en"}, "'whitespace' has no language"),
        ({"name": "moses", "language": 3}, "language: "),
    ],
)
def test_rejects_invalid_specs(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_section(TokenizerSpec, tree, "spec")


def test_rejects_missing_or_damaged_model(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.model does not exist"):
        load_tokenizer(PIECES, tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\x80\x04pickle, perhaps")
    with pytest.raises(TokenizerError, match="is not a sentencepiece model"):
        load_tokenizer(PIECES, tmp_path)


def test_rejects_large_model(tmp_path: Path) -> None:
    with open(tmp_path / "tokenizer.model", "wb") as file:
        file.truncate(MAX_MODEL_BYTES + 1)
    with pytest.raises(TokenizerError, match="the limit is 268,435,456"):
        load_tokenizer(PIECES, tmp_path)


def test_sentencepiece_accepts_any_string(model_file: Path) -> None:
    tokenizer = SentencePieceTokenizer(model_file)
    assert tokenizer.tokenize("a\ud800b") == tokenizer.tokenize("ab")
    assert tokenizer.tokenize("\udfff") == []
    tokenizer.tokenize("a\0b\n")


def test_requires_a_tokenizer() -> None:
    tokenizer = WhitespaceTokenizer()
    assert require_tokenizer(tokenizer, "pass words") is tokenizer
    with pytest.raises(CheckpointError, match=r"^this model has no tokenizer.*; pass words$"):
        require_tokenizer(None, "pass words")
    with pytest.raises(ValueError, match=r"^models/big has no tokenizer"):
        require_tokenizer(None, "pass words", Path("models/big"), ValueError)
