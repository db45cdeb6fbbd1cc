"""The errors that the user can fix, and the function that turns them into exit codes.

Each message names the object, its value, the rule it breaks and the remedy. Commands run their
`main` through `run_command`, which prints such an error without a traceback and exits with 2. Any
other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

USER_ERROR_EXIT_CODE = 2
DIVERGED_EXIT_CODE = 3
LOST_RANK_EXIT_CODE = 4
STOPPED_EXIT_CODE = 75  # stopped by a signal and saved; the same command resumes
INTERRUPTED_EXIT_CODE = 130


class BilmError(Exception):
    """Base class of errors that the user can fix."""

    exit_code = USER_ERROR_EXIT_CODE


class ConfigError(BilmError):
    """A configuration file or an override is invalid."""


class CorpusError(BilmError):
    """Text, a vocabulary or a corpus directory is missing, malformed or damaged."""


class CheckpointError(BilmError):
    """A model directory, a published weight file or a checkpoint cannot be used."""


class TokenizerError(BilmError):
    """A tokenizer is unknown, missing, or cannot be loaded."""


class MissingPackageError(BilmError, ImportError):
    """An optional package is not installed."""


class OutputError(BilmError):
    """Results cannot be written to the requested path."""


class DivergedError(BilmError):
    """A loss or a gradient is not finite."""

    exit_code = DIVERGED_EXIT_CODE


class PeerError(BilmError):
    """Another rank has failed and has printed the reason."""


class LostRankError(BilmError):
    """A rank of this run has exited or does not respond."""

    exit_code = LOST_RANK_EXIT_CODE


def run_command(main: Callable[[], int | None], tear_down: bool = True) -> NoReturn:
    """Run `main` as a command; print a user error to stderr and exit with its code.

    Without `tear_down`, the process flushes its output and exits without shutting down the
    interpreter, because threads of communication libraries and of HDF5 can abort at that point.
    """
    _name_program()
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
        # The reader of the output (`| head`) has exited. Redirect stdout, so that the flush at
        # interpreter exit does not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    if not tear_down:
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


def _name_program() -> None:
    """Let `--help` of a command that was started with `python -m` name the module."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None and sys.argv[0] == main.__file__:
        sys.argv[0] = f"python -m {main.__spec__.name.removesuffix('.__main__')}"
