"""Apply a function to many items in several processes, with results in the order of the items.

Each worker has its own pipe. In the pool of `concurrent.futures` all workers write to one pipe: a
worker that is killed while it sends a result leaves a part of it there, and the parent waits
forever for the rest (this has happened). Here the death of a worker closes its pipe, and the
parent notices immediately.

At most two items per worker are in progress, so memory does not grow with the number of items.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from bilm.errors import CorpusError

Item = TypeVar("Item")

Result = TypeVar("Result")

MAX_ITEMS_PER_WORKER = 2  # one being processed, one waiting


class _Worker(Generic[Item, Result]):
    """A process, and the pipe to it."""

    def __init__(self, make: Callable[..., Callable[[Item], Result]], options: Any) -> None:
        # Not forked, which would copy the memory of this process and the locks of its threads.
        context = multiprocessing.get_context("spawn")
        self._pipe, worker_end = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_work, args=(worker_end, make, options), daemon=True
        )
        self._process.start()
        worker_end.close()  # so that the worker has the only copy, and its death closes the pipe

    def send(self, item: Item) -> None:
        try:
            self._pipe.send(item)
        except OSError:
            raise _died() from None

    def receive(self) -> Result:
        try:
            result, error = self._pipe.recv()
        except (EOFError, OSError):
            raise _died() from None
        if error is not None:
            raise error
        answer: Result = result
        return answer

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self._pipe.close()


def ordered_map(
    make: Callable[..., Callable[[Item], Result]],
    options: Any,
    items: Iterable[Item],
    num_workers: int,
) -> Iterator[Result]:
    """Yield the results of `make(options)`, called in each process, for `items`, in order."""
    workers: list[_Worker[Item, Result]] = []
    in_progress: deque[_Worker[Item, Result]] = deque()
    try:
        workers.extend(_Worker(make, options) for _ in range(num_workers))
        for number, item in enumerate(items):
            worker = workers[number % num_workers]
            if len(in_progress) < MAX_ITEMS_PER_WORKER * num_workers:
                worker.send(item)
                in_progress.append(worker)
                continue
            oldest = in_progress.popleft()
            result = oldest.receive()
            worker.send(item)  # before the caller processes the result
            in_progress.append(worker)
            yield result
        while in_progress:
            yield in_progress.popleft().receive()
    finally:
        for worker in workers:
            worker.end()


def _died() -> CorpusError:
    return CorpusError("a worker process died; if memory ran out, use fewer --workers")


def _work(pipe: Connection, make: Callable[..., Callable[[Item], Result]], options: Any) -> None:
    """Run a worker: receive items and send results until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends the workers
    items: queue.SimpleQueue[Item] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, items), daemon=True).start()
    function = make(options)
    while True:
        try:
            answer = (function(items.get()), None)
        except Exception as error:
            answer = (None, error)  # type: ignore[assignment]
        pipe.send(answer)


def _receive(pipe: Connection, items: queue.SimpleQueue[Item]) -> None:
    """Receive items in a thread, so that the parent and the worker never wait for each other."""
    try:
        while True:
            items.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)  # the parent has died, so nothing else would end this process
