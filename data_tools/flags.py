"""The command-line flags that the build commands share, and the options made from them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from bilm.corpus.manifest import HELDOUT, TRAIN
from bilm.distributed.process import num_cores
from bilm.errors import ConfigError
from bilm.text.tables import FORMATS, Format
from bilm.text.tokenizers import NAMES, require_tokenizer_package
from data_tools.reading.chunks import DEFAULT_FIELD, InputFile, find_inputs
from data_tools.reading.options import (
    DEFAULT_MIN_COUNTS,
    DEFAULT_PIECES,
    DEFAULT_SHARD_WORDS,
    PUBLISHED_VOCABULARY_SIZE,
    OutputOptions,
    RunOptions,
    ShardOptions,
    Share,
    TextOptions,
    TokenizerOptions,
    VocabularyOptions,
)


def add_text_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the input and for reading it."""
    add = parser.add_argument
    add(
        "--input",
        action="append",
        required=True,
        metavar="PATTERN",
        help="file or quoted pattern; may be repeated; .txt, .csv, .tsv, .jsonl or .json, each "
        "also with .gz, .bz2, .xz or .zst, or .parquet",
    )
    _add_format_flags(parser)
    add(
        "--heldout",
        default="0.01",
        metavar="SHARE|PATTERN",
        help="share of the lines to hold out, chosen by a hash of the line (0: none), or files to "
        "hold out, which are removed from --input (default: %(default)s)",
    )
    add(
        "--workers",
        type=int,
        metavar="N",
        help="number of worker processes; does not affect the output (default: all cores)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        help="seed of the held-out split, the sentencepiece sample and the shuffle (default: 0)",
    )


def _add_format_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the format of the input."""
    add = parser.add_argument
    add(
        "--lines",
        choices=("sentences", "documents"),
        default="sentences",
        help="content of a line, field or cell; documents are split into sentences (default: "
        "%(default)s)",
    )
    add("--format", choices=FORMATS, help="format of all inputs (default: by file extension)")
    add(
        "--field",
        action="append",
        help="column of .csv, .tsv and .parquet files, field of .jsonl and .json objects: a name, "
        "or a number from 1 for .csv and .tsv files without a header; may be repeated, and then "
        f"the first one that a file has is read (default: {DEFAULT_FIELD})",
    )
    add(
        "--encoding",
        help="encoding of the input, such as latin-1 (default: UTF-8, or UTF-16 with a byte order "
        "mark)",
    )
    add(
        "--errors",
        choices=("strict", "replace"),
        default="strict",
        help="reject invalid bytes, or replace them with U+FFFD (default: %(default)s)",
    )


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the output path."""
    parser.add_argument("--output", required=True, type=Path, help="path to write to")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing output when the new one is complete",
    )


def add_tokenizer_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the tokenizer."""
    add = parser.add_argument
    add(
        "--tokenizer",
        choices=NAMES,
        default="moses",
        help="whitespace: for tokenized text; moses: for raw text in a language with spaces; "
        "sentencepiece: for any raw text, which is split into pieces (default: %(default)s)",
    )
    add("--language", default="en", help="language of the moses rules (default: %(default)s)")
    add(
        "--sentencepiece-model",
        type=Path,
        metavar="FILE",
        help="trained model (default: train one on a sample of the training text)",
    )
    add(
        "--pieces",
        type=int,
        default=DEFAULT_PIECES,
        metavar="N",
        help="number of pieces if a sentencepiece model is trained (default: %(default)s)",
    )
    add("--lowercase", action="store_true", help="lowercase the text before tokenizing")


def add_vocabulary_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that limit the vocabulary."""
    parser.add_argument(
        "--max-vocab",
        type=int,
        default=PUBLISHED_VOCABULARY_SIZE,
        metavar="N",
        help="maximum size of the softmax vocabulary, including <S> </S> <UNK> (default: "
        "%(default)s, the published size)",
    )
    parser.add_argument(
        "--min-count",
        type=int,
        metavar="N",
        help="minimum count of a word in the training text (default: 3, as published; 1 for "
        "sentencepiece)",
    )


def add_shard_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the shards."""
    parser.add_argument(
        "--shuffle",
        choices=("sentences", "documents", "none"),
        default="sentences",
        help="units to put into random order (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-words",
        type=int,
        default=DEFAULT_SHARD_WORDS,
        metavar="N",
        help="words per shard, 4 bytes each (default: %(default)s)",
    )


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for several machines."""
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run on the workers of this Dask scheduler, such as tcp://host:8786, which must see "
        "the same files (default: run on this machine)",
    )
    parser.add_argument(
        "--part",
        type=_share,
        metavar="K/N",
        help="only read and tokenize the K-th of N shares of the input; the same command without "
        "--part completes the corpus",
    )


def _share(text: str) -> Share:
    number, separator, total = text.partition("/")
    if not (separator and number.isdecimal() and total.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form K/N, such as 3/16")
    return Share(int(number), int(total))


def run_options(args: argparse.Namespace) -> RunOptions:
    """Return where to run the build."""
    return RunOptions(args.scheduler, args.part)


def text_options(args: argparse.Namespace) -> TextOptions:
    """Find the input files and return the options for reading them."""
    share, heldout_files = _read_heldout(args.heldout, args.format)
    inputs = find_inputs(args.input, args.format, "--input")
    heldout_paths = {file.path.resolve() for file in heldout_files}
    inputs = [file for file in inputs if file.path.resolve() not in heldout_paths]
    if not inputs:
        raise ConfigError("--heldout contains all files of --input; leave one or more to train on")
    if heldout_files:
        inputs = [replace(file, split=TRAIN) for file in inputs] + heldout_files
    if getattr(args, "scheduler", None) is not None:  # its workers have other directories
        inputs = [replace(file, path=file.path.absolute()) for file in inputs]
    return TextOptions(
        inputs=tuple(inputs),
        lines=args.lines,
        fields=tuple(args.field or [DEFAULT_FIELD]),
        errors=args.errors,
        encoding=args.encoding,
        heldout_share=share,
        seed=args.seed,
        num_workers=num_cores() if args.workers is None else args.workers,
    )


def output_options(args: argparse.Namespace) -> OutputOptions:
    """Return the options for the output path."""
    return OutputOptions(args.output, args.overwrite)


def tokenizer_options(args: argparse.Namespace) -> TokenizerOptions:
    """Return the options for the tokenizer, whose package must be installed."""
    require_tokenizer_package(args.tokenizer)
    return TokenizerOptions(
        name=args.tokenizer,
        language=args.language,
        lowercase=args.lowercase,
        sentencepiece_model=args.sentencepiece_model,
        pieces=args.pieces,
    )


def vocabulary_options(args: argparse.Namespace) -> VocabularyOptions:
    """Return the limits of the vocabulary."""
    default = DEFAULT_MIN_COUNTS[args.tokenizer]
    return VocabularyOptions(args.max_vocab, default if args.min_count is None else args.min_count)


def shard_options(args: argparse.Namespace) -> ShardOptions:
    """Return the options for the shards."""
    return ShardOptions(args.shuffle, args.shard_words)


def _read_heldout(text: str, file_format: Format | None) -> tuple[float, list[InputFile]]:
    """Parse `--heldout`: return the held-out share, or the held-out files."""
    try:
        share = float(text)
    except ValueError:
        files = find_inputs([text], file_format, "--heldout")
        return 0.0, [replace(file, split=HELDOUT) for file in files]
    if not 0 <= share < 1:
        raise ConfigError(f"--heldout is {text}; a share must be at least 0 and below 1")
    return share, []
