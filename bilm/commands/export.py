"""Export a run: `python launch/export.py RUN --model MODEL_DIR --published PUBLISHED_DIR`

Writes the best model by held-out perplexity (`--which newest`: of the newest checkpoint) as a
self-contained model directory, and as the published `options.json` (262 characters) and
`weights.hdf5`, with `vocab.txt` beside them. Each is read back and compared, weight by weight.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from bilm.errors import ConfigError, run_command


def main() -> int:
    """Export in one or both formats."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the train.output_dir of a run")
    parser.add_argument("--model", type=Path, help="the model directory to make")
    parser.add_argument("--published", type=Path, help="where options.json and weights.hdf5 go")
    parser.add_argument(
        "--which", choices=["best", "newest"], default="best", help="which weights (default: best)"
    )
    parser.add_argument(
        "--without-softmax",
        action="store_true",
        help="leave the softmax out of the published files, as the published ones do",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    arguments = parser.parse_args()
    if arguments.model is None and arguments.published is None:
        raise ConfigError("nothing to write: give --model, --published, or both")
    # torch only now, so that --help answers at once
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


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main)


if __name__ == "__main__":
    run()
