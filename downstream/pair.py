"""Classify pairs of texts with a frozen biLM: `python -m downstream.pair --model DIR --train FILE`

Natural language inference, paraphrases: computes the representations of all texts once, trains a
network with attention between both texts (ESIM) on them for every mix of the biLM's layers, and
writes a report. With `--mix none`, no biLM is needed. Exit codes: 0 done; 2 an error in the
settings, the pairs, the model or the cache; 3 a loss that is NaN or infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bilm.errors import run_command
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.pairs import PAIR_FLAGS, PairSettings
from downstream.tag import check_output

if TYPE_CHECKING:
    pass


def main(argv: Sequence[str] | None = None) -> int:
    """Read the settings, run the experiment, and print its summary."""
    arguments = parse(__doc__, argv, flags=PAIR_FLAGS)
    settings = read_settings(arguments, PairSettings, PAIR_FLAGS)
    set_up()
    sys.stdout.write(classify_pairs(settings, arguments.progress))
    return 0


def classify_pairs(settings: PairSettings, progress: bool | None = None) -> str:
    """Run the experiment, write the report, and return the summary."""
    from downstream.tasks.pairs import read_pair_task

    check_output(settings)
    task = read_pair_task(settings)
    # torch is imported here, so that --help and errors in the pairs appear immediately.
    from downstream.reports.pairs import pair_page
    from downstream.reports.report import run_and_report

    return run_and_report(settings, task, lambda results: pair_page(results, settings), progress)


if __name__ == "__main__":
    run_command(main)
