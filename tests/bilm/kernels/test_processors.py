"""The C code compiled for other processors: each width of vectors computes the same LSTM."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bilm.conftest import needs_compiler
from tests.conftest import ROOT

CPU_INFO = Path("/proc/cpuinfo")
TESTS = "tests/bilm/kernels/test_lstm.py"


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("architecture", "feature", "vector_bytes"), [("x86-64", "sse2", 16), ("x86-64-v3", "avx2", 32)]
)
def test_lstm_in_vectors_of_other_width(
    architecture: str, feature: str, vector_bytes: int, tmp_path: Path
) -> None:
    if platform.machine() != "x86_64" or f" {feature} " not in CPU_INFO.read_text("utf-8"):
        pytest.skip(f"the processor has no {feature}")
    environment = {**os.environ, "BILM_C_ARCH": architecture, "BILM_CACHE": str(tmp_path)}
    load = "from bilm.kernels.c_library import constant"
    check = f"{load}; assert constant('vector_bytes') == {vector_bytes}"
    pytest_command = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", TESTS]
    for arguments in (["-c", check], pytest_command):
        completed = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
