"""Compare bilm with other systems: `python -m experiments.comparison --data DIR --work DIR`.

Every system is trained on the text of a corpus for the same time on the same cores, after a few
short trials. Its frozen features are evaluated by the same heads. Every stage is a command that
runs once; run the command again after an interruption to resume. At the end it writes
docs/comparison.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import ConfigError, run_command
from experiments.comparison.stages import PARTS, Comparison, Options
from experiments.comparison.systems import SYSTEMS
from experiments.comparison.tasks import check_data


def main(argv: Sequence[str] | None = None) -> int:
    """Run all stages that are not done, then write the page."""
    flags = vars(_parser().parse_args(argv))
    parts = flags.pop("parts")
    for name in ("minutes", "trial_minutes"):
        if flags[name] <= 0:
            raise ConfigError(f"--{name.replace('_', '-')} is {flags[name]}; it must be above 0")
    check_data(flags["data"])
    comparison = Comparison(Options(**flags))
    for part in parts:
        PARTS[part](comparison)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.comparison",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="directory of the task data")
    parser.add_argument("--work", type=Path, required=True, help="directory for all output")
    parser.add_argument("--minutes", type=float, required=True, help="training time of each system")
    parser.add_argument(
        "--trial-minutes", type=float, default=3.0, help="training time of each trial (default: 3)"
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        default=Path("results/english/corpus"),
        help="the corpus of the biLM (default: results/english/corpus)",
    )
    parser.add_argument(
        "--model",
        type=Path,
        default=Path("models/english-small"),
        help="the biLM that was trained longer (default: models/english-small)",
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        default=list(SYSTEMS),
        choices=list(SYSTEMS),
        help="systems to train and evaluate (default: all)",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        default=list(PARTS),
        choices=list(PARTS),
        help="parts to run (default: all, in this order: %(choices)s)",
    )
    return parser


if __name__ == "__main__":
    run_command(main)
