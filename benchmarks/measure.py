"""Helpers of the benchmarks: interleaved timing, the peak rate of matrix products, JSON lines."""

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
from bilm.kernels import backends

T = TypeVar("T")
GLIBC_MMAP_MAX = 65536  # the default value in glibc
MAX_STOLEN_CORES = 0.05  # in an undisturbed round


def product_peak(size: int = 2048, repeats: int = 8) -> float:
    """Return the best rate of a square float32 matrix product, in operations per second."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / min(seconds_of(lambda: a @ b) for _ in range(repeats))


def seconds_of(function: Callable[[], object]) -> float:
    """Return the duration of one call."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def peak_memory_of(function: Callable[[], object]) -> int:
    """Return the largest increase in the process's memory during a call, in bytes."""
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
    """Run the body in plain PyTorch."""
    requested = backends.requested
    backends.requested = lambda: "torch"  # type: ignore[assignment]
    try:
        yield
    finally:
        backends.requested = requested


def elsewhere(function: Callable[[], object]) -> Callable[[], None]:
    """Return `function` with glibc's defaults, which return large freed blocks to the system."""

    def run() -> None:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is None:
            function()
            return
        mallopt(M_MMAP_MAX, GLIBC_MMAP_MAX)
        function()
        mallopt(M_MMAP_MAX, 0)

    return run


def stolen_seconds() -> float:
    """Return the CPU time that the host of a virtual machine gave to other guests; 0 if unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def least_disturbed(take_round: Callable[[], T], rounds: int) -> list[T]:
    """Return the results of `rounds` rounds; rounds with stolen CPU time are repeated.

    At most twice as many rounds are run, and the least disturbed ones are returned.
    """
    taken: list[tuple[float, int, T]] = []
    for number in range(2 * rounds):
        stolen, begun = stolen_seconds(), time.perf_counter()
        result = take_round()
        share = (stolen_seconds() - stolen) / (time.perf_counter() - begun)
        taken.append((share, number, result))
        if sum(share < MAX_STOLEN_CORES for share, _, _ in taken) == rounds:
            break
    chosen = sorted(taken, key=lambda item: item[:2])[:rounds]
    return [result for _, _, result in sorted(chosen, key=lambda item: item[1])]


class Measured:
    """Times of functions that ran in turn in one process, and the matrix-product peak per round."""

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
        """Return the median time of a function."""
        return statistics.median(self.seconds[name])

    def times_faster(self, name: str, than: str) -> dict[str, object]:
        """Return the ratio of the medians, and the smallest and largest ratio of a round."""
        pairs = zip(self.seconds[than], self.seconds[name], strict=True)
        ratios = sorted(other / own for other, own in pairs)
        return {
            "name": name,
            "than": than,
            "times": round(self.median(than) / self.median(name), 3),
            "spread": [round(ratios[0], 3), round(ratios[-1], 3)],
        }

    def share_of_peak(self, name: str, operations: float) -> float:
        """Return the rate of a function, relative to the best matrix product of all rounds."""
        return round(operations / self.median(name) / self.peak, 3)

    def share_of_near_peak(self, name: str, operations: float) -> float:
        """Return the median of the rates relative to the best matrix product of the same round.

        This varies less than `share_of_peak` on a shared machine.
        """
        pairs = zip(self.seconds[name], self.peaks, strict=True)
        return round(statistics.median(operations / own / peak for own, peak in pairs), 3)


def figure(benchmark: str, **values: object) -> None:
    """Print one figure as a JSON line."""
    rounded = {
        key: float(f"{value:.5g}") if isinstance(value, float) else value
        for key, value in values.items()
    }
    print(json.dumps({"benchmark": benchmark, **rounded}), flush=True)
