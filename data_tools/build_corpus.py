"""Build a corpus from text in one pass: `python -m data_tools.build_corpus --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bilm.errors import run_command
from data_tools import flags
from data_tools.reading.options import CorpusOptions


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the flags, build the corpus and print a summary."""
    parser = argparse.ArgumentParser(
        description="Tokenize and count text, choose the vocabulary, and write a corpus, all in "
        "one pass. The same input, options and seed give the same bytes.",
    )
    flags.add_text_flags(parser)
    flags.add_output_flags(parser)
    flags.add_tokenizer_flags(parser)
    flags.add_vocabulary_flags(parser)
    flags.add_shard_flags(parser)
    flags.add_run_flags(parser)
    args = parser.parse_args(argv)
    options = CorpusOptions(
        text=flags.text_options(args),
        tokenizer=flags.tokenizer_options(args),
        vocabulary=flags.vocabulary_options(args),
        shards=flags.shard_options(args),
        output=flags.output_options(args),
        run=flags.run_options(args),
    )
    from data_tools.building.build import build_corpus, print_summary

    print_summary(build_corpus(options), options.output.path)
    return 0


if __name__ == "__main__":
    run_command(main)
