"""Rounds of a measurement: repeat them until the ratios of the contenders are steady.

All contenders run once per round, one after the other, and each round yields one ratio per pair.
The figure is the median of the ratios. Its spread is the width of the 95% confidence interval of
that median, relative to the median. The interval is given by order statistics, so it does not
depend on the distribution of the noise, and it becomes narrower with every round.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
MAX_STOLEN_CORES = 0.05  # in an undisturbed round
MAX_SPREAD = 0.05
FEWEST_ROUNDS = 3  # with fewer, the spread is unknown
TAIL = 0.025  # the probability that the median is on one side of the interval


@dataclass(frozen=True)
class Bounds:
    """When to stop: at a spread of `max_spread`, or after `max_rounds` or `max_seconds`.

    At least `min_rounds` rounds are run. With fewer than 6, the spread is the range of all rounds,
    because no interval with 95% confidence exists.
    """

    min_rounds: int = 6
    max_spread: float = MAX_SPREAD
    max_seconds: float = 60.0
    rounds_factor: int = 5

    @property
    def max_rounds(self) -> int:
        """The number of rounds after which the figures are too noisy."""
        return self.rounds_factor * self.min_rounds


def add_bounds(parser: argparse.ArgumentParser, rounds: int = 6) -> None:
    """Add the flags `--rounds` and `--max-spread`."""
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="least number of rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--max-spread",
        type=float,
        default=MAX_SPREAD,
        help="repeat rounds until the spread of every ratio is at most this; otherwise a figure "
        "is marked as too noisy (default: %(default)s)",
    )


def spread_of(ratios: Sequence[float]) -> float:
    """Return the width of the 95% confidence interval of the median, relative to the median."""
    ordered, count = sorted(ratios), len(ratios)
    outside, probability = 0, 0.0
    while (probability := probability + math.comb(count, outside) / 2**count) <= TAIL:
        outside += 1
    first = max(outside - 1, 0)
    return (ordered[count - 1 - first] - ordered[first]) / statistics.median(ordered)


def summary(ratios: Sequence[float], max_spread: float = MAX_SPREAD) -> dict[str, Any]:
    """Return a figure: the median of the ratios, their range, their spread, and its bound."""
    spread = spread_of(ratios)
    figure: dict[str, Any] = {
        "times": float(f"{statistics.median(ratios):.4g}"),
        "range": [float(f"{value:.4g}") for value in (min(ratios), max(ratios))],
        "rounds": len(ratios),
        "spread": round(spread, 4),
        "max_spread": max_spread,
    }
    is_noisy = spread > max_spread or len(ratios) < FEWEST_ROUNDS
    return figure | ({"too_noisy": True} if is_noisy else {})


def stolen_seconds() -> float:
    """Return the CPU time that the host of a virtual machine gave to other guests; 0 if unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _take(take_round: Callable[[], T]) -> tuple[float, T]:
    """Return the number of cores that were stolen during a round, and its result."""
    stolen, begun = stolen_seconds(), time.perf_counter()
    result = take_round()
    return (stolen_seconds() - stolen) / max(time.perf_counter() - begun, 1e-9), result


def _undisturbed(taken: Sequence[tuple[float, T]], least: int) -> list[T]:
    """Return the results of undisturbed rounds, or of the `least` least disturbed ones."""
    order = sorted(range(len(taken)), key=lambda number: (taken[number][0], number))
    count = max(sum(stolen < MAX_STOLEN_CORES for stolen, _ in taken), least)
    return [taken[number][1] for number in sorted(order[:count])]


def least_disturbed(take_round: Callable[[], T], rounds: int) -> list[T]:
    """Return the results of `rounds` rounds; rounds with stolen CPU time are repeated.

    At most twice as many rounds are run, and the least disturbed ones are returned.
    """
    taken: list[tuple[float, T]] = []
    while len(taken) < 2 * rounds:
        taken.append(_take(take_round))
        if sum(stolen < MAX_STOLEN_CORES for stolen, _ in taken) == rounds:
            break
    return _undisturbed(taken, rounds)[:rounds]


def steady_rounds(
    take_round: Callable[[], T],
    ratios_of: Callable[[list[T]], Iterable[Sequence[float]]],
    bounds: Bounds,
) -> list[T]:
    """Repeat rounds until all ratios are steady or a limit is reached; return the results.

    `ratios_of` returns the ratios of each pair of contenders, one per round. Rounds with stolen CPU
    time are left out if enough others were run.
    """
    taken: list[tuple[float, T]] = []
    begun = time.perf_counter()
    while True:
        taken.append(_take(take_round))
        if len(taken) < bounds.min_rounds:
            continue
        results = _undisturbed(taken, bounds.min_rounds)
        if all(spread_of(ratios) <= bounds.max_spread for ratios in ratios_of(results)):
            return results
        if len(taken) >= bounds.max_rounds or time.perf_counter() - begun > bounds.max_seconds:
            return results
