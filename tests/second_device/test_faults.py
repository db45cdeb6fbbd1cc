"""Faults of the code for GPUs, made on purpose in a copy of the project: a test must fail."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.own_process import run_module

COPIED = ("bilm", "tests", "configs", "data_tools", "launch", "pyproject.toml")
STEP = "tests/second_device/cases_step.py"
PRECISION = "tests/bilm/model/cases_precision.py"
LSTM = "tests/bilm/kernels/triton_ops/cases_lstm.py"


@dataclass(frozen=True)
class Fault:
    """A wrong text in place of a right one, and the cases of which one must fail."""

    file: str
    right: str
    wrong: str
    cases: str
    is_in_triton: bool = False


FAULTS = {
    "no autocast inside of the model": Fault(
        "bilm/model/language_model.py",
        "with precision_context(self.softmax.bias.device, precision):",
        "if precision:",
        PRECISION,
    ),
    "a tensor on the CPU in the step": Fault(
        "bilm/training/step.py",
        "device=losses.device),\n    )\n",
        "device=losses.device) + torch.zeros(()),\n    )\n",
        STEP,
    ),
    "a value that is read in the step": Fault(
        "bilm/training/step.py",
        "        states.append(after.detach())\n",
        "        states.append(after.detach())\n        losses.sum().item()\n",
        STEP,
    ),
    "a timer that waits for the device": Fault(
        "bilm/training/setup.py", '{"enabled": False}', '{"enabled": True}', STEP
    ),
    "copies on the stream of the computation": Fault(
        "bilm/training/input_copies.py",
        "torch.accelerator.set_stream(self._stream)",
        "pass",
        STEP,
    ),
    "another forget bias in the Triton kernel": Fault(
        "bilm/kernels/triton_ops/lstm_steps.py",
        "            FORGET_BIAS,\n",
        "            FORGET_BIAS + 0.01,\n",
        LSTM,
        is_in_triton=True,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_case_fails(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    if fault.is_in_triton and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    for item in COPIED:
        if (ROOT / item).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / item, tmp_path / item, ignore=ignored)
        else:
            shutil.copy(ROOT / item, tmp_path / item)
    path = tmp_path / fault.file
    text = path.read_text(encoding="utf-8")
    assert text.count(fault.right) == 1
    path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    variables = {"TRITON_INTERPRET": "1"} if fault.is_in_triton else {}
    options = ("-n", "0", "-x", "-p", "no:cacheprovider")
    done = run_module("pytest", *options, fault.cases, root=tmp_path, **variables)
    if "cannot be built" in done.stdout:
        pytest.skip("the second device cannot be built")
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-2000:]
    assert "1 failed" in done.stdout.splitlines()[-1]
