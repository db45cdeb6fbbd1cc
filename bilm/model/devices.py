"""The choice of the device that a model runs on.

This module imports PyTorch only when it is needed, so that commands can check their flags first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilm.errors import ConfigError

if TYPE_CHECKING:
    import torch

AUTO = "auto"  # the accelerator if there is one, else the CPU


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device with this name, such as "cpu", "cuda" or "cuda:1".

    "auto" and None mean the accelerator if there is one, else the CPU. A device that this machine
    does not have raises `ConfigError`.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if not torch.accelerator.is_available():
        accelerator = None
    if device is None or device == AUTO:
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

    The host does not wait for the copy if the device supports pinned memory, so the caller must not
    change the tensor afterwards.
    """
    import torch

    if device.type == "cpu":
        return tensor
    if torch.cuda.is_available() and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
