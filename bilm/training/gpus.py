"""The GPUs for which `bilm plan --gpu` makes estimates.

All figures are from the manufacturer's documents that `source` names. Rates of products are those
without structured sparsity; where a data sheet states only the rate with sparsity, it is half of
that. Link speeds are for both directions together, as in the documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from bilm.model.precision import Precision

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Gpu:
    """A GPU: its peak rates, memory and link to other GPUs of the same machine."""

    name: str
    float32: float  # TFLOPS, without tensor cores
    tf32: float | None  # TFLOPS; None if the GPU does not support it
    bfloat16: float | None  # TFLOPS, with sums in float32
    memory: int  # GB
    bandwidth: float  # GB/s
    link: float  # GB/s
    link_name: str
    source: str

    def peak(self, precision: Precision) -> float | None:
        """Return the peak rate of products in TFLOPS; None if the precision is not supported."""
        return {"float32": self.float32, "tf32": self.tf32, "bfloat16": self.bfloat16}[precision]


_V100 = "NVIDIA V100 data sheet (January 2020), SXM2"
_A100 = "NVIDIA A100 data sheet (June 2021), SXM4"
_ADA = "NVIDIA Ada GPU architecture white paper (2022), appendix A"
_AMPERE = "NVIDIA Ampere GA102 white paper (2021), table 9"

GPUS = {
    "v100": Gpu("V100 16 GB", 15.7, None, None, 16, 900, 300, "NVLink 2", _V100),
    "v100-32": Gpu("V100 32 GB", 15.7, None, None, 32, 900, 300, "NVLink 2", _V100),
    "a100": Gpu("A100 40 GB", 19.5, 156, 312, 40, 1555, 600, "NVLink 3", _A100),
    "a100-80": Gpu("A100 80 GB", 19.5, 156, 312, 80, 2039, 600, "NVLink 3", _A100),
    "h100": Gpu(
        "H100 SXM", 67, 494.5, 989.5, 80, 3350, 900, "NVLink 4", "NVIDIA H100 data sheet (2023)"
    ),
    "l4": Gpu("L4", 30.3, 60, 121, 24, 300, 64, "PCIe 4", "NVIDIA L4 data sheet (2023)"),
    "l40s": Gpu("L40S", 91.6, 183, 362, 48, 864, 64, "PCIe 4", "NVIDIA L40S data sheet (2023)"),
    "rtx3090": Gpu("GeForce RTX 3090", 35.6, 35.6, 71, 24, 936, 112.5, "NVLink 3", _AMPERE),
    "rtx4090": Gpu("GeForce RTX 4090", 82.6, 82.6, 165.2, 24, 1008, 64, "PCIe 4", _ADA),
    "t4": Gpu("T4", 8.1, None, None, 16, 320, 32, "PCIe 3", "NVIDIA T4 data sheet (2019)"),
    "a10": Gpu("A10", 31.2, 62.5, 125, 24, 600, 64, "PCIe 4", "NVIDIA A10 data sheet (2021)"),
}
