"""Save checkpoints with a fault in each operation: `python -m tests.chaos.saving DIR`.

Runs with the preloaded library of `faults`. In each case a forked child saves step 2 after step 1;
then the parent checks the remaining files, as a resumed run would. Prints one JSON object per line:
the operation, the kind of fault, the child's exit code, and the problem (null for none).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bilm.errors import BilmError
from bilm.training.background_saves import BackgroundSaves
from bilm.training.checkpoints import LSTM_STATE, OPTIMIZER, WEIGHTS, CheckpointStore
from tests.bilm.training.records import record_of
from tests.chaos import faults

DIED, FAILED, SAVED = 137, 9, 0


def contents(step: int) -> dict[str, dict[str, torch.Tensor]]:
    """Return tensors of several pages that identify the step."""
    return {
        WEIGHTS: {"a": torch.full((40, 60), float(step)), "b": torch.full((9,), step + 0.5)},
        OPTIMIZER: {"a/sum": torch.full((40, 60), 2.0 * step)},
        LSTM_STATE: {"cell": torch.full((2, 2, 4, 30), 3.0 * step)},
    }


def save(directory: Path, step: int) -> None:
    """Save a checkpoint and delete older ones in the background, as a run does."""
    with BackgroundSaves(CheckpointStore(directory), keep_last=2) as saves:
        saves.start(contents(step), record_of(step), time.monotonic())
        finished = saves.finished(wait=True)
        assert finished is not None
        if finished.error is not None:
            raise finished.error


def child(directory: Path, at: int, kind: str) -> int:
    """Save step 2 with a fault in a forked process; return its exit code."""
    process = os.fork()
    if process == 0:
        code = SAVED
        try:
            faults.arm(directory, at, kind)
            save(directory, 2)
        except (BilmError, OSError):
            code = FAILED
        except BaseException as error:  # any other exception is a bug
            print(repr(error), file=sys.stderr, flush=True)
            code = 1
        os._exit(code)
    _, status = os.waitpid(process, 0)
    return DIED if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


def problem_of(directory: Path, code: int) -> str | None:
    """Return the problem that a resumed run would have, or None."""
    if code not in (DIED, FAILED, SAVED):
        return f"the saving process exited with {code}"
    try:
        newest = CheckpointStore(directory).newest()
    except BilmError as error:
        return f"no checkpoint can be loaded: {error}"
    if newest is None:
        return "the previous checkpoint is lost"
    if code == SAVED and newest.record.step != 2:
        return f"saved, but {newest.path.name} is the latest"
    expected = contents(newest.record.step)
    for file, tensors in expected.items():
        for name, tensor in tensors.items():
            if not torch.equal(newest.tensor(file, name), tensor):
                return f"{file}/{name} of {newest.path.name} differs"
    if code == FAILED and list(directory.glob(".*")):
        return f"temporary files remain: {[p.name for p in directory.glob('.*')]}"
    save(directory, 3)  # the run continues
    newest = CheckpointStore(directory).newest()
    if newest is None or newest.record.step != 3 or list(directory.glob(".*")):
        return "the next save is incomplete, or leaves temporary files"
    return None


def main() -> None:
    """Try every kind of fault in every operation."""
    work = Path(sys.argv[1])
    torch.set_num_threads(1)
    before = work / "before"
    save(before, 1)
    count = _operations(before, work / "counted")
    for kind in faults.KINDS:
        for at in range(1, count + 1):
            directory = work / "case"
            shutil.copytree(before, directory)
            code = child(directory, at, kind)
            case: dict[str, Any] = {"kind": kind, "at": at, "code": code}
            print(json.dumps({**case, "problem": problem_of(directory, code)}), flush=True)
            shutil.rmtree(directory)


def _operations(before: Path, directory: Path) -> int:
    """Return the number of operations of a save."""
    shutil.copytree(before, directory)
    faults.arm(directory, -1, "error")
    save(directory, 2)
    count = faults.count()
    faults.arm(Path(), -1, "error")
    return count


if __name__ == "__main__":
    main()
