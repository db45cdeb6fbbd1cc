"""Saves of a checkpoint with a fault at each of its operations: `python -m tests.chaos.saving DIR`.

Runs under the preloaded library of `faults`. Each case is a forked child that saves step 2 over
step 1; then the parent looks at what is left, as a run that starts again would. One JSON object a
line: the operation, the kind, what the child said, and what was found wrong (null: nothing).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from bilm.errors import BilmError
from bilm.training.checkpoints import LSTM_STATE, OPTIMIZER, WEIGHTS, CheckpointStore
from tests.chaos import faults

DIED, REFUSED, SAVED = 137, 9, 0


def contents(step: int) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors from which the step can be told, of several pages each."""
    return {
        WEIGHTS: {"a": torch.full((40, 60), float(step)), "b": torch.full((9,), step + 0.5)},
        OPTIMIZER: {"a/sum": torch.full((40, 60), 2.0 * step)},
        LSTM_STATE: {"cell": torch.full((2, 2, 4, 30), 3.0 * step)},
    }


def save(directory: Path, step: int) -> None:
    """As a run does it: the checkpoint, then older ones go."""
    store = CheckpointStore(directory)
    saved = store.save(step, contents(step), {"progress": {"step": step}, "meters": {}})
    store.prune(saved, keep_last=2, best_step=None)


def child(directory: Path, at: int, kind: str) -> int:
    """Save step 2 with a fault; the exit code of the forked process."""
    process = os.fork()
    if process == 0:
        code = SAVED
        try:
            faults.arm(directory, at, kind)
            save(directory, 2)
        except (BilmError, OSError):
            code = REFUSED
        except BaseException as error:  # whatever else it may be is a finding
            print(repr(error), file=sys.stderr, flush=True)
            code = 1
        os._exit(code)
    _, status = os.waitpid(process, 0)
    return DIED if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


def wrong_with(directory: Path, code: int) -> str | None:
    """What a run that starts again would find wrong."""
    if code not in (DIED, REFUSED, SAVED):
        return f"the saving process ended with {code}"
    try:
        found = CheckpointStore(directory).newest()
    except BilmError as error:
        return f"no checkpoint loads: {error}"
    if found is None:
        return "the checkpoint before is lost"
    if code == SAVED and found.step != 2:
        return f"saved, but {found.path.name} is the newest"
    expected = contents(found.step)
    for file, tensors in expected.items():
        for name, tensor in tensors.items():
            if not torch.equal(found.tensor(file, name), tensor):
                return f"{file}/{name} of step {found.step} is another"
    if code == REFUSED and list(directory.glob(".*")):
        return f"temporary files are left: {[p.name for p in directory.glob('.*')]}"
    save(directory, 3)  # and the run goes on
    newest = CheckpointStore(directory).newest()
    if newest is None or newest.step != 3 or list(directory.glob(".*")):
        return "the next save is not whole, or leaves something behind"
    return None


def main() -> None:
    """Every operation, every kind."""
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
            print(json.dumps({**case, "wrong": wrong_with(directory, code)}), flush=True)
            shutil.rmtree(directory)


def _operations(before: Path, directory: Path) -> int:
    """How many operations a save makes."""
    shutil.copytree(before, directory)
    faults.arm(directory, -1, "error")
    save(directory, 2)
    count = faults.count()
    faults.arm(Path(), -1, "error")
    return count


if __name__ == "__main__":
    main()
