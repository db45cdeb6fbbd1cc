"""The flags of `bilm embed`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from bilm.model.devices import AUTO, DEVICE_HELP
from bilm.model.precision import PRECISION_HELP, Precision
from bilm.text.tables import FORMATS, Format

if TYPE_CHECKING:
    from bilm.embedding.embedder import StateMode
    from bilm.embedding.output import OutputDtype, Pool
    from bilm.text.tokenizers import TokenizerName


@dataclass(frozen=True)
class Arguments:
    """The command line; `--help` describes the flags."""

    model: Path | None
    options: Path | None
    weights: Path | None
    vocab: Path | None
    input: Path
    format: Format | None
    field: list[str] | None
    encoding: str | None
    output: Path
    dtype: OutputDtype
    layers: str
    pool: Pool
    tokenizer: TokenizerName | None
    state: StateMode
    compression: str | None
    batch_words: int | None
    device: str
    precision: Precision
    overwrite: bool
    progress: bool


def parse(description: str | None) -> Arguments:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, help="a run, a model, or its name")
    add("--options", type=Path, help="a published options.json, instead of --model")
    add("--weights", type=Path, help="the weights.hdf5 that belongs to --options")
    add("--vocab", type=Path, help="the vocabulary of --weights, for a model with word ids")
    _add_input_flags(parser)
    add("--output", type=Path, required=True, help="the HDF5 file to write")
    dtypes = ["float32", "float16"]
    add("--dtype", choices=dtypes, default="float32", help="output type (default: float32)")
    add(
        "--layers",
        default="all",
        help="all, average, top, or mix:w0,w1,... with one weight per layer (default: all)",
    )
    add(
        "--pool",
        choices=["none", "mean", "max", "mean_max"],
        default="none",
        help="pooling that yields one vector per line instead of one per word (default: none)",
    )
    add(
        "--tokenizer",
        choices=["whitespace", "moses"],
        help="tokenizer (default: that of the model); use whitespace for tokenized text",
    )
    add(
        "--state",
        choices=["reset", "warm"],
        default="reset",
        help="initial LSTM state of a sentence; see docs/embedding.md (default: reset)",
    )
    add("--compression", choices=["gzip", "lzf"], help="compress the HDF5 file")
    add("--batch-words", type=int, help="maximum number of words to process together")
    add("--device", default=AUTO, help=DEVICE_HELP)
    add("--precision", choices=get_args(Precision), default="float32", help=PRECISION_HELP)
    add("--overwrite", action="store_true", help="replace an existing output")
    add(
        "--progress",
        action="store_true",
        help="show a progress bar even if stderr is not a terminal",
    )
    add("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    values = vars(parser.parse_args())
    del values["local_rank"]
    return Arguments(**values)


def _add_input_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--input",
        type=Path,
        required=True,
        help="the text, one sentence per line, row or object: .txt, .csv, .tsv, .jsonl or .json, "
        "each also with .gz, .bz2, .xz or .zst, or .parquet; other names are read as lines",
    )
    add("--format", choices=FORMATS, help="format of the input (default: by file extension)")
    add(
        "--field",
        action="append",
        help="column or field of the text: a name, or a number from 1 for .csv and .tsv files "
        "without a header; may be repeated, and then the first one that the file has is read "
        "(default: text)",
    )
    add(
        "--encoding",
        help="encoding of the input, such as latin-1 (default: UTF-8, or UTF-16 with a byte order "
        "mark)",
    )
