from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bilm.commands.gpu_checks import numbers
from bilm.commands.gpu_checks.rows import Setting
from bilm.kernels.dropout import DropoutSeed
from bilm.model.precision import Precision
from tests.conftest import ROOT


def setting(tmp_path: Path, golden: Path | None = None) -> Setting:
    return Setting(torch.device("cpu"), True, tmp_path, golden)


@pytest.mark.parametrize("name", numbers.KERNELS)
def test_kernels_pass_on_cpu(name: str, tmp_path: Path) -> None:
    figure = numbers.kernel(setting(tmp_path), name)
    assert figure.has_passed, figure


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("LSTM", "lstm"),
        ("highway", "highway"),
        ("character CNN", "filter_maxima"),
        ("sampled softmax", "sampled_loss"),
    ],
)
def test_detects_wrong_kernel(
    name: str, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(numbers, function)

    def wrong(*arguments: object) -> object:
        result = right(*arguments)
        if function == "lstm":
            return result._replace(outputs=result.outputs * 1.0001)
        return result * 1.0001

    monkeypatch.setattr(numbers, function, wrong)
    assert not numbers.kernel(setting(tmp_path), name).has_passed


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_parity_with_golden_files(precision: Precision, tmp_path: Path) -> None:
    figure = numbers.parity(setting(tmp_path, ROOT / "tests" / "golden"), precision)
    assert figure.has_passed, figure
    assert f"{3 if precision == 'float32' else 2} golden files" in figure.text


def test_parity_without_golden_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = setting(tmp_path)
    single, lower = (numbers.parity(here, precision) for precision in ("float32", "bfloat16"))
    assert single.has_passed
    assert lower.has_passed
    assert float(lower.text.split()[0]) > 100 * float(single.text.split()[0])
    # A result that differs is found: the masks of the reference are another step's.
    seeds = iter(range(100))
    monkeypatch.setattr(numbers, "DropoutSeed", lambda seed, step: DropoutSeed(next(seeds), step))
    assert not numbers.parity(here, "float32").has_passed
