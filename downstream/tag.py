"""Tag words with a frozen biLM: `python -m downstream.tag --model DIR --train FILE ...`

Named entities, chunks or parts of speech: computes the representations of all sentences once,
trains a biLSTM with a CRF on them for every mix of the biLM's layers, and writes a report. With
`--mix none`, no biLM is needed. Exit codes: 0 done; 2 an error in the settings, the sentences, the
model or the cache; 3 a loss that is NaN or infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bilm.errors import run_command
from bilm.model.devices import choose_device
from downstream.settings.common import TaskSettings
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.tagging import TAG_FLAGS, SequenceSettings, TagSettings

if TYPE_CHECKING:
    from downstream.reports.tagging import TaskNames
    from downstream.tasks.tagging import TaggingTask
    from downstream.tasks.task import Scores

AnySettings = TypeVar("AnySettings", bound=TaskSettings)
AnyScores = TypeVar("AnyScores", bound="Scores")


def main(argv: Sequence[str] | None = None) -> int:
    """Read the settings, run the experiment, and print its summary."""
    arguments = parse(__doc__, argv, flags=TAG_FLAGS)
    settings = read_settings(arguments, TagSettings, TAG_FLAGS)
    set_up()
    sys.stdout.write(tag(settings, arguments.progress))
    return 0


def tag(settings: TagSettings, progress: bool | None = None) -> str:
    """Run the experiment, write the report, and return the summary."""
    from downstream.reports.tagging import TAGGING
    from downstream.tasks.tagging import read_tagging

    check_output(settings)
    return run_tagging(settings, read_tagging(settings), TAGGING, progress)


def check_output(settings: TaskSettings) -> None:
    """Reject an output directory or a device that cannot be used, before any file is read."""
    from downstream.reports.pages import check_free
    from downstream.reports.results_tree import FORMAT

    check_free(Path(settings.output), FORMAT, settings.overwrite)
    choose_device(settings.device)


def run_tagging(
    settings: SequenceSettings, task: TaggingTask, names: TaskNames, progress: bool | None
) -> str:
    """Train the heads of a tagging task, write the report, and return the summary."""
    # torch is imported here, so that --help and errors in the settings appear immediately.
    from downstream.reports.report import run_and_report
    from downstream.reports.tagging import tagging_page

    return run_and_report(
        settings, task, lambda results: tagging_page(results, settings, names), progress
    )


if __name__ == "__main__":
    run_command(main)
