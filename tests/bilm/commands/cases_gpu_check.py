"""`bilm gpu-check` on the second device, where tensors of two devices cannot be mixed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bilm.commands import gpu_check
from bilm.commands.gpu_checks import runs
from tests.conftest import ROOT
from tests.second_device.device import NAME, counting
from tests.second_device.training import use_second_device


@pytest.mark.parametrize("golden", [None, ROOT / "tests" / "golden"])
def test_checks_pass(golden: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if golden is not None and os.environ.get("TRITON_INTERPRET"):
        pytest.skip("Triton's interpreter takes minutes for the golden files")
    speeds = {"step, small, tf32", "embedding, small, tf32"}
    if os.environ.get("TRITON_INTERPRET"):  # whose speed is of no interest
        checks = [c for c in gpu_check.all_checks(True) if not c[0].startswith(("step", "embed"))]
        monkeypatch.setattr(gpu_check, "all_checks", lambda _: checks)
        monkeypatch.setattr(runs, "STEPS", 2)  # it takes seconds per step
        speeds = set()
    use_second_device()
    device, output = NAME, tmp_path / "table.md"
    arguments = ["gpu-check", "--quick", "--device", device, "--output", str(output)]
    monkeypatch.setattr(
        sys, "argv", arguments + ([] if golden is None else ["--golden", str(golden)])
    )
    with counting() as counts:
        code = gpu_check.main()
    page = output.read_text(encoding="utf-8")
    assert code == 0, page
    assert counts.num_operators > 1000
    backend = "triton" if os.environ.get("BILM_KERNELS") == "triton" else "torch"
    kernels = [line for line in page.splitlines() if line.startswith("| kernel")]
    assert all(f"; {backend} |" in line for line in kernels), page
    not_run = {line.split(" | ")[0][2:] for line in page.splitlines() if "| not run |" in line}
    assert not_run == {
        "parity, tf32",
        "1 and N ranks",
        "product peak, tf32",
        *speeds,
    }
