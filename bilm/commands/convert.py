"""Convert between the published files (options.json and weights.hdf5) and a model directory.

    bilm convert from-published options.json weights.hdf5 MODEL_DIR [--vocab vocab.txt]
    bilm convert to-published MODEL_DIR OUTPUT_DIR

Weights are copied bit for bit. The published format does not include the vocabulary; it is written
to vocab.txt in OUTPUT_DIR, and --vocab reads it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from bilm.errors import run_command
from bilm.text.tokenizers import NAMES, TokenizerName, require_tokenizer_package


@dataclass(frozen=True)
class FromPublished:
    """The arguments of `from-published`; `--help` describes them."""

    options: Path
    weights: Path
    output: Path
    vocab: Path | None
    tokenizer: TokenizerName | None
    overwrite: bool


@dataclass(frozen=True)
class ToPublished:
    """The arguments of `to-published`; `--help` describes them."""

    model: Path
    output: Path
    overwrite: bool


def main() -> int:
    """Convert in the direction that the first argument names."""
    arguments = _parse()
    if isinstance(arguments, FromPublished):
        _from_published(arguments)
    else:
        _to_published(arguments)
    return 0


def _parse() -> FromPublished | ToPublished:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser("from-published", help="published files to a model directory")
    reading.add_argument("options", type=Path, help="options.json")
    reading.add_argument("weights", type=Path, help="weights.hdf5")
    reading.add_argument("output", type=Path, help="the model directory to write")
    reading.add_argument("--vocab", type=Path, help="the vocabulary, for a model with a softmax")
    reading.add_argument(
        "--tokenizer",
        choices=[name for name in NAMES if name != "sentencepiece"],
        help="how the text was tokenized, so that the embedder accepts raw strings",
    )
    writing = commands.add_parser("to-published", help="a model directory to published files")
    writing.add_argument("model", type=Path, help="the model directory")
    writing.add_argument(
        "output", type=Path, help="the directory for options.json and weights.hdf5"
    )
    for command in (reading, writing):
        command.add_argument("--overwrite", action="store_true", help="replace existing output")
    values = vars(parser.parse_args())
    if values.pop("command") == "from-published":
        return FromPublished(**values)
    return ToPublished(**values)


def _from_published(arguments: FromPublished) -> None:
    require_tokenizer_package(arguments.tokenizer or "")
    # These imports load torch; they are here so that --help is fast.
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.text.tokenizers import TokenizerSpec, load_tokenizer

    pretrained = PretrainedBiLm.from_published(
        arguments.options, arguments.weights, arguments.vocab
    )
    if arguments.tokenizer is not None:
        tokenizer = load_tokenizer(
            TokenizerSpec(name=arguments.tokenizer), arguments.options.parent
        )
        pretrained = replace(pretrained, tokenizer=tokenizer)
    pretrained.save_pretrained(arguments.output, arguments.overwrite)
    print(f"wrote {arguments.output}")


def _to_published(arguments: ToPublished) -> None:
    from bilm.pretrained.export import export_published
    from bilm.pretrained.model_directory import PretrainedBiLm

    pretrained = PretrainedBiLm.from_pretrained(arguments.model)
    export_published(pretrained, arguments.output, overwrite=arguments.overwrite)
    print(f"wrote {arguments.output / 'options.json'} and weights.hdf5")


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main)


if __name__ == "__main__":
    run()
