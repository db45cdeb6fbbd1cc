"""data_tools/flags."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from bilm.errors import ConfigError
from bilm.text.tokenizers import NAMES
from data_tools.reading.chunks import DEFAULT_FIELD, FORMATS, Format, InputFile, find_inputs
from data_tools.reading.options import (
    DEFAULT_PIECES,
    DEFAULT_SHARD_WORDS,
    MIN_COUNT,
    PUBLISHED_VOCABULARY,
    BuildOptions,
    _check,
)


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
