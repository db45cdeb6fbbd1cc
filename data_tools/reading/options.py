"""The flags of the three build commands, checked, as one dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.errors import ConfigError
from bilm.text.characters import SPECIAL_WORDS
from data_tools.reading.chunks import InputFile

PUBLISHED_VOCABULARY = 793_471

DEFAULT_SHARD_WORDS = 10_000_000

DEFAULT_PIECES = 8_000

MIN_COUNT = {"whitespace": 3, "moses": 3, "sentencepiece": 1}

# 256 byte pieces, three of sentencepiece's own, and some room for characters.
MIN_PIECES = 300

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class BuildOptions:
    """What the user asked for, after checking."""

    inputs: tuple[InputFile, ...]
    output: Path
    tokenizer: str
    language: str
    sentencepiece_model: Path | None
    pieces: int
    lowercase: bool
    lines: str
    field: str
    errors: str
    heldout_share: float
    seed: int
    num_workers: int
    overwrite: bool
    max_vocab: int = PUBLISHED_VOCABULARY
    min_count: int = 1
    shuffle: str = "sentences"
    shard_words: int = DEFAULT_SHARD_WORDS
    vocab: Path | None = None
    allow_unsorted_vocab: bool = False

    @property
    def has_heldout_files(self) -> bool:
        """Whether files, not a share, are held out."""
        return any(file.split == "heldout" for file in self.inputs)

    def describe(self) -> dict[str, Any]:
        """What a corpus says of its build: all that changes its bytes, and no path."""
        heldout = "files" if self.has_heldout_files else self.heldout_share
        return {
            "lines": self.lines,
            "errors": self.errors,
            "heldout": heldout,
            "shuffle": self.shuffle,
            "shard_words": self.shard_words,
            "seed": self.seed,
            "vocabulary": "brought"
            if self.vocab
            else {"max_vocab": self.max_vocab, "min_count": self.min_count},
        }


def _check(options: BuildOptions) -> None:
    at_least = {
        "--workers": (options.num_workers, 1),
        "--shard-words": (options.shard_words, 1),
        "--max-vocab": (options.max_vocab, len(SPECIAL_WORDS) + 1),
        "--min-count": (options.min_count, 1),
        "--pieces": (options.pieces, MIN_PIECES),
        "--seed": (options.seed, 0),
    }
    for flag, (value, least) in at_least.items():
        if value < least:
            raise ConfigError(f"{flag} {value}: must be at least {least}")
    if options.seed > MAX_SEED:
        raise ConfigError(f"--seed {options.seed}: must be below 2**63")
    if options.shuffle == "documents" and options.lines != "documents":
        raise ConfigError(
            "--shuffle documents needs --lines documents: one sentence a line says nothing of "
            "documents; use --shuffle sentences or none"
        )
    if options.sentencepiece_model is not None and options.tokenizer != "sentencepiece":
        raise ConfigError("--sentencepiece-model needs --tokenizer sentencepiece")
    for file in options.inputs:
        if file.path.resolve().is_relative_to(options.output.resolve()):
            raise ConfigError(
                f"--output {options.output} holds the input {file.path}, which it would replace; "
                "choose another place"
            )
