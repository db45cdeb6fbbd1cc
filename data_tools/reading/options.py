"""The options of the build commands; each class validates its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bilm.corpus.manifest import HELDOUT
from bilm.errors import ConfigError
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.lines import Errors, check_encoding
from bilm.text.records import check_fields
from bilm.text.tokenizers import TokenizerName, TokenizerSpec
from data_tools.reading.chunks import DEFAULT_FIELD, Chunk, InputFile, read_chunks, read_file
from data_tools.reading.parts import Part

PUBLISHED_VOCABULARY_SIZE = 793_471

DEFAULT_SHARD_WORDS = 10_000_000

DEFAULT_PIECES = 8_000

DEFAULT_MIN_COUNTS = {"whitespace": 3, "moses": 3, "sentencepiece": 1}

# 256 byte pieces, three special pieces of sentencepiece, and some room for characters.
MIN_PIECES = 300

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class TextOptions:
    """The input files, how to read them, and the lines to hold out."""

    inputs: tuple[InputFile, ...]
    lines: str = "sentences"
    fields: tuple[str, ...] = (DEFAULT_FIELD,)
    errors: Errors = "strict"
    encoding: str | None = None
    heldout_share: float = 0.0
    seed: int = 0
    num_workers: int = 1

    def __post_init__(self) -> None:
        check_fields(self.fields)
        if self.encoding is not None:
            check_encoding(self.encoding)
        _check_minimum("--workers", self.num_workers, 1)
        _check_minimum("--seed", self.seed, 0)
        if self.seed > MAX_SEED:
            raise ConfigError(f"--seed is {self.seed}; it must be below 2**63")

    def chunks(self, inputs: Iterable[InputFile]) -> Iterator[Chunk]:
        """Read `inputs`, which are some or all of the input files."""
        return read_chunks(inputs, self.fields, self.errors, self.encoding)

    def part_chunks(self, part: Part) -> Iterator[Chunk]:
        """Read one part of the input."""
        return read_file(part.file, self.fields, self.errors, self.encoding, part.span)

    @property
    def heldout(self) -> float | str:
        """The share of lines that is held out, or "files"."""
        has_files = any(file.split == HELDOUT for file in self.inputs)
        return "files" if has_files else self.heldout_share


@dataclass(frozen=True)
class TokenizerOptions:
    """A tokenizer and, for sentencepiece, its model or the size of the model to train."""

    name: TokenizerName
    language: str = "en"
    lowercase: bool = False
    sentencepiece_model: Path | None = None
    pieces: int = DEFAULT_PIECES

    def __post_init__(self) -> None:
        _check_minimum("--pieces", self.pieces, MIN_PIECES)
        if self.sentencepiece_model is not None and self.name != "sentencepiece":
            raise ConfigError("--sentencepiece-model requires --tokenizer sentencepiece")

    def spec(self) -> TokenizerSpec:
        """Return the description of the tokenizer in `corpus.json`."""
        language = self.language if self.name == "moses" else None
        return TokenizerSpec(name=self.name, lowercase=self.lowercase, language=language)


@dataclass(frozen=True)
class VocabularyOptions:
    """The limits of a vocabulary that is counted from the text."""

    max_words: int
    min_count: int

    def __post_init__(self) -> None:
        _check_minimum("--max-vocab", self.max_words, len(SPECIAL_WORDS) + 1)
        _check_minimum("--min-count", self.min_count, 1)


@dataclass(frozen=True)
class GivenVocabulary:
    """A vocabulary from a file."""

    file: Path
    allow_unsorted: bool


@dataclass(frozen=True)
class ShardOptions:
    """The order of the text in a corpus, and the size of its shards."""

    shuffle: str
    shard_words: int

    def __post_init__(self) -> None:
        _check_minimum("--shard-words", self.shard_words, 1)


@dataclass(frozen=True)
class OutputOptions:
    """The path to write to, and whether to replace an existing output."""

    path: Path
    overwrite: bool = False

    def reject_inputs_inside(self, inputs: tuple[InputFile, ...]) -> None:
        """Raise ConfigError if the output would replace one of the inputs."""
        for file in inputs:
            if file.path.resolve().is_relative_to(self.path.resolve()):
                raise ConfigError(
                    f"--output {self.path} contains the input {file.path} and would replace it; "
                    "choose another path"
                )


@dataclass(frozen=True)
class Share:
    """A share of the parts of the input: every `total`-th part from `number` (from 1)."""

    number: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total:
            raise ConfigError(
                f"--part is {self}; the first number must be at least 1 and at most the second"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


@dataclass(frozen=True)
class RunOptions:
    """Where a build runs: here, on a Dask cluster, or here for a share of the parts only."""

    scheduler: str | None = None
    share: Share | None = None

    def __post_init__(self) -> None:
        if self.scheduler is not None and self.share is not None:
            raise ConfigError("--scheduler and --part exclude each other; use one of them")


@dataclass(frozen=True)
class CorpusOptions:
    """All options of a corpus."""

    text: TextOptions
    tokenizer: TokenizerOptions
    vocabulary: VocabularyOptions | GivenVocabulary
    shards: ShardOptions
    output: OutputOptions
    run: RunOptions = RunOptions()

    def __post_init__(self) -> None:
        needs_model = self.tokenizer.name == "sentencepiece" and (
            self.tokenizer.sentencepiece_model is None
        )
        if self.run.share is not None and needs_model:
            raise ConfigError(
                "--part with --tokenizer sentencepiece requires --sentencepiece-model; train a "
                "model with build_vocab"
            )
        self.output.reject_inputs_inside(self.text.inputs)
        if self.shards.shuffle == "documents" and self.text.lines != "documents":
            raise ConfigError(
                "--shuffle documents requires --lines documents: with one sentence per line there "
                "are no document boundaries; use --shuffle sentences or none"
            )

    def describe(self) -> dict[str, object]:
        """Return the options that affect the bytes of a corpus, without paths."""
        vocabulary: object = "brought"
        if isinstance(self.vocabulary, VocabularyOptions):
            vocabulary = {
                "max_vocab": self.vocabulary.max_words,
                "min_count": self.vocabulary.min_count,
            }
        return {
            "lines": self.text.lines,
            "errors": self.text.errors,
            "heldout": self.text.heldout,
            "shuffle": self.shards.shuffle,
            "shard_words": self.shards.shard_words,
            "seed": self.text.seed,
            "vocabulary": vocabulary,
        }


def _check_minimum(flag: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ConfigError(f"{flag} is {value}; it must be at least {minimum}")
