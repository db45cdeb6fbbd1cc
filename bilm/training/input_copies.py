"""Copies of the inputs of steps to an accelerator, on a stream of their own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bilm.model.devices import copy_to_device
from bilm.training.step_inputs import StepInputs


class StartedCopies(NamedTuple):
    """Inputs whose copies are complete when `event` has occurred; None: they are complete."""

    inputs: StepInputs
    event: torch.Event | None


class InputCopies:
    """Copies to `device` that do not wait for its computation; on the CPU nothing is copied."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = None if device.type == "cpu" else torch.Stream(device)

    def start(self, inputs: StepInputs) -> StartedCopies:
        """Start to copy inputs from the host, which must not change afterwards."""
        if self._stream is None:
            return StartedCopies(inputs, None)
        computing = torch.accelerator.current_stream()
        torch.accelerator.set_stream(self._stream)
        try:
            copies = inputs.map(lambda tensor: copy_to_device(tensor, self._device))
            return StartedCopies(copies, self._stream.record_event())
        finally:
            torch.accelerator.set_stream(computing)

    def finish(self, started: StartedCopies) -> StepInputs:
        """Return the copies; what is launched from now on waits for them, the host does not."""
        if started.event is None:
            return started.inputs
        computing = torch.accelerator.current_stream()
        computing.wait_event(started.event)

        def keep(tensor: Tensor) -> Tensor:
            # Otherwise a later copy could reuse the memory before the computation has read it.
            tensor.record_stream(computing)
            return tensor

        return started.inputs.map(keep)
