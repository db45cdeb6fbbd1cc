"""The choice of the device that a model runs on.

This module imports PyTorch only when it is needed, so that commands can check their flags first.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from bilm.errors import ConfigError

if TYPE_CHECKING:
    import torch

    Module = TypeVar("Module", bound=torch.nn.Module)

AUTO = "auto"
DEVICE_HELP = "device to run on, such as cpu, cuda or cuda:1 (default: the GPU if there is one)"


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device with this name, such as "cpu", "cuda" or "cuda:1".

    "auto" and None mean the accelerator if there is one, else the CPU; with `DS_ACCELERATOR=cpu` in
    the environment, the CPU. A device that this machine does not have raises `ConfigError`.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if not torch.accelerator.is_available():
        accelerator = None
    if device is None or device == AUTO:
        if os.environ.get("DS_ACCELERATOR") == "cpu":
            return torch.device("cpu")
        return torch.device("cpu") if accelerator is None else torch.device(accelerator.type)
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is not None and chosen.type == "cpu":
        return torch.device("cpu")
    available = ["cpu"]
    if accelerator is not None:
        count = torch.accelerator.device_count()
        if chosen is not None and chosen.type == accelerator.type and (chosen.index or 0) < count:
            return chosen
        available += [f"{accelerator.type}:{i}" for i in range(count)]
    raise ConfigError(
        f"the device is {str(device)!r}, which this machine does not have; available devices: "
        f"{', '.join(available)}. Use one of them, or {AUTO!r}."
    )


def copy_to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a copy of a host tensor on `device`, or the tensor itself if that is the CPU.

    The host does not wait for the copy, so the caller must not change the tensor afterwards. For
    CUDA, the tensor is first copied to pinned memory, without which the host would wait.
    """
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # On MPS, such a copy may read memory that has been freed.
    return tensor.to(device, non_blocking=device.type != "mps")


class HostBuffers:
    """Host memory for copies of named tensors, pinned for CUDA.

    It is reused, because the system takes longer to provide new memory than a copy takes.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def copy(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return complete copies of tensors; they overwrite earlier copies of the same names."""
        import torch

        copies, is_cuda = {}, False
        for name, tensor in tensors:
            host = self._buffers.get(name)
            if host is None or host.shape != tensor.shape or host.dtype != tensor.dtype:
                host = torch.empty(
                    tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda
                )
                self._buffers[name] = host
            copies[name] = host.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
            is_cuda = is_cuda or tensor.is_cuda
        if is_cuda:
            torch.cuda.current_stream().synchronize()
        return copies


def copy_module_to(module: Module, device: torch.device) -> Module:
    """Return a copy of a module on `device`, for inference; tensors of that device are shared."""
    from torch import nn

    copies = {id(buffer): buffer.to(device) for buffer in module.buffers()}
    for weight in module.parameters():
        moved = weight.to(device)
        is_shared = moved is weight
        copies[id(weight)] = weight if is_shared else nn.Parameter(moved.detach(), False)
    return copy.deepcopy(module, copies)
