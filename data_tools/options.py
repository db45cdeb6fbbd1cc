"""The flags of the three build commands, checked, as one dataclass."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bilm.characters import SPECIAL_WORDS
from bilm.errors import ConfigError
from bilm.tokenizers import NAMES
from data_tools.inputs import DEFAULT_FIELD, FORMATS, Format, InputFile, find_inputs

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


def add_text_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that all three commands share."""
    add = parser.add_argument
    add(
        "--input",
        action="append",
        required=True,
        metavar="PATTERN",
        help="file or quoted pattern; may be given several times; .txt, .jsonl, .csv, .tsv, each "
        "plain or .gz, .bz2, .xz, .zst",
    )
    add("--output", required=True, type=Path, help="where to write; must not exist")
    add("--overwrite", action="store_true", help="replace an existing output once all is done")
    _add_tokenizer_flags(parser)
    add(
        "--lines",
        choices=("sentences", "documents"),
        default="sentences",
        help="what one line (field, row) holds; documents are split (default: %(default)s)",
    )
    add("--format", choices=FORMATS, help="of all inputs (default: by their extensions)")
    add(
        "--field",
        default=DEFAULT_FIELD,
        help="the field of .jsonl, the column of .csv and .tsv: a name in the header, or a number "
        "from 1 if there is no header (default: %(default)s)",
    )
    add(
        "--errors",
        choices=("strict", "replace"),
        default="strict",
        help="what is not UTF-8 is an error, or becomes U+FFFD (default: %(default)s)",
    )
    add(
        "--heldout",
        default="0.01",
        metavar="SHARE|PATTERN",
        help="hold out this share of the lines (0: none), chosen by a hash of the line, or these "
        "files (taken out of --input if they match it) (default: %(default)s)",
    )
    add(
        "--workers",
        type=int,
        metavar="N",
        help="processes that tokenise; the output does not depend on it (default: all cores)",
    )
    add("--seed", type=int, default=0, help="of held-out choice, sample and shuffle (default: 0)")


def _add_tokenizer_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--tokenizer",
        choices=NAMES,
        default="moses",
        help="whitespace: the text is tokenised already; moses: raw text in a language with "
        "spaces; sentencepiece: any raw text, into pieces (default: %(default)s)",
    )
    add("--language", default="en", help="of moses's rules (default: %(default)s)")
    add(
        "--sentencepiece-model",
        type=Path,
        metavar="FILE",
        help="a trained model; without it one is trained on a sample of the training text",
    )
    add(
        "--pieces",
        type=int,
        default=DEFAULT_PIECES,
        metavar="N",
        help="of the sentencepiece model that is trained (default: %(default)s)",
    )
    add("--lowercase", action="store_true", help="lowercase the text before tokenising")


def add_vocabulary_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that cut the vocabulary."""
    parser.add_argument(
        "--max-vocab",
        type=int,
        default=PUBLISHED_VOCABULARY,
        metavar="N",
        help="words of the softmax at most, <S> </S> <UNK> included (default: %(default)s, the "
        "size of the published one)",
    )
    parser.add_argument(
        "--min-count",
        type=int,
        metavar="N",
        help="leave out words rarer than this in the training text (default: 3, as published; 1 "
        "for sentencepiece)",
    )


def add_shard_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of what is written."""
    parser.add_argument(
        "--shuffle",
        choices=("sentences", "documents", "none"),
        default="sentences",
        help="what to put into random order (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-words",
        type=int,
        default=DEFAULT_SHARD_WORDS,
        metavar="N",
        help="words in one shard, 4 bytes each (default: %(default)s)",
    )


def read_options(args: argparse.Namespace) -> BuildOptions:
    """Check the flags, find the inputs."""
    share, heldout_files = _read_heldout(args.heldout, args.format)
    inputs = find_inputs(args.input, args.format, "--input")
    heldout_paths = {file.path.resolve() for file in heldout_files}
    inputs = [file for file in inputs if file.path.resolve() not in heldout_paths]
    if not inputs:
        raise ConfigError("--heldout takes all files of --input; leave some to train on")
    options = BuildOptions(
        inputs=tuple(
            [replace(file, split="train") for file in inputs] + heldout_files
            if heldout_files
            else inputs
        ),
        output=args.output,
        tokenizer=args.tokenizer,
        language=args.language,
        sentencepiece_model=args.sentencepiece_model,
        pieces=args.pieces,
        lowercase=args.lowercase,
        lines=args.lines,
        field=args.field,
        errors=args.errors,
        heldout_share=share,
        seed=args.seed,
        num_workers=_num_cores() if args.workers is None else args.workers,
        overwrite=args.overwrite,
        max_vocab=getattr(args, "max_vocab", PUBLISHED_VOCABULARY),
        min_count=_min_count(args),
        shuffle=getattr(args, "shuffle", "none"),
        shard_words=getattr(args, "shard_words", DEFAULT_SHARD_WORDS),
        vocab=getattr(args, "vocab", None),
        allow_unsorted_vocab=getattr(args, "allow_unsorted_vocab", False),
    )
    _check(options)
    return options


def _num_cores() -> int:
    """The cores that this process may use, where the system says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _min_count(args: argparse.Namespace) -> int:
    given: int | None = getattr(args, "min_count", None)
    return MIN_COUNT[args.tokenizer] if given is None else given


def _read_heldout(text: str, file_format: Format | None) -> tuple[float, list[InputFile]]:
    try:
        share = float(text)
    except ValueError:
        files = find_inputs([text], file_format, "--heldout")
        return 0.0, [replace(file, split="heldout") for file in files]
    if not 0 <= share < 1:
        raise ConfigError(f"--heldout {text}: a share must be at least 0 and below 1")
    return share, []


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
