"""Export a run: `bilm export RUN --model MODEL_DIR --published PUBLISHED_DIR`

Writes the best model by held-out perplexity (with `--which newest`, the model of the newest
checkpoint) as a self-contained model directory, and as the published `options.json` (262
characters) and `weights.hdf5` with `vocab.txt`. Each is read back and compared weight by weight.

The model directory contains a card (README.md) with the facts of the run. `--card FILE` adds what
only you know: a JSON object with any of `name`, `summary`, `language`, `license`, `sources`,
`preparation`, `evaluation`, `results`, `intended_use` and `limits`; see docs/models.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

from bilm.errors import ConfigError, run_command
from bilm.pretrained.card_details import CardDetails, read_card_details
from bilm.pretrained.file_names import WeightType

if TYPE_CHECKING:
    from bilm.pretrained.model_directory import PretrainedBiLm


@dataclass(frozen=True)
class Arguments:
    """The command line; `--help` describes the flags."""

    run: Path
    model: Path | None
    published: Path | None
    which: Literal["best", "newest"]
    dtype: WeightType
    card: Path | None
    push_to_hub: str | None
    without_softmax: bool
    overwrite: bool


def main() -> int:
    """Export a run in one or both formats."""
    arguments = _parse()
    if arguments.model is None and arguments.published is None:
        raise ConfigError("there is nothing to write; pass --model, --published, or both")
    if arguments.push_to_hub is not None and arguments.model is None:
        raise ConfigError("--push-to-hub needs --model, the directory that is sent")
    details = CardDetails() if arguments.card is None else read_card_details(arguments.card)
    # These imports load torch; they are here so that --help is fast.
    from bilm.pretrained.export import export_published
    from bilm.training.run_directory import model_of_run

    pretrained = model_of_run(arguments.run, arguments.which)
    if arguments.model is not None:
        _export_model(arguments, pretrained, details)
    if arguments.published is not None:
        export_published(
            pretrained, arguments.published, arguments.without_softmax, arguments.overwrite
        )
        print(f"wrote {arguments.published / 'options.json'} and weights.hdf5")
    return 0


def _export_model(arguments: Arguments, pretrained: PretrainedBiLm, details: CardDetails) -> None:
    from bilm.pretrained.export import export_model
    from bilm.pretrained.hub import upload
    from bilm.pretrained.model_card import Card
    from bilm.training.run_facts import facts_of_run

    directory = arguments.model
    assert directory is not None
    name = arguments.push_to_hub or directory.resolve().name
    card = Card(pretrained, name, details, facts_of_run(arguments.run, arguments.which))
    export_model(pretrained, directory, arguments.overwrite, arguments.dtype, card.text())
    print(f"wrote {directory}")
    if arguments.push_to_hub is not None:
        upload(directory, arguments.push_to_hub)
        print(f"wrote {arguments.push_to_hub} to the Hugging Face Hub")


def _parse() -> Arguments:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the train.output_dir of a run")
    parser.add_argument("--model", type=Path, help="the model directory to write")
    parser.add_argument(
        "--published", type=Path, help="the directory for options.json and weights.hdf5"
    )
    parser.add_argument(
        "--which",
        choices=["best", "newest"],
        default="best",
        help="weights to export (default: best)",
    )
    parser.add_argument(
        "--dtype",
        choices=get_args(WeightType),
        default="float32",
        help="type of the weights of --model; float16 almost halves the size (default: float32)",
    )
    parser.add_argument("--card", type=Path, metavar="FILE", help="JSON file for the model card")
    parser.add_argument(
        "--push-to-hub",
        metavar="OWNER/NAME",
        help="also write the model directory to this repository of the Hugging Face Hub",
    )
    parser.add_argument(
        "--without-softmax",
        action="store_true",
        help="omit the softmax from the published files, as the original ones do",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing output")
    return Arguments(**vars(parser.parse_args()))


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main)


if __name__ == "__main__":
    run()
