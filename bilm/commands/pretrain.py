"""Pretrain a biLM: `deepspeed launch/pretrain.py --config configs/big.json [section.key=value ...]`

The same command on an existing `train.output_dir` resumes that run. Without the `deepspeed`
launcher (`python launch/pretrain.py ...`) it is a run of one rank.

Exit codes: 0 done; 2 a mistake in the configuration, the corpus or the run directory; 3 a loss that
is not a number; 4 a rank is lost; 75 stopped by a signal and saved. After 4 and 75 the same command
goes on from there.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path

from bilm.distributed.process import settle
from bilm.errors import USER_ERROR_EXIT_CODE, ConfigError, run_command
from bilm.training.config import load_config


def main() -> int:
    """Read the configuration, then train, plan, or try one step."""
    arguments = _arguments()
    is_first = os.environ.get("RANK", "0") == "0"
    try:
        config = load_config(arguments.config, arguments.override)
    except ConfigError:
        if is_first:
            raise
        time.sleep(2)  # the launcher ends all ranks when one has left: let rank 0 speak first
        return USER_ERROR_EXIT_CODE
    _set_up_logging(is_first)
    if arguments.plan:
        if is_first:
            from bilm.commands.plan import plan

            print(plan(config, arguments.words_per_second))
        return 0
    settle()
    # torch and deepspeed only now, so that --help and mistakes answer at once
    from bilm.training.setup import dry_run, train

    return dry_run(config) if arguments.dry_run else train(config, arguments.fresh)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True, help="for example configs/big.json")
    parser.add_argument(
        "--fresh", action="store_true", help="refuse an output_dir that holds a run already"
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print parameters, memory, traffic, steps, disk and hours; start nothing",
    )
    parser.add_argument(
        "--words-per-second",
        type=float,
        help="measured speed of one rank, for the hours of --plan",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="run one step at the real shapes, keep nothing"
    )
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    parser.add_argument("override", nargs="*", help="section.key=value")
    return parser.parse_intermixed_args()


def _set_up_logging(is_first: bool) -> None:
    rank = "" if is_first else f"[rank {os.environ['RANK']}] "
    logging.basicConfig(
        level=logging.INFO if is_first else logging.WARNING,
        format=f"%(asctime)s {rank}%(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    # DeepSpeed logs its whole configuration at each start.
    os.environ.setdefault("DS_LOG_LEVEL", "warning")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)


if __name__ == "__main__":
    run_command(main, tear_down=False)
