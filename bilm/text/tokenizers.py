"""Raw text to words: `whitespace`, `moses` and `sentencepiece`.

The choice, with its model file, travels with a corpus and with every model trained on it, so that
raw text can be handed to either. A tokeniser is described by a small JSON object (`describe`) and,
for sentencepiece, by the file `tokenizer.model` beside it.

sacremoses and sentencepiece are imported when one of them is asked for, not before.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

from bilm.errors import TokenizerError

SENTENCEPIECE_FILE = "tokenizer.model"

MAX_MODEL_BYTES = 1 << 28

NAMES = ("whitespace", "moses", "sentencepiece")


class Tokenizer(Protocol):
    """What turns a raw sentence into words, and says what it is."""

    def tokenize(self, text: str) -> list[str]:
        """The words of one sentence."""

    def describe(self) -> dict[str, Any]:
        """The JSON object from which `load_tokenizer` makes this tokeniser again."""

    def save(self, directory: Path) -> None:
        """Write the files that `load_tokenizer` needs beside the description."""


class WhitespaceTokenizer:
    """Text that is tokenised already: words stand between white space."""

    def __init__(self, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def tokenize(self, text: str) -> list[str]:
        return (text.lower() if self.lowercase else text).split()

    def describe(self) -> dict[str, Any]:
        return {"name": "whitespace", "lowercase": self.lowercase}

    def save(self, directory: Path) -> None:
        pass


class MosesTokenizer:
    """Raw text in a language with spaces, split as the Moses scripts do (sacremoses)."""

    def __init__(self, lowercase: bool = False, language: str = "en") -> None:
        try:
            from sacremoses import MosesTokenizer as Moses
        except ImportError:
            raise TokenizerError(
                "the tokeniser 'moses' needs sacremoses: pip install 'bilm[data]'"
            ) from None
        self.lowercase = lowercase
        self.language = language
        self._moses = Moses(lang=language)

    def tokenize(self, text: str) -> list[str]:
        text = text.lower() if self.lowercase else text
        words: list[str] = self._moses.tokenize(text, escape=False)
        # Moses knows the ASCII separators; what Unicode calls white space must not survive in a
        # word either, since the vocabulary is one word a line.
        return " ".join(words).split()

    def describe(self) -> dict[str, Any]:
        return {"name": "moses", "lowercase": self.lowercase, "language": self.language}

    def save(self, directory: Path) -> None:
        pass


class SentencePieceTokenizer:
    """Pieces of a trained sentencepiece model: for languages without spaces, or a small softmax."""

    def __init__(self, model_file: Path, lowercase: bool = False) -> None:
        try:
            import sentencepiece
        except ImportError:
            raise TokenizerError(
                "the tokeniser 'sentencepiece' needs sentencepiece: pip install 'bilm[data]'"
            ) from None
        if not model_file.is_file():
            raise TokenizerError(f"there is no sentencepiece model at {model_file}")
        size = model_file.stat().st_size
        if size > MAX_MODEL_BYTES:
            raise TokenizerError(
                f"{model_file} is not a sentencepiece model: it has {size:,} bytes; at most "
                f"{MAX_MODEL_BYTES:,} are read"
            )
        self.lowercase = lowercase
        self.model_file = model_file
        self._pieces = sentencepiece.SentencePieceProcessor()
        try:
            self._pieces.Load(str(model_file))
        except (RuntimeError, OSError) as e:
            reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
            raise TokenizerError(f"{model_file} is not a sentencepiece model: {reason}") from None

    def tokenize(self, text: str) -> list[str]:
        # As in character ids, what UTF-8 cannot say (a lone surrogate) is left out.
        text = text.encode("utf-8", "ignore").decode("utf-8")
        pieces: list[str] = self._pieces.EncodeAsPieces(text.lower() if self.lowercase else text)
        return pieces

    def detokenize(self, pieces: list[str]) -> str:
        """The text that these pieces stand for."""
        text: str = self._pieces.DecodePieces(pieces)
        return text

    def describe(self) -> dict[str, Any]:
        return {"name": "sentencepiece", "lowercase": self.lowercase}

    def save(self, directory: Path) -> None:
        shutil.copyfile(self.model_file, directory / SENTENCEPIECE_FILE)


def load_tokenizer(description: dict[str, Any], directory: Path) -> Tokenizer:
    """Make the tokeniser that `describe` and `save` described in `directory`."""
    name = description.get("name")
    lowercase = description.get("lowercase", False)
    language = description.get("language", "en")
    expected = {"name", "lowercase"} | ({"language"} if name == "moses" else set())
    unknown = sorted(set(description) - expected)
    if name not in NAMES or unknown or type(lowercase) is not bool or type(language) is not str:
        raise TokenizerError(
            f"{description!r:.300} does not describe a tokeniser: name must be one of "
            f"{', '.join(NAMES)}, lowercase true or false, and moses may have a language"
        )
    if name == "whitespace":
        return WhitespaceTokenizer(lowercase)
    if name == "moses":
        return MosesTokenizer(lowercase, language)
    return SentencePieceTokenizer(directory / SENTENCEPIECE_FILE, lowercase)
