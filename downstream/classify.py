"""Classify text on a frozen biLM: `python -m downstream.classify --model DIR --train ... --help`.

Trains a head for every mix of the biLM's layers that is asked for, on representations that are
computed once and kept, and writes a report. Exit codes: 0 done; 2 a mistake in the settings, the
texts, the model or the cache; 3 a loss that is not a number.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import run_command
from bilm.process_settings import share_cores
from downstream.settings import Settings, add_flags, read_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m downstream.classify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_flags(parser)
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="bars on stderr (default: if it is a terminal)",
    )
    arguments = parser.parse_args(argv)
    settings = read_settings(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()
    sys.stdout.write(classify(settings, arguments.progress))
    return 0


def classify(settings: Settings, progress: bool | None = None) -> str:
    """Do all that the settings ask for; the summary is returned, the report is written."""
    # torch only now, so that --help and mistakes answer at once
    from downstream.experiment import read_task, run
    from downstream.report import check_output, summary_table, write_report

    check_output(settings)
    task = read_task(settings)
    model, finetuned = Path(settings.model), None
    if settings.finetune.enabled:
        from downstream.finetune import finetune

        tuned = finetune(settings, task)
        model, finetuned = tuned.model, tuned.as_json()
    results = run(settings, task, model, progress)
    write_report(results, settings, finetuned)
    best, _, _ = results.chosen()
    test = best.scores["test"]
    return (
        f"{summary_table(results)}\n\nbest by validation: {best.mix}, seed "
        f"{best.seed}; test accuracy {test.accuracy:.2%}, macro F1 {test.macro_f1:.2%}\n"
        f"report: {Path(settings.output) / 'report.md'}\n"
    )


if __name__ == "__main__":
    run_command(main)
