"""Build a corpus with a vocabulary that exists: `python -m data_tools.build_shards --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import ConfigError, run_command
from data_tools.flags import add_shard_flags, add_text_flags, read_options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m data_tools.build_shards",
        description="Write a corpus of text with a given vocabulary (the published one, say): its "
        "words and their order are kept, counts are those of this text.",
    )
    parser.add_argument(
        "--vocab",
        required=True,
        type=Path,
        metavar="FILE",
        help="one word a line, <S> </S> <UNK> first, then by falling count",
    )
    parser.add_argument(
        "--allow-unsorted-vocab",
        action="store_true",
        help="take a vocabulary whose order does not follow counts",
    )
    add_text_flags(parser)
    add_shard_flags(parser)
    options = read_options(parser.parse_args(argv))
    if options.tokenizer == "sentencepiece" and options.sentencepiece_model is None:
        raise ConfigError(
            "--tokenizer sentencepiece needs the --sentencepiece-model that the vocabulary was "
            "made with; build_vocab writes it beside the vocabulary"
        )
    from data_tools.building.build import build_corpus, print_summary

    print_summary(build_corpus(options), options.output)
    return 0


if __name__ == "__main__":
    run_command(main)
