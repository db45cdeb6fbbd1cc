from __future__ import annotations

import pytest

from bilm.commands.plan import TextSize, make_plan
from bilm.commands.plan_gpu import find_gpu, format_gpu_plan
from bilm.errors import ConfigError
from bilm.training.config import load_config
from bilm.training.gpus import GPUS
from tests.conftest import ROOT
from tests.own_process import run_module


def plan_text(name: str, *overrides: str) -> str:
    config = load_config(ROOT / "configs" / "big.json", overrides)
    return format_gpu_plan(make_plan(config, TextSize.assumed(793_471, 10**9)), find_gpu(name))


@pytest.mark.parametrize("name", GPUS)
def test_lists_each_precision(name: str) -> None:
    rows = [line.split() for line in plan_text(name).splitlines() if line[:7].strip().isdigit()]
    assert [(row[0], row[1]) for row in rows] == [
        (ranks, precision) for ranks in "18" for precision in ("float32", "tf32", "bfloat16")
    ]
    for row in rows:
        is_available = GPUS[name].peak(row[1]) is not None  # type: ignore[arg-type]
        assert (row[2:4] == ["not", "available"]) != is_available


def test_labels_estimates_and_source() -> None:
    text = plan_text("h100")
    assert "Estimates, not measured" in text
    assert "NVIDIA H100 data sheet" in text


def test_warns_if_a_rank_does_not_fit() -> None:
    assert "WARNING" not in plan_text("h100")
    text = plan_text("t4", "deepspeed.train_batch_size=3072")
    assert "do not fit into 16 GB; use more ranks" in text
    assert text.count("WARNING") == 1  # eight ranks fit


def test_rejects_unknown_gpu() -> None:
    with pytest.raises(ConfigError, match=r"--gpu is 'b52'; it must be one of: v100, .*a10"):
        find_gpu("b52")


def test_command_prints_plan_of_gpu() -> None:
    size = ("--vocabulary-size", "1000", "--words", "100000")
    completed = run_module("bilm", "plan", "--config", "small", *size, "--gpu", "l4")
    assert completed.returncode == 0, completed.stderr
    assert "On L4: 24 GB" in completed.stdout


def test_page_lists_the_table() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    for name, gpu in GPUS.items():
        rates = (gpu.float32, gpu.tf32, gpu.bfloat16)
        cells = " | ".join("-" if rate is None else f"{rate:g}" for rate in rates)
        assert f"| `{name}` | {gpu.name} | {cells} | {gpu.memory} | {gpu.bandwidth:,} |" in page
