"""Values of an accelerator that the host reads later, so that it does not wait for them now."""

from __future__ import annotations

import torch
from torch import Tensor


class LateValues:
    """A copy of `values` on the host, which starts now and does not block."""

    def __init__(self, values: Tensor) -> None:
        self._event: torch.Event | None = None
        self._host = values
        if not values.is_cpu:
            # Without pinned memory, CUDA would wait for the copy.
            self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
            self._host.copy_(values, non_blocking=True)
            self._event = torch.Event(values.device)
            self._event.record()

    def read(self) -> Tensor:
        """Return the values, on the CPU; wait only for the work that was launched before them."""
        if self._event is not None:
            self._event.synchronize()
        return self._host
