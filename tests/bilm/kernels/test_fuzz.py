"""Random wrong calls of the operations with C code: errors of Python only, in both backends.

The calls are made in other processes, so that a crash is a failed test.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bilm.conftest import needs_compiler
from tests.conftest import ROOT

pytestmark = [needs_compiler, pytest.mark.slow]


def make_random_calls(seed: int, count: int, *flags: str, **environment: str) -> dict[str, int]:
    """Make calls until `count` were rejected; return the numbers of accepted and rejected calls."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bilm.kernels.random_calls", str(seed), str(count), *flags],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    totals: dict[str, int] = json.loads(done.stdout)
    return totals


@pytest.mark.parametrize("seed", range(4))
def test_wrong_calls_raise_the_same_error_in_both_backends(seed: int) -> None:
    totals = make_random_calls(seed, 2_500)
    assert totals["rejected"] == 2_500
    assert totals["accepted"] > 500  # whose results were compared


@functools.cache
def sanitizer_runtime() -> str | None:
    """Return gcc's libraries to preload; None without gcc or without AddressSanitizer.

    The sanitizer needs the C++ library, whose exceptions it intercepts, from the start.
    """
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    paths = []
    for name in ("libasan.so", "libstdc++.so.6"):
        command = [gcc, f"-print-file-name={name}"]
        paths.append(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    return " ".join(paths) if all(Path(path).is_absolute() for path in paths) else None


@pytest.mark.skipif(sanitizer_runtime() is None, reason="gcc has no AddressSanitizer")
def test_random_calls_pass_sanitizers(tmp_path: Path) -> None:
    runtime = sanitizer_runtime()
    assert runtime is not None
    totals = make_random_calls(
        4,
        1_000,
        "--sanitize",
        CC="gcc",
        BILM_CACHE=str(tmp_path),
        LD_PRELOAD=runtime,
        ASAN_OPTIONS="detect_leaks=0",
    )
    assert totals["rejected"] == 1_000
