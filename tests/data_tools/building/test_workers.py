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


def die_while_sending(number: int) -> Callable[[int], bytes]:
    """Return a function that kills its process while it sends a large result."""

    def answer(item: int) -> bytes:
        if item == number:
            import threading

            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return bytes(50_000_000) if item == number else b""

    return answer


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 17])
def test_results_are_in_order(workers: int, count: int) -> None:
    results = list(ordered_map(slow_square, 0.01, range(count), workers))
    assert results == [i * i for i in range(count)]


def test_raises_an_error_at_its_item() -> None:
    results = ordered_map(fail_at, 4, range(10), 2)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(CorpusError, match="item 4 is bad"):
        next(results)


def test_notices_a_worker_killed_while_sending() -> None:
    received: list[bytes] = []

    def read() -> None:
        for result in ordered_map(die_while_sending, 3, range(10), 2):
            received.append(result)
            if len(received) == 3:
                time.sleep(1.0)  # not reading, so that a part of the result is in the pipe

    with pytest.raises(CorpusError, match="a worker process died"):
        read()
    # If the worker dies early, sending its next item fails, one result earlier.
    assert received in ([b""] * 2, [b""] * 3)


def test_closing_early_ends_the_workers() -> None:
    results = ordered_map(slow_square, 0.0, iter(range(10**9)), 2)
    assert next(results) == 0
    assert multiprocessing.active_children()
    results.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
