"""Resolve coreference with a frozen biLM: `python -m downstream.coref --model DIR --train FILE ...`

Reads documents with clusters of mentions from JSON lines or CoNLL-2012 columns. Computes the
representations of all sentences once, trains an end-to-end span ranking model on them for every mix
of the biLM's layers, and writes a report. With `--mix none`, no biLM is needed. Exit codes: 0 done;
2 an error in the settings, the documents, the model or the cache; 3 a loss that is NaN or infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bilm.errors import run_command
from downstream.settings.coreference import COREF_FLAGS, CorefSettings
from downstream.settings.flags import parse, read_settings, set_up
from downstream.tag import check_output


def main(argv: Sequence[str] | None = None) -> int:
    """Read the settings, run the experiment, and print its summary."""
    arguments = parse(__doc__, argv, flags=COREF_FLAGS)
    settings = read_settings(arguments, CorefSettings, COREF_FLAGS)
    set_up()
    sys.stdout.write(resolve(settings, arguments.progress))
    return 0


def resolve(settings: CorefSettings, progress: bool | None = None) -> str:
    """Run the experiment, write the report, and return the summary."""
    from downstream.tasks.coreference import read_coref_task

    check_output(settings)
    task = read_coref_task(settings)
    # torch is imported here, so that --help and errors in the documents appear immediately.
    from downstream.reports.coreference import coref_page
    from downstream.reports.report import run_and_report

    return run_and_report(settings, task, lambda results: coref_page(results, settings), progress)


if __name__ == "__main__":
    run_command(main)
