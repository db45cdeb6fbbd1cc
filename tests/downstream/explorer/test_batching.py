from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from downstream.explorer import batching
from downstream.explorer.batching import Batcher, BatchLimits, ClosedError, QueueFullError

SECONDS = 60


class Computation:
    """Doubles numbers; waits for `gate`, and fails if a batch contains a negative number."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.started = threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.started.set()
        assert self.gate.wait(SECONDS)
        if min(items) < 0:
            raise ValueError("negative")
        return [2 * item for item in items]


def batcher(computation: Computation, **limits: int) -> Batcher[int, int]:
    return Batcher(computation, ThreadPoolExecutor(1), BatchLimits(**limits))


async def started(computation: Computation) -> None:
    """Wait until the first batch is being computed."""
    await asyncio.to_thread(computation.started.wait, SECONDS)


async def submit_behind(
    computation: Computation, requests: list[list[int]], **limits: int
) -> list[object]:
    """Submit requests while another one is computed, and return their results or errors."""
    own = batcher(computation, **limits)
    first = asyncio.create_task(own.submit([0], 1))
    await started(computation)
    tasks = [asyncio.create_task(own.submit(items, len(items))) for items in requests]
    await asyncio.sleep(0)  # all of them are in the queue now
    computation.gate.set()
    assert await first == [0]
    return list(await asyncio.gather(*tasks, return_exceptions=True))


def test_computes_waiting_requests_together() -> None:
    computation = Computation()
    results = asyncio.run(submit_behind(computation, [[1], [2, 3], [4]]))
    assert results == [[2], [4, 6], [8]]
    assert computation.batches == [[0], [1, 2, 3, 4]]


def test_respects_the_word_budget() -> None:
    computation = Computation()
    results = asyncio.run(submit_behind(computation, [[1, 2], [3, 4, 5, 6], [7]], batch_words=3))
    assert results == [[2, 4], [6, 8, 10, 12], [14]]
    assert computation.batches == [[0], [1, 2], [3, 4, 5, 6], [7]]


def test_failing_request_does_not_affect_others() -> None:
    computation = Computation()
    good, bad, other = asyncio.run(submit_behind(computation, [[1], [-1], [2]]))
    assert (good, other) == ([2], [4])
    assert isinstance(bad, ValueError)


def test_full_queue_rejects_requests() -> None:
    computation = Computation()
    first, second, third = asyncio.run(
        submit_behind(computation, [[1, 2], [3], [4]], max_queued_words=3)
    )
    assert (first, second) == ([2, 4], [6])
    assert isinstance(third, QueueFullError)


def test_cancelled_request_is_not_computed() -> None:
    async def run(computation: Computation) -> int:
        own = batcher(computation)
        first = asyncio.create_task(own.submit([0], 1))
        await started(computation)
        cancelled = asyncio.create_task(own.submit([5], 1))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        computation.gate.set()
        await first
        await own.close()
        return own.queued_words

    computation = Computation()
    assert asyncio.run(run(computation)) == 0
    assert computation.batches == [[0]]


def test_close_finishes_the_queue_and_rejects_new_requests() -> None:
    async def run(computation: Computation) -> None:
        own = batcher(computation)
        tasks = [asyncio.create_task(own.submit([i], 1)) for i in range(3)]
        await started(computation)
        computation.gate.set()
        await own.close()
        assert [await task for task in tasks] == [[0], [2], [4]]
        with pytest.raises(ClosedError):
            await own.submit([1], 1)

    asyncio.run(run(Computation()))


def test_waits_for_the_clients_of_the_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "_MAX_WAIT_SECONDS", SECONDS)
    monkeypatch.setattr(batching, "_MAX_WAIT_SHARE", 1e9)

    async def client(own: Batcher[int, int], number: int) -> None:
        for step in range(3):
            assert await own.submit([10 * step + number], 1) == [2 * (10 * step + number)]

    async def run(computation: Computation) -> None:
        own = batcher(computation)
        computation.gate.set()
        await asyncio.gather(*(client(own, number) for number in range(4)))

    computation = Computation()
    asyncio.run(run(computation))
    assert sorted(map(sorted, computation.batches[-2:])) == [[10, 11, 12, 13], [20, 21, 22, 23]]


def test_single_request_after_a_large_batch_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(computation: Computation) -> None:
        own = batcher(computation)
        computation.gate.set()
        await asyncio.gather(*(own.submit([i], 1) for i in range(4)))
        assert await own.submit([7], 1) == [14]

    asyncio.run(run(Computation()))
