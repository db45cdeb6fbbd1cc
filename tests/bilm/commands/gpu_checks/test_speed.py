from __future__ import annotations

from pathlib import Path

import torch

from bilm.commands.gpu_checks.rows import Setting
from bilm.commands.gpu_checks.speed import Calls, count_calls, product_peak


def test_counts_launches_and_synchronizations() -> None:
    names = ["aten::mm", "cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync"]
    names += ["cudaStreamSynchronize", "cudaLaunchKernel", "void gemm<...>", "aten::add"]
    assert count_calls(names) == Calls(launches=3, synchronizations=1, operators=2)


def test_records_measured_peak(tmp_path: Path) -> None:
    setting = Setting(torch.device("cpu"), is_quick=True, directory=tmp_path)
    figure = product_peak(setting, "float32")
    assert "TFLOPS" in figure.text
    assert setting.peaks["float32"] > 1e6
