"""The settings of a process, each tested in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.distributed.process import num_cores
from tests.conftest import ROOT

# Prints the number of pages that are cleared when 64 MB are freed and allocated ten times.
REALLOCATE = """
import resource, sys
from bilm.distributed.process import configure_process
if sys.argv[1] == "configured":
    configure_process()
import torch
def use():
    torch.ones(16 << 20)
for _ in range(10):
    use()  # warm up
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

# Prints the number of memory pools that four simultaneous threads create.
POOLS = """
import ctypes, sys, threading
from bilm.distributed.process import configure_process
if sys.argv[1] == "configured":
    configure_process()
libc, barrier = ctypes.CDLL(None), threading.Barrier(4)
libc.malloc.restype = ctypes.c_void_p
def use():
    barrier.wait()
    libc.malloc(ctypes.c_size_t(100_000))
    barrier.wait()
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(open(sys.argv[2]).read().count("<heap nr"))
"""

# Frees 200 MB in small pieces; prints the MB that stay resident before and after the release.
TRIM = """
import psutil
from bilm.distributed.process import configure_process, release_free_memory
configure_process()
def memory():
    return psutil.Process().memory_info().rss
before = memory()
pieces = [bytearray(100_000) for _ in range(2000)]
guards = [bytearray(1000) for _ in range(100)]
del pieces
kept = memory() - before
release_free_memory()
print(kept // 1_000_000, (memory() - before) // 1_000_000)
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("MALLOC_", "OMP_", "GOMP_", "KMP_", "LOCAL_", "RANK", "WORLD_SIZE"))
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=clean | environment,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_reuses_freed_memory() -> None:
    pages = 10 * (64 << 20) // 4096
    assert int(run(REALLOCATE, "plain")) > 0.9 * pages
    assert int(run(REALLOCATE, "configured")) < 0.01 * pages
    assert int(run(REALLOCATE, "configured", MALLOC_ARENA_MAX="2")) > 0.9 * pages  # set by the user


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_threads_share_one_memory_pool(tmp_path: Path) -> None:
    assert int(run(POOLS, "plain", str(tmp_path / "plain"))) > 1
    assert int(run(POOLS, "configured", str(tmp_path / "configured"))) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_releases_free_memory() -> None:
    kept, left = map(int, run(TRIM).split())
    assert kept > 190
    assert left < 10


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "all"), ({"LOCAL_SIZE": "1000"}, "1"), ({"OMP_NUM_THREADS": "7"}, "7")],
)
def test_shares_cores_unless_set_by_user(given: dict[str, str], expected: str) -> None:
    code = (
        "import os; from bilm.distributed.process import configure_process; configure_process(); "
    )
    threads = run(code + "print(os.environ['OMP_NUM_THREADS'])", **given)
    assert threads == (str(num_cores()) if expected == "all" else expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "100"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
        ({"KMP_BLOCKTIME": "5"}, "None"),
    ],
)
def test_limits_spinning_unless_set_by_user(given: dict[str, str], expected: str) -> None:
    code = "import os; from bilm.distributed.process import share_cores; share_cores(); "
    assert run(code + "print(os.environ.get('GOMP_SPINCOUNT'))", **given) == expected


def test_rank_numbers_default_to_a_single_rank() -> None:
    code = "from bilm.distributed.process import rank_numbers; print(rank_numbers())"
    assert run(code, LOCAL_RANK="1", RANK="3", WORLD_SIZE="4", LOCAL_SIZE="2") == (
        "RankNumbers(rank=3, world=4, local_rank=1, local_world=2)"
    )
    assert run(code) == "RankNumbers(rank=0, world=1, local_rank=0, local_world=1)"


def test_peak_memory_does_not_import_torch() -> None:
    code = (
        "import sys; from bilm.distributed.process import peak_memory_bytes; "
        "assert 'torch' not in sys.modules; block = b'x' * (200 << 20); "
        "print(peak_memory_bytes() >> 20)"
    )
    assert 200 <= int(run(code)) < 100_000  # MiB; the kernel counts the parent's peak too
