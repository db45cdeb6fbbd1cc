from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import ConfigError, CorpusError
from data_tools.building.workers import (
    DaskCluster,
    LostWorkerError,
    Processes,
    start_engine,
)


def slow_square(item: int) -> int:
    time.sleep(0.01 * (item % 3))
    return item * item


def fail_late(item: int) -> int:
    """Fail at two items, of which the first one fails later."""
    if item == 4:
        time.sleep(0.5)
    if item in (4, 5):
        raise CorpusError(f"item {item} is bad")
    return item


def die_once(marker: Path) -> int:
    """Kill this process, unless the file `marker` says that this has happened."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die_while_sending(directory: Path | None) -> bytes:
    """Kill this process while it sends a large result, when `directory` has a file `start`.

    The second call does nothing, and neither does a call without a directory.
    """
    if directory is None or (directory / "marker").exists():
        return b""
    wait_until((directory / "start").exists)
    (directory / "marker").touch()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return bytes(50_000_000)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(function: Callable[[Any], Any], items: list[Any], workers: int = 2) -> list[Any]:
    with Processes(workers) as engine:
        return list(engine.map(function, items))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_are_in_order(workers: int) -> None:
    with start_engine(workers) as engine:
        for count in (0, 1, 17):  # the processes are reused
            results = list(engine.map(slow_square, range(count)))
            assert results == [i * i for i in range(count)]
    assert not multiprocessing.active_children()


def test_raises_the_first_error_in_order() -> None:
    with Processes(3) as engine:
        results = engine.map(fail_late, range(10))
        assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(CorpusError, match="item 4 is bad"):
            next(results)


def test_repeats_the_task_of_a_dead_worker(tmp_path: Path) -> None:
    [pid] = run(die_once, [tmp_path / "marker"])
    assert (tmp_path / "marker").exists()
    assert pid != os.getpid()


def test_repeats_the_task_of_a_worker_killed_while_sending(tmp_path: Path) -> None:
    with Processes(2) as engine:
        results = engine.map(die_while_sending, [None, tmp_path])
        assert next(results) == b""
        (tmp_path / "start").touch()
        # Not reading, so that only a part of the result is in the pipe when the worker dies.
        wait_until(lambda: len(multiprocessing.active_children()) == 1)
        assert next(results) == b""


def test_fails_if_several_workers_die_with_a_task() -> None:
    with pytest.raises(LostWorkerError, match=r"3 worker processes died.*fewer --workers"):
        run(die, [0])


def test_closing_early_ends_the_workers() -> None:
    with Processes(2) as engine:
        assert next(engine.map(slow_square, range(10**5))) == 0
        assert multiprocessing.active_children()
    assert not multiprocessing.active_children()


def test_rejects_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="dask is not installed: pip install 'bilm[dask]'")
    monkeypatch.setattr("data_tools.building.workers.CONNECT_SECONDS", 0.5)
    with pytest.raises(
        ConfigError, match=r"cannot connect to --scheduler tcp://127\.0\.0\.1:1.*start"
    ):
        DaskCluster("tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"cannot connect to --scheduler nothing://here.*correct"):
        DaskCluster("nothing://here")
