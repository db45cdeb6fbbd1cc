"""A dump that several ranks write: rank 0 opens and joins it, and every rank writes its own parts.

The directory of the parts must be on a file system that all machines share. Each rank locks a file
of its own in it, so that another run cannot start before every rank of this one has exited.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import OutputError
from bilm.files.strict_json import read_json
from bilm.files.writing import exclusive_lock

if TYPE_CHECKING:
    from bilm.distributed.ranks import Ranks
    from bilm.embedding.dump import EmbeddingDump


class SingleProcess:
    """What `Ranks` is to several processes, for one process without a process group."""

    rank, world, is_first = 0, 1, True

    def fail_together(self) -> AbstractContextManager[None]:
        """Do nothing: no other process has to fail."""
        return nullcontext()

    def broadcast_json(self, value: Any) -> Any:
        """Return the value."""
        return value

    def note_step(self, step: int) -> None:
        """Do nothing: no other process reports a step."""


@contextmanager
def open_shared_dump(
    output: Path, run: dict[str, Any], overwrite: bool, ranks: Ranks | SingleProcess
) -> Iterator[EmbeddingDump | None]:
    """Open the dump on all ranks; yield None where nothing is left to do.

    Rank 0 opens it as `open_dump` describes. The other ranks get the list of the finished parts
    from rank 0, and must have the same `run`.
    """
    from bilm.embedding.dump import EmbeddingDump, open_dump

    dump = None
    with ExitStack() as stack:
        with ranks.fail_together():
            if ranks.is_first:
                dump = stack.enter_context(open_dump(output, run, overwrite))
        is_open = dump is not None and not dump.is_joined
        parts = sorted(dump.finished.items()) if dump is not None and is_open else None
        first_run, parts = ranks.broadcast_json([run, parts])
        with ranks.fail_together():
            if run != first_run:
                raise OutputError(_differences(run, first_run, ranks.rank))
            if not ranks.is_first and parts is not None:
                dump = EmbeddingDump(output, run, dict(parts))
                stack.enter_context(_lock(dump, ranks.rank))
        yield dump


@contextmanager
def _lock(dump: EmbeddingDump, rank: int) -> Iterator[None]:
    """Lock out other runs while this rank, which is not the first one, may write parts."""
    from bilm.embedding.dump import HEADER_FILE, LOCK_FILE, LOCKED_MESSAGE

    header = dump.directory / HEADER_FILE
    try:
        is_shared = read_json(header, OutputError)["run"] == dump.run
    except (OutputError, OSError, KeyError, TypeError):
        is_shared = False
    if not is_shared:
        raise OutputError(
            f"rank {rank} cannot read {header}, which rank 0 has written; --output must be the "
            "same file on all ranks, on a file system that all machines share"
        )
    path = dump.directory / f"{LOCK_FILE}-{rank}"
    with exclusive_lock(path, OutputError, LOCKED_MESSAGE.format(dump.output)):
        yield


def _differences(run: dict[str, Any], first_run: dict[str, Any], rank: int) -> str:
    differing = [
        f"{key}: {run.get(key)}, on rank 0 {first_run.get(key)}"
        for key in sorted(run.keys() | first_run.keys())
        if run.get(key) != first_run.get(key)
    ]
    return (
        f"rank {rank} has another model, text or option than rank 0:\n  "
        + "\n  ".join(differing)
        + "\nStart all ranks with the same files and flags"
    )
