"""A function over many items in several processes, with results in the order of the items.

Each worker has a pipe of its own. In the pool of `concurrent.futures` all workers write to one: a
worker that is killed in the middle of a result leaves half of it there, and the parent waits for
the rest for ever (seen). Here its death closes its pipe, and the parent knows at once.

At most two items a worker are under way, so memory does not grow with their number.
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

ITEMS_UNDER_WAY = 2  # of one worker: one that it works on, one that waits


class _Worker(Generic[Item, Result]):
    """One process, and the pipe to it."""

    def __init__(self, make: Callable[..., Callable[[Item], Result]], options: Any) -> None:
        # Spawned, not forked: a fork would copy what this process holds, and its threads' locks.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_work, args=(theirs, make, options), daemon=True
        )
        self._process.start()
        theirs.close()  # the worker's alone, so that its death closes the pipe

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
    """`make(options)` in each of `num_workers` processes; its results for `items`, in order."""
    workers: list[_Worker[Item, Result]] = []
    under_way: deque[_Worker[Item, Result]] = deque()
    try:
        workers.extend(_Worker(make, options) for _ in range(num_workers))
        for number, item in enumerate(items):
            worker = workers[number % num_workers]
            if len(under_way) < ITEMS_UNDER_WAY * num_workers:
                worker.send(item)
                under_way.append(worker)
                continue
            oldest = under_way.popleft()
            result = oldest.receive()
            worker.send(item)  # before the caller takes its time over the result
            under_way.append(worker)
            yield result
        while under_way:
            yield under_way.popleft().receive()
    finally:
        for worker in workers:
            worker.end()


def _died() -> CorpusError:
    return CorpusError("a worker process died; if memory ran out, ask for fewer with --workers")


def _work(pipe: Connection, make: Callable[..., Callable[[Item], Result]], options: Any) -> None:
    """The life of a worker: items in, results out, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends us
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
    """Take items as they come: the parent must never wait for us while we wait for it."""
    try:
        while True:
            items.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)  # the parent is gone, and nobody else would end us
