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
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from tests.bilm.kernels.triton_ops.calls import CALLS, MODULES, ROWS, WIDTH, Call, layer_call

CAPABILITIES = (80, 90)
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Driver:
    """Stands in for the driver of a GPU: Triton compiles for its target and launches nothing."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return self.capability  # Triton caches compiled kernels by device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


class Compiler:
    """Compiles what is launched, and collects the resources of each kernel by its name."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.usage: dict[str, dict[str, int]] = {}
        driver.set_active(Driver(capability))

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Compile the kernel for the types of these arguments."""
        given = dict(zip(kernel.arg_names, arguments, strict=False))
        words = [kernel.__name__, f"sm_{self.capability}"]
        tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
        words += ["bf16" if any(t.dtype == torch.bfloat16 for t in tensors) else "fp32"]
        words += [name.lower() for name, value in constants.items() if value is True]
        words += ["lengths"] if given.get("lengths") is not None else []
        if " ".join(words) not in self.usage:
            compiled = kernel.warmup(*arguments, grid=grid, enable_fp_fusion=True, **constants)
            self.usage[" ".join(words)] = resources(compiled.asm["cubin"])


def resources(cubin: bytes) -> dict[str, int]:
    """Return the registers, the stack and the local memory that a kernel uses per thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(TOOLS / "cuobjdump"), "-res-usage", file.name]
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", completed.stdout + completed.stderr)
    return {key: int(value) for key, value in found}


def run(call: Call) -> None:
    """Run an operation forward and backward, and once more without gradients."""
    result = call()
    if result is not None and result.requires_grad:
        result.sum().backward()
        with torch.no_grad():
            call()


def main() -> int:
    usage: dict[str, dict[str, int]] = {}
    lengths = torch.zeros(ROWS, dtype=torch.int64)
    for capability in CAPABILITIES:
        compiler = Compiler(capability)
        for module in MODULES:
            module.launch = compiler.launch
        for dtype in (torch.float32, torch.bfloat16):
            options = {"device": "cpu", "dtype": dtype}
            for make in CALLS.values():
                run(make(options))
            run(layer_call(options, 1024))
        options = {"device": "cpu", "dtype": torch.float32}
        run(layer_call(options, 1024, lengths))
        run(layer_call(options, WIDTH, lengths))
        usage |= compiler.usage
    print(json.dumps(usage))
    return 0


if __name__ == "__main__":
    sys.exit(main())
