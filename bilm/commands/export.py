"""Export a run: `bilm export RUN --model MODEL_DIR --published PUBLISHED_DIR`

Writes the best model by held-out perplexity (with `--which newest`, the model of the newest
checkpoint) as a self-contained model directory, and as the published `options.json` (262
characters) and `weights.hdf5` with `vocab.txt`. Each is read back and compared weight by weight.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from bilm.errors import ConfigError, run_command


@dataclass(frozen=True)
class Arguments:
    """The command line; `--help` describes the flags."""

    run: Path
    model: Path | None
    published: Path | None
    which: Literal["best", "newest"]
    without_softmax: bool
    overwrite: bool


def main() -> int:
    """Export a run in one or both formats."""
    arguments = _parse()
    if arguments.model is None and arguments.published is None:
        raise ConfigError("there is nothing to write; pass --model, --published, or both")
    # These imports load torch; they are here so that --help is fast.
    from bilm.pretrained.export import export_model, export_published
    from bilm.training.run_directory import model_of_run

    pretrained = model_of_run(arguments.run, arguments.which)
    if arguments.model is not None:
        export_model(pretrained, arguments.model, arguments.overwrite)
        print(f"wrote {arguments.model}")
    if arguments.published is not None:
        export_published(
            pretrained, arguments.published, arguments.without_softmax, arguments.overwrite
        )
        print(f"wrote {arguments.published / 'options.json'} and weights.hdf5")
    return 0


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
