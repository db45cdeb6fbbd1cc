"""Score baselines: `python -m downstream.baselines --train ... --test ... --output DIR`.

Uses the same files, split and scores as `python -m downstream.classify`, and accepts the same
flags; those of the head and its training apply to the untrained biLM. `--vectors` is the file of
word vectors to average; `--model` is the biLM whose shape is used for the untrained biLM.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import run_command
from downstream.baselines.baseline import NAMES
from downstream.baselines.comparison import (
    FORMAT,
    baselines_page,
    baselines_table,
    chosen_names,
    run_baselines,
)
from downstream.reports.pages import RESULTS_FILE, check_free, write_page
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.sections import BaselineSettings
from downstream.tasks.classification import read_task


def main(argv: Sequence[str] | None = None) -> int:
    """Fit and score the chosen baselines, and write their page."""
    arguments = parse("baselines", __doc__, argv, _add_which)
    settings = read_settings(arguments, BaselineSettings)
    settings.reject_finetune()
    names = chosen_names(arguments.which, settings)
    if "untrained" in names:
        settings.without_vectors()
    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    set_up()
    task = read_task(settings)
    _check_inputs(settings, names)
    comparison = run_baselines(settings, task, names, arguments.progress)
    write_page(output, FORMAT, baselines_page(comparison), settings.overwrite)
    table = baselines_table(comparison.baselines)
    sys.stdout.write(f"{table}\n\nresults: {output / RESULTS_FILE}\n")
    return 0


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--which",
        help=f"comma-separated names from {','.join(NAMES)} (default: all, but glove only with "
        "--vectors and untrained only with --model)",
    )


def _check_inputs(settings: BaselineSettings, names: Sequence[str]) -> None:
    """Reject word vectors and models that a later baseline could not use."""
    if "glove" in names:
        from downstream.features.word_vectors import check_vectors

        check_vectors(str(settings.head.vectors))
    if "untrained" in names:
        from downstream.baselines.untrained import check_untrained

        check_untrained(settings)


if __name__ == "__main__":
    run_command(main)
