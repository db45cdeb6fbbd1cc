"""Threads that read the text and write the vectors while the model computes.

Cost: the text and the arrays of one more window in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy.typing as npt

from bilm.embedding.dump import EmbeddingDump
from bilm.embedding.vector_file import Line

Item = TypeVar("Item")


def read_ahead(items: Iterator[Item], count: int) -> Generator[Item]:
    """Yield the same items, none of which is None; a thread reads the next `count` of them."""
    with ThreadPoolExecutor(1) as thread:
        pending = deque(thread.submit(next, items, None) for _ in range(count))
        while (item := pending.popleft().result()) is not None:
            pending.append(thread.submit(next, items, None))
            yield item


class BackgroundWriter:
    """Writes the parts of a dump in a thread, one at a time; use it as a context manager."""

    def __init__(self, dump: EmbeddingDump, compression: str | None) -> None:
        self._dump = dump
        self._compression = compression
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.shutdown(cancel_futures=True)  # `EmbeddingDump.finish` joins what is left

    def write(self, number: int, arrays: Sequence[npt.NDArray[Any]], lines: list[Line]) -> None:
        """Write a part, after the last one is on disk; see `EmbeddingDump.write`."""
        self.wait()
        self._writing = self._thread.submit(self._dump.write, number, arrays, lines)

    def wait(self) -> None:
        """Wait until the last part is on disk; its error is raised here."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def join(self, num_parts: int) -> None:
        """Join the first parts, all of which are on disk; see `EmbeddingDump.join_ahead`."""
        self._thread.submit(self._dump.join_ahead, num_parts, self._compression)
