"""Each in a process of its own: the settings hold for a whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

# How many pages must be cleared when 64 MB are freed and asked for again, ten times.
AGAIN = """
import resource, sys
from bilm.distributed.process import settle
if sys.argv[1] == "settled":
    settle()
import torch
def use():
    torch.ones(16 << 20)
for _ in range(10):
    use()  # the first ones still find their place
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

# How many pools of memory four threads at once make.
POOLS = """
import ctypes, sys, threading
from bilm.distributed.process import settle
if sys.argv[1] == "settled":
    settle()
libc, all_here = ctypes.CDLL(None), threading.Barrier(4)
libc.malloc.restype = ctypes.c_void_p
def use():
    all_here.wait()
    libc.malloc(ctypes.c_size_t(100_000))
    all_here.wait()
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(open(sys.argv[2]).read().count("<heap nr"))
"""

# How much of 200 MB in small pieces stays when they are freed, and how much after that, in MB.
TRIM = """
import psutil
from bilm.distributed.process import give_back_memory, settle
settle()
def memory():
    return psutil.Process().memory_info().rss
before = memory()
pieces = [bytearray(100_000) for _ in range(2000)]
guards = [bytearray(1000) for _ in range(100)]
del pieces
kept = memory() - before
give_back_memory()
print(kept // 1_000_000, (memory() - before) // 1_000_000)
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "OMP_", "LOCAL_"))}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=clean | environment,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_freed_memory_is_used_again() -> None:
    pages = 10 * (64 << 20) // 4096
    assert int(run(AGAIN, "plain")) > 0.9 * pages
    assert int(run(AGAIN, "settled")) < 0.01 * pages
    assert int(run(AGAIN, "settled", MALLOC_ARENA_MAX="2")) > 0.9 * pages  # the user has decided


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_threads_share_one_pool_of_memory(tmp_path: Path) -> None:
    assert int(run(POOLS, "plain", str(tmp_path / "plain"))) > 1
    assert int(run(POOLS, "settled", str(tmp_path / "settled"))) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_kept_memory_can_be_given_back() -> None:
    kept, left = map(int, run(TRIM).split())
    assert kept > 190
    assert left < 10


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "all"), ({"LOCAL_SIZE": "1000"}, "1"), ({"OMP_NUM_THREADS": "7"}, "7")],
)
def test_cores_are_shared_unless_the_user_has_decided(given: dict[str, str], expected: str) -> None:
    code = "import os; from bilm.distributed.process import settle; settle(); "
    found = run(code + "print(os.environ['OMP_NUM_THREADS'])", **given)
    assert found == (str(len(os.sched_getaffinity(0))) if expected == "all" else expected)
