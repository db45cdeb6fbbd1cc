"""Scenarios: runs that continue on fewer machines, and use more of them when they return."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import psutil

from tests.chaos.jobs import last_step
from tests.cluster.jobs import STEPS, Bed, Launch, compare, finish
from tests.cluster.launchers import SAVES, barrier_note, torchrun_command
from tests.cluster.machines import wait_until

RESTART_SECONDS = 120
FEW_STEPS = 3
# Otherwise the first machine does not tell its address to one that joins later (torch 2.13).
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def torchrun_elastic(bed: Bed) -> tuple[str, str]:
    """`torchrun` with `--nnodes 1:2` and `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`,
    a machine lost and returned"""
    output = bed.run("torchrun_elastic")
    command = torchrun_command(
        bed,
        bed.script(output, SAVES),
        "--nnodes=1:2",
        "--max-restarts=3",
        "--rdzv-conf=last_call_timeout=5",
    )
    first, second = (bed.start(node, command, **OWN_STORE) for node in bed.cluster.nodes)
    bed.wait_for_step(output)
    start = time.monotonic()
    for process in (*bed.cluster.n2.processes("torchrun"), *bed.ranks(bed.cluster.n2)):
        process.kill()
    second.wait(10)
    alone = _wait_for_ranks(bed, {"n1": "1"})
    shrunk = time.monotonic() - start
    _pause_after_steps(first, output, alone["n1"])
    third = bed.start(bed.cluster.n2, command, **OWN_STORE)
    start = time.monotonic()
    time.sleep(8)  # torchrun looks for new machines every 5 s
    alone["n1"].resume()
    _wait_for_ranks(bed, {"n1": "2", "n2": "2"})
    grown = time.monotonic() - start
    finish([first, third])
    return _outcome(shrunk, grown) + barrier_note([first, third]), compare(bed, output)


def restarts(bed: Bed) -> tuple[str, str]:
    """`bilm pretrain` with `--restarts 1` and a hostfile, a machine lost and returned"""
    output, hub = bed.run("restarts"), bed.cluster.ctl
    own = ["--restarts=1", f"--hostfile={bed.hostfile()}", "--probe-seconds=2"]
    launch = bed.start(hub, [sys.executable, *bed.script(output, SAVES), *own])
    bed.wait_for_step(output)
    start = time.monotonic()
    try:
        hub.configure("ip", "link", "set", "to-n2", "down")
        alone = _wait_for_ranks(bed, {"n1": "1"})
        shrunk = time.monotonic() - start
        _pause_after_steps(launch, output, alone["n1"])
    finally:
        hub.configure("ip", "link", "set", "to-n2", "up")
    start = time.monotonic()
    time.sleep(8)  # it looks for machines every 2 s
    alone["n1"].resume()
    _wait_for_ranks(bed, {"n1": "2", "n2": "2"})
    grown = time.monotonic() - start
    finish([launch])
    return _outcome(shrunk, grown), compare(bed, output)


def _outcome(shrunk: float, grown: float) -> str:
    return (
        f"resumed on one machine after {shrunk:.0f} s, and on both {grown:.0f} s after the return"
    )


def _wait_for_ranks(bed: Bed, worlds: dict[str, str]) -> dict[str, psutil.Process]:
    """Wait until these nodes have one rank each, in a run of this many ranks; return them."""
    found: dict[str, psutil.Process] = {}

    def are_running() -> bool:
        found.clear()
        for node in bed.cluster.nodes:
            for process in bed.ranks(node):
                with contextlib.suppress(psutil.Error):
                    if process.environ().get("WORLD_SIZE") == worlds.get(node.name):
                        found[node.name] = process
        return found.keys() == worlds.keys()

    wait_until(are_running, RESTART_SECONDS, f"ranks {worlds}")
    return found


def _pause_after_steps(launch: Launch, output: Path, rank: psutil.Process) -> None:
    """Suspend the only rank after a few steps, so that some are left for two machines."""
    wait_until(lambda: "resuming" in launch.log.read_text(), RESTART_SECONDS, "the resumption")
    goal = last_step(output) + FEW_STEPS
    wait_until(lambda: last_step(output) >= goal, RESTART_SECONDS, f"step {goal}")
    rank.suspend()
    assert last_step(output) < STEPS, "the run has finished on one machine"


SCENARIOS = (restarts, torchrun_elastic)
