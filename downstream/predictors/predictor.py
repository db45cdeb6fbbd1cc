"""The base classes of trained heads that read raw texts, with or without a biLM.

On disk, a head consists of its description and `head.safetensors`. The biLM and the word vectors
are not copied: their paths and digests are recorded, and other files are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

from bilm.model.precision import Precision
from bilm.text.tokenizers import require_tokenizer
from downstream.features.plain_words import PlainWords, WordLayersFile
from downstream.features.word_ranges import WordRanges
from downstream.heads.head import MixedModel
from downstream.heads.saved_head import HeadDescription, load_model
from downstream.heads.word_model import WordHeadDescription
from downstream.predictors.head_files import check_head_file
from downstream.predictors.inputs import checked_sentence, checked_string
from downstream.predictors.loading import OpenedInputs, Places, open_inputs
from downstream.texts.offsets import Range, covering_ranges, joined_ranges

WINDOW_WORDS = 16_384  # that are predicted together, which bounds the memory for the layers

AnyText = str | Iterable[str]  # a text, or its words

AnyDescription = TypeVar("AnyDescription", bound=HeadDescription)
AnyWordDescription = TypeVar("AnyWordDescription", bound=WordHeadDescription)


@dataclass(frozen=True)
class SplitText:
    """A text, its words, and the range of characters of each word."""

    text: str
    words: list[str]
    ranges: list[Range]

    @classmethod
    def of(cls, content: str | Sequence[str], split: Callable[[str], list[str]]) -> SplitText:
        """Split a text; the text of a list of words is the words, separated by spaces."""
        if isinstance(content, str):
            words = split(content)
            return cls(content, words, covering_ranges(content, words))
        return cls(" ".join(content), list(content), joined_ranges(content))


def checked_content(content: object, name: str) -> str | list[str]:
    """Return a text, or its words as a list; `name` is that of the text in errors."""
    return checked_string(content, name) if isinstance(content, str) else _words(content, name)


def _words(content: object, name: str) -> list[str]:
    if not isinstance(content, Iterable):
        raise TypeError(f"{name} is {content!r:.60}; expected a text, or a list of its words")
    return checked_sentence(content, name)


def name_of(names: Sequence[str] | None, kind: str, index: int, count: int) -> str:
    """Return the name of a text in errors: the given one, or its number."""
    return f"{kind} {index + 1} of {count}" if names is None else names[index]


class HeadPredictor(Generic[AnyDescription]):
    """A trained head, and the biLM and the word vectors that it needs."""

    _file: ClassVar[str]  # that describes a head of this class

    def __init__(
        self, description: AnyDescription, model: MixedModel, inputs: OpenedInputs
    ) -> None:
        self.description = description
        device = "cpu" if inputs.embedder is None else inputs.embedder.device
        self._model = model.to(device).eval()
        self._inputs = inputs

    @classmethod
    def from_pretrained(
        cls,
        directory: Path | str,
        *,
        model: Path | str | None = None,
        vectors: Path | str | None = None,
        device: str | None = None,
        precision: Precision = "float32",
    ) -> Self:
        """Read a trained head.

        Args:
            directory: the output directory of the command that trained the head.
            model: the path of the biLM, if it has moved.
            vectors: the path of the word vectors, if they have moved.
            device: such as "cpu" or "cuda:1"; by default, the accelerator if there is one, else the
                CPU. It need not be the device that the head was trained on.
            precision: "float32", "tf32" or "bfloat16" for the matrix products of the biLM.
        """
        return cls.open(directory, Places(model, vectors, device, precision))

    @classmethod
    def open(cls, directory: Path | str, places: Places) -> Self:
        """Read a trained head, whose biLM and word vectors are at `places`."""
        directory = Path(directory)
        check_head_file(directory, cls._file)
        description = cls._read_description(directory)
        inputs = open_inputs(description, directory, places)
        return cls(description, load_model(description, directory), inputs)

    @classmethod
    def _read_description(cls, directory: Path) -> AnyDescription:
        """Read the description of a head of this class."""
        raise NotImplementedError


class WordPredictor(HeadPredictor[AnyWordDescription]):
    """The base class of the heads that read words."""

    def _read(self, texts: Sequence[Sequence[str]]) -> WordRanges:
        """Return the words of tokenized texts with everything that the head reads of them."""
        if self._inputs.embedder is not None and self.description.mix_kind != "none":
            file: PlainWords = WordLayersFile.computed(texts, self._inputs.embedder)
        else:
            file = PlainWords.of_texts(texts)
        table = None
        if self._inputs.vectors is not None:
            table = self._inputs.vectors.look_up(file.types, self.description.head.unknown)
        return WordRanges(file, table, self.description.has_characters)

    def _splitter(self) -> Callable[[str], list[str]]:
        """Return the tokenizer of the biLM; without a biLM, words are separated by spaces."""
        if self._inputs.embedder is None:
            return str.split
        remedy = "tokenize the texts, and call predict_words"
        tokenizer = self._inputs.embedder.pretrained.tokenizer
        return require_tokenizer(tokenizer, remedy).tokenize
