"""Label semantic roles with a frozen biLM: `python -m downstream.srl --model DIR --train FILE ...`

Reads JSON lines with tokens, predicates and BIO tags. Computes the representations of all sentences
once, trains a biLSTM with a CRF on them for every mix of the biLM's layers, with one example per
predicate, and writes a report. With `--mix none`, no biLM is needed. Exit codes: 0 done; 2 an error
in the settings, the sentences, the model or the cache; 3 a loss that is NaN or infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bilm.errors import run_command
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.roles import ROLE_FLAGS
from downstream.settings.tagging import SequenceSettings
from downstream.tag import check_output, run_tagging


def main(argv: Sequence[str] | None = None) -> int:
    """Read the settings, run the experiment, and print its summary."""
    arguments = parse(__doc__, argv, flags=ROLE_FLAGS)
    settings = read_settings(arguments, SequenceSettings, ROLE_FLAGS)
    set_up()
    sys.stdout.write(label_roles(settings, arguments.progress))
    return 0


def label_roles(settings: SequenceSettings, progress: bool | None = None) -> str:
    """Run the experiment, write the report, and return the summary."""
    from downstream.reports.tagging import TaskNames
    from downstream.tasks.roles import read_role_task

    check_output(settings)
    names = TaskNames(
        "Semantic roles", "predicates", "predicate", "role labeler", "downstream.RoleLabeler"
    )
    return run_tagging(settings, read_role_task(settings), names, progress)


if __name__ == "__main__":
    run_command(main)
