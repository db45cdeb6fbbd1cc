"""The choice of a device on this machine; `cases_devices.py` tests a machine with two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bilm.errors import ConfigError
from bilm.model.devices import choose_device, copy_to_device
from tests.own_process import run_cases


@pytest.mark.parametrize("name", [None, "auto"])
def test_default_is_the_accelerator_or_the_cpu(name: str | None) -> None:
    has_accelerator = torch.accelerator.is_available()
    assert (choose_device(name).type == "cpu") is not has_accelerator


@pytest.mark.parametrize("name", ["cpu", "cpu:0", torch.device("cpu")])
def test_names_of_the_cpu(name: str | torch.device) -> None:
    assert choose_device(name) == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "", "meta", "cuda:99"])
def test_rejects_unknown_device(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the device is '{name}'.*available devices: cpu"):
        choose_device(name)


def test_copy_to_the_cpu_is_the_tensor_itself() -> None:
    tensor = torch.ones(2)
    assert copy_to_device(tensor, torch.device("cpu")) is tensor


@pytest.mark.slow
def test_cases_with_two_devices() -> None:
    run_cases(Path(__file__).with_name("cases_devices.py"))
