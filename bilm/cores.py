"""How many cores a rank may use. To be decided before torch is imported."""

from __future__ import annotations

import os


def share_cores() -> None:
    """Give each rank of this machine its share of the cores, unless the user has decided."""
    ranks = int(os.environ.get("LOCAL_SIZE", "1"))
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // ranks)))
