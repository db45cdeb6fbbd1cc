"""Train a masked LM for a fixed time: `python -m experiments.comparison.masked_training`.

The number of steps is derived from the measured speed, so that warm-up and decay fit into the time.
An interrupted run resumes from its last checkpoint, with the same masks and the same order of rows.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilm.distributed.process import configure_process
from bilm.errors import CheckpointError, ConfigError, run_command
from bilm.files.strict_json import read_json

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and write the model, its learning curve and `system.json`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.masked_training")
    parser.add_argument("--pieces", type=Path, required=True, help="output of .pieces")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="training time")
    parser.add_argument("--hidden-dim", type=int, default=256)
    parser.add_argument("--num-layers", type=int, default=6)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--rows", type=int, default=32, help="rows of 128 pieces per step")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--pooling", choices=("mean", "first"), default="mean", help="of pieces")
    parser.add_argument("--seed", type=int, default=0)
    flags = vars(parser.parse_args(argv))
    pieces, output, minutes = (flags.pop(name) for name in ("pieces", "output", "minutes"))
    if minutes <= 0:
        raise ConfigError(f"--minutes is {minutes}; it must be above 0")
    configure_process()

    from experiments.comparison.masked_model import Settings
    from experiments.comparison.masked_run import MaskedRun

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run = MaskedRun(pieces, output, Settings(**flags))
    plan = _plan(run, output, 60 * minutes)
    print(json.dumps(run.train(plan.steps, plan.evaluate_every)))
    return 0


@dataclass(frozen=True)
class Plan:
    """The number of steps, and how it was derived."""

    steps: int
    evaluate_every: int
    seconds: float
    seconds_per_step: float
    settings: dict[str, Any]


EVALUATIONS = 20  # at most, and at most one per minute

TRAINING_SHARE = 0.95  # of the time; evaluations and checkpoints take the rest


def _plan(run: Any, output: Path, seconds: float) -> Plan:
    """Return the plan of an interrupted run, or measure the speed and write a new plan."""
    from bilm.files.writing import write_text
    from experiments.comparison.masked_model import settings_json

    output.mkdir(parents=True, exist_ok=True)
    path = output / "plan.json"
    settings = settings_json(run.settings)
    if path.is_file():
        plan = Plan(**read_json(path, CheckpointError))
        if (plan.settings, plan.seconds) != (settings, seconds):
            raise CheckpointError(
                f"{path} was written with other settings; restore them or choose another --output"
            )
        return plan
    speed = run.seconds_per_step()
    steps = max(2, int(TRAINING_SHARE * seconds / speed))
    every = max(steps // EVALUATIONS, min(steps, round(60 / speed)), 1)
    plan = Plan(steps, every, seconds, speed, settings)
    write_text(path, json.dumps(asdict(plan), indent=1) + "\n")
    return plan


if __name__ == "__main__":
    run_command(main)
