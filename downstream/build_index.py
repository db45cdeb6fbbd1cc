"""Index the words of a text: `bilm index --model DIR --text FILE`

Each word of each distinct sentence is embedded once; its vectors in all layers are kept in float16
in a directory below --cache, which is named after the digests of the model and the text. If the
command is interrupted, run it again to resume. `bilm explore --text FILE` uses the index.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, run_command
from bilm.model.devices import AUTO, DEVICE_HELP
from bilm.model.precision import PRECISION_HELP, Precision
from downstream.explorer.index_format import DEFAULT_MAX_WORDS
from downstream.explorer.index_text import check_text, open_index

DEFAULT_MODEL = "english-small"


@dataclass(frozen=True)
class IndexOptions:
    """The flags of the command."""

    model: str
    text: Path
    max_words: int
    cache: Path | None
    device: str
    precision: Precision

    def __post_init__(self) -> None:
        check_max_words(self.max_words)
        check_text(self.text)


def check_max_words(max_words: int) -> None:
    """Reject a limit that leaves no words."""
    if max_words < 1:
        raise ConfigError(f"--max-words is {max_words}; it must be at least 1")


def add_index_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that determine an index and its place."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="a run, a model directory, or a name (default: %(default)s)",
    )
    parser.add_argument(
        "--max-words",
        type=int,
        default=DEFAULT_MAX_WORDS,
        help="index at most this number of words (default: %(default)s)",
    )
    parser.add_argument(
        "--cache", type=Path, help="directory of indexes (default: below the cache of the user)"
    )
    parser.add_argument("--device", default=AUTO, help=DEVICE_HELP)
    parser.add_argument(
        "--precision", choices=get_args(Precision), default="float32", help=PRECISION_HELP
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the index, and print its directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="a text file or a corpus")
    add_index_flags(parser)
    options = IndexOptions(**vars(parser.parse_args(argv)))
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()
    # torch is imported here, so that --help and errors in the flags appear immediately.
    from bilm.embedding.embedder import Embedder

    embedder = Embedder.from_pretrained(
        options.model, device=options.device, precision=options.precision
    )
    index = open_index(options.text, embedder, options.max_words, options.cache, report_words)
    record = index.record
    sys.stdout.write(
        f"{index.directory}: {record.num_words:,} words of {record.num_sentences:,} sentences, "
        f"{record.num_layers} layers of {record.dim}\n"
    )
    return 0


def report_words(num_words: int) -> None:
    """Log the progress of an index."""
    logging.getLogger(__name__).info("%s words indexed", f"{num_words:,}")


if __name__ == "__main__":
    run_command(main)
