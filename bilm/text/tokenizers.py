"""Split raw text into words: `whitespace`, `moses` and `sentencepiece`.

A corpus, and every model trained on it, records its tokenizer, so that both accept raw text. The
record is a `TokenizerSpec` in a JSON file and, for sentencepiece, the file `tokenizer.model` next
to it.

sentencepiece is imported when a tokenizer that needs it is created, and sacremoses when a text is
tokenized, because it imports slowly and models often read words.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from pydantic import model_validator

from bilm.errors import BilmError, CheckpointError, TokenizerError
from bilm.extras import require
from bilm.files.sections import Section
from bilm.text.moses import CachedMoses

SENTENCEPIECE_FILE = "tokenizer.model"

MAX_MODEL_BYTES = 1 << 28

TokenizerName = Literal["whitespace", "moses", "sentencepiece"]

NAMES: tuple[TokenizerName, ...] = get_args(TokenizerName)

_MOSES_LANGUAGE = "en"

_PACKAGES = {"moses": ["sacremoses"], "sentencepiece": ["sentencepiece"]}


class TokenizerSpec(Section):
    """The JSON object that describes a tokenizer. Only moses has a language, `en` by default."""

    name: TokenizerName
    lowercase: bool = False
    language: str | None = None

    @model_validator(mode="after")
    def _only_moses_has_a_language(self) -> TokenizerSpec:
        if self.language is not None and self.name != "moses":
            raise ValueError(f"the tokenizer {self.name!r} has no language; remove the key")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, which contains `language` only if it is set."""
        return self.model_dump(exclude_none=True)


class Tokenizer(Protocol):
    """Splits a sentence into words."""

    @property
    def spec(self) -> TokenizerSpec:
        """The spec from which `load_tokenizer` recreates this tokenizer."""

    def tokenize(self, text: str) -> list[str]:
        """Return the words of one sentence."""

    def detokenize(self, words: Sequence[str]) -> str:
        """Return the text of a sentence, as far as the words determine it."""

    def save(self, directory: Path) -> None:
        """Write the files that `load_tokenizer` needs in addition to the spec."""

    def model_bytes(self) -> bytes:
        """Return the content of the model file, or empty bytes if there is none."""


def require_tokenizer_package(name: str) -> None:
    """Fail if the package of the tokenizer `name` is not installed."""
    require(f"the tokenizer {name!r}", *_PACKAGES.get(name, []))


class _WordTokenizer:
    """Base class of tokenizers without a model file."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self.spec = spec

    def detokenize(self, words: Sequence[str]) -> str:
        return " ".join(words)

    def save(self, directory: Path) -> None:
        pass

    def model_bytes(self) -> bytes:
        return b""


class WhitespaceTokenizer(_WordTokenizer):
    """Splits text that is already tokenized, with words separated by whitespace."""

    def __init__(self, lowercase: bool = False) -> None:
        super().__init__(TokenizerSpec(name="whitespace", lowercase=lowercase))

    def tokenize(self, text: str) -> list[str]:
        return (text.lower() if self.spec.lowercase else text).split()


class MosesTokenizer(_WordTokenizer):
    """Splits raw text of a language with spaces like the Moses scripts (sacremoses)."""

    def __init__(self, lowercase: bool = False, language: str = _MOSES_LANGUAGE) -> None:
        require_tokenizer_package("moses")
        super().__init__(TokenizerSpec(name="moses", lowercase=lowercase, language=language))
        self._language = language

    def __getstate__(self) -> dict[str, Any]:
        """Copy or pickle without the cache, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_moses"}

    @cached_property
    def _moses(self) -> CachedMoses:
        return CachedMoses(self._language)

    def tokenize(self, text: str) -> list[str]:
        return self._moses.tokenize(text.lower() if self.spec.lowercase else text)


class SentencePieceTokenizer:
    """Splits text into the pieces of a trained sentencepiece model.

    Suitable for languages without spaces, or to keep the softmax small.
    """

    def __init__(self, model_file: Path, lowercase: bool = False) -> None:
        require_tokenizer_package("sentencepiece")
        import sentencepiece

        if not model_file.is_file():
            raise TokenizerError(f"the sentencepiece model {model_file} does not exist")
        size = model_file.stat().st_size
        if size > MAX_MODEL_BYTES:
            raise TokenizerError(
                f"{model_file} is not a sentencepiece model: it has {size:,} bytes; the "
                f"limit is {MAX_MODEL_BYTES:,}"
            )
        self.spec = TokenizerSpec(name="sentencepiece", lowercase=lowercase)
        self._model_file = model_file
        self._pieces = sentencepiece.SentencePieceProcessor()
        try:
            self._pieces.Load(str(model_file))
        except (RuntimeError, OSError) as e:
            reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
            raise TokenizerError(f"{model_file} is not a sentencepiece model: {reason}") from None

    def tokenize(self, text: str) -> list[str]:
        # Drop lone surrogates, which UTF-8 cannot encode, as `char_ids` does.
        text = text.encode("utf-8", "ignore").decode("utf-8")
        text = text.lower() if self.spec.lowercase else text
        pieces: list[str] = self._pieces.EncodeAsPieces(text)
        return pieces

    def detokenize(self, words: Sequence[str]) -> str:
        text: str = self._pieces.DecodePieces(list(words))
        return text

    def save(self, directory: Path) -> None:
        shutil.copyfile(self._model_file, directory / SENTENCEPIECE_FILE)

    def model_bytes(self) -> bytes:
        return self._model_file.read_bytes()


def load_tokenizer(spec: TokenizerSpec, directory: Path) -> Tokenizer:
    """Create the tokenizer of `spec`, whose files `Tokenizer.save` wrote into `directory`."""
    if spec.name == "whitespace":
        return WhitespaceTokenizer(spec.lowercase)
    if spec.name == "moses":
        language = _MOSES_LANGUAGE if spec.language is None else spec.language
        return MosesTokenizer(spec.lowercase, language)
    return SentencePieceTokenizer(directory / SENTENCEPIECE_FILE, spec.lowercase)


def require_tokenizer(
    tokenizer: Tokenizer | None,
    remedy: str,
    model: Path | str = "this model",
    error: type[BilmError] | type[ValueError] = CheckpointError,
) -> Tokenizer:
    """Return the tokenizer of a model, or raise an error that ends with `remedy` if it has none."""
    if tokenizer is None:
        raise error(f"{model} has no tokenizer, so it cannot read raw text; {remedy}")
    return tokenizer
