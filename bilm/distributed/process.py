"""The settings of this process: its rank numbers, its share of the cores, its memory, its end.

Also the name of the processor, for reports.

This module does not import torch, because the settings must be made before torch is imported.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Options of mallopt, from glibc's <malloc.h>
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8

HEAP_STEP_BYTES = 64 << 20

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>

# How often a thread of GNU OpenMP checks a barrier before it sleeps. By default it spins for
# milliseconds, also when the thread that it waits for has no core, so that a second process on the
# same cores makes both many times slower.
SPIN_COUNT = 100

WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@dataclass(frozen=True)
class RankNumbers:
    """The position of this process among the processes of a run."""

    rank: int
    world: int
    local_rank: int  # among the ranks on this machine
    local_world: int


def rank_numbers() -> RankNumbers:
    """Return the numbers that the launcher has set in the environment.

    A process that was started without a launcher is the only rank of its run.
    """
    return RankNumbers(
        rank=int(os.environ.get("RANK", "0")),
        world=int(os.environ.get("WORLD_SIZE", "1")),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        # set by DeepSpeed's launcher and by torchrun, respectively
        local_world=int(os.environ.get("LOCAL_SIZE") or os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )


def configure_process() -> None:
    """Set the number of threads and the options of malloc, unless the user has set them."""
    share_cores()
    keep_freed_memory()


def share_cores() -> None:
    """Give each rank on this machine an equal share of the cores, unless OMP_NUM_THREADS is set."""
    threads = max(1, num_cores() // rank_numbers().local_world)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    limit_spinning()


def limit_spinning() -> None:
    """Let waiting threads sleep soon, unless the user has chosen how OpenMP waits.

    OpenMP reads this setting when torch is imported.
    """
    if not any(name in os.environ for name in WAITING_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)


def num_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use, where the system reports it.

    That is the number of cores that it may run on or, if less, the CPU quota of its container,
    rounded up. `root` is the directory of `proc` and `sys`.
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min([cores, *_cpu_quotas(root)]))


def processor_name(root: Path = Path("/")) -> str:
    """Return the model name of the processor, or its architecture where the system has no name."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def _cpu_quotas(root: Path) -> Iterator[int]:
    """Yield the quotas of the control groups (cgroup) of this process and of their parents."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        # "0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1
        controllers, path = line.split(":", 2)[1:]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in (controllers, "cpu" if controllers else "unified"):
            top = root / "sys/fs/cgroup" / mount
            # In a container, `path` may be that of the host; then only the top group is visible.
            group = top / path.lstrip("/")
            for directory in (group, *group.parents):
                if directory.is_relative_to(top):
                    yield from _cpu_quota(directory, is_version_2=not controllers)


def _cpu_quota(directory: Path, is_version_2: bool) -> Iterator[int]:
    """Yield the quota of one control group, rounded up to cores, if it has one."""
    names = ("cpu.max",) if is_version_2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    values = " ".join(_read(directory / name) for name in names).split()
    if len(values) == 2 and all(value.isdecimal() for value in values) and int(values[1]):
        yield -(-int(values[0]) // int(values[1]))  # otherwise unlimited: "max" or "-1"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def keep_freed_memory() -> None:
    """Make malloc keep freed memory for the next step instead of returning it to the system.

    Each step frees and allocates the same gigabytes. By default glibc returns large blocks
    immediately, and the system must clear every page again, which took a sixth of the step time at
    the published size. In exchange, a process stays somewhat larger than its peak. All threads
    share one pool, so that one thread can reuse memory that another has freed. Does nothing with
    another C library, or if the user has set a MALLOC_ variable.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)
    mallopt(M_TOP_PAD, HEAP_STEP_BYTES)


def release_free_memory() -> None:
    """Return all currently free memory to the system.

    Steps differ in size, so the kept memory becomes fragmented, and over tens of thousands of steps
    the process grows. Calling this where a second does not matter, for example after a checkpoint,
    shrinks the process to the memory in use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def die_with_parent(number: signal.Signals) -> None:
    """Let the system send a signal to this process if its parent is killed (only on Linux).

    This is for `preexec_fn` of subprocesses, so that nothing runs on unobserved.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def peak_memory_bytes(usage: resource.struct_rusage | None = None) -> int:
    """Return the peak resident memory of this process, or of the processes that `usage` covers.

    `usage` is a result of `resource.getrusage` or `os.wait4`; its unit depends on the platform.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF) if usage is None else usage
    return usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024
