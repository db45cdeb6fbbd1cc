"""Build a corpus with an existing vocabulary: `python -m data_tools.build_shards --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import ConfigError, run_command
from data_tools import flags
from data_tools.reading.options import CorpusOptions, GivenVocabulary


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the flags, build the corpus and print a summary."""
    parser = argparse.ArgumentParser(
        description="Write a corpus with a given vocabulary, such as the published one: its words "
        "and their order are kept, and the counts are those of this text.",
    )
    parser.add_argument(
        "--vocab",
        required=True,
        type=Path,
        metavar="FILE",
        help="one word per line: <S> </S> <UNK> in any order, then words by decreasing count",
    )
    parser.add_argument(
        "--allow-unsorted-vocab",
        action="store_true",
        help="accept a vocabulary that is not sorted by count",
    )
    flags.add_text_flags(parser)
    flags.add_output_flags(parser)
    flags.add_tokenizer_flags(parser)
    flags.add_shard_flags(parser)
    flags.add_run_flags(parser)
    args = parser.parse_args(argv)
    options = CorpusOptions(
        text=flags.text_options(args),
        tokenizer=flags.tokenizer_options(args),
        vocabulary=GivenVocabulary(args.vocab, args.allow_unsorted_vocab),
        shards=flags.shard_options(args),
        output=flags.output_options(args),
        run=flags.run_options(args),
    )
    tokenizer = options.tokenizer
    if tokenizer.name == "sentencepiece" and tokenizer.sentencepiece_model is None:
        raise ConfigError(
            "--tokenizer sentencepiece requires --sentencepiece-model; use the model that "
            "build_vocab wrote next to the vocabulary"
        )
    from data_tools.building.build import build_corpus, print_summary

    print_summary(build_corpus(options), options.output.path)
    return 0


if __name__ == "__main__":
    run_command(main)
