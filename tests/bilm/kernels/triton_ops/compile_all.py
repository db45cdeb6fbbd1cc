"""Compile every kernel ahead of time, without a GPU, and print its use of registers as JSON.

`python -m tests.bilm.kernels.triton_ops.compile_all` calls all operations on small CPU tensors.
Each launch is replaced by a compilation for compute capabilities 8.0 and 9.0, with the types and
the alignment of the arguments of that call.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from bilm.kernels.highway import HighwayWeights
from bilm.kernels.lstm_types import Clips, LayerState, LstmWeights
from bilm.kernels.sparse_rows import AdamStep, Moments, Rows
from bilm.kernels.triton_ops import (
    char_cnn,
    dropout,
    highway,
    lstm,
    lstm_steps,
    sampled_softmax,
    sparse_rows,
)

CAPABILITIES = (80, 90)
MODULES = (char_cnn, dropout, highway, lstm_steps, sampled_softmax, sparse_rows)
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Mask(NamedTuple):
    seed: int = 1
    step: int = 2
    first_row: int = 3
    site: int = 4
    threshold: int = 5
    scale: float = 2.0


class Driver:
    """Stands in for the driver of a GPU: Triton compiles for its target and launches nothing."""

    def __init__(self) -> None:
        self.capability = CAPABILITIES[0]

    def get_current_device(self) -> int:
        return self.capability  # Triton caches compiled kernels by device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


class Compiler:
    def __init__(self, capability: int) -> None:
        self.driver = Driver()
        self.driver.capability = capability
        driver.set_active(self.driver)
        self.usage: dict[str, dict[str, int]] = {}

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Compile the kernel for the types of these arguments."""
        compiled = kernel.warmup(*arguments, grid=grid, enable_fp_fusion=True, **constants)
        types = [str(a.dtype) for a in arguments if isinstance(a, torch.Tensor)]
        is_lower = any("bfloat16" in name for name in types)
        flags = "".join(f" {k.lower()}" for k, v in constants.items() if v is True)
        flags += " lengths" if "lengths" in kernel.arg_names and self.has_lengths else ""
        name = f"{kernel.__name__} {'bf16' if is_lower else 'fp32'}{flags}"
        name += f" sm_{self.driver.capability}"
        if name not in self.usage:
            self.usage[name] = resources(compiled.asm["cubin"])

    has_lengths = False


def resources(cubin: bytes) -> dict[str, int]:
    """Return the registers, the stack and the local memory that a kernel uses per thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(TOOLS / "cuobjdump"), "-res-usage", file.name]
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", completed.stdout + completed.stderr)
    return {key: int(value) for key, value in found}


def call_layer(dtype: torch.dtype, dim: int, lengths: torch.Tensor | None) -> None:
    width = 64
    projection = None if dim == width else torch.zeros(2, dim, width, dtype=dtype)
    weight = torch.zeros(2, 2 * width, 4 * dim, dtype=dtype, requires_grad=True)
    weights = LstmWeights(weight, torch.zeros(2, 4 * dim), projection)
    state = LayerState(torch.zeros(2, 16, dim), torch.zeros(2, 16, width))
    inputs = torch.zeros(2, 2, 16, width, dtype=dtype)
    outputs, _ = lstm.lstm_layer(inputs, weights, Clips(3.0, 3.0), state, lengths)
    outputs.sum().backward()
    with torch.no_grad():
        lstm.lstm_layer(inputs, weights, Clips(3.0, 3.0), state, lengths)


def call_others(dtype: torch.dtype) -> None:
    x = torch.zeros(16, 64, dtype=dtype, requires_grad=True)
    square, vector = torch.zeros(64, 64, dtype=dtype), torch.zeros(64)
    highway.highway(x, HighwayWeights(square, vector, square, vector)).sum().backward()
    embedding = torch.zeros(261, 16, dtype=dtype, requires_grad=True)
    ids = torch.zeros(16, 50, dtype=torch.int16)
    filters = [torch.zeros(1024, 16, 7, dtype=dtype)]
    char_cnn.filter_maxima(ids, embedding, filters, None, "relu").sum().backward()
    places = torch.zeros(16, dtype=torch.int64)
    sampled_softmax.to_probabilities(
        torch.zeros(16, 8192, dtype=dtype), torch.zeros(8192), torch.zeros(16), places
    )
    table, rows = torch.zeros(32, 512), Rows(places, torch.zeros(16, 512, dtype=dtype))
    sampled_softmax.add_rows(table, places, rows.values, torch.zeros(16))
    sparse_rows.adagrad_rows(table, table, rows, 0.1, 0.0)
    step = AdamStep(1, 0.1, (0.9, 0.999), 1e-8)
    sparse_rows.adam_rows(table, Moments(table, table), rows, step)
    dropout.apply_mask(torch.zeros(2, 16, 64, dtype=dtype), Mask())


def main() -> int:
    usage = {}
    for capability in CAPABILITIES:
        compiler = Compiler(capability)
        for module in MODULES:
            module.launch = compiler.launch
        for dtype in (torch.float32, torch.bfloat16):
            call_others(dtype)
            call_layer(dtype, 4096, None)
        compiler.has_lengths = True
        call_layer(torch.float32, 4096, torch.zeros(16, dtype=torch.int64))
        call_layer(torch.float32, 64, torch.zeros(16, dtype=torch.int64))
        usage |= compiler.usage
    print(json.dumps(usage))
    return 0


if __name__ == "__main__":
    sys.exit(main())
