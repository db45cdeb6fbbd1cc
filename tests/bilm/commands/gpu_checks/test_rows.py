from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from bilm.commands.gpu_checks.rows import (
    Figure,
    NotRun,
    Setting,
    difference_figure,
    format_table,
    greatest_difference,
    run_checks,
)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(torch.device("cpu"), is_quick=True, directory=tmp_path)


def test_exception_fails_its_own_row_only(setting: Setting) -> None:
    def broken(setting: Setting) -> Figure:
        raise RuntimeError("no\nkernel | image")

    def skipped(setting: Setting) -> Figure:
        raise NotRun("one GPU")

    checks = [
        ("a", broken),
        ("b", lambda _: Figure("1", "2")),
        ("c", skipped),
        ("d", lambda _: Figure("3", "2", has_passed=False)),
    ]
    rows = list(run_checks(checks, setting))
    assert [row.result for row in rows] == ["failed", "passed", "not run", "failed"]
    table = format_table(rows).splitlines()
    assert len(table) == 2 + len(rows)
    assert "RuntimeError: no kernel \\| image" in table[2]
    assert "| one GPU | - | not run |" in table[4]


def test_names_greatest_difference() -> None:
    figure = difference_figure({"a": 1e-9, "b": 2e-4}, 1e-5)
    assert (figure.text, figure.has_passed) == ("2.0e-04 (b)", False)
    assert difference_figure({"a": 1e-9}, 1e-5).has_passed
    assert not difference_figure({"a": 1e-9, "b": math.nan}, 1e-5).has_passed


def test_differences_that_cannot_be_computed_are_infinite() -> None:
    a = torch.tensor([1.0, 4.0])
    assert greatest_difference(a + 2, a) == pytest.approx(0.5)
    assert greatest_difference(a, a[:1]) == math.inf
    assert greatest_difference(a * math.nan, a) == math.inf


def test_cpu_has_no_tf32(setting: Setting) -> None:
    setting.require("float32")
    setting.require("bfloat16")
    with pytest.raises(NotRun, match="no TF32"):
        setting.require("tf32")


@pytest.mark.parametrize(("capability", "is_supported"), [((7, 5), False), ((8, 0), True)])
def test_precisions_of_gpus(
    capability: tuple[int, int],
    is_supported: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulation: capability >= (8, 0))
    gpu = Setting(torch.device("cuda"), is_quick=True, directory=tmp_path)
    gpu.require("float32")
    for precision in ("tf32", "bfloat16"):
        try:
            gpu.require(precision)
        except NotRun:
            assert not is_supported
        else:
            assert is_supported
