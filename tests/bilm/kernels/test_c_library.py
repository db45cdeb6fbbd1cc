"""Building the kernels: once, safely among ranks that start together, and never in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bilm.kernels import c_library as native
from tests.conftest import ROOT

USE = "from bilm.kernels import c_library as native; print(native.library() is not None)"


def start(cache: Path, code: str = USE, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "BILM_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip(), err


@pytest.mark.slow
@pytest.mark.skipif(native.library() is None, reason="no C compiler")
def test_ranks_that_start_together_build_one_library(tmp_path: Path) -> None:
    ranks = [start(tmp_path) for _ in range(4)]
    assert [finish(rank)[0] for rank in ranks] == ["True"] * 4
    (built,) = tmp_path.iterdir()  # one library, nothing temporary
    modified = built.stat().st_mtime_ns
    assert finish(start(tmp_path))[0] == "True"
    assert built.stat().st_mtime_ns == modified  # not built again


@pytest.mark.slow
@pytest.mark.skipif(native.library() is None, reason="no C compiler")
def test_a_kill_while_building_does_no_harm(tmp_path: Path) -> None:
    slow = tmp_path / "slow-cc"
    slow.write_text('#!/bin/sh\ncase "$1" in --version) exec cc --version;; esac\nsleep 60\n')
    slow.chmod(0o755)
    rank = start(tmp_path / "cache", CC=str(slow))
    deadline = time.monotonic() + 60
    while not (tmp_path / "cache").exists() or not any((tmp_path / "cache").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    rank.send_signal(signal.SIGKILL)
    rank.communicate()
    assert finish(start(tmp_path / "cache"))[0] == "True"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"CC": "/bin/false", "PATH": "/nowhere"}, "failed|non-zero"),
        ({"CC": "nonesuch", "PATH": "/nowhere"}, "no C compiler"),
        ({"BILM_NATIVE": "0"}, ""),
    ],
)
def test_without_a_compiler_there_is_one_warning(
    environment: dict[str, str], reason: str, tmp_path: Path
) -> None:
    import re

    code = (
        "import logging; logging.basicConfig()\n"
        "from bilm.kernels import c_library as native\n"
        "assert native.library() is None and native.library() is None\n"
    )
    _, errors = finish(start(tmp_path, code, **environment))
    if reason:
        assert errors.count("the fast kernels cannot be used") == 1
        assert re.search(reason, errors)
    else:
        assert errors == ""
