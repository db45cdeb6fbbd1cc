"""Record the dtypes of the matrix products that run in a block."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.convolution)


class ProductDtypes(TorchDispatchMode):
    """A context that collects the dtypes of the operands of all products, in any device's code."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket in _PRODUCTS:
            self.dtypes |= {arg.dtype for arg in args if isinstance(arg, torch.Tensor)}
        return func(*args, **(kwargs or {}))
