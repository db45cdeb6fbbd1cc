"""The optimiser, and one gradient norm over dense and sparse gradients together.

torch's own clipping does not take sparse gradients, and DeepSpeed's scales a copy of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bilm.config import OptimizerConfig


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The published Adagrad: the sum of squares starts above zero, no decay, epsilon 0."""
    return torch.optim.Adagrad(
        model.parameters(),
        lr=config.learning_rate,
        initial_accumulator_value=config.initial_accumulator,
        eps=config.epsilon,
    )


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Scale all gradients in place so that their common norm is at most `max_norm`.

    Returns the norm before the clip. Sparse gradients are coalesced first: a row that stands
    twice counts with its sum.
    """
    values = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad._values())
        else:
            values.append(parameter.grad)
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values)))
    if max_norm is not None:
        torch._foreach_mul_(values, (max_norm / norm).clamp(max=1.0))
    return norm
