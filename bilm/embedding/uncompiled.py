"""The part of `Elmo` that `torch.compile` does not trace: the biLM, which has its own kernels.

`Elmo` and `Preparer` import this module only while a model is compiled, since it imports PyTorch's
compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Input = TypeVar("Input")
Result = TypeVar("Result")


def _run(function: Callable[[Input], Result], argument: Input) -> Result:
    """Return `function(argument)`; a compiled graph ends before it and another starts after."""
    return function(argument)


run_uncompiled: Callable[..., object] = torch.compiler.disable(_run)
