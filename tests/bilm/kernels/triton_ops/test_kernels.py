"""Run the cases of this directory in Triton's interpreter, and compile all kernels.

All of this needs processes of their own: Triton reads TRITON_INTERPRET when it is imported, and the
second device must be registered early. On a machine with a GPU the cases run the compiled kernels.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.own_process import run_cases, run_module
from tests.source_files import sources, tree_of

SOURCES = sources("bilm/kernels/triton_ops")
LAUNCHES = Path(__file__).with_name("cases_launches.py")
CASES = sorted({*Path(__file__).parent.glob("cases_*.py")} - {LAUNCHES})

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed"
    ),
]


def launched_kernels(path: Path) -> set[str]:
    """Return the names of the kernels that a module passes to `launch`."""
    return {
        ast.unparse(node.args[0])
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "launch"
    }


def test_cases_match_float64() -> None:
    variables = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    run_cases(*CASES, **variables)


def test_launches() -> None:
    run_cases(LAUNCHES)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the tools for cubins are for x86_64")
def test_kernels_compile_without_spills(tmp_path: Path) -> None:
    name = "tests.bilm.kernels.triton_ops.compile_all"
    completed = run_module(name, TRITON_CACHE_DIR=str(tmp_path))
    assert completed.returncode == 0, completed.stderr[-4000:]
    usage = json.loads(completed.stdout)
    kernels = {key.split()[0] for key in usage}
    assert kernels == {name for path in SOURCES for name in launched_kernels(path)}
    for key, resources in usage.items():
        assert resources["LOCAL"] == resources["STACK"] == 0, key
        assert 0 < resources["REG"] <= 128, f"{key}: {resources}"


def test_bilm_does_not_import_triton() -> None:
    code = "import sys, bilm.model.language_model; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
