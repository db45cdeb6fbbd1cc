"""A second PyTorch device, `fakegpu`, for tests of device handling on machines without a GPU.

Tests call `second_device()`, which returns the name of the device or skips the test, and count what
a block does with `counting()`. The device is registered for the rest of the process, and PyTorch
requires that no backward pass has run before. Put such tests into a file named `cases_*.py`, and
run it with `tests.own_process.run_cases`.

A *synchronization* is a point at which the host waits for the work of a CUDA device. These are
counted, by their cause:
- `item`: reading a value of a tensor, also by `bool(tensor)` or `tensor.tolist()` of one element;
- `copy to host` and `copy to device`, unless they are `non_blocking`. On CUDA, a copy that is not
  blocking has an effect only for pinned memory; here it is not counted for any memory;
- `event`, `stream`, `device`: waiting for an event, a stream or the whole device;
- operators of which CUDA copies a size or a result to the host: `nonzero`, `unique`, an index by a
  mask of booleans, and similar ones.

The second device shows neither the speed of kernels nor races. It counts the copies on a stream
other than the default one, and the waits of a stream for an event.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tests.second_device import build

NAME = "fakegpu"
AUTOCAST_DTYPES = [torch.bfloat16, torch.float16]


@dataclass
class Counts:
    """The calls of operators on the device by name, and the synchronizations by cause."""

    operators: dict[str, int] = field(default_factory=dict)
    synchronizations: dict[str, int] = field(default_factory=dict)

    @property
    def num_operators(self) -> int:
        return sum(self.operators.values())

    @property
    def num_synchronizations(self) -> int:
        return sum(self.synchronizations.values())


def second_device() -> str:
    """Return the name of the device, for `torch.device`, or skip the test if it cannot be built."""
    try:
        _extension()
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        pytest.skip(f"the second device cannot be built: {error}")
    return NAME


@contextmanager
def counting() -> Iterator[Counts]:
    """Count the operators on the device in the block; the counts are complete after it."""
    extension, counts = _extension(), Counts()
    extension.reset()
    try:
        yield counts
    finally:
        counts.operators, counts.synchronizations = extension.counts()


@functools.cache
def _extension() -> Any:
    """Return the extension, built and registered as a device."""
    spec = importlib.util.spec_from_file_location(build.NAME, build.extension_path())
    assert spec is not None
    assert spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    torch.utils.rename_privateuse1_backend(NAME)
    extension.register_hooks()
    torch._register_device_module(NAME, _device_module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _replace_storage_copies()
    try:
        torch.ones(1, device=NAME, requires_grad=True).sum().backward()
    except RuntimeError as error:
        raise RuntimeError(
            "a backward pass ran before the second device was registered; run its tests in a "
            "process of their own"
        ) from error
    return extension


def _device_module() -> types.ModuleType:
    """Return the module `torch.fakegpu`, with the functions that PyTorch calls."""
    module = types.ModuleType(f"torch.{NAME}")
    functions = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=0: torch.get_rng_state(),
        "set_rng_state": lambda state, device=0: None,
        "get_amp_supported_dtype": lambda: AUTOCAST_DTYPES,
        "is_autocast_enabled": lambda: torch.is_autocast_enabled(NAME),
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def _replace_storage_copies() -> None:
    """Replace two methods of storages that do not support devices from extensions.

    `torch.save` and Triton's interpreter use them.
    """
    plain_cpu, plain_copy = torch.UntypedStorage.cpu, torch.UntypedStorage.copy_

    def cpu(self: torch.UntypedStorage) -> torch.UntypedStorage:
        if self.device.type != NAME:
            return plain_cpu(self)
        return _bytes_of(self).cpu().untyped_storage()

    def copy_(
        self: torch.UntypedStorage, source: torch.UntypedStorage, non_blocking: bool = False
    ) -> torch.UntypedStorage:
        if NAME not in (self.device.type, source.device.type):
            return plain_copy(self, source, non_blocking)
        _bytes_of(self).copy_(_bytes_of(source))
        return self

    torch.UntypedStorage.cpu = cpu
    torch.UntypedStorage.copy_ = copy_


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor over the bytes of a storage."""
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage, 0, (storage.nbytes(),), (1,))
