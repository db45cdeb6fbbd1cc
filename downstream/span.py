"""Answer questions with a frozen biLM: `python -m downstream.span --model DIR --train FILE ...`

Reads passages with questions and answers: SQuAD's JSON, or JSON lines. Computes the representations
of all passages and questions once, trains a head with attention on them for every mix of the biLM's
layers, which finds the answer to a question as a span of its passage, and writes a report. With
`--mix none`, no biLM is needed. Exit codes: 0 done; 2 an error in the settings, the passages, the
model or the cache; 3 a loss that is NaN or infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bilm.errors import run_command
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.spans import SPAN_FLAGS, SpanSettings
from downstream.tag import check_output


def main(argv: Sequence[str] | None = None) -> int:
    """Read the settings, run the experiment, and print its summary."""
    arguments = parse(__doc__, argv, flags=SPAN_FLAGS)
    settings = read_settings(arguments, SpanSettings, SPAN_FLAGS)
    set_up()
    sys.stdout.write(find_spans(settings, arguments.progress))
    return 0


def find_spans(settings: SpanSettings, progress: bool | None = None) -> str:
    """Run the experiment, write the report, and return the summary."""
    from downstream.tasks.spans import read_span_task

    check_output(settings)
    task = read_span_task(settings)
    # torch is imported here, so that --help and errors in the passages appear immediately.
    from downstream.reports.report import run_and_report
    from downstream.reports.spans import span_page

    return run_and_report(settings, task, lambda results: span_page(results, settings), progress)


if __name__ == "__main__":
    run_command(main)
