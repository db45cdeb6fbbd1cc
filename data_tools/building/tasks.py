"""Run the tasks of a build on an engine, and record the peak memory of its workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from data_tools.building.workers import Engine, Usage
from data_tools.reading.progress import Progress

Item = TypeVar("Item")


_REMOVAL_TASKS = 8


def remove_paths(paths: Sequence[Path]) -> Usage:
    """Remove files and directories that may not exist."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return Usage.of_this_process()


class TaskRunner:
    """Runs tasks that write files and return the usage of their worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._peaks: dict[str, int] = {}

    def map(self, function: Callable[[Item], Usage], tasks: Sequence[Item]) -> Iterator[None]:
        """Run tasks, and yield after each of them in order."""
        for usage in self._engine.map(function, tasks):
            self._peaks[usage.worker] = usage.peak_bytes
            yield

    def finish(
        self,
        what: str,
        function: Callable[[Item], Usage],
        tasks: Sequence[Item],
        words: Sequence[int] = (),
    ) -> None:
        """Run tasks, and report their progress."""
        num_words = 0
        with Progress(what, len(tasks)) as progress:
            for done, _ in enumerate(self.map(function, tasks)):
                num_words += words[done] if words else 0
                progress.update(done + 1, num_words)

    def remove(self, paths: Sequence[Path]) -> None:
        """Remove files and directories in the workers, since the removal of large ones is slow."""
        groups = [paths[start::_REMOVAL_TASKS] for start in range(_REMOVAL_TASKS)]
        for _ in self.map(remove_paths, groups):
            pass

    def total_peak(self) -> int:
        """Return the sum of the peak memory of this process and its workers (an upper bound)."""
        own = Usage.of_this_process()
        return sum((self._peaks | {own.worker: own.peak_bytes}).values())
