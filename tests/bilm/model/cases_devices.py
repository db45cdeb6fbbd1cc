"""The choice of a device on a machine with an accelerator."""

from __future__ import annotations

import pytest
import torch

from bilm.errors import ConfigError
from bilm.model.devices import choose_device, copy_to_device
from tests.second_device.device import counting, second_device


@pytest.fixture
def device() -> str:
    return second_device()


def test_default_is_the_accelerator(device: str) -> None:
    assert choose_device() == choose_device("auto") == torch.device(device)
    assert choose_device(f"{device}:0") == torch.device(device, 0)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "gpu", "{device}:1"])
def test_rejects_device_that_does_not_exist(device: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"available devices: cpu, {device}:0"):
        choose_device(name.format(device=device))


def test_copy_does_not_wait(device: str) -> None:
    tensor = torch.arange(3)
    with counting() as counts:
        copy = copy_to_device(tensor, torch.device(device))
    assert counts.num_synchronizations == 0
    assert copy.device.type == device
    assert copy.tolist() == [0, 1, 2]
