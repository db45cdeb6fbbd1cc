"""The errors that are a user's to mend, and the one place that turns them into an exit code.

Each message names the thing, its value, the rule it breaks and the remedy. Commands run their
`main` through `run_command`, which prints such an error without a traceback and exits with 2.
Anything else is our own fault and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

USER_ERROR_EXIT_CODE = 2
DIVERGED_EXIT_CODE = 3
LOST_RANK_EXIT_CODE = 4
INTERRUPTED_EXIT_CODE = 130


class BilmError(Exception):
    """Base of every error that a user can mend."""

    exit_code = USER_ERROR_EXIT_CODE


class ConfigError(BilmError):
    """A configuration file, or an override of it, breaks a rule."""


class CorpusError(BilmError):
    """Text, a vocabulary or a corpus directory is missing, malformed or damaged."""


class CheckpointError(BilmError):
    """A model directory, a published weight file or a checkpoint cannot be used."""


class TokenizerError(BilmError):
    """A tokeniser is unknown, missing, or cannot be loaded."""


class OutputError(BilmError):
    """Results cannot be written where they were asked for."""


class DivergedError(BilmError):
    """Training met a loss or gradient that is not a finite number."""

    exit_code = DIVERGED_EXIT_CODE


class PeerError(BilmError):
    """Another rank has failed, and has said why."""


class LostRankError(BilmError):
    """A rank of this run is gone, or does not answer."""

    exit_code = LOST_RANK_EXIT_CODE


def run_command(main: Callable[[], int | None], tear_down: bool = True) -> NoReturn:
    """Run `main` as a command: user errors go to stderr in one message, with exit code 2.

    Without `tear_down` the process ends at once, when all is said and written: the threads of a
    communication library have been seen to abort in the interpreter's own slow end.
    """
    try:
        code = main() or 0
        sys.stdout.flush()
    except BilmError as error:
        if not isinstance(error, PeerError):
            print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # The reader of our output (`| head`) has left. Point stdout elsewhere, so that the
        # interpreter's own flush at exit does not complain a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    if not tear_down:
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)
