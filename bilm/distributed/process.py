"""What a process that computes for long settles first, before torch is imported."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

# of glibc's <malloc.h>
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8

HEAP_STEP_BYTES = 64 << 20


def settle() -> None:
    """Decide on cores and memory; what the user has decided stays."""
    share_cores()
    keep_freed_memory()


def share_cores() -> None:
    """Give each rank of this machine its share of the cores, unless the user has decided."""
    ranks = int(os.environ.get("LOCAL_SIZE", "1"))
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // ranks)))


def keep_freed_memory() -> None:
    """Have freed memory kept by the process for its next step, not given back to the system.

    A step frees and asks for the same gigabytes again and again; glibc gives large blocks back at
    once, and the system must clear every page anew. That cost a sixth of the step at the published
    size. The price is that a process stays as large as it ever was, and somewhat larger. All
    threads share one pool, so that what one of them frees another can use. Does
    nothing under another C library, or where a MALLOC_ variable says that the user has decided.
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


def give_back_memory() -> None:
    """Give all that is free at this moment back to the system.

    Steps differ in size, so the places that they find in kept memory do too, and over tens of
    thousands of steps ever more of it has been touched. Now and then, where a second does not
    matter, this makes a process as small as what it holds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
