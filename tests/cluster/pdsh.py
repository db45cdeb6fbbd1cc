"""Scenarios: `deepspeed --hostfile`, which starts its launchers through pdsh and ssh.

`deepspeed` runs on `ctl`, which has no ranks, unless the title names `n1`.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil

from tests.chaos.jobs import newest_step
from tests.cluster.jobs import (
    STEPS,
    STOP_SECONDS,
    Bed,
    Launch,
    all_gone,
    compare,
    finish,
    saved,
)
from tests.cluster.launchers import SAVES
from tests.cluster.machines import Machine

LONG_STEP_SECONDS = 35  # pdsh's launchers kill their ranks 30 s after SIGTERM


def pdsh(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile over pdsh"""
    output = bed.run("pdsh")
    finish([_start(bed, bed.cluster.ctl, output)])
    return "trained", compare(bed, output)


def pdsh_term(bed: Bed) -> tuple[str, str]:
    """the same, SIGTERM to `deepspeed`"""
    output = bed.run("pdsh_term")
    code, seconds = _signal(bed, bed.cluster.ctl, output, signal.SIGTERM)
    step = _stopped(output)
    finish([_start(bed, bed.cluster.ctl, output)])
    return (
        f"exit code {code}; saved step {step} and ended within {seconds:.1f} s; resumed",
        compare(bed, output),
    )


def pdsh_int(bed: Bed) -> tuple[str, str]:
    """the same, SIGINT to `deepspeed`"""
    output = bed.run("pdsh_int")
    code, seconds = _signal(bed, bed.cluster.ctl, output, signal.SIGINT)
    return f"exit code {code}; saved step {_stopped(output)}", f"ended within {seconds:.1f} s"


def pdsh_hup(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile on `n1`, SIGHUP to it"""
    output = bed.run("pdsh_hup")
    code, seconds = _signal(bed, bed.cluster.n1, output, signal.SIGHUP)
    return f"exit code {code}; saved step {_stopped(output)}", f"ended within {seconds:.1f} s"


def pdsh_terminal(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile, its terminal closed (SIGHUP to its group)"""
    output = bed.run("pdsh_terminal")
    launch = _start(bed, bed.cluster.ctl, output)
    bed.wait_for_step(output)
    launch.kill_group(signal.SIGHUP)
    launch.wait(10)
    seconds = all_gone(bed)
    launch.output()
    return f"saved step {_stopped(output)}", f"ended within {seconds:.1f} s"


def pdsh_killed_rank(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile, rank 1 killed"""
    output = bed.run("pdsh_killed")
    launch = _start(bed, bed.cluster.ctl, output, SAVES)
    bed.wait_for_step(output)
    bed.ranks(bed.cluster.n2)[0].kill()
    start = time.monotonic()
    code = launch.wait(40)
    all_gone(bed)
    seconds, step = time.monotonic() - start, newest_step(output)
    assert code in (4, 247), f"exit code {code}"
    assert "rank 1 (process" in launch.output(), "the lost rank is not named"
    finish([_start(bed, bed.cluster.ctl, output)])
    what = f"exit code {code} after {seconds:.1f} s; resumed from step {step}"
    return what, compare(bed, output)


def pdsh_killed_deepspeed(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile on `n1`, kill -9 of it"""
    output = bed.run("pdsh_killed_deepspeed")
    code, seconds = _signal(bed, bed.cluster.n1, output, signal.SIGKILL)
    return f"exit code {code}; saved step {_stopped(output)}", f"ended within {seconds:.1f} s"


def pdsh_killed_on_ctl(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile, kill -9 of it and of pdsh"""
    output = bed.run("pdsh_killed_on_ctl")
    launch = _start(bed, bed.cluster.ctl, output)
    bed.wait_for_step(output)
    launch.kill(signal.SIGKILL)
    for process in bed.cluster.ctl.processes():
        if process.name().startswith("pdsh"):
            process.kill()
    code, seconds = launch.wait(10), all_gone(bed)
    launch.output()
    return f"exit code {code}; saved step {_stopped(output)}", f"ended within {seconds:.1f} s"


def pdsh_long_step(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile, SIGTERM to it in a step of more than 30 s"""
    output = bed.run("pdsh_long_step")
    launch, _ = _start_long_step(bed, output)
    start = time.monotonic()
    launch.kill(signal.SIGTERM)
    launch.wait(60)
    all_gone(bed, 60)
    seconds, step = time.monotonic() - start, newest_step(output)
    assert step > 0, "no checkpoint was saved"
    assert seconds > 25, f"killed after {seconds:.0f} s, but the documented limit is 30 s"
    return (
        f"DeepSpeed's launcher killed the ranks in the step, as documented; step {step} is saved",
        f"killed after {seconds:.1f} s",
    )


def pdsh_long_step_of_rank(bed: Bed) -> tuple[str, str]:
    """the same, SIGTERM to a rank instead"""
    output = bed.run("pdsh_long_step_of_rank")
    launch, slow = _start_long_step(bed, output)
    start = time.monotonic()
    bed.ranks(bed.cluster.n1)[0].terminate()
    time.sleep(LONG_STEP_SECONDS)
    slow.resume()
    code = launch.wait(STOP_SECONDS)
    all_gone(bed)
    seconds = time.monotonic() - start
    assert code == 75, f"exit code {code}"
    return f"exit code 75; saved step {_stopped(output)}", f"ended after {seconds:.1f} s"


def _stopped(output: Path) -> int:
    """Check that the run has saved the step at which it stopped, before the last; return it."""
    step = saved(output)
    assert step < STEPS, "the run was not stopped, it finished"
    return step


def _start_long_step(bed: Bed, output: Path) -> tuple[Launch, psutil.Process]:
    """Start a run, and stop rank 1 in the middle of a step, which takes as long as it is stopped.

    Returns the launcher and the stopped rank.
    """
    patience = ("train.timeout_seconds=200", "train.startup_timeout_seconds=200")
    launch = _start(bed, bed.cluster.ctl, output, SAVES, *patience)
    bed.wait_for_step(output)
    slow = bed.ranks(bed.cluster.n2)[0]
    slow.suspend()
    return launch, slow


def _start(bed: Bed, machine: Machine, output: Path, *overrides: str) -> Launch:
    return bed.start(machine, [*bed.deepspeed(), *bed.script(output, *overrides)])


def _signal(bed: Bed, machine: Machine, output: Path, number: int) -> tuple[int, float]:
    """Signal `deepspeed` in a run; return its exit code and the seconds until all have ended."""
    launch = _start(bed, machine, output)
    bed.wait_for_step(output)
    start = time.monotonic()
    launch.kill(number)
    code = launch.wait(STOP_SECONDS)
    all_gone(bed)
    launch.output()
    assert code != 0, "exit code 0 although the run did not finish"
    return code, time.monotonic() - start


SCENARIOS = (
    pdsh,
    pdsh_term,
    pdsh_int,
    pdsh_hup,
    pdsh_terminal,
    pdsh_killed_rank,
    pdsh_killed_deepspeed,
    pdsh_killed_on_ctl,
    pdsh_long_step,
    pdsh_long_step_of_rank,
)
