"""Rounds of benchmarks with artificial timings."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import count

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import measure
import rounds
from rounds import Bounds, least_disturbed, spread_of, steady_rounds, summary


def ratios_until_steady(noise: float, bounds: Bounds) -> list[float]:
    """Return the ratios of rounds around 2, each with random noise."""
    source = random.Random(1)
    return steady_rounds(
        lambda: 2 * (1 + source.uniform(-noise, noise)), lambda ratios: [ratios], bounds
    )


def test_spread_is_interval_of_the_median() -> None:
    assert spread_of([1.0, 1.1, 0.9]) == pytest.approx(0.2)  # the range of fewer than 6 rounds
    assert spread_of([1.0, 1.1, 0.9, 1.0, 1.0, 1.0]) == pytest.approx(0.2)
    # With 9 rounds, the interval leaves out the smallest and the largest ratio.
    assert spread_of([0.1, 0.98, *[1.0] * 5, 1.02, 9.0]) == pytest.approx(0.04)


def test_stops_after_fewest_rounds_without_noise() -> None:
    assert len(ratios_until_steady(0.01, Bounds(min_rounds=6))) == 6


def test_repeats_rounds_until_spread_is_within_bound() -> None:
    ratios = ratios_until_steady(0.1, Bounds(min_rounds=6, rounds_factor=100))
    assert 6 < len(ratios) < 600
    figure = summary(ratios)
    assert figure["spread"] <= figure["max_spread"] == 0.05
    assert figure["rounds"] == len(ratios)
    assert figure["times"] == pytest.approx(2, rel=0.05)
    assert "too_noisy" not in figure


def test_marks_figure_as_too_noisy_after_most_rounds() -> None:
    bounds = Bounds(min_rounds=6, max_spread=0.01, rounds_factor=2)
    ratios = ratios_until_steady(0.5, bounds)
    assert len(ratios) == bounds.max_rounds == 12
    assert summary(ratios, bounds.max_spread)["too_noisy"] is True
    assert summary([2.0, 2.0])["too_noisy"] is True  # the spread is unknown


def test_stops_when_time_is_over() -> None:
    ratios = ratios_until_steady(0.5, Bounds(min_rounds=3, max_spread=0.0, max_seconds=0.0))
    assert len(ratios) == 3


def test_leaves_out_rounds_with_stolen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, stolen = count(), [0.0]
    monkeypatch.setattr(rounds, "stolen_seconds", lambda: stolen[0])

    def take_round() -> int:
        number = next(numbers)
        if number % 2:
            stolen[0] += 100
        return number

    assert least_disturbed(take_round, 3) == [0, 2, 4]
    bounds = Bounds(min_rounds=4, rounds_factor=2)
    assert steady_rounds(take_round, lambda _: [[1.0, 2.0]], bounds) == [6, 8, 10, 12]


def test_measured_compares_functions_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], list[str]()
    monkeypatch.setattr(measure, "product_peak", lambda repeats: 1e9)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock[0])

    def lasting(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            calls.append(name)
            clock[0] += seconds

        return run

    measured = measure.Measured(
        {"ours": lasting("ours", 1), "plain": lasting("plain", 3)}, Bounds()
    )
    assert calls == ["ours", "plain"] * 7  # one round for warm-up
    figure = measured.times_faster("ours", "plain")
    assert figure == {
        "name": "ours",
        "than": "plain",
        "times": 3.0,
        "range": [3.0, 3.0],
        "rounds": 6,
        "spread": 0.0,
        "max_spread": 0.05,
    }
    assert measured.share_of_peak("ours", 5e8) == 0.5
