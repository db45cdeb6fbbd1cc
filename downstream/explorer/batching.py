"""Dynamic batching: requests that wait at the same time are computed together.

While one batch is computed in a thread, further requests wait in a queue. The next batch consists
of the requests that have arrived in the meantime, in their order, up to a budget of words. After a
batch of several requests, the next one waits for as many, because the same clients usually send
their next requests at once; it waits at most a quarter of the time of the last batch, and 20 ms.
Otherwise a request is computed at once. If a batch fails, each of its requests is computed alone,
so that a request cannot fail because of another one.

Memory: the queue contains at most `max_queued_words` words; further requests are rejected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

_MAX_WAIT_SHARE = 0.25  # of the time of the last batch
_MAX_WAIT_SECONDS = 0.02

Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFullError(Exception):
    """The queue has no room for a request; the client should try again later."""


class ClosedError(Exception):
    """The service is stopping and accepts no further requests."""


@dataclass(frozen=True)
class BatchLimits:
    """The bounds of a batch and of the queue, in words."""

    batch_words: int = 4096
    max_queued_words: int = 65536


@dataclass(frozen=True, eq=False)
class _Job(Generic[Item, Result]):
    """The items of one request, and the future of their results."""

    items: Sequence[Item]
    num_words: int
    future: asyncio.Future[list[Result]]


class Batcher(Generic[Item, Result]):
    """Computes the results of items, together where possible.

    Args:
        compute: returns one result per item; it runs in `executor`.
        executor: the thread that computes. Batchers may share it.
        limits: the bounds in words.
        on_batch: called with the number of requests and of words of each batch.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result]],
        executor: ThreadPoolExecutor,
        limits: BatchLimits,
        on_batch: Callable[[int, int], object] = lambda num_requests, num_words: None,
    ) -> None:
        self._compute = compute
        self._executor = executor
        self._limits = limits
        self._on_batch = on_batch
        self._queue: deque[_Job[Item, Result]] = deque()
        self._queued_words = 0
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._expected = 1  # requests of the next batch
        self._wait_until = 0.0  # in the time of the event loop
        self._is_complete: asyncio.Future[None] | None = None  # while it waits for them

    @property
    def queued_words(self) -> int:
        """The number of words that wait."""
        return self._queued_words

    async def submit(self, items: Sequence[Item], num_words: int) -> list[Result]:
        """Return the results of `items`, which have `num_words` words together.

        A request larger than the whole queue is accepted if the queue is empty.
        """
        if self._is_closed:
            raise ClosedError
        if self._queue and self._queued_words + num_words > self._limits.max_queued_words:
            raise QueueFullError
        job: _Job[Item, Result] = _Job(items, num_words, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._queued_words += num_words
        if len(self._queue) >= self._expected and self._is_complete is not None:
            _finish(self._is_complete)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await job.future

    def open(self) -> None:
        """Accept requests, also after `close`."""
        self._is_closed = False

    async def close(self) -> None:
        """Reject new requests, and wait for those in the queue."""
        self._is_closed = True
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        """Compute batches until the queue is empty."""
        clock = asyncio.get_running_loop().time
        while self._queue:
            await self._wait_for_clients(self._wait_until - clock())
            batch = self._next_batch()
            if batch:
                start = clock()
                await self._compute_batch(batch)
                self._on_batch(len(batch), sum(job.num_words for job in batch))
                self._expected = len(batch)
                waiting = min(_MAX_WAIT_SHARE * (clock() - start), _MAX_WAIT_SECONDS)
                self._wait_until = clock() + (waiting if len(batch) > 1 else 0.0)

    async def _wait_for_clients(self, seconds: float) -> None:
        """Wait until as many requests as in the last batch have arrived, at most `seconds`."""
        if seconds <= 0 or len(self._queue) >= self._expected or self._is_closed:
            return
        self._is_complete = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._is_complete], timeout=seconds)
        self._is_complete = None

    def _next_batch(self) -> list[_Job[Item, Result]]:
        """Take the first jobs from the queue, without those whose client has gone."""
        batch: list[_Job[Item, Result]] = []
        num_words = 0
        while self._queue:
            size = self._queue[0].num_words
            if batch and num_words + size > self._limits.batch_words:
                break
            job = self._queue.popleft()
            self._queued_words -= size
            if not job.future.done():  # done: cancelled
                batch.append(job)
                num_words += size
        return batch

    async def _compute_batch(self, batch: list[_Job[Item, Result]]) -> None:
        items = [item for job in batch for item in job.items]
        loop = asyncio.get_running_loop()
        try:
            results = list(await loop.run_in_executor(self._executor, self._compute, items))
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0].future, error)
                return
            for job in batch:
                await self._compute_batch([job])
            return
        start = 0
        for job in batch:
            if not job.future.done():
                job.future.set_result(results[start : start + len(job.items)])
            start += len(job.items)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[list[Result]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
