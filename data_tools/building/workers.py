"""Run tasks in this process, in worker processes, or on a Dask cluster.

A task is a function and a value that names everything it reads and writes. It writes its output to
disk under a temporary name and renames it, so that a task that was interrupted, or that ran twice,
does no harm. All engines return results in the order of the tasks, and the first error in this
order; all of them repeat the task of a worker that dies.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol, TypeVar

from bilm.distributed.process import peak_memory_bytes
from bilm.errors import ConfigError, CorpusError
from bilm.extras import require

Item = TypeVar("Item")

Result = TypeVar("Result")

MAX_ATTEMPTS = 3

CONNECT_SECONDS = 30

logger = logging.getLogger(__name__)


class LostWorkerError(CorpusError):
    """The workers that ran a task died."""


class Usage(NamedTuple):
    """A worker and its peak memory so far."""

    worker: str
    peak_bytes: int

    @classmethod
    def of_this_process(cls) -> Usage:
        """Return the usage of this process."""
        return cls(f"{socket.gethostname()}:{os.getpid()}", peak_memory_bytes())


class Engine(Protocol):
    """Something that runs tasks."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the results for `items` in order; `function` is defined in a module."""


class InProcess:
    """Runs tasks in this process."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        return map(function, items)


class _Worker:
    """A process, and the pipe to it, whose end tells of the death of the process."""

    def __init__(self) -> None:
        # A forked process would copy the memory of this process and the locks of its threads.
        context = multiprocessing.get_context("spawn")
        self.pipe, worker_end = context.Pipe()
        self._process = context.Process(target=_work, args=(worker_end,), daemon=True)
        self._process.start()
        worker_end.close()  # so that the worker has the only copy, and its death closes the pipe

    def send(self, task: object) -> None:
        with contextlib.suppress(OSError):  # if the worker has died, receiving will fail
            self.pipe.send(task)

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self.pipe.close()


class Processes:
    """Runs tasks in worker processes, which end with the context."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._idle: list[_Worker] = []
        self._running: dict[Connection, tuple[int, _Worker]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in [*self._idle, *(worker for _, worker in self._running.values())]:
            worker.end()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        waiting = deque(range(len(items)))
        answers: dict[int, tuple[Any, BaseException | None]] = {}
        attempts: Counter[int] = Counter()

        def start() -> None:
            while waiting and len(self._running) < self._num_workers:
                index = waiting.popleft()
                attempts[index] += 1
                self._start(index, (function, items[index]))

        for wanted in range(len(items)):
            start()
            while wanted not in answers:
                for index, answer in self._receive():
                    if answer is None and attempts[index] < MAX_ATTEMPTS:
                        waiting.appendleft(index)
                        continue
                    answers[index] = answer or (None, _lost())
                    if answers[index][1] is not None:  # later tasks are not needed
                        waiting = deque(number for number in waiting if number < index)
                start()  # before the caller processes the result
            result, error = answers.pop(wanted)
            if error is not None:
                raise error
            yield result

    def _start(self, index: int, task: object) -> None:
        worker = self._idle.pop() if self._idle else _Worker()
        self._running[worker.pipe] = (index, worker)
        worker.send(task)

    def _receive(self) -> Iterator[tuple[int, tuple[Any, BaseException | None] | None]]:
        """Wait, and yield the indices of tasks with their answers, None if the worker died."""
        for pipe in wait(list(self._running)):
            assert isinstance(pipe, Connection)
            index, worker = self._running.pop(pipe)
            try:
                answer = pipe.recv()
            except (EOFError, OSError):
                worker.end()
                yield index, None
            else:
                self._idle.append(worker)
                yield index, answer


def _lost() -> LostWorkerError:
    return LostWorkerError(
        f"{MAX_ATTEMPTS} worker processes died with the same part of the text; if memory ran out, "
        "use fewer --workers. The same command resumes the build"
    )


class DaskCluster:
    """Runs tasks on the workers of a Dask scheduler, which see the same files."""

    def __init__(self, address: str) -> None:
        require("--scheduler", "distributed")
        import distributed

        connect: Any = distributed.Client  # the package is not typed
        try:
            self._client = connect(address, timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as e:
            raise ConfigError(
                f"cannot connect to --scheduler {address}: {e}; start the scheduler, or correct "
                "the address"
            ) from None
        if not self._client.scheduler_info()["workers"]:
            logger.warning("warning: --scheduler %s has no workers yet; waiting for them", address)
        self._lost_error = distributed.KilledWorker

    def __enter__(self) -> DaskCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        futures = self._client.map(function, list(items), pure=False)
        try:
            while futures:
                yield futures[0].result()
                del futures[0]
        except self._lost_error:
            raise _lost() from None
        finally:
            self._client.cancel(futures)


def _work(pipe: Connection) -> None:
    """Run a worker: receive tasks and send answers until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends the workers
    tasks: queue.SimpleQueue[tuple[Callable[[Any], Any], Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    while True:
        function, item = tasks.get()
        answer: tuple[Any, BaseException | None]
        try:
            answer = (function(item), None)
        except Exception as error:
            answer = (None, error)
        pipe.send(answer)


def _receive(pipe: Connection, tasks: queue.SimpleQueue[tuple[Callable[[Any], Any], Any]]) -> None:
    """Receive tasks in a thread, which also ends this process when the parent has died."""
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)


@contextlib.contextmanager
def connect(scheduler: str | None) -> Iterator[DaskCluster | None]:
    """Yield the cluster of `--scheduler`, if it is given."""
    if scheduler is None:
        yield None
        return
    with DaskCluster(scheduler) as cluster:
        yield cluster


@contextlib.contextmanager
def start_engine(num_workers: int, cluster: DaskCluster | None = None) -> Iterator[Engine]:
    """Yield `cluster`, or else the engine for `--workers`."""
    if cluster is not None:
        yield cluster
    elif num_workers > 1:
        with Processes(num_workers) as processes:
            yield processes
    else:
        yield InProcess()
