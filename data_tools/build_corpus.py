"""Build a corpus from text in one go: `python -m data_tools.build_corpus --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bilm.errors import run_command
from data_tools.flags import add_shard_flags, add_text_flags, add_vocabulary_flags, read_options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m data_tools.build_corpus",
        description="Tokenise and count text, choose the vocabulary, and write a corpus: all in "
        "one pass. The same input, options and seed give the same bytes.",
    )
    add_text_flags(parser)
    add_vocabulary_flags(parser)
    add_shard_flags(parser)
    options = read_options(parser.parse_args(argv))
    from data_tools.building.build import build_corpus, print_summary

    print_summary(build_corpus(options), options.output)
    return 0


if __name__ == "__main__":
    run_command(main)
