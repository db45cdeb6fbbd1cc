"""Classify text with a frozen biLM: `python -m downstream.classify --model DIR --train FILE ...`

A text has one class, any number of labels (--target multilabel), or a number (--target regression).
Computes the representations of all texts once, trains a head on them for every mix of the biLM's
layers, and writes a report. Exit codes: 0 done; 2 an error in the settings, the texts, the model or
the cache; 3 a loss that is NaN or infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import run_command
from bilm.extras import TRAINING, require
from bilm.model.devices import choose_device
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.sections import Settings

if TYPE_CHECKING:
    from downstream.training.experiment import Results


def main(argv: Sequence[str] | None = None) -> int:
    """Read the settings, run the experiment, and print its summary."""
    arguments = parse(__doc__, argv)
    settings = read_settings(arguments, Settings)
    if settings.finetune.enabled:
        require("--finetune", *TRAINING)
    set_up()
    sys.stdout.write(classify(settings, arguments.progress))
    return 0


def classify(settings: Settings, progress: bool | None = None) -> str:
    """Run the experiment, write the report, and return the summary."""
    # torch is imported here, so that --help and errors in the settings appear immediately.
    from downstream.reports.pages import check_free
    from downstream.reports.report import summary_table, write_report
    from downstream.reports.results_tree import FORMAT
    from downstream.reports.targets import result_line, text_page
    from downstream.tasks.targets import read_text_task
    from downstream.training.experiment import run

    settings = settings.with_target_defaults()
    check_free(Path(settings.output), FORMAT, settings.overwrite)
    choose_device(settings.device)  # reject a device that does not exist
    task: Any = read_text_task(settings)
    model, finetuned = Path(settings.model), None
    if settings.finetune.enabled:
        from downstream.training.finetune import finetune

        tuned = finetune(settings, task)
        model, finetuned = tuned.model, tuned.as_json()
    results: Results[Any] = run(settings, task, model, progress)
    page = text_page(results, settings)
    write_report(results, settings, page, finetuned)
    best = results.chosen().outcome
    return (
        f"{summary_table(results, page.columns)}\n\nbest by validation: {best.mix}, seed "
        f"{best.seed}; {result_line(results, page)}\n"
        f"report: {Path(settings.output) / 'report.md'}\n"
    )


if __name__ == "__main__":
    run_command(main)
