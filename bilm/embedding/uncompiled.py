"""The part of `Elmo` that `torch.compile` does not trace: the biLM, which has its own kernels.

`Elmo` imports this module only while a model is compiled, since it imports PyTorch's compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bilm.embedding.elmo import Elmo


def _layers_of(elmo: Elmo, sentences: Any) -> tuple[list[Tensor], Tensor]:
    """Return `elmo.layers(sentences)`; a compiled graph ends before it and another starts after."""
    return elmo.layers(sentences)


layers_of: Callable[..., tuple[list[Tensor], Tensor]] = torch.compiler.disable(_layers_of)
