"""The second device, and how its extension is built."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.own_process import run_cases
from tests.second_device import build


@pytest.mark.slow
def test_cases_of_the_device() -> None:
    run_cases(Path(__file__).with_name("cases_device.py"))


@pytest.mark.slow
def test_training_step() -> None:
    run_cases(Path(__file__).with_name("cases_step.py"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_training_step_with_triton() -> None:
    run_cases(Path(__file__).with_name("cases_step.py"), TRITON_INTERPRET="1")


@pytest.mark.slow
def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f"#!/bin/sh\necho built >>{tmp_path}/log\nsleep 1\n"
        'while [ "$1" != -o ]; do shift; done\ntouch "$2"\n'
    )
    compiler.chmod(0o755)
    code = "from tests.second_device import build; assert build.extension_path().exists()"
    environment = {**os.environ, "CXX": str(compiler), "BILM_CACHE": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) for _ in range(2)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert (tmp_path / "log").read_text() == "built\n"


def test_skips_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("BILM_CACHE", str(tmp_path))
    with pytest.raises(OSError, match=r"no C\+\+ compiler was found"):
        build.extension_path()
