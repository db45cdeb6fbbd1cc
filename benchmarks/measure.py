"""Helpers of the benchmarks: interleaved timing, the peak rate of matrix products, JSON lines."""

from __future__ import annotations

import ctypes
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psutil
import torch
from rounds import Bounds, steady_rounds, summary

from bilm.distributed.process import M_MMAP_MAX
from bilm.kernels import backends

GLIBC_MMAP_MAX = 65536  # the default value in glibc


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


class Measured:
    """Times of functions that ran in turn in one process, and the matrix-product peak per round.

    Rounds are repeated until the ratios of all `pairs` are steady; by default, these are the first
    function and each of the others.
    """

    def __init__(
        self,
        contenders: Mapping[str, Callable[[], object]],
        bounds: Bounds,
        pairs: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        for function in contenders.values():
            function()  # warm-up
        first, *others = contenders
        compared = [(first, other) for other in others] if pairs is None else pairs

        def take_round() -> tuple[float, dict[str, float]]:
            peak = product_peak(repeats=3)
            return peak, {name: seconds_of(function) for name, function in contenders.items()}

        def ratios_of(taken: list[tuple[float, dict[str, float]]]) -> list[list[float]]:
            return [[times[b] / times[a] for _, times in taken] for a, b in compared]

        taken = steady_rounds(take_round, ratios_of, bounds)
        self.bounds = bounds
        self.peaks = [peak for peak, _ in taken]
        self.seconds = {name: [times[name] for _, times in taken] for name in contenders}
        self.peak = max(self.peaks)

    def median(self, name: str) -> float:
        """Return the median time of a function."""
        return statistics.median(self.seconds[name])

    def times_faster(self, name: str, than: str) -> dict[str, object]:
        """Return the median of the ratios of the rounds, with their range and spread."""
        pairs = zip(self.seconds[than], self.seconds[name], strict=True)
        ratios = [other / own for other, own in pairs]
        return {"name": name, "than": than, **summary(ratios, self.bounds.max_spread)}

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
