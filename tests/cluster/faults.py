"""Scenarios: faults of the network between two machines."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.chaos.jobs import last_step, newest_step
from tests.cluster.jobs import (
    STEPS,
    STOP_SECONDS,
    TIMEOUT_SECONDS,
    Bed,
    Launch,
    compare,
    finish,
)
from tests.cluster.launchers import SAVES, resume
from tests.cluster.machines import drop_packets

SHORT_SECONDS = 5
LATE_SECONDS = 5  # after the timeout, a lost rank must have been reported


def short_link_down(bed: Bed) -> tuple[str, str]:
    """the link of a machine is down for 5 s"""
    output = bed.run("short_link_down")
    launches = _start(bed, output)
    start = time.monotonic()
    _set_link(bed, "down")
    time.sleep(SHORT_SECONDS)
    _set_link(bed, "up")
    bed.wait_for_step(output, last_step(output) + 1)
    stall = time.monotonic() - start
    finish(launches)
    return f"stalled for {stall:.1f} s, then finished", compare(bed, output)


def link_down(bed: Bed) -> tuple[str, str]:
    """the link is down for good"""
    output = bed.run("link_down")
    launches = _start(bed, output)
    try:
        _set_link(bed, "down")
        seconds = _lost(launches)
    finally:
        _set_link(bed, "up")
    return _resume_on_one_then_two(bed, output, seconds)


def dropped_packets(bed: Bed) -> tuple[str, str]:
    """packets are dropped silently"""
    output = bed.run("dropped_packets")
    launches = _start(bed, output)
    try:
        drop_packets(bed.cluster.n2, True)
        seconds = _lost(launches)
    finally:
        drop_packets(bed.cluster.n2, False)
    step, figures = resume(bed, output)
    return f"both exited with 4 after {seconds:.1f} s; resumed from step {step}", figures


def _start(bed: Bed, output: Path) -> list[Launch]:
    launches = bed.start_ranks(bed.script(output, SAVES))
    bed.wait_for_step(output)
    return launches


def _set_link(bed: Bed, state: str) -> None:
    bed.cluster.ctl.configure("ip", "link", "set", "to-n2", state)


def _lost(launches: list[Launch]) -> float:
    """Check that each rank exits with 4 and names the other one; return the seconds."""
    seconds = finish(launches, (4,), STOP_SECONDS)
    for other, launch in zip((1, 0), launches, strict=True):
        assert f"rank {other} (process" in launch.log.read_text(), "the lost rank is not named"
    assert seconds < TIMEOUT_SECONDS + LATE_SECONDS, f"{seconds:.1f} s"
    return seconds


def _resume_on_one_then_two(bed: Bed, output: Path, seconds: float) -> tuple[str, str]:
    step, middle = newest_step(output), STEPS // 2
    assert 0 < step < middle, f"checkpoint of step {step}"
    half = bed.script(output, f"train.max_steps={middle}")
    finish([bed.start(bed.cluster.n1, [sys.executable, *half])])
    _, figures = resume(bed, output)
    return (
        f"both exited with 4 after {seconds:.1f} s; resumed from step {step} on one machine, and "
        f"from step {middle} on two",
        figures,
    )


SCENARIOS = (short_link_down, link_down, dropped_packets)
