from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable

import pytest

from bilm.errors import CorpusError
from data_tools.building.workers import ordered_map


def slow_square(delay: float) -> Callable[[int], int]:
    def square(item: int) -> int:
        time.sleep(delay * (item % 3))
        return item * item

    return square


def fail_at(number: int) -> Callable[[int], int]:
    def fail(item: int) -> int:
        if item == number:
            raise CorpusError(f"item {item} is bad")
        return item

    return fail


def die_in_mid_result(number: int) -> Callable[[int], bytes]:
    """A worker that is killed while a large result is on its way."""

    def answer(item: int) -> bytes:
        if item == number:
            import threading

            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return bytes(50_000_000) if item == number else b""

    return answer


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 17])
def test_results_come_in_order(workers: int, count: int) -> None:
    found = list(ordered_map(slow_square, 0.01, range(count), workers))
    assert found == [i * i for i in range(count)]


def test_an_error_is_raised_at_its_item() -> None:
    results = ordered_map(fail_at, 4, range(10), 2)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(CorpusError, match="item 4 is bad"):
        next(results)


def test_a_worker_killed_in_mid_result_is_noticed() -> None:
    found: list[bytes] = []

    def read() -> None:
        for result in ordered_map(die_in_mid_result, 3, range(10), 2):
            found.append(result)
            if len(found) == 3:
                time.sleep(1.0)  # it is killed while we do not read: half a result is in the pipe

    with pytest.raises(CorpusError, match="a worker process died"):
        read()
    # A worker that dies early is seen when it is to get its next item: one result before.
    assert found in ([b""] * 2, [b""] * 3)


def test_leaving_early_ends_the_workers() -> None:
    results = ordered_map(slow_square, 0.0, iter(range(10**9)), 2)
    assert next(results) == 0
    assert multiprocessing.active_children()
    results.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
