"""Train on the second device: `python -m tests.second_device.training ARGUMENTS of pretrain`.

DeepSpeed's accelerator and the process group are the only parts that are replaced: the accelerator
names the device, and the group of one rank is PyTorch's own `fake` backend, since gloo does not
support devices from extensions.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed
from deepspeed.accelerator import set_accelerator
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
from torch.testing._internal.distributed import fake_pg  # noqa: F401, registers the backend

from tests.second_device.device import NAME, counting, second_device

FAKE = "fake"


class SecondAccelerator(CPU_Accelerator):
    """DeepSpeed's CPU accelerator with the name of the second device."""

    def device_name(self, device_index: int | None = None) -> str:
        return NAME if device_index is None else f"{NAME}:{device_index}"

    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device(self.device_name(device_index))

    def current_device(self) -> int:
        return 0

    def current_device_name(self) -> str:
        return f"{NAME}:0"

    def communication_backend_name(self) -> str:
        return FAKE

    def synchronize(self, device_index: int | None = None) -> None:
        torch.accelerator.synchronize()

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == NAME


def use_second_device() -> None:
    """Make the device the accelerator of this process, for PyTorch and for DeepSpeed."""
    second_device()
    set_accelerator(SecondAccelerator())
    if NAME in torch.distributed.Backend.default_device_backend_map:
        return
    torch.distributed.Backend.backend_capability[FAKE].append(NAME)
    torch.distributed.Backend.default_device_backend_map[NAME] = FAKE


if __name__ == "__main__":
    use_second_device()
    from bilm.commands.pretrain import main

    with counting() as counts:
        code = main()
    print("operators on the device:", counts.num_operators)
    sys.exit(code)
