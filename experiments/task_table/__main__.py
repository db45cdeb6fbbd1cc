"""Measure the tasks of the ELMo paper: `python -m experiments.task_table --data DIR --work DIR`.

For every task, heads with and without a frozen biLM are trained with the same settings. Every
command runs once; run this again after an interruption to resume. At the end, the tables and plots
of docs/tasks.md are written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from bilm.distributed.process import num_cores
from bilm.errors import ConfigError, run_command
from experiments.prepare_texts import prepare_sst5
from experiments.task_table.adapted import AG_NEWS, REUTERS, adapt
from experiments.task_table.heads import VECTORS, Places, Runner, all_heads
from experiments.task_table.page import write_page
from experiments.task_table.plan import TASKS, TEXTS, TaskPlan
from experiments.task_table.predictions import measure_predictions


def main(argv: Sequence[str] | None = None) -> int:
    """Run all commands that are not done, then write the page."""
    arguments = _parser().parse_args(argv)
    plans = [plan for plan in TASKS if plan.name in arguments.tasks]
    if arguments.jobs < 1:
        raise ConfigError(f"--jobs is {arguments.jobs}; it must be at least 1")
    records: Path = arguments.records or arguments.work / "records"
    if not arguments.write_only:
        if arguments.data is None:
            raise ConfigError("--data is missing; pass the directory of the task data")
        _check_data(arguments.data, arguments.work, plans)
        for plan in plans:
            adapt(plan, arguments.data, arguments.work, records)  # with all cores
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if any(plan.name == "sst5" for plan in plans):
            prepare_sst5(arguments.data, arguments.work / TEXTS)
        places = Places(arguments.data, arguments.work, records)
        Runner(places, arguments.model, arguments.jobs).run(list(all_heads(plans)))
        measure_predictions(plans, places)
    write_page(records)
    return 0


def _check_data(data: Path, work: Path, plans: Sequence[TaskPlan]) -> None:
    """Reject a data directory that lacks a file."""
    paths = [path for plan in plans for path in plan.paths(data, work) if path is not None]
    missing = [path for path in paths if TEXTS not in path.parts and not path.is_file()]
    shared = [VECTORS]
    if any(plan.domain is not None for plan in plans):
        shared += [REUTERS, AG_NEWS]
    missing += [data / name for name in shared if not (data / name).is_file()]
    if missing:
        raise ConfigError(f"{', '.join(map(str, missing))} does not exist; see docs/tasks.md")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.task_table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [plan.name for plan in TASKS]
    parser.add_argument(
        "--data", type=Path, help="directory of the task data; not needed with --write-only"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("results/tasks"), help="directory for all output"
    )
    parser.add_argument(
        "--records",
        type=Path,
        help="directory of the records of finished heads, which are not trained again (default: "
        "records in --work)",
    )
    parser.add_argument("--model", default="english-small", help="the biLM (default: %(default)s)")
    parser.add_argument(
        "--tasks", nargs="+", default=names, choices=names, help="tasks to run (default: all)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=num_cores(),
        help="commands to run at a time, each with one thread (default: the number of cores)",
    )
    parser.add_argument(
        "--write-only", action="store_true", help="only write the page from existing results"
    )
    return parser


if __name__ == "__main__":
    run_command(main)
