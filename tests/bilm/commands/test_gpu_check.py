from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bilm.commands.gpu_check import BEGIN, END, all_checks, write_page
from tests.conftest import ROOT
from tests.own_process import run_cases, run_module

GOLDEN = ROOT / "tests" / "golden"


def results(page: str) -> dict[str, str]:
    """Return the results of the rows of a table, by name."""
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    return {row[0].removeprefix("| "): row[3] for row in rows}


@pytest.mark.slow
def test_all_checks_pass_on_cpu(tmp_path: Path) -> None:
    output = tmp_path / "table.md"
    arguments = ("--device", "cpu", "--quick", "--golden", str(GOLDEN), "--output", str(output))
    completed = run_module("bilm", "gpu-check", *arguments)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    page = output.read_text(encoding="utf-8")
    assert page in completed.stdout
    found = results(page)
    assert list(found) == [name for name, _ in all_checks(is_quick=True)]
    for name, result in found.items():
        assert result == ("not run" if "tf32" in name else "passed"), page


@pytest.mark.slow
def test_cases_of_second_device() -> None:
    run_cases(Path(__file__).with_name("cases_gpu_check.py"))


@pytest.mark.slow
def test_cases_of_second_device_in_triton() -> None:
    pytest.importorskip("triton")
    cases = Path(__file__).with_name("cases_gpu_check.py")
    run_cases(cases, TRITON_INTERPRET="1", BILM_KERNELS="triton")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_rejects_machine_without_gpu(tmp_path: Path) -> None:
    completed = run_module("bilm", "gpu-check", "--output", str(tmp_path / "table.md"))
    assert completed.returncode == 2
    assert "this machine does not have" in completed.stderr
    assert "--device cpu --quick" in completed.stderr
    assert not (tmp_path / "table.md").exists()


def test_rejects_wrong_paths(tmp_path: Path) -> None:
    completed = run_module("bilm", "gpu-check", "--device", "cpu", "--golden", str(tmp_path))
    assert completed.returncode == 2
    assert "has no .npz files" in completed.stderr
    missing = str(tmp_path / "missing" / "table.md")
    completed = run_module("bilm", "gpu-check", "--device", "cpu", "--output", missing)
    assert completed.returncode == 2
    assert "its directory does not exist" in completed.stderr


def test_replaces_table_of_page(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    page.write_text(f"# GPUs\n\n{BEGIN}\nold\n{END}\n\nmore\n", encoding="utf-8")
    write_page(page, "Device: \\1\n\n| a |\n")
    text = page.read_text(encoding="utf-8")
    assert text == f"# GPUs\n\n{BEGIN}\nDevice: \\1\n\n| a |\n{END}\n\nmore\n"
    write_page(tmp_path / "new.md", "| a |\n")
    assert (tmp_path / "new.md").read_text(encoding="utf-8") == "| a |\n"


def test_page_of_the_project_has_markers() -> None:
    text = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert text.count(f"{BEGIN}\n") == text.count(END) == 1
