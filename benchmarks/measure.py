"""What the benchmarks share: interleaved timing, the product peak, figures as JSON lines."""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import psutil
import torch

from bilm.distributed.process import M_MMAP_MAX
from bilm.kernels import c_library as native

T = TypeVar("T")
DEFAULT_MMAP_MAX = 65536  # glibc's own
MAX_STOLEN = 0.05  # of a core, in a round that counts


def product_peak(size: int = 2048, repeats: int = 8) -> float:
    """The best rate of a square float32 product, in operations a second."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / min(seconds_of(lambda: a @ b) for _ in range(repeats))


def seconds_of(function: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def peak_memory_of(function: Callable[[], object]) -> int:
    """How many bytes the process grows by during a call, at most."""
    process, done = psutil.Process(), threading.Event()
    before = most = process.memory_info().rss

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    function()
    done.set()
    watcher.join()
    return most - before


@contextmanager
def without_kernels() -> Iterator[None]:
    """Inside, everything runs in plain torch."""
    library = native.library
    native.library = lambda: None  # type: ignore[assignment]
    try:
        yield
    finally:
        native.library = library


def elsewhere(function: Callable[[], object]) -> Callable[[], None]:
    """A contender's call as in a process without our settings: large blocks are given back."""

    def run() -> None:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is None:
            function()
            return
        mallopt(M_MMAP_MAX, DEFAULT_MMAP_MAX)
        function()
        mallopt(M_MMAP_MAX, 0)

    return run


def stolen_seconds() -> float:
    """CPU time that the host of a virtual machine has given to others; 0 where it is unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def least_disturbed(take_round: Callable[[], T], rounds: int) -> list[T]:
    """The results of so many rounds. A round in which the host took the cores away is repeated.

    At most twice as many rounds are run; of these the ones count from which the least was taken.
    """
    found: list[tuple[float, int, T]] = []
    for number in range(2 * rounds):
        stolen, begun = stolen_seconds(), time.perf_counter()
        result = take_round()
        share = (stolen_seconds() - stolen) / (time.perf_counter() - begun)
        found.append((share, number, result))
        if sum(share < MAX_STOLEN for share, _, _ in found) == rounds:
            break
    chosen = sorted(found, key=lambda item: item[:2])[:rounds]
    return [result for _, _, result in sorted(chosen, key=lambda item: item[1])]


class Measured:
    """Seconds of contenders that took turns in one process, and the peak between the turns."""

    def __init__(self, contenders: Mapping[str, Callable[[], object]], rounds: int) -> None:
        for function in contenders.values():
            function()  # warm-up

        def take_round() -> tuple[float, dict[str, float]]:
            peak = product_peak(repeats=3)
            return peak, {name: seconds_of(function) for name, function in contenders.items()}

        taken = least_disturbed(take_round, rounds)
        self.peaks = [peak for peak, _ in taken]
        self.seconds = {name: [times[name] for _, times in taken] for name in contenders}
        self.peak = max(self.peaks)

    def median(self, name: str) -> float:
        """The middle one of its times."""
        return statistics.median(self.seconds[name])

    def times_faster(self, name: str, than: str) -> dict[str, object]:
        """The ratio of medians, and the least and greatest ratio of one round."""
        pairs = zip(self.seconds[than], self.seconds[name], strict=True)
        ratios = sorted(other / own for other, own in pairs)
        return {
            "name": name,
            "than": than,
            "times": round(self.median(than) / self.median(name), 3),
            "spread": [round(ratios[0], 3), round(ratios[-1], 3)],
        }

    def share_of_peak(self, name: str, operations: float) -> float:
        """Of the best product of the run, how much so many operations in the median time are."""
        return round(operations / self.median(name) / self.peak, 3)

    def share_of_near_peak(self, name: str, operations: float) -> float:
        """The same against the best product of each round, in the middle: steadier on a machine
        that others use too.
        """
        pairs = zip(self.seconds[name], self.peaks, strict=True)
        return round(statistics.median(operations / own / peak for own, peak in pairs), 3)


def figure(benchmark: str, **values: object) -> None:
    """Print one figure."""
    rounded = {
        key: float(f"{value:.5g}") if isinstance(value, float) else value
        for key, value in values.items()
    }
    print(json.dumps({"benchmark": benchmark, **rounded}), flush=True)
